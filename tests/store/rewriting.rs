//! `compact_rewriting` writes each table anew, on its level, under the settings of now.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;

use criba::{Db, Error, FilterInfo, FilterKind, FilterPolicy, Options, verify};

use crate::common;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Options {
    common::options()
        .block_bytes(512)
        .memtable_bytes(32 << 10)
        .table_bytes(16 << 10)
        .level_base_bytes(16 << 10)
}

/// Fills a store of several levels, with deleted and overwritten keys. Returns what it holds.
fn fill(db: &Db) -> Map {
    let mut map = Map::new();
    for number in 0..12_000_u32 {
        let key = format!("key {:05}", number * 7919 % 9000).into_bytes();
        if number % 5 == 4 {
            db.delete(&key).unwrap();
            map.remove(&key);
        } else {
            db.put(&key, number.to_be_bytes().repeat(5)).unwrap();
            map.insert(key, number.to_be_bytes().repeat(5));
        }
    }
    db.flush().unwrap();
    map
}

fn items(items: criba::Range) -> Map {
    items.map(Result::unwrap).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn ids(db: &Db) -> Vec<u64> {
    db.tables().iter().map(|table| table.id).collect()
}

#[test]
fn each_table_is_written_anew_on_its_level_and_every_answer_stays() {
    for threads in [0, 1] {
        let dir = common::tempdir();
        let db = options().background_threads(threads).open(dir.path()).unwrap();
        let map = fill(&db);
        db.close().unwrap();
        // So that tables stay on L0.
        let options = || options().auto_compaction(false).background_threads(threads);
        let db = options().open(dir.path()).unwrap();
        let snapshot = db.snapshot();
        for value in ["new", "newer"] {
            db.put("key 00000", value).unwrap();
            db.flush().unwrap();
        }
        let levels: Vec<usize> = db.tables().iter().map(|table| table.level).collect();
        assert!(levels.contains(&0) && levels.iter().any(|&level| level > 0), "{levels:?}");
        let old = ids(&db);
        let limit = old.iter().max().unwrap() + 1;
        db.set_policy(FilterPolicy::ribbon()).unwrap();
        let rewritten = db.compact_rewriting(limit).unwrap();
        assert_eq!(rewritten, old.len() as u64);
        let after: Vec<usize> = db.tables().iter().map(|table| table.level).collect();
        assert!(levels.iter().all(|level| after.contains(level)), "{levels:?}, {after:?}");
        let new = ids(&db);
        assert!(old.iter().all(|id| !new.contains(id)), "{old:?}, {new:?}");
        let has_ribbon =
            |filter| matches!(filter, FilterInfo::Active { kind: FilterKind::Ribbon, .. });
        assert!(db.tables().into_iter().all(|table| has_ribbon(table.filter)));
        assert_eq!(items(snapshot.iter()), map);
        // It goes on where it was, and there is nothing left.
        assert_eq!(db.compact_rewriting(limit).unwrap(), 0);
        assert_eq!(ids(&db), new);
        drop(snapshot);
        let now = items(db.iter());
        assert_eq!((now.len(), now[&b"key 00000"[..]].as_slice()), (map.len(), &b"newer"[..]));
        db.close().unwrap();
        assert!(verify(dir.path()).unwrap().is_sound());
        let db = options().open(dir.path()).unwrap();
        assert_eq!(items(db.iter()), now);
    }
}

#[test]
fn a_damaged_table_stays_and_the_others_are_rewritten() {
    let dir = common::tempdir();
    let map = {
        let db = options().background_threads(0).open(dir.path()).unwrap();
        fill(&db)
    };
    let db = options().auto_compaction(false).background_threads(0).open(dir.path()).unwrap();
    let tables = db.tables();
    let damaged = tables[tables.len() / 2].id;
    let path = dir.path().join(format!("{damaged:06}.sst"));
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 100).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 100).unwrap();
    let old = ids(&db);
    match db.compact_rewriting(u64::MAX) {
        Err(Error::Corrupt { path, .. }) => assert!(path.ends_with(format!("{damaged:06}.sst"))),
        other => panic!("{other:?}"),
    }
    let kept: Vec<_> = ids(&db).into_iter().filter(|id| old.contains(id)).collect();
    assert_eq!(kept, [damaged]);
    file.write_all_at(&byte, 100).unwrap();
    assert_eq!(items(db.iter()), map);
}
