//! The handle of a store: opening, writes, reads, scans, snapshots. [`inner::DbInner`] owns all shared state.

mod advise;
mod commit_queue;
mod directory;
mod earlier_logs;
mod health;
mod info;
pub(crate) mod inner;
mod open;
mod read;
mod rebuild_filters;
mod scan;
mod snapshot;
mod verify;
pub(crate) mod views;
mod visibility;
mod write;

use std::fmt;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::{Arc, Weak};

pub use advise::{Advice, Estimate};
pub use commit_queue::Durability;
pub use info::{FilterMemory, TableInfo};
pub use open::RecoveryReport;
pub use read::Membership;
pub use rebuild_filters::RebuildReport;
pub use scan::Range;
pub use snapshot::Snapshot;
pub use verify::{Finding, Verification, verify, verify_with};

use self::inner::DbInner;
use crate::batch::Batch;
use crate::error::Result;
use crate::filter::FilterPolicy;
use crate::ledger::{Explanation, Stats};
use crate::options::Options;
use crate::scheduler;
use crate::value::Value;

/// An open store. Clones share it, across threads; cloning costs a reference count.
///
/// Each read sees the store as of its beginning. The store is closed by [`close`](Self::close), or when the last
/// handle is dropped.
#[derive(Clone)]
pub struct Db(Arc<Handle>);

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Db").field(&self.0.inner.env.dir).finish()
    }
}

/// Closes the store when it is dropped. Background threads hold only the [`DbInner`].
struct Handle {
    inner: Arc<DbInner>,
    recovery: RecoveryReport,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The error is lost; `close` returns it.
        let _ = self.inner.close();
    }
}

/// A handle that does not keep the store open, from [`Db::downgrade`]; for callbacks of
/// [`Options::on_event`], in which a [`Db`] would keep the store open for ever.
#[derive(Debug, Clone)]
pub struct WeakDb(Weak<Handle>);

impl WeakDb {
    /// A handle of the store; `None` after its last [`Db`] is dropped.
    pub fn upgrade(&self) -> Option<Db> {
        self.0.upgrade().map(Db)
    }
}

impl Db {
    /// Opens the store in a directory, or makes one there, with the default [`Options`].
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(dir)
    }

    pub(crate) fn inner(&self) -> Result<&Arc<DbInner>> {
        self.0.inner.health.check_open()?;
        Ok(&self.0.inner)
    }

    /// A handle that does not keep the store open.
    pub fn downgrade(&self) -> WeakDb {
        WeakDb(Arc::downgrade(&self.0))
    }

    /// Sets a key's value, [buffered](Durability::Buffered). Reads nothing.
    ///
    /// # Errors
    /// As [`write_with`](Self::write_with).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = Batch::new();
        batch.put(key, value);
        self.write(batch)
    }

    /// Deletes a key, if it is present, [buffered](Durability::Buffered). Reads nothing.
    ///
    /// # Errors
    /// As [`write_with`](Self::write_with).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = Batch::new();
        batch.delete(key);
        self.write(batch)
    }

    /// Makes all changes of a batch, or none, [buffered](Durability::Buffered). Reads nothing.
    ///
    /// # Errors
    /// As [`write_with`](Self::write_with).
    pub fn write(&self, batch: Batch) -> Result<()> {
        self.write_with(batch, Durability::Buffered)
    }

    /// Makes all changes of a batch, or none. Returns when they have this durability. Reads nothing.
    ///
    /// # Errors
    /// [`Error::TooLong`](crate::Error::TooLong), before anything is written;
    /// [`Error::Io`](crate::Error::Io): this write alone failed;
    /// [`Error::Poisoned`](crate::Error::Poisoned): all later writes fail too;
    /// [`Error::Background`](crate::Error::Background): the write needs a flush or compaction, which fails;
    /// [`Error::Closed`](crate::Error::Closed).
    pub fn write_with(&self, batch: Batch, durability: Durability) -> Result<()> {
        self.inner()?.write(batch, durability)
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
    /// Cost: at most one disk read in each table whose range covers the key and whose filter says "maybe", up
    /// to the table that holds it; none if the block cache has the block.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) or [`Error::Io`](crate::Error::Io) of the block;
    /// [`Error::Closed`](crate::Error::Closed).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.inner()?.lookup(key.as_ref(), None, &mut ())
    }

    /// The values of many keys as of one moment, in the order of the keys; `None` for absent ones.
    ///
    /// Cost: the disk reads of [`get`](Self::get) for each key. Faster where filters exceed the processor's
    /// caches: the filters of several keys are prefetched at once.
    ///
    /// ```
    /// # fn main() -> criba::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = criba::Db::open(dir.path().join("store"))?;
    /// db.put("b", "2")?;
    /// let values = db.get_many(&["a", "b", "c"])?;
    /// assert_eq!(values.iter().flatten().count(), 1);
    /// assert_eq!(values[1].as_deref(), Some(b"2".as_slice()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get), of the first key that fails; later keys are not looked up, nor counted.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.inner()?.lookup_many(keys, None)
    }

    /// Whether a key has a value. Costs as much as [`get`](Self::get).
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// As [`get`](Self::get), with the same reads and counts, and with every step of the lookup.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        self.inner()?.explain(key.as_ref(), None)
    }

    /// Whether a key may have a value: [`Membership::No`] is certain. **Never reads the disk**: searches the
    /// memtables, then probes the filters of the tables whose range covers the key. A filter that is
    /// degraded, ignored or not resident answers "maybe".
    ///
    /// The statistics do not count it.
    ///
    /// ```
    /// # fn main() -> criba::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = criba::Db::open(dir.path().join("store"))?;
    /// use criba::Membership;
    ///
    /// db.put("seen", "")?;
    /// assert_eq!(db.may_contain("seen")?, Membership::Maybe);
    /// assert_eq!(db.may_contain("never seen")?, Membership::No);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed).
    pub fn may_contain(&self, key: impl AsRef<[u8]>) -> Result<Membership> {
        Ok(self.inner()?.may_contain(key.as_ref()))
    }

    /// The keys within bounds, with their values, in order from either end.
    ///
    /// Cost: the first item reads one block of each table on L0 and one on each level below, as far as their
    /// keys lie within the bounds. Later items read blocks in sequence, one at a time.
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
    /// [`Error::Closed`](crate::Error::Closed). Items can be
    /// [`Error::Corrupt`](crate::Error::Corrupt) and [`Error::Io`](crate::Error::Io).
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<Range> {
        let inner = self.inner()?;
        Ok(Range::new(inner, None, &bounds, inner.health.directory_lock()?))
    }

    /// The keys that start with `prefix`, with their values. With [`Options::prefix`] it skips tables whose
    /// filter has no such key, and so does a [`range`](Self::range) whose keys all have one prefix.
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range> {
        self.range(scan::prefix_bounds(prefix.as_ref()))
    }

    /// A view of the store as it is now. Reads nothing.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed).
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::new(Arc::clone(self.inner()?))
    }

    /// Writes all memtables to tables; returns when these are synced.
    ///
    /// # Errors
    /// [`Error::Background`](crate::Error::Background), [`Error::Io`](crate::Error::Io),
    /// [`Error::Poisoned`](crate::Error::Poisoned), [`Error::Closed`](crate::Error::Closed).
    pub fn flush(&self) -> Result<()> {
        scheduler::flush(self.inner()?)
    }

    /// Flushes, then waits for all background work, idle work included: L0 is merged into the level below if
    /// that writes at most twenty times the bytes of L0, and filters follow a changed
    /// [`Allocation`](crate::Allocation) or budget.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn wait_until_settled(&self) -> Result<()> {
        scheduler::wait_until_settled(self.inner()?)
    }

    /// Flushes, then merges all tables into one run on the last level, with new filters, and without tombstones
    /// and hidden values, except those that snapshots see. Keeps such a run with sound filters as it is.
    ///
    /// Cost: reads and writes all data once; takes room for a second copy meanwhile.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn compact(&self) -> Result<()> {
        scheduler::compact(self.inner()?)
    }

    /// Gives every table the filter that `policy` plans for it. Tables are not rewritten: new filters have
    /// their own files. Degraded filters are always rebuilt.
    ///
    /// Runs on this thread; reads, writes and background work go on. A table keeps its filter until the new
    /// one is synced, probed with every key, and recorded. After an error, finished filters stay, and another
    /// call continues. Until the store is closed, later tables follow this policy too.
    ///
    /// Cost: reads each table without the right filter once; writes its filter and reads it back. Memory: 8
    /// bytes for each key of one table, and its filter twice.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for an invalid policy;
    /// [`Error::Corrupt`](crate::Error::Corrupt), after all other tables, for one with a damaged block, which
    /// keeps its filter; [`Error::Io`](crate::Error::Io); [`Error::FilterLies`](crate::Error::FilterLies);
    /// [`Error::Poisoned`](crate::Error::Poisoned); [`Error::Closed`](crate::Error::Closed).
    pub fn rebuild_filters(&self, policy: &FilterPolicy) -> Result<RebuildReport> {
        self.inner()?.rebuild_filters(policy)
    }

    /// Sets the budget of resident filters, in bytes of whole pages; `None` for no budget. Files do not
    /// change.
    ///
    /// To meet the budget, a ribbon filter is reduced to its first columns, each of which halves its rate;
    /// other filters are dropped whole. Portions that avoid the fewest reads per byte, by the ledger's counts,
    /// go first. [`tables`](Self::tables) shows each filter's state ([`FilterInfo`](crate::FilterInfo)).
    ///
    /// Filters are reduced on this thread, one at a time, before this returns. A lookup or scan in progress
    /// keeps its filters until it ends, and so does a compaction that began without a budget. Each flush and
    /// compaction holds the filter of one unfinished table in addition.
    ///
    /// If the budget has room, filters are read and verified again, by a background thread, or by this call
    /// with [`background_threads(0)`](Options::background_threads);
    /// [`wait_until_settled`](Self::wait_until_settled) waits for it. If a stored filter is damaged, its
    /// resident portion stays in use; without one, the filter is degraded.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed).
    pub fn set_filter_memory(&self, budget: Option<u64>) -> Result<()> {
        scheduler::set_filter_memory(self.inner()?, budget);
        Ok(())
    }

    /// The memory of filters, and its budget. Reads nothing.
    pub fn filter_memory(&self) -> FilterMemory {
        info::filter_memory(&self.0.inner)
    }

    /// The counts since the store was opened. Reads nothing.
    pub fn stats(&self) -> Stats {
        self.0.inner.env.ledger.stats()
    }

    /// The live tables, L0 first. Reads nothing.
    pub fn tables(&self) -> Vec<TableInfo> {
        info::tables(&self.0.inner)
    }

    /// What other filters would cost and avoid, and which to choose, for the present tables and lookups like
    /// those counted: see [`Advice`]. Reads nothing.
    ///
    /// ```
    /// # fn main() -> criba::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = criba::Db::open(dir.path().join("store"))?;
    /// # for i in 0..1000 { db.put(format!("user{i}"), "")?; }
    /// # db.flush()?;
    /// let advice = db.advise();
    /// println!("{}", advice.recommendation);
    /// for other in &advice.estimates {
    ///     println!("{other:?}");
    /// }
    /// # assert_eq!(advice.estimates.len(), 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn advise(&self) -> Advice {
        advise::advise(&self.0.inner)
    }

    /// What opening the store found and repaired.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.0.recovery
    }

    /// Ends background work, syncs all writes, and closes the store: other handles return
    /// [`Error::Closed`](crate::Error::Closed). Live snapshots and scans go on, and keep the directory locked.
    ///
    /// In a callback of [`Options::on_event`] it returns `Ok` at once, and another thread closes the store;
    /// so does dropping the last handle there.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed) if it was closed before; else the error of the last sync.
    pub fn close(self) -> Result<()> {
        self.0.inner.close()
    }
}

impl Options {
    /// Opens the store in a directory, or makes one there, and recovers it after a crash.
    ///
    /// Cost: two reads for each table, one of them its filter; each log once.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) and
    /// [`Error::NotAStore`](crate::Error::NotAStore) change nothing;
    /// [`Error::Locked`](crate::Error::Locked);
    /// [`Error::Corrupt`](crate::Error::Corrupt), [`Error::Missing`](crate::Error::Missing) and
    /// [`Error::Unsupported`](crate::Error::Unsupported) name the file; [`Error::Io`](crate::Error::Io).
    pub fn open(self, dir: impl AsRef<Path>) -> Result<Db> {
        self.check()?;
        let (inner, recovery) = open::open(dir.as_ref(), self)?;
        Ok(Db(Arc::new(Handle { inner, recovery })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PrefixExtractor;

    #[test]
    fn debug_and_display_texts_fit_on_a_line() -> Result<()> {
        let dir = tempfile::tempdir().expect("a directory");
        let events = Arc::new(std::sync::Mutex::new(Vec::new()));
        let log = Arc::clone(&events);
        let db = Options::new()
            .background_threads(0)
            .prefix(PrefixExtractor::until(b'/'))
            .on_event(Arc::new(move |event| log.lock().expect("a log").push(event.to_string())))
            .open(dir.path())?;
        let mut batch = Batch::new();
        for number in 0..1000 {
            batch.put(format!("row/{number}"), vec![7; 100]);
        }
        let mut printed = vec![format!("{batch:?}")];
        db.write(batch)?;
        db.flush()?;
        db.rebuild_filters(&FilterPolicy::blocked())?;
        db.set_filter_memory(Some(0))?;
        printed.push(db.tables()[0].filter.to_string());
        db.compact()?;
        let mut range = db.range("row/1".."row/2")?;
        assert!(range.next().is_some());
        printed.extend([format!("{db:?}"), format!("{:?}", db.snapshot()?), format!("{range:?}")]);
        printed.append(&mut events.lock().expect("a log"));
        println!("{}", printed.join("\n"));
        assert!(printed.len() > 10, "{printed:#?}");
        for line in printed {
            assert!(line.len() < 200 && !line.contains('\n'), "{} bytes: {line}", line.len());
        }
        Ok(())
    }
}
