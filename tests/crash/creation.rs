//! A power failure while a store is made, which tears a file at any byte.

use std::collections::{BTreeSet, HashSet};

use criba::vfs::{Keep, SimDisk, Unit};

use crate::history::{History, Runner};
use crate::oracle::{Case, fingerprint};

/// The disks on which one unsynced unit is torn.
fn torn(disk: &SimDisk, unit: Unit) -> Vec<SimDisk> {
    let mut disks = Vec::new();
    for torn in 0..disk.unsynced(unit).len() {
        for byte in 1..unit.bytes() {
            let mut number = 0..;
            disks.push(disk.power_failure(unit, |_| {
                if number.next() == Some(torn) { Keep::Torn(1, byte) } else { Keep::NEW }
            }));
        }
    }
    disks
}

/// Opens the disks, and those that a failure during one of these openings leaves.
fn check(moment: usize, history: &History, seen: &mut HashSet<u64>) {
    let (keys, bounds) = (BTreeSet::new(), history.bounds(moment));
    let mut disks = torn(&history.moments[moment].disk, Unit::Sector);
    for depth in 1..=2 {
        let mut openings = Vec::new();
        for disk in disks {
            if !seen.insert(fingerprint(&disk)) {
                continue;
            }
            let at = format!("operation {moment}, depth {depth}, disk {}", seen.len());
            // A second failure, within the opening of some of them.
            let goes_on = depth == 1 && seen.len().is_multiple_of(16);
            let case = Case { disk, history, keys: &keys, bounds, at: &at };
            openings.extend(case.check(goes_on));
        }
        disks = openings.iter().flat_map(|opening| torn(&opening.disk, Unit::Sector)).collect();
    }
}

#[test]
fn a_creation_torn_at_any_byte_leaves_a_directory_for_a_store() {
    let history = Runner::new().finish();
    let mut seen = HashSet::new();
    for moment in 0..history.moments.len() {
        check(moment, &history, &mut seen);
    }
    println!("{} operations of a creation, {} disks", history.moments.len(), seen.len());
    assert!(seen.len() > 1000);
}
