//! A store of two tables whose filters are damaged, and the check of its answers.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use criba::{FilterInfo, FilterPolicy, Options, TableFile, Verdict};

use crate::common::{HookVfs, contents, files_with, restore, tempdir};

pub(crate) const KEYS: u32 = 24;

/// A policy for each kind, at 10 bits a key.
pub(crate) fn policies() -> [FilterPolicy; 3] {
    let classic = FilterPolicy::classic().with_bits_per_key(10.0);
    [classic, FilterPolicy::bloom(), FilterPolicy::ribbon()]
}

pub(crate) fn options(policy: FilterPolicy) -> Options {
    Options::new()
        .background_threads(0)
        .auto_compaction(false)
        .cache_bytes(0)
        .filter(policy)
        .seed(1)
        .vfs(HookVfs::without_syncs())
}

pub(crate) fn key(table: u32, number: u32) -> Vec<u8> {
    // Each table's range covers the other's keys, but for one at each end.
    format!("key {number:03} of {table}").into_bytes()
}

/// A closed store of two tables of equal size, and its undamaged files.
pub(crate) struct Store {
    pub(crate) policy: FilterPolicy,
    pub(crate) dir: PathBuf,
    /// The older one first.
    pub(crate) tables: [PathBuf; 2],
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    _parent: tempfile::TempDir,
}

impl Store {
    pub(crate) fn new(policy: FilterPolicy) -> Self {
        let parent = tempdir();
        let dir = parent.path().join("store");
        let db = options(policy).open(&dir).unwrap();
        for table in 0..2 {
            for number in 0..KEYS {
                db.put(key(table, number), format!("value {table} {number:03}")).unwrap();
            }
            db.flush().unwrap();
        }
        db.close().unwrap();
        let tables: [PathBuf; 2] = files_with(&dir, "sst").try_into().unwrap();
        let files = contents(&dir);
        let store = Self { policy, dir, tables, files, _parent: parent };
        assert_eq!(filter_block(store.sound(0)), filter_block(store.sound(1)));
        store
    }

    /// The original bytes of a table.
    pub(crate) fn sound(&self, table: usize) -> &[u8] {
        &self.files[self.tables[table].file_name().unwrap().to_str().unwrap()]
    }

    /// Restores all files but these.
    pub(crate) fn set(&self, changed: &[(&Path, &[u8])]) {
        restore(&self.dir, &self.files);
        for (path, bytes) in changed {
            std::fs::write(path, bytes).unwrap();
        }
    }

    /// Opens the store with some damaged filters, and looks up every key.
    pub(crate) fn check(&self, damaged: &[usize], what: &str) {
        let what = format!("{}, {what}", self.policy);
        let db = options(self.policy).open(&self.dir);
        let db = db.unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut tables = db.tables();
        tables.sort_by_key(|table| table.id);
        for (number, table) in tables.iter().enumerate() {
            let named = damaged.contains(&number);
            match &table.filter {
                FilterInfo::Degraded { reason } => assert!(named && !reason.is_empty(), "{what}"),
                FilterInfo::Active { .. } => assert!(!named, "{what}: table {number}"),
                other => panic!("{what}: {other:?}"),
            }
        }
        // The tables are on L0: a lookup probes the newer one first, if its range covers the key.
        let mut expected = [0; 2];
        let mut count = |probed: &[u8], holder: Option<usize>| {
            for number in [1, 0] {
                let range = tables[number].smallest.as_ref()..=tables[number].largest.as_ref();
                expected[number] += u64::from(range.contains(&probed) && damaged.contains(&number));
                if holder == Some(number) {
                    break;
                }
            }
        };
        for table in 0..2 {
            for number in 0..KEYS {
                let value = db.get(key(table, number)).unwrap();
                let expected = format!("value {table} {number:03}");
                assert_eq!(value.as_deref(), Some(expected.as_bytes()), "{what}");
                count(&key(table, number), Some(table as usize));
            }
        }
        for number in 1..KEYS - 1 {
            let absent = format!("key {number:03} of x");
            assert_eq!(db.get(&absent).unwrap(), None, "{what}");
            count(absent.as_bytes(), None);
        }
        let total = db.stats().total();
        assert!(damaged.is_empty() || total.degraded > u64::from(KEYS), "{what}: not counted");
        assert_eq!(total.degraded, expected.iter().sum::<u64>(), "{what}");
        assert_eq!(total.degraded, total.unfiltered(), "{what}");
        let of_tables: Vec<_> =
            db.tables().into_iter().map(|t| (t.id, t.counts.degraded)).collect();
        for (table, expected) in tables.iter().zip(expected) {
            assert!(of_tables.contains(&(table.id, expected)), "{what}: {of_tables:?}");
        }
    }
}

/// The place of a table's filter block, with its trailer of five bytes.
pub(crate) fn filter_block(table: &[u8]) -> Range<usize> {
    let footer = &table[table.len() - 128..];
    let field = |at: usize| u64::from_le_bytes(footer[at..at + 8].try_into().unwrap()) as usize;
    let (offset, length) = (field(0), field(8));
    assert_eq!(offset % 64, 0);
    offset..offset + length + 5
}

/// The number of the table's own keys that its filter denies, as `verify` counts; `None` if it is degraded.
pub(crate) fn denied(table: &Path) -> Option<usize> {
    let file = TableFile::open(table).unwrap();
    if matches!(file.filter(), FilterInfo::Degraded { .. }) {
        assert_eq!(file.verdict("anything"), Verdict::Degraded);
        return None;
    }
    Some(file.entries().filter(|e| file.verdict(&e.as_ref().unwrap().key) == Verdict::No).count())
}
