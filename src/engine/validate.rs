//! The commit of a transaction: its changes are written if nothing that it read was written since its snapshot.
//!
//! The calling thread first compares the read set with the newer entries of memtables and tables, without a lock, up
//! to a number v. The thread that commits compares it with the keys that were written after v, which commits keep
//! while a validation goes on ([`RecentWrites`](super::recent_writes::RecentWrites)). If they are not all there, or
//! too many to hold up other writers, the calling thread goes on to a greater v first.

use std::ops::Bound;
use std::sync::Arc;

use super::commit_queue::Durability;
use super::condition::{Decision, Terms};
use super::inner::DbInner;
use super::read_set::ReadSet;
use crate::batch::Encoded;
use crate::error::{Error, Result};
use crate::filter::LookupKey;
use crate::iter::{Cursor, Direction};
use crate::key::Seq;
use crate::ledger::Verdict;
use crate::memtable::MemtableCursor;
use crate::sstable::ReadPlan;
use crate::sync::sync_point;
use crate::version::{LevelCursor, LiveTable};
use crate::view::ReadView;

/// The keys that a commit compares with a read set: in about half a millisecond.
const FEW_KEYS: u64 = 4096;
/// After so many attempts a commit compares all keys, so that the attempts end.
const ATTEMPTS: u32 = 8;

impl DbInner {
    /// Writes a batch if nothing of `reads` was written after `snapshot`, which is registered.
    pub(crate) fn write_if_unchanged(
        &self,
        batch: &Encoded,
        reads: ReadSet,
        snapshot: Seq,
        durability: Durability,
    ) -> Result<()> {
        self.check_writable()?;
        let _validation = self.commits.begin_validation();
        let reads = Arc::new(reads);
        let mut checked = snapshot;
        self.check_up_to_now(&reads, &mut checked)?;
        for attempt in 1.. {
            sync_point("between the validation of a transaction and its commit");
            let at_most = if attempt > ATTEMPTS { u64::MAX } else { FEW_KEYS };
            let terms = Terms::AllIfUnchanged { reads: Arc::clone(&reads), checked, at_most };
            match self.submit_if(terms, batch.ops.clone(), batch.entries, durability)? {
                Decision::Conflict => return Err(Error::Conflict),
                Decision::CompareFirst(groups) => {
                    for group in groups {
                        if group.iter().any(|key| reads.contains(key)) {
                            return Err(Error::Conflict);
                        }
                        checked = group.newest();
                    }
                }
                Decision::CheckAgain => self.check_up_to_now(&reads, &mut checked)?,
                _ => break,
            }
        }
        Ok(())
    }

    /// Checks the entries after the number `checked`, and sets it to the newest one.
    fn check_up_to_now(&self, reads: &ReadSet, checked: &mut Seq) -> Result<()> {
        // The number before the view, which then has all entries up to it. A compaction drops entries that no
        // snapshot sees, but the newest one of a key only if the key is absent in the registered snapshot, too.
        let newest = self.sequences.newest();
        if newest > *checked {
            let view = self.views.load_full();
            let tables = view.version.tables().map(|(_, live)| live);
            let tables = tables.filter(|live| live.table.meta().max_seq > *checked).collect();
            let since = Since { inner: self, view: &view, seq: *checked, tables };
            for (start, end) in reads.iter() {
                if since.has_entry(start, end)? {
                    return Err(Error::Conflict);
                }
            }
            *checked = newest;
        }
        Ok(())
    }
}

/// The entries of a view after a number.
struct Since<'a> {
    inner: &'a DbInner,
    view: &'a ReadView,
    seq: Seq,
    /// The tables that have such entries.
    tables: Vec<&'a LiveTable>,
}

impl Since<'_> {
    /// Whether there is one in an interval of keys. A filter may deny a key, but not a range.
    fn has_entry(&self, start: &[u8], end: Option<&[u8]>) -> Result<bool> {
        let is_key = end.and_then(|end| end.strip_prefix(start)) == Some(&[0]);
        let uses_filters = is_key && !self.inner.options.ignore_filters;
        let (hash_key, hash) = (&self.inner.env.hash_key, self.view.memtable.hash_function());
        let key = uses_filters.then(|| LookupKey::new(start, hash_key, hash));
        let (from, forward) = (Bound::Included(start), Direction::Forward);
        for memtable in self.view.memtables() {
            if key.as_ref().is_none_or(|key| memtable.may_contain(key)) {
                let cursor = MemtableCursor::new(Arc::clone(memtable), forward, from);
                if self.comes_to_one(cursor, end)? {
                    return Ok(true);
                }
            }
        }
        let bounds = (from, end.map_or(Bound::Unbounded, Bound::Excluded));
        for live in &self.tables {
            if key.as_ref().is_some_and(|key| live.filter.verdict(key) == Verdict::No) {
                continue;
            }
            let run = std::slice::from_ref(*live);
            let cursor = LevelCursor::new(run, forward, bounds, ReadPlan::Scan, None)?;
            if self.comes_to_one(cursor, end)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a cursor comes to one before the key `end`.
    fn comes_to_one(&self, mut cursor: impl Cursor, end: Option<&[u8]>) -> Result<bool> {
        while let Some(entry) = cursor.entry()
            && end.is_none_or(|end| entry.key < end)
        {
            if entry.seq > self.seq {
                return Ok(true);
            }
            cursor.advance()?;
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::thread::scope;

    use super::*;
    use crate::sync::{with_hook, yield_now};
    use crate::{Batch, Db, Durability, Options};

    const PLACE: &str = "between the validation of a transaction and its commit";

    /// Lets `meanwhile` write between each validation and commit of a transaction that reads the keys "a" to "b".
    /// Returns the number of validations, and whether it committed.
    fn commit_beside(meanwhile: impl Fn(&Db, u32) -> Result<()> + 'static) -> (u32, bool) {
        let dir = crate::tempdir::tempdir();
        let db = Options::new().background_threads(0).open(dir.path()).expect("a store");
        let mut transaction = db.transaction();
        assert_eq!(transaction.range("a".."b").count(), 0);
        transaction.put("own", "");
        // A commit keeps keys only for validations that go on beside those of its group.
        let inner = db.inner().expect("it is open");
        let _other = inner.commits.begin_validation();
        let (handle, attempts) = (db.clone(), Rc::new(Cell::new(0)));
        let counted = Rc::clone(&attempts);
        let hook = move |place: &str| {
            if place == PLACE {
                counted.set(counted.get() + 1);
                meanwhile(&handle, counted.get()).expect("a sound disk");
            }
        };
        let committed = Rc::new(Cell::new(None));
        let transaction = Cell::new(Some(transaction));
        with_hook(hook, || {
            let transaction = transaction.take().expect("a transaction");
            committed.set(Some(match transaction.commit(Durability::Buffered) {
                Ok(()) => true,
                Err(Error::Conflict) => false,
                Err(error) => panic!("{error}"),
            }));
        });
        let committed = committed.get().expect("set above");
        assert_eq!(db.contains("own").expect("a sound disk"), committed);
        (attempts.get(), committed)
    }

    fn many(keys: u64) -> Batch {
        (0..keys).map(|number| (format!("key {number}"), "")).collect()
    }

    #[test]
    fn what_is_written_between_validation_and_commit_is_compared() {
        assert_eq!(commit_beside(|_, _| Ok(())), (1, true));
        assert_eq!(commit_beside(|db, _| db.put("b", "")), (1, true));
        assert_eq!(commit_beside(|db, _| db.put("a", "")), (1, false));
        assert_eq!(commit_beside(|db, _| db.delete("a")), (1, false));
        let flushed = |db: &Db, key| db.put(key, "").and_then(|()| db.flush());
        assert_eq!(commit_beside(move |db, _| flushed(db, "b")), (1, true));
        assert_eq!(commit_beside(move |db, _| flushed(db, "a")), (1, false));
    }

    #[test]
    fn many_keys_are_compared_without_the_lock_but_not_for_ever() {
        assert_eq!(commit_beside(|db, _| db.write(many(FEW_KEYS))), (1, true));
        let first = |keys, with: Option<&'static str>| {
            commit_beside(move |db, attempt| {
                let mut batch = if attempt == 1 { many(keys) } else { Batch::new() };
                batch.extend(with.filter(|_| attempt == 1).map(|key| (key, "")));
                db.write(batch)
            })
        };
        assert_eq!(first(FEW_KEYS + 1, None), (2, true));
        assert_eq!(first(FEW_KEYS + 1, Some("a")), (1, false));
        assert_eq!(commit_beside(|db, _| db.write(many(FEW_KEYS + 1))), (ATTEMPTS + 1, true));
    }

    #[test]
    fn keys_that_commits_no_longer_keep_are_in_memtables_and_tables() {
        for flushed in [false, true] {
            for conflicts in [false, true] {
                let ended = commit_beside(move |db, attempt| {
                    if attempt > 1 {
                        return Ok(());
                    }
                    if conflicts {
                        db.put("a", "")?;
                    }
                    for number in 0..80_u8 {
                        db.put([vec![number], vec![0; 60_000]].concat(), "")?;
                    }
                    if flushed { db.flush() } else { Ok(()) }
                });
                assert_eq!(ended, (if conflicts { 1 } else { 2 }, !conflicts));
            }
        }
    }

    #[test]
    fn of_one_group_the_first_transaction_commits() {
        let dir = crate::tempdir::tempdir();
        let db = Options::new().open(dir.path()).expect("a store");
        let inner = Arc::clone(db.inner().expect("it is open"));
        let results: Vec<bool> = scope(|scope| {
            let writer = inner.commits.writer();
            let transact = || {
                let mut transaction = db.transaction();
                assert_eq!(transaction.range("a".."b").count(), 0);
                transaction.put("a", "");
                transaction.commit(Durability::Buffered).is_ok()
            };
            let threads = [(); 3].map(|()| scope.spawn(transact));
            while inner.commits.waiting() < threads.len() {
                yield_now();
            }
            drop(writer);
            threads.map(|thread| thread.join().expect("no panic")).into()
        });
        assert_eq!(results.iter().filter(|committed| **committed).count(), 1, "{results:?}");
        assert_eq!(inner.sequences.newest(), 1, "one entry was written");
    }
}
