//! A store of several levels, and the reads that its lookups waste.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criba::vfs::{CountingVfs, FileKind, Operation, RealVfs};
use criba::{Db, FilterInfo, FilterPolicy, LEVELS, Options, TableInfo};
use criba_cli::Result;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use super::experiment::Setting;

const BATCH: u64 = 1000;

/// A key of the store: even numbers are present, odd ones absent.
fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The directory of a store loaded with `keys` keys in random order, and more until it has four levels of at
/// least a thousand keys each, and two L0 tables. Each level has about ten times the one above.
///
/// # Errors
/// The errors of the store.
pub fn loaded(setting: &Setting, keys: u64) -> Result<PathBuf> {
    setting.begin("loading a store", keys);
    let dir = setting.directory("layered")?;
    let db = options(setting).filter(FilterPolicy::none()).open(&dir)?;
    let (mut random, mut number) = (setting.random("present keys"), 0);
    while number < keys || !is_layered(&db) {
        for _ in 0..BATCH {
            db.put(key(random.random::<u64>() & !1), "v")?;
        }
        number += BATCH;
        setting.step(BATCH);
    }
    db.close()?;
    Ok(dir)
}

fn is_layered(db: &Db) -> bool {
    let levels = levels(db);
    levels.len() >= 4
        && levels.iter().all(|(_, _, keys)| *keys >= 1000)
        && levels.iter().any(|(level, tables, _)| *level == 0 && *tables >= 2)
}

/// The level, tables and keys of each level in use.
pub fn levels(db: &Db) -> Vec<(usize, usize, u64)> {
    let tables = db.tables();
    let of = |level: usize| {
        let at = || tables.iter().filter(move |table| table.level == level);
        (level, at().count(), at().map(|table| table.keys).sum())
    };
    (0..LEVELS).map(of).filter(|(_, tables, _)| *tables > 0).collect()
}

fn options(setting: &Setting) -> Options {
    Options::new()
        .background_threads(0)
        .seed(setting.seed("store"))
        .cache_bytes(0)
        .block_bytes(512)
        .memtable_bytes(256 << 10)
        .table_bytes(96 << 10)
        .level_base_bytes(30 << 10)
}

/// A loaded store whose tables do not change.
#[derive(Debug)]
pub struct Layered {
    /// The store.
    pub db: Db,
    counting: CountingVfs,
    absent: ChaCha8Rng,
    /// Removed with the store.
    _dir: TempDir,
}

/// What absent keys met.
#[derive(Debug, Clone, Default)]
pub struct Met {
    /// How many were asked for.
    pub lookups: u64,
    /// The blocks read, as the engine counts.
    pub reads: u64,
    /// Reads of table files, as the file layer counts.
    pub file_reads: u64,
    /// By table: the keys that probed it and passed its filter.
    pub asked: BTreeMap<u64, u64>,
}

impl Layered {
    /// Opens a copy of a store. `stream` names the sequence of absent keys.
    ///
    /// # Errors
    /// The errors of the store; [`Failure::File`](criba_cli::Failure::File).
    pub fn open(setting: &Setting, of: &Path, stream: &str) -> Result<Self> {
        let dir = setting.copy(of)?;
        let counting = CountingVfs::new(Arc::new(RealVfs));
        let options = options(setting).filter(FilterPolicy::none());
        let options = options.auto_compaction(false).vfs(Arc::new(counting.clone()));
        let db = options.open(dir.path())?;
        Ok(Self { db, counting, absent: setting.random(stream), _dir: dir })
    }

    /// An absent key, from the same distribution as the present ones.
    pub fn absent_key(&mut self) -> [u8; 8] {
        key(self.absent.random::<u64>() | 1)
    }

    /// Looks up new absent keys.
    ///
    /// # Errors
    /// The errors of the store.
    pub fn ask(&mut self, lookups: u64) -> Result<Met> {
        let file_reads = |c: &CountingVfs| c.counts().of(FileKind::Table, Operation::Read).calls;
        let asked = |tables: Vec<TableInfo>| -> BTreeMap<u64, u64> {
            let asked = |t: TableInfo| (t.id, t.counts.probes());
            tables.into_iter().map(asked).collect()
        };
        let (before, files_before) = (asked(self.db.tables()), file_reads(&self.counting));
        let mut met = Met { lookups, ..Met::default() };
        for _ in 0..lookups {
            let key = self.absent_key();
            met.reads += self.db.explain(key)?.counts().disk_reads;
        }
        met.file_reads = file_reads(&self.counting) - files_before;
        met.asked = asked(self.db.tables());
        for (id, asked) in &mut met.asked {
            *asked -= before.get(id).copied().unwrap_or(0);
        }
        Ok(met)
    }
}

/// The rate of a table's finished filter; `None` without a filter.
pub fn filter_of(table: &TableInfo) -> Option<f64> {
    match &table.filter {
        FilterInfo::Active { predicted_rate, .. } => Some(*predicted_rate),
        _ => None,
    }
}
