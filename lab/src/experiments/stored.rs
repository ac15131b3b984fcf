//! Deterministic stores without a cache, whose table reads the engine and the file layer count.

use std::sync::Arc;
use std::time::{Duration, Instant};

use criba::vfs::{CountingVfs, FileKind, Operation, RealVfs};
use criba::{Batch, Counts, Db, FilterInfo, FilterPolicy, Options, TableInfo};
use criba_cli::Result;
use siphasher::sip::SipHasher13;

use crate::check::Check;
use crate::experiment::Setting;

/// A store that flushes and compacts only on request.
pub(super) struct Stored {
    pub(super) db: Db,
    counting: CountingVfs,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lookups {
    pub(super) made: u64,
    /// Those that found their value.
    pub(super) found: u64,
    pub(super) time: Duration,
    /// As the engine counted.
    pub(super) counts: Counts,
    /// As the file layer counted.
    pub(super) file_reads: u64,
}

impl std::iter::Sum for Lookups {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, next| Self {
            made: sum.made + next.made,
            found: sum.found + next.found,
            time: sum.time + next.time,
            counts: sum.counts + next.counts,
            file_reads: sum.file_reads + next.file_reads,
        })
    }
}

impl Lookups {
    /// The two counts of the same reads.
    pub(super) fn agree(&self, of: &str) -> Check {
        let (file, engine) = (self.file_reads as f64, self.counts.disk_reads as f64);
        let quantity = format!("disk reads that the engine counted, {of}");
        Check::exact(quantity, "those of the file layer", file, engine)
    }
}

/// About one key in a hundred thousand would lie outside the table's range. With these keys in every table,
/// each of [`scattered`] is inside.
const EDGES: [&[u8]; 2] = [&[0], &[0xFF; 17]];
const BATCH: usize = 1000;

/// The i-th of distinct keys, scattered over one range.
pub(super) fn scattered(i: u64) -> [u8; 16] {
    let hash = SipHasher13::new().hash(&i.to_le_bytes());
    (u128::from(hash) << 64 | u128::from(i)).to_be_bytes()
}

impl Stored {
    /// An empty store in a directory of this name.
    pub(super) fn new(setting: &Setting, name: &str, filter: FilterPolicy) -> Result<Self> {
        let counting = CountingVfs::new(Arc::new(RealVfs));
        let options = Options::new()
            .filter(filter)
            .seed(setting.seed(name))
            .cache_bytes(0)
            .memtable_bytes(8 << 30) // ten million keys, and what keeps them in order
            .table_bytes(8 << 30)
            .background_threads(0)
            .auto_compaction(false)
            .vfs(Arc::new(counting.clone()));
        Ok(Self { db: options.open(setting.directory(name)?)?, counting })
    }

    /// The geometry and the keys of its only table.
    pub(super) fn shape(&self) -> ((u64, u32), u64) {
        match &self.db.tables()[..] {
            [TableInfo { filter: FilterInfo::Active { geometry, .. }, keys, .. }] => {
                ((geometry.m, geometry.k), *keys)
            }
            _ => ((1, 1), 0),
        }
    }

    /// Puts keys, and two [at the edges](EDGES), and flushes a table.
    pub(super) fn put(&self, keys: impl IntoIterator<Item = u64>) -> Result<()> {
        let mut batch = Batch::new();
        for edge in EDGES {
            batch.put(edge, "an edge");
        }
        for (i, key) in keys.into_iter().enumerate() {
            batch.put(scattered(key), key.to_string());
            if i % BATCH == BATCH - 1 {
                self.db.write(std::mem::take(&mut batch))?;
            }
        }
        self.db.write(batch)?;
        Ok(self.db.flush()?)
    }

    pub(super) fn look_up(&self, keys: impl IntoIterator<Item = u64>) -> Result<Lookups> {
        let file_reads = || self.counting.counts().of(FileKind::Table, Operation::Read).calls;
        let (before, reads_before) = (self.db.stats().total(), file_reads());
        let (mut made, mut found, start) = (0, 0, Instant::now());
        for key in keys {
            made += 1;
            let value = self.db.get(scattered(key))?;
            found += u64::from(value.is_some_and(|value| value == key.to_string().as_bytes()));
        }
        let time = start.elapsed();
        let counts = self.db.stats().total() - before;
        Ok(Lookups { made, found, time, counts, file_reads: file_reads() - reads_before })
    }
}
