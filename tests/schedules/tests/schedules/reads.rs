//! Lookups beside writes, flushes and compactions.

use criba_schedules::Durability::Buffered;
use criba_schedules::vfs::SimVfs;
use shuttle::thread::scope;

use crate::explore::explore;
use crate::store::{History, batch, key, open, options, value};

/// Background threads of flushes and compactions.
#[test]
fn a_lookup_misses_nothing_acknowledged_and_never_goes_back_in_time() {
    explore(
        "lookups beside the store's own threads",
        3000,
        &["flushes", "compactions", "block reads"],
        |seen| {
            let (db, history) = (open(&SimVfs::new()), History::<2>::new());
            let write = |version| {
                for number in 0..2 {
                    history.write(number, version, || db.put(key(number), value(version)).unwrap());
                }
            };
            write(1);
            scope(|scope| {
                scope.spawn(|| {
                    for version in 2..=7 {
                        write(version);
                        if version.is_multiple_of(3) {
                            db.flush().unwrap();
                        }
                    }
                });
                for first in 0..2 {
                    let (db, history) = (&db, &history);
                    scope.spawn(move || {
                        for lookup in 0..8 {
                            let number = (first + lookup) % 2;
                            history.check(number, || db.get(key(number)).unwrap());
                        }
                    });
                }
            });
            db.wait_until_settled().unwrap();
            for number in 0..2 {
                let found = history.check(number, || db.get(key(number)).unwrap());
                assert_eq!(found, 7);
            }
            seen.add_activity(&db);
            db.close().unwrap();
        },
    );
}

/// Callers flush and compact with few other steps: errors between the two halves of a lookup's start, the
/// view and the sequence number, are most frequent here.
#[test]
fn a_lookup_that_waits_in_its_middle_still_finds_what_was_there() {
    explore("lookups beside callers' flushes", 6000, &["flushes", "compactions"], |seen| {
        let options = options(SimVfs::new()).background_threads(0).auto_compaction(false);
        let (db, history) = (options.open("/store").unwrap(), History::<1>::new());
        let write = |version| history.write(0, version, || db.put(key(0), value(version)).unwrap());
        write(1);
        scope(|scope| {
            scope.spawn(|| {
                for version in 2..=4 {
                    write(version);
                    db.flush().unwrap();
                }
                db.compact().unwrap();
            });
            scope.spawn(|| {
                for _ in 0..6 {
                    history.check(0, || db.get(key(0)).unwrap());
                }
            });
            scope.spawn(|| {
                for _ in 0..3 {
                    history.check(0, || {
                        let first = db.iter().next();
                        first.map(|item| item.unwrap().1)
                    });
                }
            });
        });
        assert_eq!(history.check(0, || db.get(key(0)).unwrap()), 4);
        seen.add_activity(&db);
        db.close().unwrap();
    });
}

/// The memtable's filter has room for 168 keys at first, and grows then.
#[test]
fn a_key_in_a_memtable_is_never_seen_before_its_filter_knows_it() {
    const FULL: usize = 168;
    explore("lookups while the memtable's filter grows", 1200, &["lookups"], |seen| {
        let options = options(SimVfs::new()).background_threads(0).memtable_bytes(1 << 20);
        let db = options.open("/store").unwrap();
        let history = History::<4>::new();
        let mut filling = criba_schedules::Batch::new();
        for number in 0..FULL - 2 {
            filling.put(number.to_be_bytes(), "");
        }
        db.write(filling).unwrap();
        scope(|scope| {
            for writer in 0..2 {
                let (db, history) = (&db, &history);
                scope.spawn(move || {
                    for number in [writer, writer + 2] {
                        let batch = batch([number], 1);
                        history.write(number, 1, || db.write_with(batch, Buffered).unwrap());
                    }
                });
            }
            for first in 0..2 {
                let (db, history) = (&db, &history);
                scope.spawn(move || {
                    for number in (first..4).chain(0..first) {
                        // A scan probes no filter of a memtable. The filter may not deny what the scan sees.
                        history.check(number, || {
                            let item = db.range(key(number)..=key(number)).next();
                            item.map(|item| item.unwrap().1)
                        });
                        history.check(number, || db.get(key(number)).unwrap());
                    }
                });
            }
        });
        for number in 0..4 {
            assert_eq!(history.check(number, || db.get(key(number)).unwrap()), 1);
        }
        seen.add_activity(&db);
        db.close().unwrap();
    });
}
