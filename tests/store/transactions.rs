//! Transactions: what they read, when they conflict, and what they leave.

use std::collections::BTreeMap;
use std::ops::Bound;

use criba::Durability::{Buffered, Synced};
use criba::{Change, Db, Error, FilterPolicy, Options, Transaction};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::{HookVfs, options, tempdir};

fn commits(transaction: Transaction) -> bool {
    match transaction.commit(Buffered) {
        Ok(()) => true,
        Err(Error::Conflict) => false,
        Err(other) => panic!("{other}"),
    }
}

/// A store with every second key of a0 to a9 in a table.
fn store(options: Options) -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = options.vfs(HookVfs::without_syncs()).open(dir.path()).unwrap();
    for number in (0..10).step_by(2) {
        db.put(format!("a{number}"), "old").unwrap();
    }
    db.flush().unwrap();
    (dir, db)
}

type Read = fn(&Transaction);

/// What other writes do between the beginning and the commit of a transaction.
type Meanwhile = fn(&Db) -> criba::Result<()>;

/// Where the other writes are at the commit.
const PLACES: [Meanwhile; 4] = [
    |_| Ok(()),
    Db::flush,
    Db::compact,
    |db| {
        db.flush()?;
        db.put("b", "")?;
        db.compact()
    },
];

/// Whether a transaction that reads, and then puts "own", commits after other writes, wherever these are.
fn commits_after(read: impl Fn(&Transaction), write: Meanwhile) -> bool {
    let policies = [crate::common::policy(), FilterPolicy::none()];
    let commits = policies.map(|policy| {
        PLACES.map(|place| {
            let (_dir, db) = store(options().filter(policy));
            let mut transaction = db.transaction();
            read(&transaction);
            transaction.put("own", "");
            write(&db).unwrap();
            place(&db).unwrap();
            let commits = commits(transaction);
            assert_eq!(db.contains("own").unwrap(), commits);
            commits
        })
    });
    let commits = commits.as_flattened();
    assert!(commits.iter().all(|one| *one == commits[0]), "{commits:?}");
    commits[0]
}

#[test]
fn a_key_that_was_read_and_written_is_a_conflict() {
    let writes: [(Meanwhile, bool); 6] = [
        (|db| db.put("a2", "new"), false),
        (|db| db.put("a2", "old"), false), // the same value, written again
        (|db| db.delete("a2"), false),
        (|db| db.put("a2", "new").and_then(|()| db.put("a2", "old")), false),
        (|db| db.put("a4", "new"), true),
        (|db| db.delete("a0"), true),
    ];
    let reads: [Read; 3] = [
        |tx| assert_eq!(tx.get("a2").unwrap().unwrap(), "old"),
        |tx| assert!(tx.contains("a2").unwrap()),
        |tx| assert_eq!(tx.get_many(&["a1", "a2", "a3"]).unwrap().iter().flatten().count(), 1),
    ];
    for read in reads {
        for (write, commits) in writes {
            assert_eq!(commits_after(read, write), commits);
        }
    }
    // An absent key.
    let absent = |tx: &Transaction| assert_eq!(tx.get("a3").unwrap(), None);
    assert!(!commits_after(absent, |db| db.put("a3", "new")));
    assert!(commits_after(absent, |db| db.put("a2", "new")));
    assert!(commits_after(|_| (), |db| db.put("own", "other")), "a key that was not read");
}

#[test]
fn a_range_counts_with_its_gaps_up_to_the_last_key_returned() {
    let first_two = |tx: &Transaction| {
        let keys: Vec<_> = tx.range("a1"..="a8").take(2).map(|pair| pair.unwrap().0).collect();
        assert_eq!(keys, ["a2", "a4"]);
    };
    let last_two = |tx: &Transaction| {
        let keys = tx.range("a1"..="a8").rev().take(2).map(|pair| pair.unwrap().0);
        assert_eq!(keys.collect::<Vec<_>>(), ["a8", "a6"]);
    };
    let both_ends = |tx: &Transaction| {
        let mut range = tx.range("a1"..="a8");
        assert_eq!(range.next().unwrap().unwrap().0, "a2");
        assert_eq!(range.next_back().unwrap().unwrap().0, "a8");
    };
    let whole = |tx: &Transaction| assert_eq!(tx.range("a1"..="a8").count(), 4);
    let prefix = |tx: &Transaction| assert_eq!(tx.prefix("a").count(), 5);
    let nothing = |tx: &Transaction| assert_eq!(tx.range("a7".."a8").count(), 0);
    let unused = |tx: &Transaction| drop(tx.range("a1"..="a8"));
    let empty = |tx: &Transaction| {
        assert_eq!(tx.range("a8".."a1").count() + tx.range("a2".."a2").count(), 0);
    };
    // For each read, the keys that are conflicts.
    let reads: [(Read, &[usize]); 8] = [
        (first_two, &[1, 2, 3, 4]),
        (last_two, &[6, 7, 8]),
        (both_ends, &[1, 2, 8]),
        (whole, &[1, 2, 3, 4, 5, 6, 7, 8]),
        (prefix, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (nothing, &[7]),
        (unused, &[]),
        (empty, &[]),
    ];
    // A key is put; a phantom if it was absent.
    let writes: [Meanwhile; 10] = [
        |db| db.put("a0", "new"),
        |db| db.put("a1", "new"),
        |db| db.put("a2", "new"),
        |db| db.put("a3", "new"),
        |db| db.put("a4", "new"),
        |db| db.put("a5", "new"),
        |db| db.put("a6", "new"),
        |db| db.put("a7", "new"),
        |db| db.put("a8", "new"),
        |db| db.put("a9", "new"),
    ];
    for (number, (read, conflicts)) in reads.iter().enumerate() {
        for (key, write) in writes.iter().enumerate() {
            let commits = commits_after(read, *write);
            assert_eq!(commits, !conflicts.contains(&key), "read {number}, a{key}");
        }
    }
    let deletes: [Meanwhile; 2] = [|db| db.delete("a4"), |db| db.delete("a6")];
    assert_eq!(deletes.map(|delete| commits_after(first_two, delete)), [false, true]);
}

#[test]
fn what_only_one_of_two_transactions_may_do() {
    let (_dir, db) = store(options());
    // A lost update: both read the key, and write it.
    let (mut one, mut other) = (db.transaction(), db.transaction());
    for transaction in [&mut one, &mut other] {
        assert_eq!(transaction.get("a0").unwrap().unwrap(), "old");
        transaction.put("a0", "new");
    }
    assert_eq!((commits(one), commits(other)), (true, false));
    // A write skew: each reads what the other writes.
    let (mut one, mut other) = (db.transaction(), db.transaction());
    assert!(one.contains("a2").unwrap() && other.contains("a4").unwrap());
    one.delete("a4");
    other.delete("a2");
    assert_eq!((commits(one), commits(other)), (true, false));
    // Both write a key that none reads.
    let (mut one, mut other) = (db.transaction(), db.transaction());
    one.put("a6", "one");
    other.put("a6", "other");
    assert_eq!((commits(one), commits(other)), (true, true));
    assert_eq!(db.get("a6").unwrap().unwrap(), "other");
    // One that wrote nothing commits, whatever was written.
    let read_only = db.transaction();
    assert_eq!(read_only.prefix("a").count(), 4);
    db.put("a1", "new").unwrap();
    assert!(read_only.commit(Synced).is_ok());
}

#[test]
fn a_deleted_range_is_that_of_the_commit() {
    let (_dir, db) = store(options());
    let mut transaction = db.transaction();
    transaction.put("a3", "own").delete("a4");
    assert_eq!(transaction.delete_range("a2"..="a6").unwrap(), 3);
    assert_eq!(transaction.prefix("a").count(), 2);
    assert_eq!(db.prefix("a").count(), 5);
    assert!(commits(transaction));
    assert_eq!(db.keys().map(Result::unwrap).collect::<Vec<_>>(), ["a0", "a8"]);
    let mut transaction = db.transaction();
    assert_eq!(transaction.delete_range(..).unwrap(), 2);
    db.put("a5", "new").unwrap();
    assert!(!commits(transaction));
    assert_eq!(db.iter().count(), 3);
}

#[test]
fn a_transaction_that_is_dropped_leaves_nothing_and_one_can_become_a_batch() {
    let (_dir, db) = store(options());
    let mut transaction = db.transaction();
    transaction.put("b", "new").delete("a0");
    drop(transaction);
    assert_eq!((db.contains("b").unwrap(), db.contains("a0").unwrap()), (false, true));
    let mut transaction = db.transaction();
    assert!(transaction.contains("a0").unwrap());
    transaction.put("c", "3").put("b", "1").put("b", "2").delete("a0");
    db.put("a0", "written meanwhile").unwrap();
    let batch = transaction.into_batch();
    let keys: Vec<_> = batch
        .iter()
        .map(|change| match change {
            Change::Put { key, .. } | Change::Delete { key } => key.to_vec(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(keys, [&b"a0"[..], b"b", b"c"]);
    db.write(batch).unwrap();
    assert_eq!(db.get("b").unwrap().unwrap(), "2");
    assert!(!db.contains("a0").unwrap());
}

#[test]
fn a_forgotten_range_has_read_everything() {
    let (_dir, db) = store(options());
    let mut transaction = db.transaction();
    std::mem::forget(transaction.range("a0".."a2"));
    transaction.put("own", "");
    db.put("z", "").unwrap();
    assert!(!commits(transaction));
}

#[test]
fn a_transaction_sees_its_snapshot_under_its_own_changes() {
    let mut rng = ChaCha8Rng::seed_from_u64(46);
    let dir = tempdir();
    let db = options().memtable_bytes(4096).open(dir.path()).unwrap();
    let key = |rng: &mut ChaCha8Rng| format!("{:02}", rng.random_range(0..40));
    let mut stored: BTreeMap<String, String> = BTreeMap::new();
    let mut items = 0;
    for round in 0..300 {
        let mut transaction = db.transaction();
        let mut expected = stored.clone();
        for number in 0..rng.random_range(0..30) {
            let key = key(&mut rng);
            if rng.random_bool(0.6) {
                let value = format!("{round} {number}");
                transaction.put(&key, &value);
                expected.insert(key, value);
            } else {
                transaction.delete(&key);
                expected.remove(&key);
            }
        }
        // Other writes, which it does not see.
        for _ in 0..20 {
            let key = key(&mut rng);
            if rng.random_bool(0.5) {
                db.put(&key, "other").unwrap();
                stored.insert(key, "other".into());
            } else {
                db.delete(&key).unwrap();
                stored.remove(&key);
            }
        }
        for _ in 0..10 {
            let bound = |rng: &mut ChaCha8Rng| match rng.random_range(0..4) {
                0 => Bound::Unbounded,
                1 => Bound::Excluded(key(rng)),
                _ => Bound::Included(key(rng)),
            };
            let bounds = (bound(&mut rng), bound(&mut rng));
            let within = |key: &str| {
                let from = match &bounds.0 {
                    Bound::Included(from) => key >= from.as_str(),
                    Bound::Excluded(from) => key > from.as_str(),
                    Bound::Unbounded => true,
                };
                from && match &bounds.1 {
                    Bound::Included(to) => key <= to.as_str(),
                    Bound::Excluded(to) => key < to.as_str(),
                    Bound::Unbounded => true,
                }
            };
            let mut left: Vec<_> = expected.iter().filter(|(key, _)| within(key)).collect();
            let mut range = transaction.range(bounds.clone());
            while !left.is_empty() {
                let forward = rng.random_bool(0.5);
                let item = if forward { range.next() } else { range.next_back() };
                let (key, value) = item.unwrap().unwrap();
                let expected = left.remove(if forward { 0 } else { left.len() - 1 });
                assert_eq!(
                    (&key, &value),
                    (&expected.0.as_str().into(), &expected.1.as_str().into())
                );
                items += 1;
            }
            assert!(
                range.next().is_none() && range.next_back().is_none() && range.next().is_none()
            );
        }
        let keys: Vec<_> = (0..40).map(|number| format!("{number:02}")).collect();
        let values = transaction.get_many(&keys).unwrap();
        for (key, value) in keys.iter().zip(values) {
            assert_eq!(value.as_deref(), expected.get(key).map(String::as_bytes));
            assert_eq!(transaction.get(key).unwrap(), value);
        }
        if rng.random_bool(0.5) {
            let changes = transaction.into_batch();
            for change in changes.iter() {
                match change {
                    Change::Put { key, value } => {
                        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                        stored.insert(text(key), text(value))
                    }
                    Change::Delete { key } => stored.remove(std::str::from_utf8(key).unwrap()),
                    other => panic!("{other:?}"),
                };
            }
            db.write(changes).unwrap();
        }
    }
    assert!(items > 10_000, "{items} items");
}

#[test]
fn what_a_transaction_read_has_a_limit() {
    let (_dir, db) = store(options().transaction_bytes(2000));
    let mut transaction = db.transaction();
    transaction.put("own", "");
    // Keys that are read again, and adjacent ranges, take no more.
    for _ in 0..1000 {
        assert!(transaction.contains("a0").unwrap());
        assert_eq!(
            transaction.range("a1".."a5").count() + transaction.range("a5".."a9").count(),
            4
        );
    }
    let results = (0..20).map(|number| transaction.get(format!("k{number}")));
    let (read, error) = results.enumerate().find(|(_, result)| result.is_err()).unwrap();
    assert!((10..20).contains(&read), "{read} keys");
    let error = error.unwrap_err();
    let is_limit = |error: &Error| match error {
        Error::TransactionTooLarge { bytes, limit: 2000 } => (2001..2200).contains(bytes),
        _ => false,
    };
    assert!(is_limit(&error), "{error}");
    let range = transaction.range("a0".."a5").next().unwrap().unwrap_err();
    assert!(is_limit(&range), "{range}");
    assert!(is_limit(&transaction.get_many(&["x"]).unwrap_err()));
    assert!(is_limit(&transaction.commit(Buffered).unwrap_err()));
    assert!(!db.contains("own").unwrap());
    // Without changes it commits, and as a batch nothing is compared.
    let transaction = db.transaction();
    assert!((0..20).any(|number| transaction.get(format!("k{number}")).is_err()));
    assert!(transaction.commit(Buffered).is_ok());
}

#[test]
fn a_body_runs_again_until_it_commits_or_has_no_tries() {
    let (_dir, db) = store(options());
    for (conflicts, tries) in [(0, 1), (1, 2), (3, 4), (5, 6), (1, 1), (6, 6), (0, 0)] {
        let mut runs = 0;
        let result = db.transact(tries, |tx| -> criba::Result<u32> {
            let read = tx.get("a0")?;
            tx.put("a0", runs.to_string()).put("b", format!("{read:?}"));
            if runs < conflicts {
                db.put("a0", "other")?;
            }
            runs += 1;
            Ok(runs)
        });
        if conflicts < tries.max(1) {
            assert_eq!(result.unwrap(), conflicts + 1);
            assert_eq!(db.get("a0").unwrap().unwrap(), conflicts.to_string());
        } else {
            assert!(matches!(result, Err(Error::Conflict)));
            assert_eq!((runs, db.get("a0").unwrap().unwrap()), (tries, "other".into()));
        }
    }
    // An error of the body ends it, whatever it wrote.
    let result = db.transact_with(9, Synced, |tx| -> Result<(), Box<dyn std::error::Error>> {
        tx.put("c", "");
        Err("too poor".into())
    });
    assert_eq!(result.unwrap_err().to_string(), "too poor");
    assert!(!db.contains("c").unwrap());
}

#[test]
fn threads_that_count_lose_no_step() {
    let dir = tempdir();
    let db = options().memtable_bytes(8 << 10).open(dir.path()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let db = &db;
            scope.spawn(move || {
                for step in 0..500 {
                    let durability = if step % 100 == 0 { Synced } else { Buffered };
                    let counted =
                        db.transact_with(u32::MAX, durability, |tx| -> criba::Result<()> {
                            let count = tx.prefix("step/").count();
                            let counted = tx.get("count")?.unwrap_or_else(|| "0".into());
                            assert_eq!(counted, count.to_string());
                            tx.put("count", (count + 1).to_string());
                            tx.put(format!("step/{thread}/{step}"), [7; 20]);
                            Ok(())
                        });
                    counted.unwrap();
                }
            });
        }
    });
    assert_eq!(db.get("count").unwrap().unwrap(), "2000");
    assert_eq!(db.prefix("step/").count(), 2000);
}

#[test]
fn the_transactions_of_a_closed_store_fail() {
    let (_dir, db) = store(options());
    let mut begun = db.transaction();
    begun.put("own", "");
    let handle = db.clone();
    db.close().unwrap();
    assert_eq!(begun.get("a0").unwrap().unwrap(), "old", "as a snapshot");
    assert!(matches!(begun.commit(Buffered), Err(Error::Closed)));
    let mut late = handle.transaction();
    late.put("own", "");
    assert!(matches!(late.get("a0"), Err(Error::Closed)));
    assert!(matches!(late.range(..).next(), Some(Err(Error::Closed))));
    assert!(matches!(late.commit(Buffered), Err(Error::Closed)));
    assert!(matches!(handle.transact(3, |_| criba::Result::Ok(())), Err(Error::Closed)));
}
