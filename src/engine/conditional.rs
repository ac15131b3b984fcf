//! Conditional writes: changes are made only if keys have the expected values.
//!
//! The calling thread looks the keys up, without a lock. The thread that commits the group then searches for
//! newer entries: in the earlier requests of the group, and in the memtables. Newer entries are nowhere else,
//! unless the memtable that was in use at the lookup is flushed; the calling thread then looks up again. So
//! the commit reads no disk, and the log has outcomes, no conditions.

use std::sync::Arc;

use super::commit_queue::{Durability, Request};
use super::condition::{Condition, Decision, Terms};
use super::inner::DbInner;
use crate::batch::{Batch, Encoded, encode, entries};
use crate::error::Result;
use crate::key::{EntryRef, Seq};
use crate::ledger::Writes;
use crate::sync::sync_point;
use crate::value::Value;

impl DbInner {
    /// Inserts each pair of a batch whose key is absent. The first of two pairs with one key counts. Returns for
    /// each pair whether it was inserted.
    pub(crate) fn insert_each_absent(
        &self,
        mut pairs: Batch,
        durability: Durability,
    ) -> Result<Vec<bool>> {
        self.begin_write()?;
        self.set_expiries(&mut pairs)?;
        let pairs = pairs.into_encoded()?;
        let pairs: Vec<EntryRef<'_>> = entries(&pairs.ops).collect();
        let keys: Vec<&[u8]> = pairs.iter().map(|entry| entry.key).collect();
        loop {
            let found = self.lookup_latest(&keys)?;
            sync_point("between the lookup of a conditional write and its commit");
            let mut inserted: Vec<bool> = found.values.iter().map(Option::is_none).collect();
            let absent = pairs.iter().zip(&inserted).filter(|(_, absent)| **absent);
            let (ops, count) = encode(&absent.map(|(pair, _)| *pair).collect::<Vec<_>>());
            if count == 0 {
                self.sync_seen(found.seq, durability)?;
                self.count_conditions(0, inserted.len());
                return Ok(inserted);
            }
            let terms = Terms::EachIfAbsent { since: found.since };
            if let Decision::Each(written) = self.submit_if(terms, ops, count, durability)? {
                let mut written = written.into_iter();
                for inserted in inserted.iter_mut().filter(|inserted| **inserted) {
                    *inserted = written.next().is_some_and(|written| written);
                }
                let met = inserted.iter().filter(|inserted| **inserted).count();
                self.count_conditions(met, inserted.len() - met);
                return Ok(inserted);
            }
        }
    }

    /// Makes all changes of a batch if its requirements hold. Returns the key of the first one that does not.
    pub(crate) fn write_if(&self, batch: Encoded, durability: Durability) -> Result<Option<Value>> {
        self.begin_write()?;
        let requirements: Arc<[u8]> = batch.requirements.into();
        let required: Vec<EntryRef<'_>> = entries(&requirements).collect();
        let keys: Vec<&[u8]> = required.iter().map(|entry| entry.key).collect();
        loop {
            let found = self.lookup_latest(&keys)?;
            sync_point("between the lookup of a conditional write and its commit");
            let mut pairs = required.iter().zip(&found.values);
            let failed = pairs.find(|(required, value)| value.as_deref() != required.value_at(0));
            if failed.is_some() || batch.entries == 0 {
                self.sync_seen(found.seq, durability)?;
                self.count_conditions(usize::from(failed.is_none()), usize::from(failed.is_some()));
                return Ok(failed.map(|(required, _)| Value::copied(required.key)));
            }
            let requirements = Arc::clone(&requirements);
            let terms = Terms::AllIf { requirements, since: found.since, until: found.until };
            match self.submit_if(terms, batch.ops.clone(), batch.entries, durability)? {
                Decision::All => {
                    self.count_conditions(1, 0);
                    return Ok(None);
                }
                Decision::Failed(key) => {
                    self.count_conditions(0, 1);
                    return Ok(Some(key));
                }
                _ => {}
            }
        }
    }

    fn count_conditions(&self, met: usize, failed: usize) {
        let (conditions_met, conditions_failed) = (met as u64, failed as u64);
        let counts = Writes { conditions_met, conditions_failed, ..Writes::default() };
        self.env.ledger.count_writes(counts);
    }

    /// Submits entries with a condition. Returns the decision.
    pub(super) fn submit_if(
        &self,
        terms: Terms,
        ops: Vec<u8>,
        entries: u64,
        durability: Durability,
    ) -> Result<Decision> {
        let condition = Condition::new(terms);
        let request = Request::new(ops, entries, durability).only_if(Arc::clone(&condition));
        self.submit(request)?;
        Ok(condition.take_decision())
    }

    /// Makes what a call has seen synced if its durability demands it.
    pub(crate) fn sync_seen(&self, seq: Seq, durability: Durability) -> Result<()> {
        if durability == Durability::Synced && self.sequences.synced() < seq {
            self.write(Batch::new(), Durability::Synced)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread::scope;

    use super::*;
    use crate::error::Error;
    use crate::sync::{with_hook, yield_now};
    use crate::vfs::{Fault, FaultRule, FaultVfs, FileKind, Operation, RealVfs};
    use crate::{Db, Options};

    const PLACE: &str = "between the lookup of a conditional write and its commit";

    /// Inserts the key "key", with its own condition or as a batch with one.
    fn insert(db: &Db, as_batch: bool) -> bool {
        if !as_batch {
            return db.insert_if_absent("key", "own").expect("a sound disk");
        }
        match db.write(Batch::new().require_absent("key").put("key", "own")) {
            Ok(()) => true,
            Err(Error::ConditionFailed { key }) if key == "key" => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Makes `meanwhile` happen between the lookup and the commit of an insertion. Returns the store, and
    /// whether the insertion was made.
    fn insert_beside(
        as_batch: bool,
        meanwhile: impl Fn(&Db) -> Result<()> + 'static,
    ) -> (Db, bool) {
        let dir = crate::tempdir::tempdir();
        let db = Options::new().background_threads(0).open(dir.path()).expect("a store");
        db.put("deleted before", "").expect("a sound disk");
        db.delete("deleted before").expect("a sound disk");
        let (handle, first) = (db.clone(), std::cell::Cell::new(true));
        let hook = move |place: &str| {
            if place == PLACE && first.replace(false) {
                meanwhile(&handle).expect("a sound disk");
            }
        };
        let made = std::rc::Rc::new(std::cell::Cell::new(None));
        with_hook(hook, || {
            made.set(Some(insert(&db, as_batch)));
        });
        (db, made.get().expect("set above"))
    }

    #[test]
    fn a_change_between_lookup_and_commit_counts_wherever_it_is() -> Result<()> {
        let flushed = |db: &Db| db.put("key", "other").and_then(|()| db.flush());
        let expected = [true, false, false, false, true, true, true];
        let cases = [false, true].map(|as_batch| expected.map(|expected| (as_batch, expected)));
        for (number, (as_batch, expected)) in cases.as_flattened().iter().enumerate() {
            let (db, made) = insert_beside(*as_batch, move |db| match number % 7 {
                0 => Ok(()),
                1 => db.put("key", "other"),
                2 => flushed(db),
                3 => flushed(db).and_then(|()| db.compact()),
                4 => db.put("key", "other").and_then(|()| db.delete("key")),
                5 => flushed(db).and_then(|()| db.delete("key")),
                _ => db.put("another key", "other").and_then(|()| db.flush()),
            });
            assert_eq!(made, *expected, "case {number}");
            let value = if made { "own" } else { "other" };
            assert_eq!(db.get("key")?.expect("a value"), value, "case {number}");
        }
        Ok(())
    }

    /// Requests in one group, whose common append fails if `full`.
    fn insert_in_a_group(full: bool, as_batch: bool) -> Vec<bool> {
        let dir = crate::tempdir::tempdir();
        let faults = FaultVfs::new(Arc::new(RealVfs));
        let db = Options::new().vfs(Arc::new(faults.clone())).open(dir.path()).expect("a store");
        let inner = Arc::clone(db.inner().expect("it is open"));
        let results = scope(|scope| {
            let writer = inner.commits.writer();
            let threads = [(); 3].map(|()| scope.spawn(|| insert(&db, as_batch)));
            while inner.commits.waiting() < threads.len() {
                yield_now();
            }
            if full {
                let rule = FaultRule::new(Fault::NoSpace).kinds([FileKind::Wal]);
                faults.add(rule.operations([Operation::Append, Operation::Write]));
            }
            drop(writer);
            threads.map(|thread| thread.join().expect("no panic")).into()
        });
        assert_eq!(faults.injected().len(), usize::from(full));
        assert_eq!(inner.sequences.newest(), 1, "one entry was written");
        results
    }

    #[test]
    fn one_request_of_a_group_wins_also_when_the_group_is_committed_one_by_one() {
        for (full, as_batch) in [(false, false), (false, true), (true, false), (true, true)] {
            let results = insert_in_a_group(full, as_batch);
            assert_eq!(results.iter().filter(|made| **made).count(), 1, "{results:?}");
        }
    }
}
