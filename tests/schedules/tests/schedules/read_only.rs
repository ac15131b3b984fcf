//! A store that is only read, while a writer, flushes and compactions change its files.

use std::sync::atomic::{AtomicU64, Ordering};

use criba_schedules::vfs::SimVfs;
use criba_schedules::{Durability, Reader};
use shuttle::thread::scope;

use crate::explore::explore;
use crate::store::{key, open, options, value, version};

const KEYS: u64 = 4;
const WRITES: u64 = 24;

/// Write number `i` gives key `i % KEYS` the version `i`. Returns the number of the newest write that is
/// shown: all before it must be, too, and none after it.
fn shown(store: &dyn Reader) -> u64 {
    let found = |number| store.get(&key(number as usize)).unwrap().as_ref().map_or(0, version);
    let versions: Vec<u64> = (0..KEYS).map(found).collect();
    let newest = versions.iter().copied().max().unwrap_or(0);
    for (number, &found) in versions.iter().enumerate() {
        let expected = (1..=newest).rev().find(|write| write % KEYS == number as u64);
        assert_eq!(found, expected.unwrap_or(0), "key {number} after {newest} writes");
    }
    newest
}

#[test]
fn a_reader_shows_the_first_writes_and_never_goes_back() {
    let needed = ["flushes", "compactions", "changes seen", "of some writes"];
    explore("read only", 900, &needed, |seen| {
        let vfs = SimVfs::new();
        let db = open(&vfs);
        let open = || options(vfs.clone()).max_open_files(100).open_read_only("/store").unwrap();
        let store = open();
        let [begun, acknowledged, refreshed] = [0, 0, 0].map(AtomicU64::new);
        scope(|scope| {
            scope.spawn(|| {
                for write in 1..=WRITES {
                    begun.store(write, Ordering::SeqCst);
                    let synced = write.is_multiple_of(5);
                    let durability = if synced { Durability::Synced } else { Durability::Buffered };
                    db.put_with(key((write % KEYS) as usize), value(write), durability).unwrap();
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
                for _ in 0..3 {
                    let before = acknowledged.load(Ordering::SeqCst);
                    seen.add("changes seen", u64::from(store.refresh().unwrap()));
                    let newest = shown(&store.snapshot());
                    refreshed.store(newest, Ordering::SeqCst);
                    let opened = shown(&open());
                    let after = begun.load(Ordering::SeqCst);
                    assert!(before <= newest && newest <= opened && opened <= after);
                    seen.add("of some writes", u64::from(before > 0 && after < WRITES));
                }
            });
            scope.spawn(|| {
                let mut last = 0;
                for _ in 0..4 {
                    let known = refreshed.load(Ordering::SeqCst).max(last);
                    last = shown(&store.snapshot());
                    assert!(last >= known, "back from {known} to {last}");
                }
            });
        });
        store.refresh().unwrap();
        assert_eq!(shown(&store), WRITES);
        seen.add_activity(&db);
        db.close().unwrap();
    });
}
