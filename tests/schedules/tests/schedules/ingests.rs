//! Ingests beside readers, transactions, conditional writes, flushes and compactions.

use criba_schedules::Durability::Buffered;
use criba_schedules::vfs::SimVfs;
use criba_schedules::{Error, Value};
use shuttle::thread::scope;

use crate::explore::explore;
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
