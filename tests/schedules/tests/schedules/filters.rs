//! Filters are rebuilt, dropped and loaded beside lookups.

use criba_schedules::vfs::SimVfs;
use criba_schedules::{Db, FilterPolicy, Membership};
use shuttle::thread::scope;

use crate::explore::explore;
use crate::store::{History, batch, key, open, other_policy, value};

const KEYS: usize = 4;

fn look<const N: usize>(db: &Db, history: &History<N>, number: usize) {
    assert_eq!(db.may_contain(key(number)).unwrap(), Membership::Maybe, "key {number} is denied");
    history.check(number, || db.get(key(number)).unwrap());
}

/// Two tables with all keys.
fn filled(history: &History<KEYS>) -> Db {
    let db = open(&SimVfs::new());
    for version in 1..=2 {
        for number in 0..KEYS {
            history.write(number, version, || db.put(key(number), value(version)).unwrap());
        }
        db.flush().unwrap();
    }
    db
}

#[test]
fn no_key_is_denied_while_filters_are_rebuilt() {
    explore(
        "rebuilding filters",
        1200,
        &["filters rebuilt", "compactions", "filters' noes"],
        |seen| {
            let history = History::<KEYS>::new();
            let db = filled(&history);
            scope(|scope| {
                scope.spawn(|| {
                    for policy in [other_policy(), FilterPolicy::default()] {
                        db.rebuild_filters(&policy).unwrap();
                    }
                });
                scope.spawn(|| {
                    for number in 0..2 {
                        history.write(number, 3, || db.put(key(number), value(3)).unwrap());
                    }
                    db.flush().unwrap();
                });
                scope.spawn(|| db.compact().unwrap());
                scope.spawn(|| {
                    for lookup in 0..8 {
                        look(&db, &history, lookup % KEYS);
                        assert_eq!(db.get("absent").unwrap(), None);
                        assert_eq!(db.get("bad").unwrap(), None);
                    }
                });
            });
            db.wait_until_settled().unwrap();
            for number in 0..KEYS {
                look(&db, &history, number);
            }
            seen.add_activity(&db);
            db.close().unwrap();
        },
    );
}

#[test]
fn no_key_is_denied_while_the_budget_for_filters_changes() {
    const PAGE: u64 = 4096;
    explore("changing the budget", 900, &["compactions", "filters not resident"], |seen| {
        let history = History::<KEYS>::new();
        let db = filled(&history);
        scope(|scope| {
            scope.spawn(|| {
                for budget in [Some(0), Some(PAGE), None, Some(2 * PAGE)] {
                    db.set_filter_memory(budget).unwrap();
                    let memory = db.memory().filters;
                    seen.add("filters not resident", memory.stored.saturating_sub(memory.resident));
                }
            });
            scope.spawn(|| {
                db.rebuild_filters(&other_policy()).unwrap();
            });
            scope.spawn(|| {
                history.write(0, 3, || db.write(batch([0], 3)).unwrap());
                db.flush().unwrap();
            });
            scope.spawn(|| {
                for lookup in 0..8 {
                    look(&db, &history, lookup % KEYS);
                }
            });
        });
        db.set_filter_memory(Some(PAGE)).unwrap();
        db.wait_until_settled().unwrap();
        let memory = db.memory().filters;
        assert!(memory.resident <= PAGE, "{memory:?}");
        for number in 0..KEYS {
            look(&db, &history, number);
        }
        db.set_filter_memory(None).unwrap();
        db.wait_until_settled().unwrap();
        let memory = db.memory().filters;
        assert_eq!(memory.resident, memory.stored);
        seen.add_activity(&db);
        db.close().unwrap();
    });
}
