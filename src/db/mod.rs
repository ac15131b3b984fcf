//! The handles of a store.

mod copy;
mod info;
mod ingest;
mod keys;
mod metrics;
mod read_only;
mod reader;
mod snapshot;
mod transaction;

use std::fmt;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

pub use self::copy::CheckpointFiles;
pub use self::info::{FilterMemory, MemoryUse, TableInfo};
pub use self::keys::Keys;
use self::metrics::of_handle;
pub use self::read_only::ReadOnlyDb;
pub use self::reader::Reader;
pub use self::snapshot::Snapshot;
pub use self::transaction::{Transaction, TransactionRange};
use crate::batch::Batch;
use crate::directory::disk_bytes;
use crate::engine::background;
use crate::engine::commit_queue::Durability;
use crate::engine::inner::DbInner;
use crate::engine::rebuild_filters::RebuildReport;
use crate::engine::scan::{Range, Scan};
use crate::error::{Error, Result};
use crate::expiry::{Expiry, Stored};
use crate::filter::{FilterPolicy, PrefixExtractor};
use crate::filter_manager::advise::{Advice, advise};
use crate::key_range::KeyRange;
use crate::ledger::{Explanation, Latencies, Stats};
use crate::lookup::{Lookups, Membership, When};
use crate::options::Options;
use crate::recovery::open::{self, RecoveryReport};
use crate::sstable::Compression;
use crate::value::Value;
use crate::view::ReadView;

/// A handle of an open store. All clones, also in other threads, are handles of the same store. A read sees
/// the store as it was when the read began. [`close`](Self::close), or the drop of the last handle, closes
/// the store.
///
/// # What a call may wait for
/// Beside locks that are never held during I/O:
///
/// - A read waits for its own disk reads only: not for writes, syncs, flushes or compactions. Without
///   [background threads](Options::background_threads), the last read of a replaced table removes its file.
/// - A buffered write waits for no sync, unless memtables fill faster than the next log is made (two syncs); a
///   synced one waits for its own and the one before. Both wait for room: see [`write_with`](Self::write_with).
/// - A call without I/O waits for nothing.
/// - Other calls say it, and stop no read. [`flush`](Self::flush) and [`compact`](Self::compact) stop no write
///   except for the moment in which a memtable is sealed.
///
/// # Errors
/// Once the store is closed, each call of a handle fails with [`Closed`](crate::Error::Closed). Scans, snapshots and
/// transactions that began before still read; a commit fails. Those that begin later fail with the first item or call.
/// Beside that:
///
/// calls | errors
/// ---|---
/// reads, items of scans | [`Corrupt`](crate::Error::Corrupt), [`Io`](crate::Error::Io)
/// writes | [`ConditionFailed`](crate::Error::ConditionFailed) of a batch with conditions; [`TooLong`](crate::Error::TooLong); [`Io`](crate::Error::Io): later writes may succeed; [`Poisoned`](crate::Error::Poisoned): later writes fail, too; [`Background`](crate::Error::Background): a flush or compaction that the write needs fails. Conditional writes fail as reads, too. A batch that failed is written whole or not at all
/// flushes, compactions, `set_policy`, `rebuild_filters` | [`Io`](crate::Error::Io), [`Poisoned`](crate::Error::Poisoned), [`Background`](crate::Error::Background); [`Corrupt`](crate::Error::Corrupt): a table is damaged, the others are done; [`InvalidOption`](crate::Error::InvalidOption): a policy is impossible; [`FilterLies`](crate::Error::FilterLies)
///
/// # After a fork
/// In a forked child each call fails with [`Forked`](crate::Error::Forked), calls without a [`Result`] return empty
/// values, and drops change nothing. A child that dropped its copies of handles, snapshots and scans can open the
/// store anew once the parent is gone. While it keeps one, also of another thread, the directory stays locked,
/// unless the parent closes the store. A child of a process with several threads should start none: a lock of the
/// standard library may have been held at the fork.
#[derive(Clone)]
pub struct Db(Arc<Handle>);

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Db").field(&self.0.inner.env.dir.path()).finish()
    }
}

/// Closes the store when it is dropped. Background threads hold only the [`DbInner`].
struct Handle {
    inner: Arc<DbInner>,
    recovery: RecoveryReport,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Other errors are lost; `close` returns them.
        if let Err(Error::Forked) = self.inner.close() {
            self.inner.health.abandon_lock();
        }
    }
}

/// A handle that does not keep the store open, from [`Db::downgrade`]. A callback of [`Options::on_event`]
/// needs it: with a [`Db`] the callback would keep the store open for ever.
#[derive(Debug, Clone)]
pub struct WeakDb(Weak<Handle>);

impl WeakDb {
    /// A handle of the store; `None` after the last [`Db`] of the store is dropped.
    pub fn upgrade(&self) -> Option<Db> {
        self.0.upgrade().map(Db)
    }
}

#[expect(clippy::missing_errors_doc, reason = "said once, for the whole type")]
impl Db {
    /// Opens or makes the store in a directory, with the default [`Options`].
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Options::new().open(dir)
    }

    pub(crate) fn of((inner, recovery): (Arc<DbInner>, RecoveryReport)) -> Self {
        Self(Arc::new(Handle { inner, recovery }))
    }

    #[inline]
    pub(crate) fn inner(&self) -> Result<&Arc<DbInner>> {
        self.0.inner.health.check_open()?;
        Ok(&self.0.inner)
    }

    #[inline]
    fn at<T>(
        &self,
        read: impl FnOnce(Lookups<'_>, &ReadView, &When<'_>) -> Result<T>,
    ) -> Result<T> {
        let inner = self.inner()?;
        match &inner.latencies {
            Some(latencies) => latencies.reads.of(|| inner.at_one_moment(None, read)),
            None => inner.at_one_moment(None, read),
        }
    }

    #[inline]
    fn lookup<T>(
        &self,
        read: impl FnOnce(Lookups<'_>, &ReadView, &When<'_>) -> Result<T>,
    ) -> Result<T> {
        let inner = self.inner()?;
        match &inner.latencies {
            Some(latencies) => latencies.reads.of(|| inner.lookup(read)),
            None => inner.lookup(read),
        }
    }

    fn scan(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<Scan> {
        let inner = self.inner()?;
        Ok(inner.scan(None, bounds, inner.health.directory_lock()?))
    }

    fn is_here(&self) -> bool {
        self.0.inner.env.birth.is_here()
    }

    /// A handle that does not keep the store open.
    pub fn downgrade(&self) -> WeakDb {
        WeakDb(Arc::downgrade(&self.0))
    }

    /// Sets a key's value, [buffered](Durability::Buffered).
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, Durability::Buffered)
    }

    /// Sets a key's value, with this durability.
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<()> {
        self.write_with(Batch::new().put(key, value), durability)
    }

    /// Sets a key's value, which expires: from that time on the key is absent for every call, without a read beyond the
    /// entry. [`Expiry::Never`] is an expiry, too. Other writes take the store's default
    /// ([`Options::default_ttl`]).
    ///
    /// Each write of a key replaces its expiry. A `Duration` counts from [`now`](Self::now) at the write; a `SystemTime`
    /// should do so, too. [`get_with_expiry`](Self::get_with_expiry) and [`Range::next_with_expiry`] return the expiry
    /// of a key. A [`Batch`] has the conditional form: [`require`](Batch::require) with
    /// [`put_expiring`](Batch::put_expiring).
    ///
    /// Times are whole milliseconds, rounded up; a past one is written as expired. A snapshot, a scan and a transaction
    /// see the store at the time of their beginning. The bytes of expired keys go with a compaction, which begins when a
    /// quarter of a table has expired.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = criba::Db::open(dir.path().join("store"))?;
    /// use std::time::Duration;
    ///
    /// db.put_with_expiry("session", "ada", Duration::from_secs(3600))?;
    /// assert!(db.contains("session")?);
    /// db.put_with_expiry("session", "ada", db.now())?;
    /// assert!(!db.contains("session")?);
    /// # Ok::<(), criba::Error>(())
    /// ```
    pub fn put_with_expiry(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<()> {
        self.write(Batch::new().put_expiring(key, value, expiry))
    }

    /// Whether the store has, or had, keys that expire, or a [default](Options::default_ttl) by which they do. No I/O.
    pub fn has_expiries(&self) -> bool {
        self.is_here() && self.0.inner.env.time.is_used()
    }

    /// The time that keys live which are written without an expiry of their own; `None` for ever. See
    /// [`Options::default_ttl`]. No I/O.
    pub fn default_ttl(&self) -> Option<Duration> {
        let default_ttl = self.0.inner.filters.settings().default_ttl;
        default_ttl.filter(|_| self.is_here()).map(Duration::from_millis)
    }

    /// The time of the store: the latest that its clock has shown since the opening, or that the store has recorded. If
    /// the clock goes back, this time stands still until the clock has caught up, and keys live longer by as much.
    pub fn now(&self) -> SystemTime {
        self.0.inner.env.time.system_time()
    }

    /// Deletes a key, [buffered](Durability::Buffered). The key may be absent.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_with(key, Durability::Buffered)
    }

    /// Deletes a key, with this durability. The key may be absent.
    pub fn delete_with(&self, key: impl AsRef<[u8]>, durability: Durability) -> Result<()> {
        self.write_with(Batch::new().delete(key), durability)
    }

    /// Makes all changes of a batch, or none, [buffered](Durability::Buffered).
    pub fn write(&self, batch: impl Into<Batch>) -> Result<()> {
        self.write_with(batch, Durability::Buffered)
    }

    /// Makes all changes of a batch, or none, with this durability.
    ///
    /// Cost: no disk read. Waits for the group of writes that another thread appends; with
    /// [`Synced`](Durability::Synced), also for the sync before its own, and for its own. If the memtable is full,
    /// waits for a flush while two others are full, and for a compaction while L0 has
    /// [`l0_stop_trigger`](Options::l0_stop_trigger) tables. From
    /// [`l0_slowdown_trigger`](Options::l0_slowdown_trigger) on it sleeps. Without
    /// [background threads](Options::background_threads), a write to a full memtable first flushes and compacts.
    ///
    /// Takes a [`Batch`] or what [`Batch::put`] returns, which is then empty, also after an error.
    pub fn write_with(&self, batch: impl Into<Batch>, durability: Durability) -> Result<()> {
        self.inner()?.write(batch.into(), durability)
    }

    /// Makes all earlier writes [`Durability::Synced`]. Waits as [`write_with`](Self::write_with).
    pub fn sync(&self) -> Result<()> {
        self.write_with(Batch::new(), Durability::Synced)
    }

    /// Sets the value of a key that is absent, [buffered](Durability::Buffered). Returns whether it did: if
    /// many threads insert an absent key, one gets `true`.
    ///
    /// If the process crashes before this returns, the key may be there, and later calls return `false`. So
    /// store in the value what the winner still has to do.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = criba::Db::open(dir.path().join("store"))?;
    /// assert!(db.insert_if_absent("name", "first")?);
    /// assert!(!db.insert_if_absent("name", "second")?);
    /// assert_eq!(db.get("name")?.unwrap(), "first");
    /// # Ok::<(), criba::Error>(())
    /// ```
    pub fn insert_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool> {
        self.insert_if_absent_with(key, value, Durability::Buffered)
    }

    /// As [`insert_if_absent`](Self::insert_if_absent), with this durability.
    pub fn insert_if_absent_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<bool> {
        let mut pair = Batch::new();
        pair.put(key, value);
        Ok(self.inner()?.insert_each_absent(pair, durability)?.contains(&true))
    }

    /// As [`insert_if_absent`](Self::insert_if_absent), with an expiry of its own: see
    /// [`put_with_expiry`](Self::put_with_expiry). A key that has expired is absent.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = criba::Db::open(dir.path().join("store"))?;
    /// // Whether a message comes for the first time within an hour.
    /// let hour = std::time::Duration::from_secs(3600);
    /// assert!(db.insert_if_absent_until("message 1", "", hour)?);
    /// assert!(!db.insert_if_absent_until("message 1", "", hour)?);
    /// # Ok::<(), criba::Error>(())
    /// ```
    pub fn insert_if_absent_until(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> Result<bool> {
        let mut pair = Batch::new();
        pair.put_expiring(key, value, expiry);
        Ok(self.inner()?.insert_each_absent(pair, Durability::Buffered)?.contains(&true))
    }

    /// Inserts each pair whose key is absent, [buffered](Durability::Buffered). Returns for each pair, in
    /// order, whether it was inserted: each pair decides for itself, as if inserted alone, and of two pairs with
    /// one key the first is inserted. Readers see all inserted pairs or none, also after a crash.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = criba::Db::open(dir.path().join("store"))?;
    /// db.put("b", "")?;
    /// let new = db.insert_many_if_absent([("a", ""), ("b", ""), ("a", "")])?;
    /// assert_eq!(new, [true, false, false]);
    /// # Ok::<(), criba::Error>(())
    /// ```
    pub fn insert_many_if_absent<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Vec<bool>> {
        self.insert_many_if_absent_with(pairs, Durability::Buffered)
    }

    /// As [`insert_many_if_absent`](Self::insert_many_if_absent), with this durability.
    pub fn insert_many_if_absent_with<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: impl IntoIterator<Item = (K, V)>,
        durability: Durability,
    ) -> Result<Vec<bool>> {
        let mut batch = Batch::new();
        for (key, value) in pairs {
            batch.put(key, value);
        }
        self.inner()?.insert_each_absent(batch, durability)
    }

    /// Sets or deletes a key if it has the expected value; `None` is an absent key. The change is
    /// [buffered](Durability::Buffered). Returns whether it was made.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = criba::Db::open(dir.path().join("store"))?;
    /// db.put("lock", "free")?;
    /// assert!(db.compare_and_swap("lock", Some(b"free"), Some(b"taken"))?);
    /// assert!(!db.compare_and_swap("lock", Some(b"free"), None)?);
    /// # Ok::<(), criba::Error>(())
    /// ```
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        self.compare_and_swap_with(key, expected, new, Durability::Buffered)
    }

    /// As [`compare_and_swap`](Self::compare_and_swap), with this durability. With [`Durability::Synced`],
    /// `false` is returned when the value that was found instead is synced.
    ///
    /// Cost: one lookup, as by [`get`](Self::get), and as many again as memtables are flushed meanwhile. So a
    /// new key costs no disk read but for a filter's mistakes. The lookup waits for no writer, and no writer
    /// waits for it. A change that is made then waits as [`write_with`](Self::write_with) does.
    pub fn compare_and_swap_with(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
        durability: Durability,
    ) -> Result<bool> {
        let mut batch = Batch::new();
        match expected {
            Some(value) => batch.require(&key, value),
            None => batch.require_absent(&key),
        };
        match new {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        };
        let inner = self.inner()?;
        inner.set_expiries(&mut batch)?;
        let failed = inner.write_if(batch.into_encoded()?, durability)?;
        Ok(failed.is_none())
    }

    /// The value of a key; `None` if it is absent.
    ///
    /// Cost: at most one disk read in each table whose range covers the key and whose filter says "maybe".
    /// The lookup ends at the newest table that holds the key. A cached block costs no disk read. A [`Value`] that is
    /// kept may keep its whole block in memory: `to_vec` copies its bytes.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        Reader::get(self, key.as_ref())
    }

    /// The value of a key, and when it expires; `None` for never. Costs as much as [`get`](Self::get).
    pub fn get_with_expiry(
        &self,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<(Value, Option<SystemTime>)>> {
        Reader::get_with_expiry(self, key.as_ref())
    }

    /// The values of many keys as of one moment, in their order; `None` for absent keys.
    ///
    /// Cost: the disk reads of [`get`](Self::get) for each key. The filters of several keys are fetched from
    /// memory at once. A [`Value`] that is kept may keep its whole block in memory: `to_vec` copies its bytes.
    ///
    /// After a read that took more than 20 µs, the blocks of the next keys, up to 256, are announced to the
    /// operating system, which then reads several from the disk at once (Linux: `posix_fadvise`). Of each key it is the
    /// block of the first table whose filter says "maybe", unless the cache has it. An announcement is no
    /// disk read. [`Activity::blocks_announced`](crate::Activity::blocks_announced) counts them; in a store
    /// whose files are in memory there are few. A store with a [seed](Options::seed) announces nothing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = criba::Db::open(dir.path().join("store"))?;
    /// db.put("b", "2")?;
    /// let values = db.get_many(&["a", "b", "c"])?;
    /// assert_eq!(values.iter().flatten().count(), 1);
    /// assert_eq!(values[1].as_deref(), Some(b"2".as_slice()));
    /// # Ok::<(), criba::Error>(())
    /// ```
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.at(|lookups, view, when| lookups.get_many(view, when, keys, Stored::into_value))
    }

    /// Whether a key has a value. Costs as much as [`get`](Self::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Reader::contains(self, key.as_ref())
    }

    /// The value of a key, and every step of the lookup. Reads and counts the same as [`get`](Self::get).
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        Reader::explain(self, key.as_ref())
    }

    /// Whether a key may have a value: [`Membership::No`] is certain. **Never reads the disk**: searches the
    /// memtables, then probes filters. A filter that is degraded, ignored or not resident answers "maybe".
    /// The statistics do not count these probes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = criba::Db::open(dir.path().join("store"))?;
    /// use criba::Membership;
    ///
    /// db.put("seen", "")?;
    /// assert_eq!(db.may_contain("seen")?, Membership::Maybe);
    /// assert_eq!(db.may_contain("never seen")?, Membership::No);
    /// # Ok::<(), criba::Error>(())
    /// ```
    pub fn may_contain(&self, key: impl AsRef<[u8]>) -> Result<Membership> {
        Reader::may_contain(self, key.as_ref())
    }

    /// The keys within bounds, with their values, in order from either end.
    ///
    /// Cost: the first item reads one block of each L0 table and of each lower level that has keys within the
    /// bounds. A later item reads a block only where the block in use ends. Hidden entries (deleted, overwritten,
    /// newer than a snapshot) are passed one by one, in memory or as blocks, until a compaction drops them: tens of
    /// nanoseconds each. [`hidden_passed`](crate::Activity::hidden_passed) counts them. A memtable in which one item
    /// passed 16,384 of them is flushed, at most once a second. A loop over the range may write.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = criba::Db::open(dir.path().join("store"))?;
    /// for item in db.range("a".."f") {
    ///     let (key, value) = item?;
    ///     println!("{key:?} = {value:?}");
    /// }
    /// let last_below_f = db.range(.."f").next_back().transpose()?;
    /// # Ok::<(), criba::Error>(())
    /// ```
    pub fn range(&self, bounds: impl KeyRange) -> Range {
        Reader::range(self, &bounds)
    }

    /// All keys, with their values, in order from either end. Costs as much as [`range`](Self::range).
    pub fn iter(&self) -> Range {
        Reader::iter(self)
    }

    /// All keys, in order from either end. Reads as much as [`iter`](Self::iter): values lie beside their keys.
    pub fn keys(&self) -> Keys {
        Reader::keys(self)
    }

    /// The first key, with its value; `None` if there is no key. Costs as much as the first item of
    /// [`range`](Self::range). A queue by `first` and [`delete`](Self::delete) does not pass what it deleted again
    /// and again: a scan notes where the tables and sealed memtables have nothing.
    pub fn first(&self) -> Result<Option<(Value, Value)>> {
        Reader::first(self)
    }

    /// The last key, with its value. Costs as much as [`first`](Self::first).
    pub fn last(&self) -> Result<Option<(Value, Value)>> {
        Reader::last(self)
    }

    /// The keys that start with `prefix`, with their values. With [`Options::prefix`], this scan, and a
    /// [`range`](Self::range) within one prefix, skip tables whose filters exclude the prefix. End a directory with
    /// the delimiter: for `usr/sha` only the prefix `usr/` is probed. Costs at most as much as `range`, hidden
    /// entries included.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        Reader::prefix(self, prefix.as_ref())
    }

    /// The estimated number of keys within bounds. No I/O.
    ///
    /// Counts entries of memtables, and keys of tables by the indexes. A key counts once in each table that has
    /// it, and each of its entries in memtables: overwritten and deleted keys count until a compaction drops
    /// them. At each bound the estimate is off by up to one block of each table; between the bounds, all blocks
    /// of a table count as equally full. A range within one block may count 0. Of a [`Snapshot`], entries that are
    /// newer than it count, too. After [`compact`](Self::compact), without snapshots, the estimate of `..` is exact.
    pub fn approximate_len(&self, bounds: impl KeyRange) -> Result<u64> {
        Reader::approximate_len(self, &bounds)
    }

    /// A view of the store as it is now. No I/O. It stays usable after the store is closed. Of a store that is
    /// closed already, its calls fail.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of_open(self.inner())
    }

    /// Writes all memtables to tables, and syncs the tables. Waits for the write under way, then until the
    /// memtables of now are tables.
    pub fn flush(&self) -> Result<()> {
        background::flush(self.inner()?)
    }

    /// Flushes, then waits until all work is done. This includes idle work: L0 is merged into the level below
    /// if the merge writes at most twenty times the bytes of L0. While other threads write, there may always be
    /// work.
    pub fn wait_until_settled(&self) -> Result<()> {
        background::wait_until_settled(self.inner()?)
    }

    /// Flushes, then merges all tables into one run on the last level. The run has new filters, and no
    /// entries that readers cannot see. If the store is such a run already and its filters are sound, nothing
    /// is merged: [`compact_rewriting`](Self::compact_rewriting) writes it anew all the same. Filters of another
    /// policy, or with other prefixes, are sound: [`rebuild_filters`](Self::rebuild_filters) replaces them.
    ///
    /// Cost: reads and writes all data once; needs disk space for a second copy. Waits for compactions under
    /// way, then merges on this thread.
    pub fn compact(&self) -> Result<()> {
        background::compact(self.inner()?)
    }

    /// Flushes, then writes each table with an [id](TableInfo::id) below `before` anew, one after the other, on its
    /// level: with the options and the filter policy of now, and without damage of filters. Returns their number.
    ///
    /// With `u64::MAX` these are all tables. To go on after an interruption, keep a number above all ids of the
    /// start, and pass it again: new tables have greater ids. Goes on after a damaged table, which stays, and fails
    /// at the end.
    ///
    /// Cost: reads and writes all their data once; needs disk space for a second copy of one table. Runs on this
    /// thread, beside other compactions.
    pub fn compact_rewriting(&self, before: u64) -> Result<u64> {
        background::compact_rewriting(self.inner()?, before)
    }

    /// The sequence number of the last committed change: how many changes the store has had. No I/O.
    pub fn latest_sequence_number(&self) -> u64 {
        if self.is_here() { self.0.inner.sequences.newest() } else { 0 }
    }

    /// The policy for the filters of new tables. No I/O.
    pub fn policy(&self) -> FilterPolicy {
        if self.is_here() { self.0.inner.filters.policy() } else { FilterPolicy::default() }
    }

    /// The rule of the prefixes that new filters have, from [`Options::prefix`]. No I/O.
    pub fn prefix_extractor(&self) -> Option<PrefixExtractor> {
        if self.is_here() { self.0.inner.filters.extractor() } else { None }
    }

    /// The compression of new tables, from [`Options::compression`]. No I/O.
    pub fn compression(&self) -> Compression {
        if self.is_here() { self.0.inner.filters.compression() } else { Compression::None }
    }

    /// The share of their decompressed bytes that the data blocks of all tables would take in files with LZ4 and
    /// [blocks of this size](Options::block_bytes), estimated from samples; `None` without tables. Filters and indexes
    /// take what they take. See [`Options::compression`].
    ///
    /// Cost: reads up to 64 samples of at least 64 KiB, spread over all tables, and checks them. The blocks of values of
    /// more than a mebibyte are not read.
    pub fn estimate_compression(&self, block_bytes: usize) -> Result<Option<f64>> {
        let view = self.inner()?.views.load_full();
        info::estimate_compression(&view, block_bytes)
    }

    /// Sets the policy for the filters of tables written from now on; the store keeps it. Existing filters
    /// stay: [`rebuild_filters`](Self::rebuild_filters) replaces them too.
    ///
    /// Cost: one synced write to the manifest; for the first policy of ribbons, a new manifest. Waits for another
    /// edit of the manifest that is under way.
    pub fn set_policy(&self, policy: FilterPolicy) -> Result<()> {
        self.inner()?.set_policy(policy)
    }

    /// Gives every table the filter that `policy` plans for it, in files beside the tables, and rebuilds
    /// degraded filters. The policy becomes the store's, as by [`set_policy`](Self::set_policy).
    ///
    /// Waits for flushes and compactions under way, then runs on this thread; all other work goes on. A table
    /// keeps its filter until the new one is synced,
    /// probed with every key, and recorded. After an error the finished filters stay, and another call
    /// continues.
    ///
    /// Cost: reads each table that needs another filter once, writes the filter, and reads the filter back. After
    /// a change of [`Options::prefix`], a policy that divides bits among tables reads the tables once more.
    /// Memory: 8 bytes for each key and prefix of one table, and twice the bytes of its filter.
    pub fn rebuild_filters(&self, policy: &FilterPolicy) -> Result<RebuildReport> {
        self.inner()?.rebuild_filters(policy)
    }

    /// Sets the budget of resident filters, in bytes of whole pages; `None` for no budget.
    ///
    /// A ribbon filter is reduced to its first columns, each of which halves the rate; other filters are
    /// dropped whole. First go the portions that avoid the fewest reads per byte, by the counts so far.
    /// [`FilterInfo`](crate::FilterInfo) shows each filter's state.
    ///
    /// Filters are reduced before this returns, which waits up to 200 ms for lookups that use them. A lookup
    /// or scan in progress keeps its filters, and so does a
    /// compaction that began without a budget. Each flush and compaction holds one new filter in addition.
    /// Under a budget, compactions probe no filters: a tombstone stays while a table on a lower level has a
    /// range that covers its key.
    ///
    /// When the budget grows, filters are read and verified again, by a background thread or, without
    /// [threads](Options::background_threads), by this call; [`wait_until_settled`](Self::wait_until_settled)
    /// waits for them. A damaged filter keeps its resident portion; if it has none, it is degraded.
    pub fn set_filter_memory(&self, budget: Option<u64>) -> Result<()> {
        background::set_filter_memory(self.inner()?, budget);
        Ok(())
    }

    /// Sets whether compactions run by themselves, until the store is closed: see [`Options::auto_compaction`]. A
    /// compaction under way goes on.
    ///
    /// Waits for nothing. Without [background threads](Options::background_threads), due compactions run in the call
    /// that turns them on.
    pub fn set_auto_compaction(&self, on: bool) -> Result<()> {
        background::set_auto_compaction(self.inner()?, on)
    }

    /// The memory of memtables, filters, indexes and cache. No I/O.
    pub fn memory(&self) -> MemoryUse {
        if !self.is_here() {
            return MemoryUse::default();
        }
        let DbInner { views, env, options, .. } = &*self.0.inner;
        info::memory(&views.load(), env, options.memory_limit)
    }

    /// The bytes of all files of the store in its directory: tables, filters, logs, the manifest, `CURRENT` and `LOCK`.
    /// A log is filled with zeros ahead of synced writes, and they count. A file that is removed meanwhile does not
    /// count.
    ///
    /// Cost: one listing of the directory; opens each file to find its length.
    pub fn disk_bytes(&self) -> Result<u64> {
        disk_bytes(&self.inner()?.env.dir)
    }

    /// Makes a checkpoint: a copy of the store, synced, in the new directory `path`. It holds a prefix of all
    /// writes, with every one that was acknowledged before the call. Writers go on meanwhile.
    ///
    /// To restore, [open](Options::open) the checkpoint as a store of its own. To keep the backup, make a
    /// checkpoint of the opened backup and go on with that, or open a plain copy of the directory. Close the old
    /// store before its directory is replaced. An open one refuses writes if its directory was removed; if it was
    /// only renamed, writes continue in the renamed directory, and the restored store has none of them.
    /// [`verify`](crate::verify) and [`Options::open_read_only`] check a backup without a change. A backup can be
    /// removed like any directory: the store and other backups lose nothing.
    ///
    /// The checkpoint has the identity and the hash key of this
    /// store, which are as secret as before. It shares the disk space of tables until a compaction replaces
    /// them, here or there; so damage to a shared table is damage to both.
    ///
    /// It is made in a directory `.NAME.checkpoint-tmp.` with 16 random digits beside `path`, and then renamed:
    /// after a crash, `path` is whole or not there. What a crash leaves, the next checkpoint at `path` removes.
    /// After an error the directory is removed. If only the last sync fails, that of the parent directory,
    /// the checkpoint stays, and a power failure may remove it.
    ///
    /// Cost: a hard link for each table and each filter file, or a copy where links fail, as on another file
    /// system. The logs' entries, at most those of the memtables, are copied and read back. About ten syncs. No
    /// lookup's disk read. Tables and filters that are replaced meanwhile stay until the end.
    ///
    /// Writers wait while the logs are opened, one for each memtable. Waits for a commit that is under way, and
    /// so for the flush that a full memtable waits for.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = criba::Db::open(dir.path().join("store"))?;
    /// db.put("a", "1")?;
    /// db.checkpoint(dir.path().join("monday"))?;
    /// db.put("a", "2")?;
    /// let monday = criba::Db::open(dir.path().join("monday"))?;
    /// assert_eq!(monday.get("a")?.as_deref(), Some(&b"1"[..]));
    /// # Ok::<(), criba::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io), which is [`AlreadyExists`](std::io::ErrorKind::AlreadyExists), before
    /// anything is written, if there is a file or directory `path`, and
    /// [`DirectoryNotEmpty`](std::io::ErrorKind::DirectoryNotEmpty) if another checkpoint came first;
    /// [`InvalidPath`](crate::Error::InvalidPath): `path` is empty or in the store;
    /// [`Corrupt`](crate::Error::Corrupt): a log is damaged;
    /// [`Poisoned`](crate::Error::Poisoned); [`Closed`](crate::Error::Closed).
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.inner()?.checkpoint(path.as_ref())
    }

    /// The counts since the store was opened. No I/O.
    pub fn stats(&self) -> Stats {
        if self.is_here() { self.0.inner.env.ledger.stats() } else { Stats::default() }
    }

    /// The latencies since the store was opened; `None` without [`Options::latencies`]. No I/O.
    pub fn latencies(&self) -> Option<Latencies> {
        let counters = self.0.inner.latencies.as_ref().filter(|_| self.is_here())?;
        Some(counters.latencies())
    }

    /// The figures of the store in the text format of [OpenMetrics](Stats::openmetrics): its counts, tables, filters,
    /// memory, latencies, and whether it is [poisoned](crate::Error::Poisoned). A server sends it with the content type
    /// `application/openmetrics-text; version=1.0.0; charset=utf-8`. No I/O.
    pub fn openmetrics(&self) -> String {
        let latencies = self.latencies();
        let mut page = of_handle(&self.stats(), &self.tables(), &self.memory(), latencies.as_ref());
        let is_poisoned = self.0.inner.health.check_poison().is_err();
        let help =
            "1 if the store refuses writes until it is opened again, because of a failure; else 0.";
        page.gauges("criba_poisoned", help, &[(String::new(), u64::from(is_poisoned))]);
        page.end()
    }

    /// The live tables, L0 first. No I/O.
    pub fn tables(&self) -> Vec<TableInfo> {
        if !self.is_here() {
            return Vec::new();
        }
        info::tables(&self.0.inner.views.load_full(), &self.0.inner.env)
    }

    /// What other filters would cost and avoid, and which to choose: see [`Advice`]. No I/O.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = criba::Db::open(dir.path().join("store"))?;
    /// # for i in 0..1000 { db.put(format!("user{i}"), "")?; }
    /// # db.flush()?;
    /// let advice = db.advise();
    /// if let Some(better) = advice.recommended() {
    ///     let policy = db.policy().with_kind(better.kind).with_allocation(better.allocation);
    ///     db.rebuild_filters(&policy.with_bits_per_key(better.bits_per_key))?;
    /// }
    /// # assert_eq!(advice.estimates.len(), 28);
    /// # Ok::<(), criba::Error>(())
    /// ```
    pub fn advise(&self) -> Advice {
        if !self.is_here() {
            return Advice::of_nothing();
        }
        let DbInner { views, env, filters, .. } = &*self.0.inner;
        advise(&views.load_full().version, &env.ledger, filters.settings())
    }

    /// What opening the store found and repaired.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.0.recovery
    }

    /// Ends background work, syncs all writes, and closes the store for all handles. Memtables are not flushed:
    /// the next opening replays their logs. Waits until tasks under
    /// way end, which is soon: they are dropped, and done again after the next opening. Live snapshots and scans
    /// stay usable, and keep the directory locked. In a callback of [`Options::on_event`] this call returns
    /// at once, and another thread closes the store.
    ///
    /// # Errors
    /// [`Closed`](crate::Error::Closed) if the store was closed before; the error of the last sync.
    pub fn close(self) -> Result<()> {
        self.0.inner.close()
    }
}

reader::implement_reader!(Db, Snapshot, ReadOnlyDb);
reader::inherit_reads!(Snapshot, ReadOnlyDb);

impl Options {
    /// Opens the store in a directory, or makes one there, and recovers it after a crash. With
    /// [`create_if_missing`](Self::create_if_missing) also makes the directory and its missing parents, durably, with
    /// the mode of [`file_mode`](Self::file_mode). Afterwards the store does not use the path: it stays in this directory, whatever the path leads to
    /// ([`DirectoryMoved`](crate::Event::DirectoryMoved)).
    ///
    /// Cost: two reads for each table, one of them for its filter. Each log is read once, and what it adds is
    /// written to tables and synced. Does not wait for a lock that another process holds.
    ///
    /// # Errors
    /// [`InvalidOption`](crate::Error::InvalidOption), [`NotAStore`](crate::Error::NotAStore) and
    /// [`MemoryLimit`](crate::Error::MemoryLimit), without a change; [`Locked`](crate::Error::Locked);
    /// [`Corrupt`](crate::Error::Corrupt);
    /// [`Missing`](crate::Error::Missing); [`Unsupported`](crate::Error::Unsupported);
    /// [`InvalidPath`](crate::Error::InvalidPath); [`Io`](crate::Error::Io).
    pub fn open(self, dir: impl AsRef<Path>) -> Result<Db> {
        self.check()?;
        open::open(dir.as_ref(), self).map(Db::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PrefixExtractor;

    #[test]
    fn debug_and_display_texts_fit_on_a_line() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let events = Arc::new(std::sync::Mutex::new(Vec::new()));
        let log = Arc::clone(&events);
        let db = Options::new()
            .background_threads(0)
            .prefix(PrefixExtractor::until(b'/'))
            .on_event(move |event| log.lock().expect("a log").push(event.to_string()))
            .open(dir.path())?;
        let mut batch = Batch::new();
        for number in 0..1000 {
            batch.put(format!("row/{number}"), vec![7; 100]);
        }
        let mut printed = vec![format!("{batch:?}")];
        db.write(batch)?;
        db.flush()?;
        db.rebuild_filters(&FilterPolicy::ribbon())?;
        db.set_filter_memory(Some(0))?;
        printed.push(db.tables()[0].filter.to_string());
        db.compact()?;
        let mut range = db.range("row/1".."row/2");
        assert!(range.next().is_some());
        printed.extend([format!("{db:?}"), format!("{:?}", db.snapshot()), format!("{range:?}")]);
        printed.append(&mut events.lock().expect("a log"));
        println!("{}", printed.join("\n"));
        assert!(printed.len() > 10, "{printed:#?}");
        for line in printed {
            assert!(line.len() < 200 && !line.contains('\n'), "{} bytes: {line}", line.len());
        }
        Ok(())
    }
}
