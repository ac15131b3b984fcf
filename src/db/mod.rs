//! The handle: open and recover, the write path, the read path, scans and snapshots.
//!
//! This room puts the others together and owns all shared state ([`inner::DbInner`]). Its invariants: a
//! write is acknowledged only when it is in the log and in the memtable; a version is visible only
//! when the manifest has it; readers never wait for writers, flushes or compactions.

mod advise;
mod commit_queue;
mod earlier_logs;
mod health;
mod info;
pub(crate) mod inner;
mod membership;
mod open;
mod read;
mod rebuild_filters;
mod report;
mod scan;
mod snapshot;
mod verify;
pub(crate) mod views;
mod visibility;
mod weak;
mod write;

use std::fmt;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

pub use advise::{Advice, Estimate};
pub use commit_queue::Durability;
pub use info::{FilterMemory, TableInfo};
pub use membership::Membership;
pub use rebuild_filters::RebuildReport;
pub use report::RecoveryReport;
pub use scan::Range;
pub use snapshot::Snapshot;
pub use verify::{Finding, Verification, verify, verify_with};
pub use weak::WeakDb;

use self::inner::DbInner;
use crate::batch::Batch;
use crate::error::Result;
use crate::filter::FilterPolicy;
use crate::ledger::{Explanation, Stats};
use crate::options::Options;
use crate::scheduler;
use crate::value::Value;

/// An open store. Cheap to clone; clones share the store, from any thread.
///
/// Every call but the writing ones reads a state that it fixes when it begins. The store is closed
/// by [`close`](Self::close), or when its last handle is dropped.
#[derive(Clone)]
pub struct Db(Arc<Handle>);

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Db").field(&self.0.0.env.dir).finish()
    }
}

/// Closes the store when the last handle goes; background threads hold the [`DbInner`] alone.
struct Handle(Arc<DbInner>, RecoveryReport);

impl Drop for Handle {
    fn drop(&mut self) {
        // `close` gives the error to a caller that wants it.
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

    pub(crate) fn inner(&self) -> Result<&Arc<DbInner>> {
        self.0.0.health.check_open()?;
        Ok(&self.0.0)
    }

    /// A handle that does not keep the store open.
    pub fn downgrade(&self) -> WeakDb {
        WeakDb::new(&self.0)
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
    /// Cost: no disk read for each table whose filter says no or whose range does not reach the key,
    /// one for each other table asked, up to the one that holds the key, unless the cache has the
    /// block.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) and [`Error::Io`](crate::Error::Io) name the table
    /// and the block that could not be read; [`Error::Closed`](crate::Error::Closed).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.inner()?.lookup(key.as_ref(), None, &mut ())
    }

    /// The values of many keys, each in the place of its key, all as of one moment; `None` for those
    /// that are absent.
    ///
    /// Cost: as many disk reads as [`get`](Self::get) for each key. Faster than that where filters are
    /// larger than the processor's caches: what the filters of several keys will read is asked for at
    /// once, where `get` waits for each in turn.
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
    /// As [`get`](Self::get), of the first key that cannot be looked up; those after it are not looked
    /// up, nor counted.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.inner()?.lookup_many(keys, None)
    }

    /// Whether a key has a value. Costs what [`get`](Self::get) costs.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Looks a key up as [`get`](Self::get) does, with the same reads and the same counts, and tells
    /// every step.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        let mut steps = Vec::new();
        let value = self.inner()?.lookup(key.as_ref(), None, &mut steps)?;
        Ok(Explanation { value, steps })
    }

    /// Whether a key may have a value: [`Membership::No`] is certain. **No I/O, ever**: asks the
    /// memtables and, of the tables whose range reaches the key, what is resident of their filters.
    /// A filter that is degraded, ignored or not resident answers "maybe", and so does one that is
    /// mistaken, at its rate.
    ///
    /// It is not a lookup, and the statistics do not count it.
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

    /// The keys within bounds, with their values, in order from either end. Reads a block at a time,
    /// as items are asked for; the first item takes one of each table on L0 and one a level, where
    /// the tables' keys reach into the bounds.
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
        let inner = self.inner()?;
        Ok(Range::new(inner, None, &bounds, inner.health.hold_lock()?))
    }

    /// The keys that start with `prefix`, with their values. With [`Options::prefix`] tables that hold
    /// none of them are passed over, but for the mistakes of their filters; a [`range`](Self::range)
    /// whose keys all have one prefix passes over them, too.
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
        Snapshot::new(Arc::clone(self.inner()?))
    }

    /// Writes everything in memory to tables, and returns when they are synced.
    ///
    /// # Errors
    /// [`Error::Background`](crate::Error::Background), [`Error::Io`](crate::Error::Io),
    /// [`Error::Poisoned`](crate::Error::Poisoned), [`Error::Closed`](crate::Error::Closed).
    pub fn flush(&self) -> Result<()> {
        scheduler::flush(self.inner()?)
    }

    /// Flushes, and returns when no compaction is due or under way, no filter is to be brought back
    /// into memory, and all is done that is else done while the store is quiet: L0 is merged into the level
    /// below where that writes at most twenty times L0's bytes, and tables whose share of the filters'
    /// memory has changed have got another filter (see [`Allocation`](crate::Allocation)).
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn wait_until_settled(&self) -> Result<()> {
        scheduler::wait_until_settled(self.inner()?)
    }

    /// Flushes, and merges everything into one run on the last level, without tombstones or
    /// overwritten values but for those that snapshots see, and with a new filter for every table.
    /// Needs room for a second copy meanwhile. What is one such run already, with sound filters, is
    /// left as it is.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn compact(&self) -> Result<()> {
        scheduler::compact(self.inner()?)
    }

    /// Gives every table the filter that `policy` means for it, and rewrites no table: new filters
    /// are built from the tables' keys and written beside them, in files of their own. Degraded
    /// filters are mended, whatever the policy.
    ///
    /// Runs on this thread, beside everything else. A table keeps its filter until the new one is
    /// synced, read back, asked for every key and recorded. Whatever ends this early, the tables
    /// already seen to keep their new filters, and another call goes on with the rest.
    ///
    /// Tables written from then on, until the store is closed, follow this policy, too; the next
    /// opening follows its own [`Options`]. What a compaction writes meanwhile is seen to as well.
    ///
    /// Cost: every table without the right filter is read once, front to back, and its filter is
    /// written and read back; memory for 8 bytes a key of one table, and the filter twice.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) for a policy that makes no sense;
    /// [`Error::Corrupt`](crate::Error::Corrupt) for a table with a damaged block, which keeps its
    /// filter, after all others were seen to; [`Error::Io`](crate::Error::Io);
    /// [`Error::FilterLies`](crate::Error::FilterLies); [`Error::Poisoned`](crate::Error::Poisoned);
    /// [`Error::Closed`](crate::Error::Closed).
    pub fn rebuild_filters(&self, policy: &FilterPolicy) -> Result<RebuildReport> {
        self.inner()?.rebuild_filters(policy)
    }

    /// Sets the budget, in bytes, that resident filters stay within from now on, those of tables
    /// written later included; `None` for no budget. Nothing on disk changes.
    ///
    /// The bytes are the memory of the filters in whole pages ([`filter_memory`](Self::filter_memory)
    /// tells it). A ribbon filter is reduced to its first columns, each of which halves its rate;
    /// filters of other kinds are dropped whole. What is dropped is what avoids the fewest reads for
    /// its bytes, by what the ledger counted of each table. The state of each filter is in
    /// [`tables`](Self::tables): resident as a whole, in part ([`FilterInfo::Active`]), or not at all
    /// ([`FilterInfo::NotResident`]).
    ///
    /// Filters are reduced on the calling thread, one at a time: the memory is given back when this
    /// returns, but for what readers still hold, and never was more than before and one filter
    /// beside it. A lookup holds the filters that it began with until it ends, as do a scan until it
    /// is dropped and a compaction that began without a budget. Beside the budget, each flush and
    /// compaction has for a moment the filter of the one table that it is finishing.
    ///
    /// Where the budget allows more, filters are read again, verified as at opening, by a background
    /// thread, or before this returns with
    /// [`background_threads(0)`](Options::background_threads);
    /// [`wait_until_settled`](Self::wait_until_settled) waits for it. A filter found bad then keeps
    /// what is resident of it, which was verified before, and says so ([`FilterInfo::Active`]); with
    /// nothing resident it is degraded.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed).
    ///
    /// [`FilterInfo::Active`]: crate::FilterInfo::Active
    /// [`FilterInfo::NotResident`]: crate::FilterInfo::NotResident
    pub fn set_filter_memory(&self, budget: Option<u64>) -> Result<()> {
        scheduler::set_filter_memory(self.inner()?, budget);
        Ok(())
    }

    /// The memory that filters take, and the budget for it.
    pub fn filter_memory(&self) -> FilterMemory {
        info::filter_memory(&self.0.0)
    }

    /// The counts of this store since it was opened.
    pub fn stats(&self) -> Stats {
        self.0.0.env.ledger.stats()
    }

    /// What is known of each live table, L0 first.
    pub fn tables(&self) -> Vec<TableInfo> {
        info::tables(&self.0.0)
    }

    /// What other filters would cost and avoid, and which to choose: see [`Advice`]. Reads nothing; the
    /// tables are as they are, and the lookups taken to go on as they did.
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
    ///     println!(
    ///         "{:.2} bits a key, {}, {:?}: {} bytes, {} reads per absent lookup",
    ///         other.bits_per_key,
    ///         other.kind,
    ///         other.allocation,
    ///         other.filter_bytes,
    ///         other.reads_per_absent_lookup
    ///     );
    /// }
    /// # assert_eq!(advice.estimates.len(), 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn advise(&self) -> Advice {
        advise::advise(&self.0.0)
    }

    /// What opening the store found and mended.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.0.1
    }

    /// Ends background work, syncs everything written, and closes the store; other handles return
    /// [`Error::Closed`](crate::Error::Closed) from then on. Snapshots and scans that are still in
    /// use go on, and keep the directory locked until they are dropped.
    ///
    /// In a callback of [`Options::on_event`] it does not wait: work that called the callback ends after
    /// it. It returns `Ok`, and another thread closes the store. The same holds for the last handle that
    /// is dropped there.
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
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) and
    /// [`Error::NotAStore`](crate::Error::NotAStore) change nothing;
    /// [`Error::Locked`](crate::Error::Locked) when the store is open already, or a scan or snapshot of a
    /// closed handle is still alive;
    /// [`Error::Corrupt`](crate::Error::Corrupt), [`Error::Missing`](crate::Error::Missing) and
    /// [`Error::Unsupported`](crate::Error::Unsupported) name the file that stands in the way;
    /// [`Error::Io`](crate::Error::Io).
    pub fn open(self, dir: impl AsRef<Path>) -> Result<Db> {
        self.check()?;
        let (inner, report) = open::open(dir.as_ref(), self)?;
        Ok(Db(Arc::new(Handle(inner, report))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PrefixExtractor;

    /// Programs derive `Debug` for what holds a store, and log what it tells them.
    #[test]
    fn what_programs_print_fits_on_a_line() -> Result<()> {
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
