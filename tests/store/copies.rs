//! Copies and verification of a store that is only read, also beside the process that writes to it.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use criba::{CheckpointFiles, Db, FilterPolicy, Options, ReadOnlyDb, verify};

use crate::common::{self, files_with};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const COPIES: CheckpointFiles<'_> = CheckpointFiles { links: false, earlier: None };
const LINKS: CheckpointFiles<'_> = CheckpointFiles { links: true, earlier: None };

fn options() -> Options {
    common::options().memtable_bytes(16 << 10).table_bytes(16 << 10)
}

fn fill(db: &Db, numbers: std::ops::Range<u32>) -> Map {
    let mut map = Map::new();
    for number in numbers {
        let key = format!("key {number:06}").into_bytes();
        db.put(&key, number.to_be_bytes()).unwrap();
        map.insert(key, number.to_be_bytes().to_vec());
    }
    map
}

fn items(range: criba::Range) -> Map {
    range.map(Result::unwrap).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Checks that a copy is a sound store with these items, which takes writes. Does not keep them.
fn check(copy: &Path, expected: &Map) {
    assert!(verify(copy).unwrap().is_sound());
    let parent = common::tempdir();
    let dir = parent.path().join("written");
    common::copy_dir(copy, &dir);
    let db = options().background_threads(0).open(&dir).unwrap();
    assert!(items(db.iter()) == *expected);
    let later = fill(&db, 900_000..900_500);
    db.compact().unwrap();
    let all: Map = expected.clone().into_iter().chain(later).collect();
    assert!(items(db.iter()) == all);
}

fn inodes(dir: &Path, extension: &str) -> Vec<u64> {
    files_with(dir, extension).iter().map(|path| path.metadata().unwrap().ino()).collect()
}

#[test]
fn a_copy_has_tables_filters_and_what_the_logs_hold() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = options().background_threads(0).open(&dir).unwrap();
    let mut map = fill(&db, 0..2000);
    db.flush().unwrap();
    db.rebuild_filters(&FilterPolicy::ribbon()).unwrap();
    for number in 0..10 {
        let key = format!("key {number:06}").into_bytes();
        db.delete(&key).unwrap();
        map.remove(&key);
    }
    map.extend(fill(&db, 5000..5010));
    let reader = options().open_read_only(&dir).unwrap();
    for (name, files) in [("copied", COPIES), ("linked", LINKS)] {
        let copy = parent.path().join(name);
        reader.checkpoint(&copy, files).unwrap();
        check(&copy, &map);
        let [ours, theirs] = [&dir, &copy].map(|dir| inodes(dir, "sst"));
        let shared = theirs.iter().filter(|inode| ours.contains(inode)).count();
        assert_eq!(shared, if files.links { ours.len() } else { 0 });
        assert_eq!(theirs.len(), ours.len() + 1, "one for the log");
        assert!(!files_with(&copy, "flt").is_empty());
        assert!(reader.checkpoint(&copy, files).is_err(), "it is there");
        let again = parent.path().join(format!("{name} again"));
        let copied = options().open_read_only(&copy).unwrap();
        copied.checkpoint(&again, files).unwrap();
        check(&again, &map);
    }
    assert!(reader.checkpoint(dir.join("within"), COPIES).is_err());
    assert!(verify(&dir).is_err(), "it is still open");
    assert!(reader.verify(|_, _| {}).unwrap().is_sound());
}

#[test]
fn an_earlier_copy_gives_the_files_that_are_the_same() {
    let parent = common::tempdir();
    let [dir, first, second] = ["store", "first", "second"].map(|name| parent.path().join(name));
    let db = options().auto_compaction(false).background_threads(0).open(&dir).unwrap();
    let mut map = fill(&db, 0..2000);
    db.flush().unwrap();
    let reader = options().open_read_only(&dir).unwrap();
    reader.checkpoint(&first, COPIES).unwrap();
    let kept = inodes(&first, "sst");
    map.extend(fill(&db, 2000..2500));
    db.flush().unwrap();
    db.rebuild_filters(&FilterPolicy::ribbon()).unwrap();
    reader.refresh().unwrap();
    let files = CheckpointFiles { links: false, earlier: Some(&first) };
    reader.checkpoint(&second, files).unwrap();
    check(&second, &map);
    let found = inodes(&second, "sst");
    assert!(kept.iter().all(|inode| found.contains(inode)) && found.len() > kept.len());
    let ours = inodes(&dir, "sst");
    assert!(found.iter().all(|inode| !ours.contains(inode)));

    // Another store has tables of the same numbers.
    let [other, third] = ["other", "third"].map(|name| parent.path().join(name));
    let db = options().auto_compaction(false).background_threads(0).open(&other).unwrap();
    let map = fill(&db, 7000..9000);
    db.flush().unwrap();
    let reader = options().open_read_only(&other).unwrap();
    reader.checkpoint(&third, files).unwrap();
    check(&third, &map);
    assert!(inodes(&third, "sst").iter().all(|inode| !kept.contains(inode)));

    // So have two copies of one store, each with other writes since.
    let [restored, fourth] = ["restored", "fourth"].map(|name| parent.path().join(name));
    common::copy_dir(&first, &restored);
    let written = [(&first, 40_000..40_500), (&restored, 50_000..50_500)].map(|(dir, keys)| {
        let db = options().auto_compaction(false).background_threads(0).open(dir).unwrap();
        let mut map = items(db.iter());
        map.extend(fill(&db, keys));
        db.flush().unwrap();
        let ids: Vec<_> = db.tables().iter().map(|table| table.id).collect();
        (ids, map)
    });
    assert_eq!(written[0].0, written[1].0, "tables of the same numbers");
    let reader = options().open_read_only(&restored).unwrap();
    let files = CheckpointFiles { links: false, earlier: Some(&first) };
    reader.checkpoint(&fourth, files).unwrap();
    check(&fourth, &written[1].1);
}

/// Each copy has a prefix of the writes.
#[test]
fn copies_are_made_beside_a_writer_that_flushes_and_compacts() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = options().background_threads(1).open(&dir).unwrap();
    fill(&db, 0..1000);
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 1000;
            while !ends.load(Ordering::Relaxed) {
                fill(&db, number..number + 100);
                number += 100;
            }
        });
        for number in 0..8 {
            let reader = options().open_read_only(&dir).unwrap();
            let copy = parent.path().join(format!("copy {number}"));
            let links = number % 2 == 0;
            reader.checkpoint(&copy, CheckpointFiles { links, earlier: None }).unwrap();
            assert!(verify(&copy).unwrap().is_sound());
            assert!(reader.verify(|_, _| {}).unwrap().is_sound());
            let copy = options().open_read_only(&copy).unwrap();
            let keys = items(copy.iter());
            assert!(keys.len() >= 1000);
            for (number, key) in keys.keys().enumerate() {
                assert_eq!(*key, format!("key {number:06}").into_bytes());
            }
        }
        ends.store(true, Ordering::Relaxed);
    });
}

#[test]
fn damage_is_copied_and_found_in_both() {
    let parent = common::tempdir();
    let [dir, copy] = ["store", "copy"].map(|name| parent.path().join(name));
    let db = options().background_threads(0).open(&dir).unwrap();
    fill(&db, 0..2000);
    db.flush().unwrap();
    let table = files_with(&dir, "sst").remove(0);
    let file = std::fs::File::options().write(true).open(&table).unwrap();
    file.write_all_at(b"decayed!", 100).unwrap();
    let reader = options().open_read_only(&dir).unwrap();
    let found = reader.verify(|_, _| {}).unwrap();
    assert_eq!(found.findings.len(), 1, "{found}");
    assert_eq!(found.findings[0].path, table);
    reader.checkpoint(&copy, COPIES).unwrap();
    let found = verify(&copy).unwrap();
    assert_eq!(found.findings.len(), 1, "{found}");
    let is_whole = |reader: &ReadOnlyDb| reader.iter().all(|item| item.is_ok());
    assert!(!is_whole(&reader) && !is_whole(&options().open_read_only(&copy).unwrap()));
}
