//! Bulk ingest: sorted pairs become tables at one moment, all or none.

use std::collections::BTreeMap;

use criba::{Db, Error, Options, Reader};

use crate::common::{options, tempdir};

/// Small tables and blocks; levels are used from the bottom up as in large stores.
fn small() -> Options {
    options().memtable_bytes(32 << 10).table_bytes(16 << 10).level_base_bytes(64 << 10)
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:08}").into_bytes()
}

/// Ingests these numbers as keys with one value.
fn ingest(db: &Db, numbers: impl IntoIterator<Item = u32>, value: &str) -> criba::Result<u64> {
    db.ingest(numbers.into_iter().map(|number| Ok::<_, Error>((key(number), value))))
}

fn value(reader: &impl Reader, number: u32) -> Option<String> {
    let value = reader.get(&key(number)).unwrap()?;
    Some(String::from_utf8(value.to_vec()).unwrap())
}

fn all(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    db.iter().map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

#[test]
fn what_is_ingested_is_newer_than_all_before_and_older_than_all_after() {
    for threads in [0, 1] {
        let dir = tempdir();
        let options = small().background_threads(threads);
        let db = options.clone().open(dir.path()).unwrap();
        let mut map = BTreeMap::new();
        for round in 0..12_u32 {
            for number in (0..2000).map(|n| n * 7919 % 4000 + round) {
                let value = format!("put {round}");
                db.put(key(number), &value).unwrap();
                map.insert(key(number), value.into_bytes());
            }
            for number in (round..4000).step_by(11) {
                db.delete(key(number)).unwrap();
                map.remove(&key(number));
            }
            let (first, step) = (round * 100, 1 + round as usize % 3);
            let snapshot = db.snapshot();
            let before = value(&snapshot, first);
            let wal_bytes = db.stats().wal_writes.bytes;
            let count = ingest(&db, (first..first + 900).step_by(step), &format!("in {round}"));
            assert_eq!(count.unwrap(), 900_u64.div_ceil(step as u64));
            assert_eq!(db.stats().wal_writes.bytes, wal_bytes, "not through the log");
            for number in (first..first + 900).step_by(step) {
                map.insert(key(number), format!("in {round}").into_bytes());
            }
            assert_eq!(value(&snapshot, first), before);
            assert_eq!(value(&db, first).as_deref(), Some(&*format!("in {round}")));
            db.put(key(first), "after").unwrap();
            map.insert(key(first), b"after".to_vec());
            assert!(all(&db) == map, "round {round}");
            if round % 4 == 3 {
                drop(snapshot);
                db.close().unwrap();
                let report = criba::verify(dir.path()).unwrap();
                assert!(report.findings.is_empty(), "{report}");
                let db = options.clone().open(dir.path()).unwrap();
                assert!(all(&db) == map, "round {round}");
                db.close().unwrap();
                break;
            }
        }
        let db = options.clone().open(dir.path()).unwrap();
        assert!(all(&db) == map);
        db.compact().unwrap();
        assert!(all(&db) == map);
    }
}
