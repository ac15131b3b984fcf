//! Checkpoints while a writer, flushes and compactions run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use criba_schedules::vfs::SimVfs;
use shuttle::thread::scope;

use crate::explore::explore;
use crate::store::{key, open, options, value, version};

const KEYS: u64 = 4;
const WRITES: u64 = 24;

/// Write number `i` gives key `i % KEYS` the version `i`.
fn check(vfs: &SimVfs, path: &str, acknowledged: u64, begun: u64) {
    let db = options(vfs.clone()).background_threads(0).open(path).unwrap();
    let versions: Vec<u64> = (0..KEYS)
        .map(|number| db.get(key(number as usize)).unwrap().as_ref().map_or(0, version))
        .collect();
    let newest = versions.iter().copied().max().unwrap_or(0);
    assert!((acknowledged..=begun).contains(&newest), "{newest}: {acknowledged}..={begun}");
    for (number, &found) in versions.iter().enumerate() {
        let expected = (1..=newest).rev().find(|write| write % KEYS == number as u64);
        assert_eq!(found, expected.unwrap_or(0), "key {number} after {newest} writes");
    }
    db.close().unwrap();
}

#[test]
fn a_checkpoint_holds_the_first_writes_while_all_is_flushed_and_merged() {
    explore("checkpoints", 900, &["flushes", "compactions", "of some writes"], |seen| {
        let vfs = SimVfs::new();
        let db = open(&vfs);
        let [begun, acknowledged] = [0, 0].map(|zero| Arc::new(AtomicU64::new(zero)));
        scope(|scope| {
            scope.spawn(|| {
                for write in 1..=WRITES {
                    begun.store(write, Ordering::SeqCst);
                    db.put(key((write % KEYS) as usize), value(write)).unwrap();
                    acknowledged.store(write, Ordering::SeqCst);
                }
            });
            scope.spawn(|| {
                for _ in 0..2 {
                    db.flush().unwrap();
                }
                db.compact().unwrap();
            });
            scope.spawn(|| {
                for path in ["/first", "/second"] {
                    let before = acknowledged.load(Ordering::SeqCst);
                    db.checkpoint(path).unwrap();
                    let after = begun.load(Ordering::SeqCst);
                    check(&vfs, path, before, after);
                    seen.add("of some writes", u64::from(before > 0 && after < WRITES));
                }
            });
        });
        seen.add_activity(&db);
        db.close().unwrap();
    });
}
