//! The study's file of user names and e-mail addresses, as a store of one SSTable with an exchangeable
//! filter.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criba::vfs::{CountingVfs, FileKind, Operation, RealVfs};
use criba::{Batch, Db, FilterInfo, FilterPolicy, Options};
use criba_cli::readamp::input::Input;
use criba_cli::{Failure, Result};

pub(super) struct Directory {
    db: Db,
    files: CountingVfs,
    input: Input,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Lookups {
    pub(super) present: u64,
    /// Right answers: present names with their e-mail address, absent ones without.
    pub(super) right: u64,
    pub(super) queries: u64,
    pub(super) present_reads: u64,
    /// Absent names that probed the filter.
    pub(super) absent: u64,
    /// Absent names outside the table's key range, without a probe.
    pub(super) out_of_range: u64,
    /// Disk reads of absent names: the filter's false positives.
    pub(super) absent_reads: u64,
    /// Table reads, as the file layer counts.
    pub(super) file_reads: u64,
    pub(super) present_time: Duration,
    pub(super) absent_time: Duration,
}

impl Lookups {
    pub(super) fn reads(&self) -> u64 {
        self.present_reads + self.absent_reads
    }
}

impl Directory {
    /// Loads `present` made-up names, and keeps `absent` others.
    pub(super) fn new(dir: &Path, present: u64, absent: u64, seed: u64) -> Result<Self> {
        let input = Input::made_up(present, absent, seed);
        let files = CountingVfs::new(Arc::new(RealVfs));
        let db = Options::new()
            .filter(FilterPolicy::none())
            .seed(seed)
            .cache_bytes(0)
            .memtable_bytes(8 << 30) // ten million names, and what keeps them in order
            .table_bytes(8 << 30)
            .background_threads(0)
            .auto_compaction(false)
            .vfs(Arc::new(files.clone()))
            .open(dir)?;
        for pairs in input.present.chunks(1000) {
            let mut batch = Batch::new();
            for (name, address) in pairs {
                batch.put(name, address);
            }
            db.write(batch)?;
        }
        db.flush()?;
        let tables = db.tables().len();
        if tables != 1 {
            return Err(Failure::unfit(dir, "a store of one table", format!("{tables} tables")));
        }
        Ok(Self { db, files, input })
    }

    /// Gives the table a filter of m bits and k probes. Returns its bytes, and whether it has this shape.
    pub(super) fn set_filter(&self, m: u64, k: u32) -> Result<(usize, bool)> {
        self.db.rebuild_filters(&FilterPolicy::default().with_geometry(m, k))?;
        Ok(match &self.db.tables()[0].filter {
            FilterInfo::Active { geometry, bytes, .. } => {
                (*bytes, (geometry.m, geometry.k) == (m, k))
            }
            _ => (0, false),
        })
    }

    /// Looks up the first names of each kind, and counts.
    pub(super) fn look_up(&self, present: usize, absent: usize) -> Result<Lookups> {
        let table_reads = || self.files.counts().of(FileKind::Table, Operation::Read).calls;
        let file_reads = table_reads();
        let before = self.db.stats().total();
        let start = Instant::now();
        let mut right = 0;
        for (name, address) in &self.input.present[..present] {
            right += u64::from(self.db.get(name)?.is_some_and(|value| value == address[..]));
        }
        let present_time = start.elapsed();
        let between = self.db.stats().total();
        let start = Instant::now();
        for name in &self.input.absent[..absent] {
            right += u64::from(self.db.get(name)?.is_none());
        }
        let absent_time = start.elapsed();
        let after = self.db.stats().total() - between;
        Ok(Lookups {
            present: present as u64,
            right,
            queries: (present + absent) as u64,
            present_reads: (between - before).disk_reads,
            absent: after.absent_probes(),
            out_of_range: after.range_pruned,
            absent_reads: after.disk_reads,
            file_reads: table_reads() - file_reads,
            present_time,
            absent_time,
        })
    }
}
