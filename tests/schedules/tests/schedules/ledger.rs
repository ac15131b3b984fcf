//! Statistics read beside lookups while versions come and go.

use criba_schedules::vfs::SimVfs;
use shuttle::thread::scope;

use crate::explore::explore;
use crate::store::{key, open, value};

#[test]
fn a_lookup_that_every_filter_denies_is_counted_once_in_every_schedule() {
    const LOOKUPS: u64 = 6;
    explore("statistics beside lookups", 1500, &["flushes", "compactions"], |seen| {
        let db = open(&SimVfs::new());
        let write = |from: usize| {
            (from..from + 3).for_each(|number| db.put(key(2 * number), value(1)).unwrap());
            db.flush().unwrap();
        };
        write(0);
        scope(|scope| {
            scope.spawn(|| (1..4).for_each(write));
            for first in 0..2 {
                let db = &db;
                scope.spawn(move || {
                    for lookup in 0..LOOKUPS {
                        // Between the keys that are there.
                        let absent = key(2 * (first + lookup as usize) + 1);
                        assert!(db.get(absent).unwrap().is_none());
                    }
                });
            }
            scope.spawn(|| {
                let mut last = 0;
                for _ in 0..6 {
                    let stats = db.stats();
                    let met = stats.total();
                    let now = stats.activity.lookups + met.true_negatives + met.range_pruned;
                    assert!(now >= last, "the totals fell from {last} to {now}");
                    last = now;
                }
            });
        });
        db.wait_until_settled().unwrap();
        let activity = db.stats().activity;
        assert_eq!((activity.lookups, activity.misses), (2 * LOOKUPS, 2 * LOOKUPS));
        let before = db.stats();
        assert!(db.get(key(1)).unwrap().is_none());
        let met = (db.stats() - before).total();
        assert_eq!(met, db.explain(key(1)).unwrap().counts());
        seen.add_activity(&db);
        db.close().unwrap();
    });
}
