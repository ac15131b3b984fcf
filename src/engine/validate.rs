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
use crate::sstable::{ReadPlan, TableCursor};
use crate::sync::sync_point;
use crate::version::LiveTable;
use crate::view::ReadView;

/// The keys that a commit compares with a read set: in less than a millisecond, also if the set is in no cache.
const FEW_KEYS: u64 = 1024;
/// After so many attempts a commit compares twice as many keys: other writes may come in large batches.
const PATIENCE: u32 = 8;
/// After so many attempts a commit that cannot keep up with other writers is a conflict.
const ATTEMPTS: u32 = 5 * PATIENCE;

/// To go on to a key that is farther away than so many entries, a cursor seeks it.
const MOST_STEPS: usize = 64;

impl DbInner {
    /// Writes a batch if nothing of `reads` was written after `snapshot`, which is registered.
    pub(crate) fn write_if_unchanged(
        &self,
        batch: &Encoded,
        reads: ReadSet,
        snapshot: Seq,
        durability: Durability,
    ) -> Result<()> {
        self.begin_write()?;
        let _validation = self.commits.begin_validation();
        let reads = Arc::new(reads);
        let mut checked = snapshot;
        self.check_up_to_now(&reads, &mut checked)?;
        for attempt in 0..ATTEMPTS {
            sync_point("between the validation of a transaction and its commit");
            let at_most = FEW_KEYS << (attempt / PATIENCE);
            let terms = Terms::AllIfUnchanged { reads: Arc::clone(&reads), checked, at_most };
            match self.submit_if(terms, batch.ops.clone(), batch.entries, durability)? {
                Decision::CompareFirst(runs) => {
                    for run in runs {
                        if run.after(checked).any(|key| reads.contains(key)) {
                            return Err(Error::Conflict);
                        }
                        checked = run.newest();
                    }
                }
                Decision::CheckAgain => self.check_up_to_now(&reads, &mut checked)?,
                Decision::Conflict => break,
                _ => return Ok(()),
            }
        }
        Err(Error::Conflict)
    }

    /// Checks the entries after the number `checked`, and sets it to the newest one.
    fn check_up_to_now(&self, reads: &ReadSet, checked: &mut Seq) -> Result<()> {
        // The number before the view, which then has all entries up to it. A compaction drops entries that no
        // snapshot sees, but the newest one of a key only if the key is absent in the registered snapshot, too.
        let newest = self.sequences.newest();
        if newest > *checked {
            let view = self.views.load_full();
            let tables = view.version.tables().map(|(_, live)| live);
            let tables = tables.filter(|live| live.table.meta().max_seq > *checked);
            let tables = tables.map(|live| Walk { live, cursor: None }).collect();
            let mut since = Since { inner: self, view: &view, seq: *checked, tables };
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
    tables: Vec<Walk<'a>>,
}

impl Since<'_> {
    /// Whether there is one in an interval of keys, behind the intervals before. A filter may deny a key, but not a range.
    fn has_entry(&mut self, start: &[u8], end: Option<&[u8]>) -> Result<bool> {
        let is_key = end.and_then(|end| end.strip_prefix(start)) == Some(&[0]);
        let uses_filters = is_key && !self.inner.options.ignore_filters;
        let (hash_key, hash) = (&self.inner.env.hash_key, self.view.memtable.hash_function());
        let key = uses_filters.then(|| LookupKey::new(start, hash_key, hash));
        let (from, forward) = (Bound::Included(start), Direction::Forward);
        for memtable in self.view.memtables() {
            if key.as_ref().is_none_or(|key| memtable.may_contain(key)) {
                let mut cursor = MemtableCursor::new(Arc::clone(memtable), forward, from);
                if comes_to_newer(&mut cursor, self.seq, end)? {
                    return Ok(true);
                }
            }
        }
        for walk in &mut self.tables {
            let meta = walk.live.table.meta();
            let overlaps = start <= meta.largest.as_slice()
                && end.is_none_or(|end| meta.smallest.as_slice() < end);
            let denies = |key| walk.live.filter.verdict(key) == Verdict::No;
            if overlaps
                && !key.as_ref().is_some_and(denies)
                && comes_to_newer(walk.go_to(start)?, self.seq, end)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether a cursor comes to an entry after the number `seq`, before the key `end`. The newest entry of a key comes
/// first.
fn comes_to_newer(cursor: &mut impl Cursor, seq: Seq, end: Option<&[u8]>) -> Result<bool> {
    while let Some(entry) = cursor.entry()
        && end.is_none_or(|end| entry.key < end)
    {
        if entry.seq > seq {
            return Ok(true);
        }
        cursor.skip_versions(0)?;
    }
    Ok(false)
}

/// A walk through a table, in the order of its keys.
struct Walk<'a> {
    live: &'a LiveTable,
    cursor: Option<TableCursor>,
}

impl Walk<'_> {
    /// Moves to the first entry from a key on. Keys that lie in one block read it once or twice.
    fn go_to(&mut self, start: &[u8]) -> Result<&mut TableCursor> {
        let mut steps = 0;
        while let Some(cursor) = &mut self.cursor
            && cursor.entry().is_some_and(|entry| entry.key < start)
        {
            if steps == MOST_STEPS {
                self.cursor = None;
                break;
            }
            cursor.advance()?;
            steps += 1;
        }
        if let Some(ref mut cursor) = self.cursor {
            return Ok(cursor);
        }
        let (table, from) = (Arc::clone(&self.live.table), Bound::Included(start));
        Ok(self.cursor.insert(TableCursor::new(table, Direction::Forward, from, ReadPlan::Scan)?))
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
        assert_eq!(commit_beside(|db, _| db.write(many(2 * FEW_KEYS))), (PATIENCE + 1, true));
        let endless = commit_beside(|db, _| db.write(many(17 * FEW_KEYS)));
        assert_eq!(endless, (ATTEMPTS, false));
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

    #[test]
    fn a_refused_transaction_still_needs_what_its_group_wrote() {
        let dir = crate::tempdir::tempdir();
        let db = Options::new().open(dir.path()).expect("a store");
        let inner = Arc::clone(db.inner().expect("it is open"));
        let transaction = db.transaction();
        assert_eq!(transaction.range("a".."b").count(), 0);
        let transaction = Cell::new(Some({
            let mut transaction = transaction;
            transaction.put("own", "");
            transaction
        }));
        let attempts = Rc::new(Cell::new(0));
        let (counted, handle, engine) = (Rc::clone(&attempts), db.clone(), Arc::clone(&inner));
        let hook = move |place: &str| {
            if place != PLACE {
                return;
            }
            counted.set(counted.get() + 1);
            if counted.get() > 1 {
                return;
            }
            handle.write(many(FEW_KEYS + 1)).expect("a sound disk");
            // The transaction and this write are one group.
            let (ready, is_ready) = std::sync::mpsc::channel();
            let (db, inner) = (handle.clone(), Arc::clone(&engine));
            std::thread::spawn(move || {
                let writer = inner.commits.writer();
                std::thread::spawn(move || db.put("other", ""));
                while inner.commits.waiting() < 1 {
                    yield_now();
                }
                ready.send(()).expect("the test waits");
                while inner.commits.waiting() < 2 {
                    yield_now();
                }
                drop(writer);
            });
            is_ready.recv().expect("the thread sends");
        };
        with_hook(hook, || {
            let transaction = transaction.take().expect("a transaction");
            transaction.commit(Durability::Buffered).expect("no conflict");
        });
        assert_eq!(attempts.get(), 2, "the second attempt compares \"other\" alone");
    }
}
