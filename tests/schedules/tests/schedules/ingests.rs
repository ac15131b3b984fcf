//! Ingests beside readers, transactions, conditional writes, flushes and compactions.

use std::sync::atomic::{AtomicU64, Ordering};

use criba_schedules::Durability::Buffered;
use criba_schedules::vfs::SimVfs;
use criba_schedules::{Db, Error, Value};
use shuttle::thread::scope;

use crate::explore::explore;
use crate::linearizable::{Call, Event, is_linearizable};
use crate::store::{key, options, value, version};

const ROUNDS: u64 = 3;
/// The keys that each ingest has; it sets the first of them, a count, to a hundred times its round.
const INGESTED: std::ops::Range<usize> = 0..4;
const COUNT: usize = 0;

#[test]
fn an_ingest_is_one_moment_for_readers_and_writers() {
    let needed = ["conflicts", "counted", "inserted", "not inserted", "flushes", "compactions"];
    explore("ingests", 1500, &needed, |seen| {
        let db = options(SimVfs::new()).open("/store").unwrap();
        db.put(key(COUNT), value(1)).unwrap();
        let (counted, conflicts, inserted) = scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    let pairs = INGESTED.map(|number| {
                        let version = if number == COUNT { 100 * round } else { round };
                        Ok::<_, Error>((key(number), value(version)))
                    });
                    db.ingest(pairs).unwrap();
                }
            });
            scope.spawn(|| {
                let keys = [1, 2].map(key);
                let mut newest = None;
                for _ in 0..3 {
                    let snapshot = db.snapshot();
                    let values = db.get_many(&keys).unwrap();
                    let rounds: Vec<_> =
                        values.iter().map(|value| value.as_ref().map(version)).collect();
                    assert!(rounds.iter().all(|round| *round == rounds[0]), "{rounds:?}");
                    assert!(rounds[0] >= newest, "{newest:?}, then {rounds:?}");
                    newest = rounds[0];
                    let first = snapshot.get_many(&keys).unwrap();
                    let range = snapshot.range(keys[0]..=keys[1]);
                    let scanned: Vec<Value> =
                        range.map(|pair| pair.map(|(_, value)| value).unwrap()).collect();
                    assert_eq!(scanned, first.into_iter().flatten().collect::<Vec<_>>());
                    let again = snapshot.get_many(&keys).unwrap();
                    assert_eq!(scanned, again.into_iter().flatten().collect::<Vec<_>>());
                }
            });
            let counting = scope.spawn(|| {
                let (mut counted, mut conflicts) = (0, 0);
                for _ in 0..3 {
                    let mut transaction = db.transaction();
                    let count = transaction.get(key(COUNT)).unwrap().as_ref().map(version).unwrap();
                    transaction.put(key(COUNT), value(count + 1));
                    match transaction.commit(Buffered) {
                        Ok(()) => counted += 1,
                        Err(Error::Conflict) => conflicts += 1,
                        Err(error) => panic!("{error}"),
                    }
                }
                (counted, conflicts)
            });
            let inserting = scope.spawn(|| {
                // Once an ingest has set it, no insertion may replace it.
                let inserted = db.insert_if_absent(key(3), value(99)).unwrap();
                db.put(key(7), value(1)).unwrap();
                db.flush().unwrap();
                db.compact().unwrap();
                inserted
            });
            let (counted, conflicts) = counting.join().unwrap();
            (counted, conflicts, inserting.join().unwrap())
        });
        seen.add("counted", counted);
        seen.add("conflicts", conflicts);
        seen.add(if inserted { "inserted" } else { "not inserted" }, 1);
        let count = db.get(key(COUNT)).unwrap().as_ref().map(version).unwrap();
        assert!((100 * ROUNDS..=100 * ROUNDS + counted).contains(&count), "{count}");
        assert_eq!(db.get(key(3)).unwrap().as_ref().map(version), Some(ROUNDS));
        seen.add_activity(&db);
        db.close().unwrap();
    });
}

fn ingest(db: &Db, keys: &[usize], version: u64) {
    let pairs = keys.iter().map(|&number| Ok::<_, Error>((key(number), value(version))));
    assert_eq!(db.ingest(pairs).unwrap(), keys.len() as u64);
}

#[test]
fn conditional_writes_beside_an_ingest_have_an_order() {
    explore("conditional writes beside ingests", 1500, &["inserted", "refused"], |seen| {
        let db = options(SimVfs::new()).open("/store").unwrap();
        let clock = AtomicU64::new(0);
        let timed = |call: &dyn Fn() -> Call| {
            let from = clock.fetch_add(1, Ordering::Relaxed);
            let call = call();
            Event { call, from, to: clock.fetch_add(1, Ordering::Relaxed) }
        };
        let mut threads = scope(|scope| {
            let ingesting = scope.spawn(|| {
                let call = || {
                    ingest(&db, &[0], 7);
                    Call::Set(Some(7))
                };
                vec![timed(&call)]
            });
            let inserting = scope.spawn(|| {
                let call = || {
                    let made = db.insert_if_absent(key(0), value(8)).unwrap();
                    Call::Swap { expected: None, new: Some(8), made }
                };
                vec![timed(&call)]
            });
            [ingesting, inserting].map(|thread| thread.join().unwrap()).to_vec()
        });
        let inserted = matches!(threads[1][0].call, Call::Swap { made: true, .. });
        seen.add(if inserted { "inserted" } else { "refused" }, 1);
        let now = db.get(key(0)).unwrap().as_ref().map(version);
        threads[0].push(Event { call: Call::Get(now), from: u64::MAX - 1, to: u64::MAX });
        assert!(is_linearizable(&threads), "{threads:?}");
    });
}

/// Rare: with an older order of the moment it took tens of thousands of schedules to fail.
#[test]
fn a_read_of_many_keys_sees_an_ingest_before_what_is_put_after_it() {
    explore("batch reads beside ingests", 6000, &[], |seen| {
        let db = options(SimVfs::new()).open("/store").unwrap();
        ingest(&db, &[0], 1);
        db.put(key(1), value(1)).unwrap();
        scope(|scope| {
            scope.spawn(|| {
                for version in 2..4 {
                    ingest(&db, &[0], version);
                    db.put(key(1), value(version)).unwrap();
                }
            });
            scope.spawn(|| {
                for _ in 0..6 {
                    let found = db.get_many(&[key(0), key(1)]).unwrap();
                    let [ingested, put] =
                        [0, 1].map(|at: usize| version(found[at].as_ref().unwrap()));
                    assert!(ingested >= put, "ingested {ingested}, put after it {put}");
                }
            });
        });
        seen.add_activity(&db);
    });
}

#[test]
fn ingests_beside_each_other_end_without_an_error() {
    explore("ingests beside ingests", 1500, &["flushes", "compactions"], |seen| {
        let db = options(SimVfs::new()).open("/store").unwrap();
        db.put(key(1), value(1)).unwrap();
        db.flush().unwrap();
        scope(|scope| {
            for first in [0, 1] {
                let db = &db;
                scope.spawn(move || {
                    for version in 2..4 {
                        db.put(key(2), value(9)).unwrap();
                        ingest(db, &[first, first + 3], version);
                    }
                });
            }
        });
        seen.add_activity(&db);
        db.close().unwrap();
    });
}

#[test]
fn writers_that_fill_l0_and_ingests_end() {
    explore("ingests beside a full L0", 1500, &["flushes", "compactions"], |seen| {
        let options = options(SimVfs::new()).l0_compaction_trigger(1);
        let options = options.l0_slowdown_trigger(2).l0_stop_trigger(2);
        let db = options.open("/store").unwrap();
        scope(|scope| {
            scope.spawn(|| {
                for number in 0..24_usize {
                    db.put([b'w', key(number % 3)[0]], [0; 150]).unwrap();
                }
            });
            scope.spawn(|| {
                for version in 0..3 {
                    ingest(&db, &[0, 1], version);
                }
            });
        });
        seen.add_activity(&db);
        db.close().unwrap();
    });
}
