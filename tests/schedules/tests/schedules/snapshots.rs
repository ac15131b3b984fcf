//! Snapshots and scans while everything changes.

use criba_schedules::vfs::SimVfs;
use criba_schedules::{Range, Snapshot};
use shuttle::thread::scope;

use crate::explore::explore;
use crate::store::{History, batch, key, open, value, version};

const KEYS: usize = 4;
/// Keys that are deleted and written again.
const COMING_AND_GOING: usize = KEYS - 1;

fn all(range: Range) -> Vec<(u8, u64)> {
    range.map(|item| item.unwrap()).map(|(key, value)| (key[0], version(&value))).collect()
}

/// Reads a snapshot in every way; returns its contents.
fn look(snapshot: &Snapshot) -> Vec<(u8, u64)> {
    let seen = all(snapshot.iter());
    let mut backward: Vec<_> = snapshot.iter().rev().collect();
    backward.reverse();
    let backward = backward.into_iter().map(|item| item.unwrap());
    let backward: Vec<_> = backward.map(|(key, value)| (key[0], version(&value))).collect();
    assert_eq!(backward, seen);
    for number in 0..KEYS {
        let found = snapshot.get(key(number)).unwrap().as_ref().map(version);
        let [name] = key(number);
        let scanned = seen.iter().find(|(key, _)| *key == name).map(|(_, version)| *version);
        assert_eq!(found, scanned, "key {number}");
    }
    seen
}

#[test]
fn what_a_snapshot_sees_stays_while_all_is_flushed_and_merged() {
    explore("snapshots beside compactions", 1500, &["flushes", "compactions"], |seen| {
        let (db, history) = (open(&SimVfs::new()), History::<KEYS>::new());
        let write = |number, version| {
            history.write(number, version, || db.put(key(number), value(version)).unwrap());
        };
        for number in 0..KEYS {
            write(number, 1);
        }
        scope(|scope| {
            scope.spawn(|| {
                for version in 2..=4 {
                    for number in 0..COMING_AND_GOING {
                        write(number, version);
                    }
                    match version {
                        2 => db.delete(key(COMING_AND_GOING)).unwrap(),
                        _ => db.write(batch([COMING_AND_GOING], version)).unwrap(),
                    }
                    if version.is_multiple_of(2) {
                        db.flush().unwrap();
                    }
                }
            });
            scope.spawn(|| db.compact().unwrap());
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..2 {
                        let mut snapshot = None;
                        history.check(0, || {
                            let taken = snapshot.insert(db.snapshot());
                            taken.get(key(0)).unwrap()
                        });
                        let snapshot = snapshot.unwrap();
                        let first = look(&snapshot);
                        assert!(first.len() >= COMING_AND_GOING, "{first:?}");
                        assert_eq!(look(&snapshot), first);
                    }
                });
            }
        });
        seen.add_activity(&db);
        db.close().unwrap();
    });
}

/// A scan sees one view, however slow it is, from both ends, and after the store is closed.
#[test]
fn a_scan_sees_one_moment_from_its_first_item_to_its_last() {
    explore("scans beside compactions", 1500, &["flushes", "compactions"], |seen| {
        let db = open(&SimVfs::new());
        db.write(batch(0..KEYS, 1)).unwrap();
        scope(|scope| {
            scope.spawn(|| {
                for version in 2..=5 {
                    db.write(batch(0..KEYS, version)).unwrap();
                    if version.is_multiple_of(2) {
                        db.flush().unwrap();
                    }
                }
            });
            scope.spawn(|| {
                for _ in 0..3 {
                    let mut scan = db.iter();
                    let mut found = Vec::new();
                    while let Some(item) = scan.next() {
                        found.push(item.unwrap());
                        found.extend(scan.next_back().map(|item| item.unwrap()));
                    }
                    assert_eq!(found.len(), KEYS);
                    assert!(found.iter().all(|(_, value)| *value == found[0].1), "{found:?}");
                }
            });
        });
        let last = db.iter();
        db.wait_until_settled().unwrap();
        seen.add_activity(&db);
        db.close().unwrap();
        assert!(all(last).iter().all(|&(_, version)| version == 5));
    });
}
