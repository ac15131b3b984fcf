//! The public handle of a store that is only read.

use std::fmt;
use std::ops::{Bound, Deref};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;

use super::copy::{self, CheckpointFiles};
use super::info::{self, MemoryUse, TableInfo};
use super::metrics::{of_files, of_handle};
use super::snapshot::Snapshot;
use crate::directory::{disk_bytes, not_a_store};
use crate::engine::scan::Scan;
use crate::error::Result;
use crate::filter::{FilterPolicy, PrefixExtractor};
use crate::filter_manager::advise::{Advice, advise};
use crate::fork;
use crate::ledger::Stats;
use crate::lookup::{Lookups, Now, When};
use crate::options::Options;
use crate::recovery::open::RecoveryReport;
use crate::recovery::open_tables::check_filters;
use crate::recovery::read_only_state::ReadOnlyState;
use crate::sstable::Compression;
use crate::store_dir::{StoreDir, absolute};
use crate::sync::Mutex;
use crate::view::ReadView;

/// How often a checkpoint begins again because the writer removed a file meanwhile.
const ATTEMPTS: usize = 20;

/// A handle of a store that is only read, from [`Options::open_read_only`]. Clones share the state.
///
/// It shows the store as of its opening, until [`refresh`](Self::refresh) reads it again. It shows a prefix of
/// all writes: those that were synced before, and, if the writing process is on this machine, those that were
/// acknowledged before; perhaps later ones. A write that fails may be shown for a while.
///
/// Nothing in the directory is created, changed, removed or locked, so it works beside a process that writes
/// to the store, on a full disk, and on read-only media. What logs hold is in memory.
///
/// It keeps one file of each table open, also of tables that only its snapshots and scans still hold, because
/// the writer may remove the names. No call waits for the writer; `refresh` waits for another `refresh`.
#[derive(Clone)]
pub struct ReadOnlyDb(Arc<Shared>);

struct Shared {
    dir: StoreDir,
    options: Options,
    loaded: ArcSwap<ReadOnlyState>,
    refreshing: Mutex<()>,
}

impl fmt::Debug for ReadOnlyDb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadOnlyDb").field(&self.0.dir.path()).finish()
    }
}

impl Options {
    /// Opens the store in a directory for reading only: see [`ReadOnlyDb`]. Of the options, only those for
    /// reading count. The store must exist.
    ///
    /// A store that another process changes meanwhile is read again. Damage is an error only if it is found
    /// twice while the manifest stays as it is. A [`filter_memory`](Self::filter_memory) is shared out at the
    /// opening and at each refresh that finds a change; filters that only a snapshot or scan holds are beyond it.
    ///
    /// Cost: two reads for each table, one of them for its filter. Each log is read once, into memory.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::Error::InvalidOption): there are more tables than
    /// [`max_open_files`](Self::max_open_files); [`NotAStore`](crate::Error::NotAStore);
    /// [`MemoryLimit`](crate::Error::MemoryLimit); [`Corrupt`](crate::Error::Corrupt);
    /// [`Missing`](crate::Error::Missing);
    /// [`Unsupported`](crate::Error::Unsupported); [`InvalidPath`](crate::Error::InvalidPath);
    /// [`Io`](crate::Error::Io).
    pub fn open_read_only(self, dir: impl AsRef<Path>) -> Result<ReadOnlyDb> {
        self.check()?;
        fork::watch()?;
        let (path, options) = (absolute(dir.as_ref())?, self.create_if_missing(false));
        let dir = StoreDir::open(&options.vfs, &path, options.file_mode)?;
        let dir = dir.ok_or_else(|| not_a_store(&path, "nothing"))?;
        let loaded = load(&dir, &options, None)?;
        let (loaded, refreshing) = (ArcSwap::from_pointee(loaded), Mutex::new(()));
        Ok(ReadOnlyDb(Arc::new(Shared { dir, options, loaded, refreshing })))
    }
}

fn load(
    dir: &StoreDir,
    options: &Options,
    previous: Option<&ReadOnlyState>,
) -> Result<ReadOnlyState> {
    let loaded = ReadOnlyState::load(dir, options, previous)?;
    let tables = loaded.view.version.tables();
    check_filters(&tables.map(|(level, live)| (level, live.open())).collect::<Vec<_>>(), options)?;
    Ok(loaded)
}

impl ReadOnlyDb {
    pub(crate) fn loaded(&self) -> Result<impl Deref<Target = Arc<ReadOnlyState>>> {
        let loaded = self.0.loaded.load();
        loaded.env.birth.check()?;
        Ok(loaded)
    }

    /// Shows the store as it is now. Returns whether anything changed. It never goes back, except that a
    /// write that fails may be shown until it is undone. After an error it stays as it was. Live snapshots and
    /// scans do not change. If other files take the place of this store's, also those of a checkpoint of it,
    /// open the store anew.
    ///
    /// Cost: reads the manifest and the logs, and of new tables what opening reads.
    ///
    /// # Errors
    /// [`Moved`](crate::Error::Moved): the path leads to another directory, or to none. Otherwise as
    /// [`Options::open_read_only`].
    pub fn refresh(&self) -> Result<bool> {
        drop(self.loaded()?);
        let shared = &*self.0;
        let _refreshing = shared.refreshing.lock();
        shared.dir.check_path()?;
        let old = shared.loaded.load_full();
        let new = load(&shared.dir, &shared.options, Some(&old))?;
        if new.is_same(&old) {
            return Ok(false);
        }
        shared.loaded.store(Arc::new(new));
        Ok(true)
    }

    /// A view of the store that [`refresh`](Self::refresh) does not change. No I/O.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of_loaded(self.0.loaded.load_full())
    }

    /// Copies the store into a new directory, as a store of its own: as this handle shows it, or as it is during the
    /// call if the writer has removed a file. The copy is whole, or `path` does not exist.
    ///
    /// Damage of blocks is copied, too: [`verify`](crate::verify) the copy.
    ///
    /// Cost: reads and writes the files that are not linked. What the logs hold becomes a table.
    ///
    /// # Errors
    /// As [`Db::checkpoint`](crate::Db::checkpoint), and as [`refresh`](Self::refresh).
    pub fn checkpoint(&self, path: impl AsRef<Path>, files: CheckpointFiles<'_>) -> Result<()> {
        for _ in 1..ATTEMPTS {
            let loaded = Arc::clone(&*self.loaded()?);
            match copy::checkpoint(&loaded, &self.0.options, path.as_ref(), files) {
                Err(error) if error.is_missing_file() && self.refresh()? => {}
                copied => return copied,
            }
        }
        copy::checkpoint(&*self.loaded()?, &self.0.options, path.as_ref(), files)
    }

    pub(super) fn at<T>(
        &self,
        read: impl FnOnce(Lookups<'_>, &ReadView, &When<'_>) -> Result<T>,
    ) -> Result<T> {
        self.0.loaded.load().at_one_moment(None, read)
    }

    pub(super) fn lookup<T>(
        &self,
        read: impl FnOnce(Lookups<'_>, &ReadView, &When<'_>) -> Result<T>,
    ) -> Result<T> {
        self.0.loaded.load().lookup(read)
    }

    pub(super) fn scan(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<Scan> {
        let loaded = self.0.loaded.load();
        loaded.scan(loaded.now(), bounds)
    }

    /// The counts since the opening. No I/O.
    pub fn stats(&self) -> Stats {
        self.loaded().map(|loaded| loaded.env.ledger.stats()).unwrap_or_default()
    }

    /// As [`Db::openmetrics`](crate::Db::openmetrics), without latencies.
    pub fn openmetrics(&self) -> String {
        of_handle(&self.stats(), &self.tables(), &self.memory(), None).end()
    }

    /// The part of [`openmetrics`](Self::openmetrics) that is known at the opening: tables, filters and memory. A program
    /// that opens the store only for this page has no counts of activity, and would write 0 for each. No I/O.
    pub fn openmetrics_of_files(&self) -> String {
        of_files(&self.tables(), &self.memory()).end()
    }

    /// The tables, L0 first. No I/O.
    pub fn tables(&self) -> Vec<TableInfo> {
        let Ok(loaded) = self.loaded() else { return Vec::new() };
        info::tables(&loaded.view, &loaded.env)
    }

    /// The memory of logged entries, filters, indexes and cache. No I/O.
    pub fn memory(&self) -> MemoryUse {
        let Ok(loaded) = self.loaded() else { return MemoryUse::default() };
        info::memory(&loaded.view, &loaded.env, self.0.options.memory_limit)
    }

    /// As [`Db::disk_bytes`](crate::Db::disk_bytes). A writing process may change them meanwhile.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io).
    pub fn disk_bytes(&self) -> Result<u64> {
        drop(self.loaded()?);
        disk_bytes(&self.0.dir)
    }

    /// As [`Db::advise`](crate::Db::advise), with the counts since the opening.
    pub fn advise(&self) -> Advice {
        let Ok(loaded) = self.loaded() else { return Advice::of_nothing() };
        advise(&loaded.view.version, &loaded.env.ledger, loaded.settings)
    }

    /// As [`Db::latest_sequence_number`](crate::Db::latest_sequence_number), of what this handle shows.
    pub fn latest_sequence_number(&self) -> u64 {
        self.loaded().map(|loaded| loaded.seq).unwrap_or_default()
    }

    /// The id of the store, which each of its files and checkpoints has. No I/O.
    pub fn store_id(&self) -> u64 {
        self.0.loaded.load().env.store
    }

    /// The store's policy for the filters of new tables. No I/O.
    pub fn policy(&self) -> FilterPolicy {
        self.loaded().map(|loaded| loaded.settings.policy).unwrap_or_default()
    }

    /// As [`Db::prefix_extractor`](crate::Db::prefix_extractor).
    pub fn prefix_extractor(&self) -> Option<PrefixExtractor> {
        self.loaded().ok().and_then(|loaded| loaded.settings.extractor)
    }

    /// As [`Db::compression`](crate::Db::compression).
    pub fn compression(&self) -> Compression {
        self.loaded().ok().and_then(|loaded| loaded.settings.compression).unwrap_or_default()
    }

    /// As [`Db::estimate_compression`](crate::Db::estimate_compression).
    ///
    /// # Errors
    /// As a [scan](Self::range).
    pub fn estimate_compression(&self, block_bytes: usize) -> Result<Option<f64>> {
        info::estimate_compression(&self.loaded()?.view, block_bytes)
    }

    /// Whether the store has, or had, keys that expire, or a [default](Options::default_ttl) by which they do. No I/O.
    pub fn has_expiries(&self) -> bool {
        self.loaded().is_ok_and(|loaded| loaded.env.time.is_used())
    }

    /// As [`Db::default_ttl`](crate::Db::default_ttl).
    pub fn default_ttl(&self) -> Option<Duration> {
        self.loaded().ok().and_then(|loaded| loaded.settings.default_ttl).map(Duration::from_millis)
    }

    /// As [`Db::now`](crate::Db::now).
    pub fn now(&self) -> SystemTime {
        self.0.loaded.load().env.time.system_time()
    }

    /// What the last reading of the logs found. An incomplete end can be a write that is under way.
    pub fn recovery(&self) -> RecoveryReport {
        self.0.loaded.load().report.clone()
    }
}
