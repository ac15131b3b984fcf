//! Transactions beside each other, plain writes, flushes and compactions.

use criba_schedules::Durability::{Buffered, Synced};
use criba_schedules::vfs::SimVfs;
use criba_schedules::{Db, Error, Result};
use shuttle::rand::Rng;
use shuttle::thread::scope;

use crate::explore::explore;
use crate::store::{key, options, value, version};

/// The key that each transaction counts up, and the keys of which one must stay.
const COUNT: usize = 0;
const ONE_OF: [usize; 2] = [1, 2];
const TRANSACTIONS: u64 = 3;

/// Counts, and deletes one key if it sees both; returns whether it committed.
fn step(db: &Db, number: usize, by_range: bool, synced: bool) -> bool {
    let mut transaction = db.transaction();
    let pairs = if by_range {
        let range = transaction.range(key(COUNT)..=key(ONE_OF[1]));
        range.collect::<Result<Vec<_>>>().unwrap().len() - 1
    } else {
        let values = transaction.get_many(&ONE_OF.map(key)).unwrap();
        values.iter().flatten().count()
    };
    let count = transaction.get(key(COUNT)).unwrap().as_ref().map(version).unwrap();
    transaction.put(key(COUNT), value(count + 1));
    if pairs == 2 {
        transaction.delete(key(ONE_OF[number]));
    }
    match transaction.commit(if synced { Synced } else { Buffered }) {
        Ok(()) => true,
        Err(Error::Conflict) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn transactions_neither_lose_a_step_nor_write_what_another_one_read() {
    let needed = ["committed", "conflicts", "flushes", "compactions"];
    explore("transactions", 1500, &needed, |seen| {
        let db = options(SimVfs::new()).open("/store").unwrap();
        for number in [COUNT, ONE_OF[0], ONE_OF[1]] {
            db.put(key(number), value(1)).unwrap();
        }
        let committed: u64 = scope(|scope| {
            let run = |thread: usize| {
                let db = &db;
                scope.spawn(move || {
                    let mut committed = 0;
                    for _ in 0..TRANSACTIONS {
                        let (by_range, synced) = {
                            let mut rng = shuttle::rand::thread_rng();
                            (rng.gen_range(0..2) == 0, rng.gen_range(0..4) == 0)
                        };
                        committed += u64::from(step(db, thread, by_range, synced));
                    }
                    committed
                })
            };
            let threads = [run(0), run(1)];
            scope.spawn(|| {
                // Writes that no transaction reads.
                for number in 5..8 {
                    db.put(key(number), value(1)).unwrap();
                }
                db.flush().unwrap();
                db.compact().unwrap();
            });
            threads.map(|thread| thread.join().unwrap()).iter().sum()
        });
        seen.add("committed", committed);
        seen.add("conflicts", 2 * TRANSACTIONS - committed);
        let count = db.get(key(COUNT)).unwrap().as_ref().map(version);
        assert_eq!(count, Some(1 + committed));
        let left = db.get_many(&ONE_OF.map(key)).unwrap();
        assert_eq!(left.iter().flatten().count(), 1, "one of two must stay");
        seen.add_activity(&db);
        db.close().unwrap();
    });
}
