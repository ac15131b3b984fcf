//! Batches with conditions.

use criba::Durability::{Buffered, Synced};
use criba::{Batch, Change, Db, Error};

use crate::common::{options, tempdir};

/// The key of the condition that failed; `None` if the batch was written.
fn failed(written: Result<(), Error>) -> Option<String> {
    match written {
        Ok(()) => None,
        Err(Error::ConditionFailed { key }) => Some(String::from_utf8_lossy(&key).into_owned()),
        Err(other) => panic!("{other}"),
    }
}

fn contents(db: &Db) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    db.iter().map(|pair| pair.map(|(k, v)| (text(&k), text(&v))).unwrap()).collect()
}

#[test]
fn a_batch_is_written_if_all_its_conditions_hold() {
    for (durability, flushed) in
        [(Buffered, false), (Buffered, true), (Synced, false), (Synced, true)]
    {
        let dir = tempdir();
        let db = options().open(dir.path()).unwrap();
        db.put("a", "1").unwrap();
        db.put("b", "2").unwrap();
        db.delete("b").unwrap();
        if flushed {
            db.flush().unwrap();
        }
        let write = |batch: &mut Batch| failed(db.write_with(batch, durability));
        let mut changes = Batch::new();
        changes.put("a", "new").put("c", "new").delete("d");
        let with = |conditions: &[(&str, Option<&str>)]| {
            let mut batch = changes.clone();
            for (key, value) in conditions {
                match value {
                    Some(value) => batch.require(key, value),
                    None => batch.require_absent(key),
                };
            }
            batch
        };
        let before = contents(&db);
        for (conditions, key) in [
            (vec![("a", Some("2"))], "a"),
            (vec![("a", None)], "a"),
            (vec![("b", Some("2"))], "b"),
            (vec![("x", Some(""))], "x"),
            (vec![("a", Some("1")), ("b", None), ("c", Some("new"))], "c"),
            (vec![("a", Some("1")), ("b", Some("")), ("c", Some("new"))], "b"),
        ] {
            assert_eq!(write(&mut with(&conditions)).as_deref(), Some(key), "{conditions:?}");
            assert_eq!(contents(&db), before, "{conditions:?}");
        }
        // The conditions are about the store before the batch.
        let all = [("a", Some("1")), ("b", None), ("c", None), ("d", None)];
        assert_eq!(write(&mut with(&all)), None);
        let now = [("a", "new"), ("c", "new")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(contents(&db), now);
        assert_eq!(write(&mut with(&all)).as_deref(), Some("a"));
    }
}

#[test]
fn conditions_without_changes_are_checked() {
    let dir = tempdir();
    let db = options().open(dir.path()).unwrap();
    db.put("a", "1").unwrap();
    let written = db.stats().wal_writes.bytes;
    for durability in [Buffered, Synced] {
        let check = |key: &str| failed(db.write_with(Batch::new().require(key, "1"), durability));
        assert_eq!(check("a"), None);
        assert_eq!(check("b").as_deref(), Some("b"));
    }
    assert_eq!(db.stats().wal_writes.bytes, written);
}

#[test]
fn a_batch_shows_its_changes_and_passes_its_conditions_on() {
    let mut batch = Batch::new();
    batch.put("a", "1").require("r", "s").delete("b").require_absent("t").put("a", "2");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let changes = |batch: &Batch| -> Vec<_> {
        let change = |change: Change<'_>| match change {
            Change::Put { key, value } => format!("{} = {}", text(key), text(value)),
            Change::Delete { key } => format!("no {}", text(key)),
            other => panic!("{other:?}"),
        };
        batch.iter().map(change).collect()
    };
    assert_eq!(changes(&batch), ["a = 1", "no b", "a = 2"]);
    assert_eq!((batch.len(), batch.is_empty()), (3, false));
    assert_eq!(batch.bytes(), 5 + 3 + 5, "kinds, lengths, keys and values");
    let dir = tempdir();
    let db = options().open(dir.path()).unwrap();
    let taken = Batch::from(&mut batch);
    assert!(batch.is_empty() && changes(&batch).is_empty());
    db.write(batch).unwrap();
    assert_eq!(failed(db.write(taken)).as_deref(), Some("r"));
    assert_eq!(contents(&db), []);
}

#[test]
fn a_condition_that_is_too_long_refuses_the_batch() {
    let dir = tempdir();
    let db = options().open(dir.path()).unwrap();
    let long = vec![0; criba::MAX_KEY_BYTES + 1];
    let mut batch = Batch::new();
    batch.put("a", "1").require_absent(&long);
    assert!(matches!(db.write(batch), Err(Error::TooLong { what: "key", .. })));
    assert_eq!(contents(&db), []);
}

#[test]
fn of_many_threads_with_the_same_condition_one_writes() {
    let dir = tempdir();
    let db = options().memtable_bytes(16 << 10).open(dir.path()).unwrap();
    // Each step takes the token of the last one, on both sides of a pair of keys.
    db.write(Batch::new().put("left", "0").put("right", "0")).unwrap();
    let taken = std::thread::scope(|scope| {
        let run = || {
            let mut taken = 0;
            while let Some(number) = db.get("left").unwrap() {
                let number: u32 = String::from_utf8_lossy(&number).parse().unwrap();
                if number == 3000 {
                    break;
                }
                let (old, new) = (number.to_string(), (number + 1).to_string());
                let mut step = Batch::new();
                step.require("left", &old).require("right", &old).require_absent(&new);
                let wrote = db.write(step.put("left", &new).put("right", &new).put(&new, [7; 100]));
                taken += u32::from(failed(wrote).is_none());
            }
            taken
        };
        let threads = [(); 4].map(|()| scope.spawn(run));
        threads.map(|thread| thread.join().unwrap()).iter().sum::<u32>()
    });
    assert_eq!(taken, 3000);
    assert_eq!(contents(&db).len(), 3002);
    assert!(db.stats().activity.flushes > 5, "{:?}", db.stats().activity);
}
