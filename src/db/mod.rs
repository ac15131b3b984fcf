//! The handle: open and recover, the write path, the read path, and the work in the background.
//!
//! This room puts the others together and owns all shared state ([`core::Core`]). Its invariants: a
//! write is acknowledged only when it is in the log and in the memtable; a version is visible only
//! when the manifest has it; readers never wait for writers, flushes or compactions.

mod background;
pub(crate) mod core;
mod info;
mod loads;
mod open;
mod queue;
mod read;
mod refit;
mod report;
mod scan;
mod shares;
mod snapshot;
mod write;

use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

pub use info::TableInfo;
pub use queue::Durability;
pub use report::RecoveryReport;
pub use scan::Range;
pub use snapshot::Snapshot;

use self::core::Core;
use crate::batch::Batch;
use crate::error::Result;
use crate::ledger::{Counts, Explanation, Stats};
use crate::options::Options;
use crate::value::Value;

/// An open store. Cheap to clone; clones share the store, from any thread.
///
/// Every call but the writing ones reads a state that it fixes when it begins. The store is closed
/// by [`close`](Self::close), or when its last handle is dropped.
#[derive(Debug, Clone)]
pub struct Db(Arc<Handle>);

/// Closes the store when the last handle goes; background threads hold the [`Core`] alone.
#[derive(Debug)]
struct Handle(Arc<Core>);

impl Drop for Handle {
    fn drop(&mut self) {
        // Whoever wants to know of an error calls `close`.
        let _ = self.0.close();
    }
}

impl Db {
    /// Opens the store in a directory with the default [`Options`], or makes one there.
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(dir)
    }

    fn core(&self) -> Result<&Arc<Core>> {
        self.0.0.check_open()?;
        Ok(&self.0.0)
    }

    /// Sets a key's value. [`Durability::Buffered`].
    ///
    /// # Errors
    /// As [`write_with`](Self::write_with).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = Batch::new();
        batch.put(key, value);
        self.write(batch)
    }

    /// Makes a key absent; one that is absent already is no error. [`Durability::Buffered`].
    ///
    /// # Errors
    /// As [`write_with`](Self::write_with).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = Batch::new();
        batch.delete(key);
        self.write(batch)
    }

    /// Makes all changes of a batch, or none. [`Durability::Buffered`].
    ///
    /// # Errors
    /// As [`write_with`](Self::write_with).
    pub fn write(&self, batch: Batch) -> Result<()> {
        self.write_with(batch, Durability::Buffered)
    }

    /// Makes all changes of a batch, or none, and returns when they are as durable as asked.
    ///
    /// # Errors
    /// [`Error::TooLong`](crate::Error::TooLong) before anything is written;
    /// [`Error::Io`](crate::Error::Io) when the log could not be written to, and this write alone
    /// failed; [`Error::Poisoned`](crate::Error::Poisoned) when the log is in doubt, and all later
    /// writes fail too; [`Error::Background`](crate::Error::Background) when the write would have to
    /// wait for a flush or compaction that is failing; [`Error::Closed`](crate::Error::Closed).
    pub fn write_with(&self, batch: Batch, durability: Durability) -> Result<()> {
        self.core()?.write(batch, durability)
    }

    /// Makes all earlier writes [`Durability::Synced`].
    ///
    /// # Errors
    /// As [`write_with`](Self::write_with).
    pub fn sync(&self) -> Result<()> {
        self.write_with(Batch::new(), Durability::Synced)
    }

    /// The value of a key; `None` if it is absent.
    ///
    /// Cost: no disk read for each table whose filter says no or whose range does not reach the key,
    /// one for each other table asked, up to the one that holds the key, unless the cache has the
    /// block.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) and [`Error::Io`](crate::Error::Io) name the table
    /// and the block that could not be read; [`Error::Closed`](crate::Error::Closed).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.core()?.lookup(key.as_ref(), None, &mut ())
    }

    /// Whether a key has a value. Costs what [`get`](Self::get) costs.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Looks a key up as [`get`](Self::get) does, and tells what this lookup added to the statistics:
    /// the sum of what [`explain`](Self::explain) would list, without the list.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_counted(&self, key: impl AsRef<[u8]>) -> Result<(Option<Value>, Counts)> {
        let mut counts = Counts::default();
        let value = self.core()?.lookup(key.as_ref(), None, &mut counts)?;
        Ok((value, counts))
    }

    /// Looks a key up as [`get`](Self::get) does, with the same reads and the same counts, and tells
    /// every step.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        let mut steps = Vec::new();
        let value = self.core()?.lookup(key.as_ref(), None, &mut steps)?;
        Ok(Explanation { value, steps })
    }

    /// The keys within bounds, with their values, in order from either end. Reads a block at a time,
    /// as items are asked for.
    ///
    /// ```
    /// # fn main() -> criba::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = criba::Db::open(dir.path().join("store"))?;
    /// for item in db.range("a".."f")? {
    ///     let (key, value) = item?;
    ///     println!("{key:?} = {value:?}");
    /// }
    /// let last = db.range::<&str>(..)?.next_back();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed); later, as items,
    /// [`Error::Corrupt`](crate::Error::Corrupt) and [`Error::Io`](crate::Error::Io).
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<Range> {
        let core = self.core()?;
        Ok(Range::new(core, None, &bounds, core.hold_lock()?))
    }

    /// The keys that start with `prefix`, with their values.
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range> {
        self.range(scan::prefix_bounds(prefix.as_ref()))
    }

    /// The store as it is now, to be read from as long as the snapshot lives.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed).
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::new(Arc::clone(self.core()?))
    }

    /// Writes everything in memory to tables, and returns when they are synced.
    ///
    /// # Errors
    /// [`Error::Background`](crate::Error::Background), [`Error::Io`](crate::Error::Io),
    /// [`Error::Poisoned`](crate::Error::Poisoned), [`Error::Closed`](crate::Error::Closed).
    pub fn flush(&self) -> Result<()> {
        self.core()?.flush()
    }

    /// Flushes, and returns when no compaction is due or under way, and no table is to get another
    /// filter because its share has changed (see [`Allocation`](crate::Allocation)).
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn wait_until_settled(&self) -> Result<()> {
        self.core()?.wait_until_settled()
    }

    /// Flushes, and merges everything into one run on the last level, without tombstones or
    /// overwritten values but for those that snapshots see, and with a new filter for every table.
    /// Needs room for a second copy meanwhile. What is one such run already, with sound filters, is
    /// left as it is.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn compact(&self) -> Result<()> {
        self.core()?.compact()
    }

    /// The counts of this store since it was opened.
    pub fn stats(&self) -> Stats {
        self.0.0.env.ledger.stats()
    }

    /// What is known of each live table, L0 first.
    pub fn tables(&self) -> Vec<TableInfo> {
        info::tables(&self.0.0)
    }

    /// What opening the store found and mended.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.0.0.report
    }

    /// Ends background work, syncs everything written, and closes the store; other handles return
    /// [`Error::Closed`](crate::Error::Closed) from then on. Snapshots and scans that are still in
    /// use go on, and keep the directory locked until they are dropped.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed) if it was closed before; else the error of the last
    /// sync.
    pub fn close(self) -> Result<()> {
        self.0.0.close()
    }
}

impl Options {
    /// Opens the store in a directory, or makes one there, and recovers what a crash has left.
    ///
    /// Every table is opened: one read each, and one for its filter.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) and [`Error::NotAStore`](crate::Error::NotAStore) change nothing; [`Error::Locked`](crate::Error::Locked) when the
    /// store is open already; [`Error::Corrupt`](crate::Error::Corrupt), [`Error::Missing`](crate::Error::Missing) and [`Error::Unsupported`](crate::Error::Unsupported) name
    /// the file that stands in the way; [`Error::Io`](crate::Error::Io).
    pub fn open(self, dir: impl AsRef<Path>) -> Result<Db> {
        self.check()?;
        Ok(Db(Arc::new(Handle(open::open(dir.as_ref(), self)?))))
    }
}
