//! Repair of the same damaged stores. A key gets its newest value, or it is set aside, or a loss names it. No
//! deleted key and no older value comes back.

use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

use criba::vfs::{SimDisk, SimVfs, Vfs};
use criba::{Loss, Options, Repaired, Uncertain, repair_with, verify_with};

use crate::bytes::parts;
use crate::fixture::{DIR, FIXTURE, KEYS, Kind, Map, key, path};
use crate::sweep::{all, in_parallel};

const NEW: &str = "/new";

/// The flips of the short form, over all files.
const FLIPS: usize = 2000;

struct Salvaged {
    repaired: Repaired,
    sound: Map,
    uncertain: Map,
}

fn contents(vfs: &Arc<dyn Vfs>, dir: &Path) -> Map {
    assert!(verify_with(dir, vfs, |_, _| {}).unwrap().is_sound());
    let db = Options::new().vfs(Arc::clone(vfs)).open_read_only(dir).unwrap();
    let entries = db.iter().unwrap().map(Result::unwrap);
    entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn of_dir(disk: &SimDisk) -> Vec<(&Path, &[u8])> {
    disk.files().filter(|(path, _)| path.starts_with(DIR)).collect()
}

/// Repairs the store on a disk, which must not change, and checks what holds for all damage.
fn salvage(what: &str, disk: &SimDisk) -> Salvaged {
    let sim = SimVfs::on(disk.clone());
    let vfs: Arc<dyn Vfs> = Arc::new(sim.clone());
    let repaired = repair_with(DIR, NEW, Uncertain::SetAside, &vfs);
    let repaired = repaired.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(of_dir(&sim.disk()), of_dir(disk), "{what}: the store has changed");
    let sound = contents(&vfs, NEW.as_ref());
    let aside = Path::new(NEW).join("uncertain");
    let uncertain = match vfs.list(&aside) {
        Ok(_) => contents(&vfs, &aside),
        Err(_) => Map::new(),
    };
    assert_eq!((repaired.keys, repaired.uncertain), (sound.len() as u64, uncertain.len() as u64));
    for (key, value) in &sound {
        let newest = FIXTURE.last().get(key);
        assert_eq!(newest, Some(value), "{what}: {} came back", key.escape_ascii());
    }
    if !uncertain.is_empty() || sound.len() < FIXTURE.last().len() {
        assert!(!repaired.losses.is_empty(), "{what}: nothing said");
    }
    Salvaged { repaired, sound, uncertain }
}

fn names(loss: &Loss, key: &[u8]) -> bool {
    RangeBounds::<Vec<u8>>::contains(&loss.keys, &key.to_vec())
}

/// The keys of the log's record that has this byte; none for the header.
fn keys_of_record(at: usize) -> Vec<Vec<u8>> {
    let record = FIXTURE.ends.partition_point(|&end| end <= at);
    if record == 0 { Vec::new() } else { [1, 2, 3].map(|times| key(times * record)).to_vec() }
}

/// Checks that only what is damaged is lost, and only what it makes doubtful is uncertain.
fn check_flip(kind: Kind, bytes: &[u8], at: usize, what: &str, found: &Salvaged) {
    let Salvaged { repaired, sound, uncertain } = found;
    let damaged = match kind {
        Kind::Table if at < parts(bytes)[0] => {
            let [loss] = &repaired.losses[..] else { panic!("{what}: {:?}", repaired.losses) };
            let named: Vec<_> = (0..KEYS).map(key).filter(|key| names(loss, key)).collect();
            assert!((1..16).contains(&named.len()), "{what}: {loss}");
            for key in FIXTURE.last().keys().filter(|key| !named.contains(*key)) {
                assert!(sound.contains_key(key), "{what}: {}", key.escape_ascii());
            }
            named
        }
        Kind::Log if at >= FIXTURE.ends[0] => {
            let [loss] = &repaired.losses[..] else { panic!("{what}: {:?}", repaired.losses) };
            assert!(
                loss.finding.offset.is_some_and(|offset| offset <= at as u64),
                "{what}: {loss}"
            );
            // What later records say is newer than what is lost.
            let record = FIXTURE.ends.partition_point(|&end| end <= at);
            for number in record + 1..FIXTURE.ends.len() {
                assert!(sound.contains_key(&key(number)), "{what}: record {number}");
            }
            keys_of_record(at)
        }
        Kind::Manifest if at >= 40 => Vec::new(),
        _ => {
            assert_eq!(sound, FIXTURE.last(), "{what}");
            assert_eq!(uncertain.len(), 0, "{what}");
            assert!(repaired.losses.is_empty(), "{what}: {:?}", repaired.losses);
            return;
        }
    };
    for (key, value) in FIXTURE.last().iter().filter(|(key, _)| !damaged.contains(key)) {
        let kept = sound.get(key).or(uncertain.get(key));
        assert_eq!(kept, Some(value), "{what}: {}", key.escape_ascii());
    }
}

#[test]
fn a_flipped_bit_costs_what_it_damages_and_brings_back_nothing() {
    let files = Kind::ALL
        .into_iter()
        .flat_map(|kind| FIXTURE.of_kind(kind).into_iter().map(move |name| (kind, name)));
    let flips = files.flat_map(|(kind, name)| {
        (0..FIXTURE.file(&name).len()).map(move |at| (kind, name.clone(), at))
    });
    let flips: Vec<_> = flips.collect();
    let step = if all() { 1 } else { (flips.len() / FLIPS).max(1) };
    let chosen: Vec<_> = flips.iter().step_by(step).collect();
    in_parallel(chosen.len(), |number, begun| {
        let (kind, name, at) = chosen[number];
        let what = format!("{name}: byte {at} flipped");
        begun(&what);
        let mut bytes = FIXTURE.file(name).to_vec();
        bytes[*at] ^= 1 << (at * 5 % 8);
        let found = salvage(&what, &FIXTURE.with(name, bytes));
        check_flip(*kind, FIXTURE.file(name), *at, &what, &found);
    });
    println!("repaired: {} of {} bytes flipped", chosen.len(), flips.len());
}

#[test]
fn a_sound_store_is_copied() {
    let found = salvage("sound", &FIXTURE.disk);
    assert_eq!(&found.sound, FIXTURE.last());
    assert!(found.repaired.policy_known && found.repaired.losses.is_empty());
}

#[test]
fn files_that_are_missing_are_named() {
    for kind in Kind::ALL {
        for name in FIXTURE.of_kind(kind) {
            let mut disk = FIXTURE.disk.clone();
            disk.remove(path(&name));
            let found = salvage(&format!("without {name}"), &disk);
            let Repaired { losses, .. } = &found.repaired;
            match kind {
                Kind::Filter | Kind::Lock | Kind::Current => {
                    assert_eq!(losses.len(), 0, "{losses:?}")
                }
                _ => assert!(
                    losses.iter().any(|loss| loss.finding.path == path(&name)),
                    "{losses:?}"
                ),
            }
        }
    }
}

#[test]
fn files_cut_short_bring_back_nothing() {
    for kind in [Kind::Table, Kind::Manifest, Kind::Current] {
        for name in FIXTURE.of_kind(kind) {
            let bytes = FIXTURE.file(&name);
            for length in (0..bytes.len()).step_by(if all() { 1 } else { 29 }) {
                salvage(
                    &format!("{name}: cut to {length} bytes"),
                    &FIXTURE.with(&name, &bytes[..length]),
                );
            }
        }
    }
}

/// As after a disk that lost its newest writes of one file.
#[test]
fn an_older_manifest_brings_back_nothing() {
    for (number, older) in FIXTURE.older.iter().enumerate() {
        let mut disk = FIXTURE.disk.clone();
        for kind in [Kind::Manifest, Kind::Current] {
            for name in FIXTURE.of_kind(kind) {
                disk.remove(path(&name));
            }
        }
        let is_manifest = |path: &Path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("MANIFEST"))
        };
        for (path, bytes) in
            older.files().filter(|(path, _)| is_manifest(path) || path.ends_with("CURRENT"))
        {
            disk.write(path, bytes);
        }
        salvage(&format!("with manifest {number}"), &disk);
    }
}
