//! Optimistic transactions.

use std::cmp::Ordering;
use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::iter::FusedIterator;
use std::ops::Bound;
use std::time::Duration;

use super::Db;
use super::snapshot::Snapshot;
use crate::batch::Batch;
use crate::engine::commit_queue::Durability;
use crate::engine::read_set::ReadSet;
use crate::engine::scan::Range;
use crate::error::{Error, Result};
use crate::expiry::{Expiry, Millis, Moment, Stored, stored};
use crate::iter::Direction;
use crate::key::EntryKind;
use crate::key_range::{KeyBounds, KeyPrefix, KeyRange, borrowed};
use crate::ledger::Writes;
use crate::sync::{Mutex, sleep, yield_now};
use crate::value::Value;

/// The longest pause of [`Db::transact`] after its first conflicts; each further conflict doubles it.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);
/// After so many conflicts [`Db::transact`] pauses: before, it begins again at once.
const FREE_CONFLICTS: u32 = 2;

/// Reads and changes of several keys that take effect at one moment, or not at all, from [`Db::transaction`].
///
/// It reads the store as of its beginning, and its own changes. [`commit`](Self::commit) writes the changes if
/// no key and no range that the transaction read was written since; else it fails with [`Error::Conflict`], and
/// nothing is written. So committed transactions are serializable: the store is as if they had run one after the
/// other, in the order of their commits. To roll it back, drop it.
///
/// It holds no lock: others write meanwhile, and threads can share it to read. Like a [`Snapshot`], it keeps the entries
/// that it sees from compactions, and the directory locked; it does not keep the store open. Its changes are in memory,
/// and so is what it read: each key, and each range with its gaps up to the last key returned, from both ends. Adjacent
/// ranges are one; a key that is read twice counts once. Beyond
/// [`Options::transaction_bytes`](crate::Options::transaction_bytes), reads and the commit fail with
/// [`Error::TransactionTooLarge`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = criba::Db::open(dir.path().join("store"))?;
/// use criba::{Durability, Error};
///
/// db.put("on call", "ada, bea")?;
/// let (mut one, mut other) = (db.transaction(), db.transaction());
/// for (transaction, left) in [(&mut one, "bea"), (&mut other, "ada")] {
///     assert_eq!(transaction.get("on call")?.unwrap(), "ada, bea"); // two: one may go
///     transaction.put("on call", left);
/// }
/// one.commit(Durability::Buffered)?;
/// assert!(matches!(other.commit(Durability::Buffered), Err(Error::Conflict)));
/// assert_eq!(db.get("on call")?.unwrap(), "bea");
/// # Ok::<(), criba::Error>(())
/// ```
///
/// # Errors
/// Reads fail as those of [`Db`], and with [`Error::TransactionTooLarge`].
pub struct Transaction {
    snapshot: Snapshot,
    /// The time of its own changes, also if the store has no expiring entries yet.
    time: Millis,
    /// `None` for a deleted key.
    changes: BTreeMap<Value, Stored>,
    reads: Mutex<Reads>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Reads {
    set: ReadSet,
    /// The ranges that were not dropped. They add what they read when they are dropped.
    ranges: usize,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("snapshot", &self.snapshot)
            .field("changes", &self.changes.len())
            .finish_non_exhaustive()
    }
}

impl Db {
    /// Begins a [`Transaction`]. No I/O.
    pub fn transaction(&self) -> Transaction {
        let time = self.0.inner.env.time.now();
        let snapshot = self.snapshot();
        let time = snapshot.source().map_or(time, |(_, moment)| moment.time.max(time));
        Transaction {
            snapshot,
            time,
            changes: BTreeMap::new(),
            reads: Mutex::default(),
            limit: self.0.inner.options.transaction_bytes,
        }
    }

    /// Runs `body` in a [`Transaction`] and commits it, [buffered](Durability::Buffered). After a conflict it
    /// begins again with a new transaction, at most `tries` times in all, at least once, then fails with
    /// [`Error::Conflict`]. An error of `body` ends it, and nothing is written.
    ///
    /// **`body` can run many times**, and all but its last changes are discarded: it must do nothing else that counts.
    /// After the third conflict each pause is random, up to 50 µs, then up to twice as long each time, at most 10 ms.
    ///
    /// Give many tries: 100 is a good number for short transactions, and with [`u32::MAX`] only they end. A conflict does
    /// not slow the writers that win, so a transaction that reads many keys beside steady writers may never commit: read
    /// a [`snapshot`](Self::snapshot) if nothing depends on the result, or let the writers share a lock of your own.
    ///
    /// Name the result of the closure, as below: otherwise the compiler may not know `E`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let db = criba::Db::open(dir.path().join("store"))?;
    /// let count = db.transact(10, |tx| -> criba::Result<u64> {
    ///     let count = tx.get("count")?.map_or(0, |count| count[0].into()) + 1;
    ///     tx.put("count", [count as u8]);
    ///     Ok(count)
    /// })?;
    /// assert_eq!(count, 1);
    /// # Ok::<(), criba::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `body`, and of [`Transaction::commit`].
    pub fn transact<T, E: From<Error>>(
        &self,
        tries: u32,
        body: impl FnMut(&mut Transaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.transact_with(tries, Durability::Buffered, body)
    }

    /// As [`transact`](Self::transact), with this durability.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn transact_with<T, E: From<Error>>(
        &self,
        tries: u32,
        durability: Durability,
        mut body: impl FnMut(&mut Transaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut conflicts = 0;
        loop {
            let mut transaction = self.transaction();
            let result = body(&mut transaction)?;
            match transaction.commit(durability) {
                Ok(()) => return Ok(result),
                Err(Error::Conflict) if conflicts + 1 < tries => {
                    conflicts += 1;
                    pause(conflicts);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Pauses for a random time, so that transactions that conflicted do not meet again.
fn pause(conflicts: u32) {
    let Some(doublings) = conflicts.checked_sub(FREE_CONFLICTS + 1) else { return yield_now() };
    let longest = LONGEST_PAUSE.min(FIRST_PAUSE * (1 << doublings.min(16)));
    let random = getrandom::u32().unwrap_or(u32::MAX);
    sleep(longest.mul_f64(f64::from(random) / f64::from(u32::MAX)));
}

#[expect(clippy::missing_errors_doc, reason = "said once, for the whole type")]
impl Transaction {
    /// Sets a key's value.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.change(key.as_ref(), EntryKind::Put, Value::copied(value.as_ref()))
    }

    /// Sets a key's value, with an expiry of its own: see [`Db::put_with_expiry`].
    pub fn put_expiring(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        expiry: impl Into<Expiry>,
    ) -> &mut Self {
        let value = stored(expiry.into().in_batch(), value.as_ref());
        self.change(key.as_ref(), EntryKind::Expiring, value.into())
    }

    /// Deletes a key.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.change(key.as_ref(), EntryKind::Delete, Value::default())
    }

    fn change(&mut self, key: &[u8], kind: EntryKind, value: Value) -> &mut Self {
        self.changes.insert(Value::copied(key), Stored { kind, value });
        self
    }

    /// Deletes the keys that it sees within bounds, and returns their number. A key that another write adds there
    /// before the commit is a conflict. Costs as much as [`range`](Self::range), and memory for each key: about 170 bytes.
    pub fn delete_range(&mut self, bounds: impl KeyRange) -> Result<u64> {
        let keys = self.range(bounds).map(|pair| pair.map(|(key, _)| key));
        let keys = keys.collect::<Result<Vec<_>>>()?;
        let deleted = keys.len() as u64;
        for key in keys {
            self.delete(key);
        }
        Ok(deleted)
    }

    /// The value of a key. Costs as much as [`Db::get`]; nothing for a key that the transaction changed.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let key = key.as_ref();
        if let Some(own) = self.changes.get(key) {
            return Ok(self.value_of(own));
        }
        self.note(|reads| reads.set.insert_key(key))?;
        self.snapshot.get(key)
    }

    /// The values of many keys, in their order. Costs as much as [`Db::get_many`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        let mut stored: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        stored.retain(|key| !self.changes.contains_key(*key));
        for key in &stored {
            self.note(|reads| reads.set.insert_key(key))?;
        }
        let mut stored = self.snapshot.get_many(&stored)?.into_iter();
        let value_of = |key: &K| match self.changes.get(key.as_ref()) {
            Some(own) => self.value_of(own),
            None => stored.next().flatten(),
        };
        Ok(keys.iter().map(value_of).collect())
    }

    /// Whether a key has a value. Costs as much as [`get`](Self::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// The keys within bounds, with their values, in order from either end. Costs as much as [`Db::range`]. It borrows the
    /// transaction: to change what it returns, collect it first, or use [`delete_range`](Self::delete_range).
    pub fn range(&self, bounds: impl KeyRange) -> TransactionRange<'_> {
        let (from, to) = bounds.bounds();
        let is_empty = match (from, to) {
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (
                Bound::Included(from) | Bound::Excluded(from),
                Bound::Included(to) | Bound::Excluded(to),
            ) => from >= to,
            _ => false,
        };
        let nothing = (Bound::Unbounded, Bound::Excluded(&[][..]));
        let own = if is_empty { nothing } else { (from, to) }; // a map panics at empty bounds
        self.reads.lock().ranges += 1;
        TransactionRange {
            transaction: self,
            stored: Ends::of(self.snapshot.range((from, to))),
            own: Ends::of(self.changes.range::<[u8], _>(own)),
            bounds: (from.map(<[u8]>::to_vec), to.map(<[u8]>::to_vec)),
            returned: (None, None),
            state: State::Going,
        }
    }

    /// The keys that start with `prefix`, with their values. Costs as much as [`Db::prefix`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> TransactionRange<'_> {
        self.range(KeyPrefix::new(prefix))
    }

    /// Makes the changes, with this durability, if nothing that the transaction read was written since it began. A
    /// transaction without changes always commits.
    ///
    /// Cost: no disk read if no table was written meanwhile. Otherwise those tables are searched for newer entries:
    /// keys by the filters, and after a "maybe" one block each; ranges by a scan of the tables that have keys there.
    /// [`Stats::scan_reads`](crate::Stats::scan_reads) counts these reads. Other writers do not wait for that. The write
    /// itself waits as [`Db::write_with`] does.
    ///
    /// # Errors
    /// [`Error::Conflict`], also if other writers write so fast that the comparison cannot keep up;
    /// [`Error::TransactionTooLarge`]; the errors of reads and of writes.
    pub fn commit(self, durability: Durability) -> Result<()> {
        let (inner, Moment { seq, .. }) = self.snapshot.source()?;
        if self.changes.is_empty() {
            return inner.sync_seen(seq, durability);
        }
        self.note(|reads| {
            if reads.ranges > 0 {
                reads.set.insert((Bound::Unbounded, Bound::Unbounded)); // a range was forgotten
            }
        })?;
        let mut batch = batch_of(&self.changes);
        inner.set_expiries(&mut batch)?;
        let reads = std::mem::take(&mut *self.reads.lock());
        let done = inner.write_if_unchanged(&batch.into_encoded()?, reads.set, seq, durability);
        if matches!(done, Err(Error::Conflict)) {
            inner.env.ledger.count_writes(Writes { conflicts: 1, ..Writes::default() });
        }
        done
    }

    /// The changes as a batch, sorted by key. Its write never conflicts: for a program with one writer.
    pub fn into_batch(self) -> Batch {
        batch_of(&self.changes)
    }

    /// What a change of its own gives a key, at the time of the snapshot.
    fn value_of(&self, own: &Stored) -> Option<Value> {
        own.clone().value_at(self.time)
    }

    /// Changes what was read, unless it is too large already.
    fn note(&self, read: impl FnOnce(&mut Reads)) -> Result<()> {
        let mut reads = self.reads.lock();
        if reads.set.bytes() <= self.limit {
            read(&mut reads);
        }
        let bytes = reads.set.bytes();
        if bytes <= self.limit {
            return Ok(());
        }
        Err(Error::TransactionTooLarge { bytes: bytes as u64, limit: self.limit as u64 })
    }
}

fn batch_of(changes: &BTreeMap<Value, Stored>) -> Batch {
    let mut batch = Batch::new();
    for (key, Stored { kind, value }) in changes {
        batch.push(*kind, key, value);
    }
    batch
}

/// A double-ended iterator over keys and values, from [`Transaction::range`]. It ends after an error.
pub struct TransactionRange<'t> {
    transaction: &'t Transaction,
    stored: Ends<Range>,
    own: Ends<btree_map::Range<'t, Value, Stored>>,
    bounds: KeyBounds,
    /// The last keys returned forward and backward.
    returned: (Option<Value>, Option<Value>),
    state: State,
}

#[derive(Debug, PartialEq)]
enum State {
    Going,
    Failed,
    /// There are no more items: all within the bounds was read.
    Finished,
}

impl fmt::Debug for TransactionRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("TransactionRange");
        fields.field("stored", &self.stored.items).field("state", &self.state);
        fields.finish_non_exhaustive()
    }
}

impl TransactionRange<'_> {
    fn item(&mut self, direction: Direction) -> Option<Result<(Value, Value)>> {
        if self.state != State::Going {
            return None;
        }
        let item = self.transaction.note(|_| ()).and_then(|()| self.step(direction));
        match &item {
            Ok(Some((key, _))) => {
                let (front, back) = &mut self.returned;
                *direction.pick(front, back) = Some(key.clone());
            }
            Ok(None) => self.state = State::Finished,
            Err(_) => self.state = State::Failed,
        }
        item.transpose()
    }

    fn step(&mut self, direction: Direction) -> Result<Option<(Value, Value)>> {
        loop {
            let own = self.own.peek(direction).map(|(key, _)| *key);
            let order = match (self.stored.peek(direction), own) {
                (None, None) => return Ok(None),
                (None, Some(_)) => Ordering::Greater,
                (Some(Ok((stored, _))), Some(own)) => {
                    let order = stored.cmp(own);
                    direction.pick(order, order.reverse())
                }
                (Some(_), _) => Ordering::Less,
            };
            if order.is_le() {
                let stored = self.stored.take(direction);
                if order.is_lt() {
                    return stored.transpose();
                }
            }
            if let Some((key, own)) = self.own.take(direction)
                && let Some(value) = self.transaction.value_of(own)
            {
                return Ok(Some((key.clone(), value)));
            }
        }
    }
}

impl Drop for TransactionRange<'_> {
    /// Adds what was read to the read set: all up to the last key returned, from both ends.
    fn drop(&mut self) {
        let mut reads = self.transaction.reads.lock();
        reads.ranges -= 1;
        let (from, to) = borrowed(&self.bounds);
        if self.state == State::Finished {
            return reads.set.insert((from, to));
        }
        if let Some(key) = &self.returned.0 {
            reads.set.insert((from, Bound::Included(key)));
        }
        if let Some(key) = &self.returned.1 {
            reads.set.insert((Bound::Included(key), to));
        }
    }
}

impl Iterator for TransactionRange<'_> {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.item(Direction::Forward)
    }
}

impl DoubleEndedIterator for TransactionRange<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.item(Direction::Backward)
    }
}

impl FusedIterator for TransactionRange<'_> {}

/// A double-ended iterator whose next item can be looked at, at both ends.
struct Ends<I: Iterator> {
    items: I,
    front: Option<I::Item>,
    back: Option<I::Item>,
}

impl<I: DoubleEndedIterator> Ends<I> {
    fn of(items: I) -> Self {
        Self { items, front: None, back: None }
    }

    /// The last item is the next one of both ends.
    fn take(&mut self, direction: Direction) -> Option<I::Item> {
        match direction {
            Direction::Forward => {
                self.front.take().or_else(|| self.items.next()).or_else(|| self.back.take())
            }
            Direction::Backward => {
                self.back.take().or_else(|| self.items.next_back()).or_else(|| self.front.take())
            }
        }
    }

    fn peek(&mut self, direction: Direction) -> Option<&I::Item> {
        let next = self.take(direction);
        let near = direction.pick(&mut self.front, &mut self.back);
        *near = next;
        near.as_ref()
    }
}
