//! A store that reports that it has settled.

use criba_schedules::vfs::SimVfs;
use criba_schedules::{Db, FilterPolicy};
use shuttle::thread::{scope, yield_now};

use crate::explore::explore;
use crate::store::{key, options, value};

/// The current tables, and the number of changes to them.
fn state(db: &Db) -> (Vec<String>, u64) {
    let tables = db.tables().into_iter();
    let tables = tables.map(|table| format!("{} at {}: {:?}", table.id, table.level, table.filter));
    (tables.collect(), db.stats().activity.filters_rebuilt)
}

#[test]
fn a_store_that_has_settled_changes_no_more() {
    explore("settling", 1500, &["compactions"], |seen| {
        let options = options(SimVfs::new()).filter(FilterPolicy::ribbon());
        let db = options.background_threads(2).open("/store").unwrap();
        scope(|scope| {
            let db = &db;
            for first in 0..2 {
                scope.spawn(move || {
                    for number in [first, first + 2, first] {
                        db.put(key(number), value(1)).unwrap();
                        db.flush().unwrap();
                    }
                });
            }
        });
        db.wait_until_settled().unwrap();
        let settled = state(&db);
        for _ in 0..200 {
            yield_now();
        }
        assert_eq!(state(&db), settled);
        seen.add_activity(&db);
        db.close().unwrap();
    });
}
