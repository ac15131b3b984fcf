//! A store of an earlier criba, which this one must read: `tests/fixtures/store-v2`.
//!
//! A crash left it open: tables on L0 and below, with filters of each kind, also blocked ones, and without, tombstones, and
//! changes only in the log. Version 2 of the format is that of the first release, 0.1.0. From then on the store must
//! not be made again while its version is supported, or the test shows nothing. [`make_fixture`] made it:
//!
//! ```text
//! cargo test --test store make_fixture -- --ignored --nocapture
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use criba::{
    Batch, Db, Durability, Event, FilterInfo, FilterKind, FilterPolicy, HashFunction, Options,
    TableInfo,
};

use crate::common;

/// The number of changes, made one by one.
const CHANGES: u64 = 2400;
/// The number of their keys.
const KEYS: u64 = 800;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/store-v2")
}

fn key(number: u64) -> Vec<u8> {
    if number == 0 { Vec::new() } else { format!("key/{number:05}").into_bytes() }
}

/// Change number `number`: a key, and its new value or `None` for a tombstone.
fn change(number: u64) -> (Vec<u8>, Option<Vec<u8>>) {
    let key = key(number * number % 9973 * 31 % KEYS);
    let length = if number.is_multiple_of(101) { 1500 } else { number % 23 };
    let value = (0..length).map(|i| (number * 7 + i) as u8).collect();
    (key, (number % 4 != 3).then_some(value))
}

/// The contents after all changes.
fn expected() -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut expected = BTreeMap::new();
    for number in 0..CHANGES {
        match change(number) {
            (key, Some(value)) => expected.insert(key, value),
            (key, None) => expected.remove(&key),
        };
    }
    expected
}

/// The committed files: name, length, CRC-32.
const FILES: &[(&str, usize, u32)] = &[
    ("000013.sst", 2572, 0xcc9c_9b76),
    ("000014.sst", 3053, 0x5fea_e7bc),
    ("000015.sst", 2700, 0xcb55_6fcd),
    ("000016.sst", 3620, 0x7599_f9aa),
    ("000017.sst", 2692, 0xb93f_d9fe),
    ("000018.sst", 2717, 0x11ab_8d3f),
    ("000019.sst", 3148, 0xc39d_d692),
    ("000020.sst", 606, 0x33f7_e78f),
    ("000024.sst", 9158, 0x2ba5_cd60),
    ("000026.sst", 1486, 0xdda5_6722),
    ("000030.sst", 7029, 0x94d3_79a3),
    ("000032.sst", 1016, 0x29fd_d6cf),
    ("000036.sst", 6008, 0x2a91_0b5b),
    ("000037.log", 5120, 0xd283_85c7),
    ("000038.sst", 5802, 0x6769_e1dd),
    ("CURRENT", 33, 0x486b_6713),
    ("LOCK", 0, 0x0000_0000),
    ("MANIFEST-000034", 6064, 0x750f_3993),
];

fn files_of(dir: &Path) -> Vec<(String, usize, u32)> {
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let bytes = std::fs::read(entry.path()).unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, bytes.len(), crc32fast::hash(&bytes))
        })
        .collect();
    files.sort();
    files
}

fn assert_unchanged() {
    let files = files_of(&fixture());
    let names: Vec<(&str, usize, u32)> =
        files.iter().map(|(name, length, sum)| (name.as_str(), *length, *sum)).collect();
    assert_eq!(names, FILES, "the committed store was changed");
}

#[test]
fn a_store_of_version_2_is_read_whole() {
    assert_unchanged();
    let dir = common::tempdir();
    for (name, _, _) in FILES {
        std::fs::copy(fixture().join(name), dir.path().join(name)).unwrap();
    }
    let options = || common::options().background_threads(0).create_if_missing(false);
    let db = options().auto_compaction(false).open(dir.path()).unwrap();
    let report = db.recovery();
    assert!(report.logs == 1 && report.changes > 20, "{report:?}");
    assert_eq!((&report.lost_tail, &report.lost_edit), (&None, &None));
    let levels: Vec<usize> = db.tables().iter().map(|table| table.level).collect();
    assert!(levels.iter().filter(|&&level| level == 0).count() > 1, "{levels:?}");
    assert!(levels.iter().filter(|&&level| level > 0).count() > 1, "{levels:?}");
    assert!(db.tables().iter().any(|table| table.tombstones > 0));
    let filters: Vec<_> = db.tables().iter().map(|table| kind_and_hash(&table.filter)).collect();
    for expected in [Some((FilterKind::Bloom, HashFunction::MurmurHash2)), None] {
        assert!(filters.contains(&expected), "no {expected:?} among {filters:?}");
    }

    let expected = expected();
    let holds_all = |db: &Db| {
        for number in 0..KEYS + 100 {
            let (key, value) = (key(number), db.get(key(number)).unwrap());
            let value = value.as_deref();
            assert_eq!(value, expected.get(&key).map(Vec::as_slice), "key {number}");
        }
        let all: Vec<_> = db
            .iter()
            .map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
            .collect();
        assert!(all.into_iter().eq(expected.clone()));
    };
    holds_all(&db);
    db.close().unwrap();
    // Once more, from what this criba made of it, and merged into one run.
    let db = options().open(dir.path()).unwrap();
    holds_all(&db);
    db.compact().unwrap();
    holds_all(&db);
    db.close().unwrap();
    assert_unchanged();
}

/// Makes the store, and prints the lines of `FILES`.
#[test]
#[ignore = "makes the fixture anew, which only a new version of the format calls for"]
fn make_fixture() {
    assert!(!fixture().exists(), "it is there already, and must stay as it is");
    // The first half is merged as it comes; then tables of other kinds are left to lie on L0.
    let small = || {
        Options::new()
            .seed(1)
            .background_threads(0)
            .memtable_bytes(20 << 10)
            .table_bytes(2 << 10)
            .block_bytes(1 << 10)
            .level_base_bytes(1 << 10)
            .l0_compaction_trigger(5)
    };
    let unmerged = |policy| small().filter(policy).auto_compaction(false);
    let quarter = CHANGES / 4;
    let db = small().filter(FilterPolicy::classic()).open(fixture()).unwrap();
    write(&db, 0..2 * quarter);
    db.flush().unwrap();
    db.close().unwrap();
    // The committed store has blocked filters here, and ribbons of one layer below: stores had both when it was made.
    let db = unmerged(FilterPolicy::bloom()).open(fixture()).unwrap();
    write(&db, 2 * quarter..2 * quarter + 300);
    db.flush().unwrap();
    db.close().unwrap();
    let db = unmerged(FilterPolicy::none()).open(fixture()).unwrap();
    write(&db, 2 * quarter + 300..3 * quarter);
    db.flush().unwrap();
    db.close().unwrap();
    // Columns and a half, so that some segments are wide.
    let db = unmerged(FilterPolicy::ribbon().with_bits_per_key(9.4)).open(fixture()).unwrap();
    write(&db, 3 * quarter..CHANGES);
    for table in db.tables() {
        println!(
            "{} on level {}: {} entries, {:?}",
            table.id, table.level, table.entries, table.filter
        );
    }
    for (name, length, sum) in files_of(&fixture()) {
        println!("    ({name:?}, {length}, {:#06x}_{:04x}),", sum >> 16, sum & 0xffff);
    }
    // Never closed: the log keeps what is not in tables, without an end frame.
    std::mem::forget(db);
}

/// Makes some of the changes, three in a batch.
fn write(db: &Db, changes: Range<u64>) {
    for first in changes.step_by(3) {
        let mut batch = Batch::new();
        for number in first..first + 3 {
            match change(number) {
                (key, Some(value)) => batch.put(key, value),
                (key, None) => batch.delete(key),
            };
        }
        let durability =
            if first.is_multiple_of(8) { Durability::Synced } else { Durability::Buffered };
        db.write_with(batch, durability).unwrap();
    }
}

/// Blocked filters and ribbons of one layer, which stores had when the fixture was made.
#[test]
fn filters_of_old_kinds_answer_maybe_until_a_rebuild() {
    let dir = common::tempdir();
    for (name, _, _) in FILES {
        std::fs::copy(fixture().join(name), dir.path().join(name)).unwrap();
    }
    let verified = criba::verify(dir.path()).unwrap();
    assert!(verified.is_sound(), "{:?}", verified.findings);
    let old_kinds = ["a blocked filter", "a ribbon of one layer"];
    let of_kinds =
        |texts: &[&str]| old_kinds.map(|old| texts.iter().filter(|t| t.contains(old)).count());
    let noted: Vec<_> = verified.notes.iter().map(|note| &*note.what).collect();
    let noted = of_kinds(&noted);
    let degraded = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&degraded);
    let options = common::options().background_threads(0).auto_compaction(false);
    let options = options.on_event(move |event| {
        if let Event::FilterDegraded { reason, .. } = event {
            assert!(reason.contains("rebuild"), "{reason}");
            heard.lock().unwrap().push(reason.clone());
        }
    });
    let db = options.open(dir.path()).unwrap();
    let old = |db: &Db| {
        let old = |t: &TableInfo| matches!(&t.filter, FilterInfo::Degraded { .. });
        db.tables().iter().filter(|table| old(table)).count()
    };
    let reasons = degraded.lock().unwrap().clone();
    let reasons = of_kinds(&reasons.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!((noted, reasons, old(&db)), ([2, 2], [2, 2], 4));
    for (key, value) in expected() {
        assert_eq!(db.get(&key).unwrap().as_deref(), Some(value.as_slice()), "{key:?}");
    }
    db.rebuild_filters(&db.policy()).unwrap();
    assert_eq!(old(&db), 0);
    db.close().unwrap();
    let verified = criba::verify(dir.path()).unwrap();
    // The filter blocks of the tables are not in use any more.
    assert!(verified.is_sound());
    let is_old = |what: &str| old_kinds.iter().any(|old| what.contains(old));
    assert!(!verified.notes.iter().any(|note| is_old(&note.what)));
}

fn kind_and_hash(filter: &FilterInfo) -> Option<(FilterKind, HashFunction)> {
    match filter {
        FilterInfo::Active { kind, hash, .. } => Some((*kind, *hash)),
        FilterInfo::None => None,
        FilterInfo::Degraded { reason } if reason.contains("which stores no longer have") => None,
        other => panic!("{other:?}"),
    }
}
