//! The disks that a power failure may leave.

use criba::vfs::{Keep, SimDisk, Unit, Unsynced};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// All unsynced changes are lost; all are kept.
pub(crate) fn ends(disk: &SimDisk) -> [SimDisk; 2] {
    [Keep::OLD, Keep::NEW].map(|keep| disk.power_failure(Unit::Sector, |_| keep))
}

/// Each unsynced sector, length and name is lost alone.
pub(crate) fn each_alone(disk: &SimDisk, unit: Unit) -> impl Iterator<Item = SimDisk> {
    (0..disk.unsynced(unit).len()).map(move |lost| {
        let mut number = 0..;
        disk.power_failure(
            unit,
            |_| {
                if number.next() == Some(lost) { Keep::OLD } else { Keep::NEW }
            },
        )
    })
}

/// Some are lost, torn or half-written. In one failure of four, holes hold bytes of removed files.
pub(crate) fn some(disk: &SimDisk, unit: Unit, rng: &mut ChaCha8Rng) -> SimDisk {
    let kept = [10, 50, 90][rng.random_range(0..3)];
    let stale = rng.random_ratio(1, 4);
    disk.power_failure(unit, |unsynced: &Unsynced| match rng.random_range(0..100) {
        roll if roll < kept => Keep::NEW,
        _ if stale => Keep::Stale,
        roll if roll % 4 == 0 => {
            Keep::Torn(rng.random_range(1..unsynced.states()), rng.random_range(1..unit.bytes()))
        }
        _ => Keep::State(rng.random_range(0..unsynced.states())),
    })
}
