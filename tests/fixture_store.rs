//! A store that an earlier criba wrote, and this one must read: `tests/fixtures/store-v1`.
//!
//! It was left open, as a crash leaves it: tables on L0 and below, tombstones, and changes that are
//! in the log only. It must never be made again while its version is supported, or the test shows
//! nothing. [`make_fixture`] made it:
//!
//! ```text
//! cargo test --test fixture_store make_fixture -- --ignored --nocapture
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use criba::{Batch, Durability, Options};

/// The changes made, one by one.
const CHANGES: u64 = 2400;
/// The keys that they are made to.
const KEYS: u64 = 800;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store-v1")
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

/// What the store holds after all changes.
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

/// The files as they were committed: name, length, CRC-32.
const FILES: &[(&str, usize, u32)] = &[
    ("000103.sst", 2632, 0x12e2_139a),
    ("000104.sst", 3344, 0x471f_6701),
    ("000105.sst", 2680, 0x967d_57db),
    ("000117.sst", 2695, 0xec6b_f95f),
    ("000121.sst", 3272, 0x1f67_5a29),
    ("000122.sst", 3200, 0x487e_56f2),
    ("000123.sst", 3272, 0x3b40_5af5),
    ("000125.sst", 3816, 0xd2ce_762b),
    ("000126.sst", 2592, 0xee58_8b5d),
    ("000128.sst", 2584, 0xdc57_d009),
    ("000129.sst", 2584, 0x6e4c_8d06),
    ("000130.sst", 530, 0x1a9e_50b0),
    ("000132.sst", 3216, 0x0c03_4d13),
    ("000134.sst", 1857, 0x834a_21fc),
    ("000135.log", 637, 0x38cd_89d6),
    ("000136.sst", 1793, 0xb591_e433),
    ("CURRENT", 33, 0xc67f_2631),
    ("LOCK", 0, 0x0000_0000),
    ("MANIFEST-000002", 13641, 0x1bbf_8589),
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
fn a_store_of_version_1_is_read_whole() {
    assert_unchanged();
    let dir = tempfile::tempdir().unwrap();
    for (name, _, _) in FILES {
        std::fs::copy(fixture().join(name), dir.path().join(name)).unwrap();
    }
    let options = || Options::new().background_threads(0).create_if_missing(false);
    let db = options().auto_compaction(false).open(dir.path()).unwrap();
    let report = db.recovery();
    assert!(report.logs == 1 && report.changes > 20, "{report:?}");
    assert_eq!((&report.lost_tail, &report.lost_edit), (&None, &None));
    let levels: Vec<usize> = db.tables().iter().map(|table| table.level).collect();
    assert!(levels.iter().filter(|&&level| level == 0).count() > 1, "{levels:?}");
    assert!(levels.iter().filter(|&&level| level > 0).count() > 1, "{levels:?}");
    assert!(db.tables().iter().any(|table| table.tombstones > 0));

    let expected = expected();
    let holds_all = |db: &criba::Db| {
        for number in 0..KEYS + 100 {
            let (key, value) = (key(number), db.get(key(number)).unwrap());
            let value = value.as_deref();
            assert_eq!(value, expected.get(&key).map(Vec::as_slice), "key {number}");
        }
        let all: Vec<_> = db
            .range::<&str>(..)
            .unwrap()
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

/// Makes the store, and prints what `FILES` must say.
#[test]
#[ignore = "makes the fixture anew, which only a new version of the format calls for"]
fn make_fixture() {
    assert!(!fixture().exists(), "it is there already, and must stay as it is");
    let db = Options::new()
        .seed(1)
        .background_threads(0)
        .memtable_bytes(9 << 10)
        .table_bytes(2 << 10)
        .block_bytes(1 << 10)
        .level_base_bytes(1 << 10)
        .l0_compaction_tables(5)
        .open(fixture())
        .unwrap();
    for first in (0..CHANGES).step_by(3) {
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
    for table in db.tables() {
        println!("{} on level {}: {} entries", table.id, table.level, table.entries);
    }
    for (name, length, sum) in files_of(&fixture()) {
        println!("    ({name:?}, {length}, {sum:#010x}),");
    }
    // Never closed: the log keeps what is not in tables, without an end record.
    std::mem::forget(db);
}
