//! Conditional writes: a change is made only if its key has the expected value.
//!
//! The calling thread looks the keys up, without a lock. The thread that commits the group then searches for
//! newer entries: in the earlier requests of the group, and in the memtables. Newer entries are nowhere else,
//! unless the memtable that was in use at the lookup is flushed; the calling thread then looks up again. So
//! the commit reads no disk, and the log has outcomes, no conditions.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::commit_queue::{Durability, Request};
use super::condition::{Condition, Decision};
use super::inner::DbInner;
use crate::batch::{Batch, encode_entry, for_each_entry};
use crate::error::Result;
use crate::filter::LookupKey;
use crate::key::{EntryKind, EntryRef, Seq};
use crate::sync::{Mutex, sync_point};
use crate::view::ReadView;
use criba_filter::store::HashKey;

impl DbInner {
    /// Makes each change whose key has the expected value. The first of two changes of one key counts.
    /// Returns for each change whether it was made.
    pub(crate) fn write_if(
        &self,
        changes: Batch,
        expected: Option<&[u8]>,
        durability: Durability,
    ) -> Result<Vec<bool>> {
        self.check_writable()?;
        let (ops, count) = changes.into_parts()?;
        let mut entries: Vec<EntryRef<'_>> = Vec::with_capacity(count as usize);
        for_each_entry(&ops, 0, |entry| entries.push(entry));
        let keys: Vec<&[u8]> = entries.iter().map(|entry| entry.key).collect();
        loop {
            let found = self.lookup_latest(&keys)?;
            sync_point("between the lookup of a conditional write and its commit");
            let mut made = Vec::with_capacity(entries.len());
            let mut open = Vec::new();
            for (entry, value) in entries.iter().zip(&found.values) {
                let holds = value.as_deref() == expected;
                made.push(holds);
                if holds {
                    open.push(*entry);
                }
            }
            let (ops, count) = encode(&open);
            if count == 0 {
                if durability == Durability::Synced && self.sequences.synced() < found.seq {
                    self.write(Batch::new(), Durability::Synced)?;
                }
                return Ok(made);
            }
            let condition = Arc::new(Condition {
                expected: expected.map(<[u8]>::to_vec),
                since: found.since,
                decision: Mutex::new(Decision::LookUpAgain),
            });
            let request = Request::new(ops, count, durability).only_if(Arc::clone(&condition));
            self.commits.submit(request, self)?;
            let decision = condition.decision.lock();
            if let Decision::Written(written) = &*decision {
                let mut written = written.iter();
                for made in made.iter_mut().filter(|made| **made) {
                    *made = written.next().is_some_and(|written| *written);
                }
                return Ok(made);
            }
        }
    }
}

fn encode(entries: &[EntryRef<'_>]) -> (Vec<u8>, u64) {
    let mut ops = Vec::new();
    for EntryRef { kind, key, value, .. } in entries {
        encode_entry(&mut ops, *kind, key, value);
    }
    (ops, entries.len() as u64)
}

/// What the requests of a group write, once the conditions are decided.
pub(crate) struct GroupWrites<'a> {
    group: &'a [&'a Request],
    /// The entries of each conditional request that are written, and their number. Empty if there is no such
    /// request.
    decided: Vec<Option<(Vec<u8>, u64)>>,
}

impl<'a> GroupWrites<'a> {
    /// Decides the conditions. No other thread may write meanwhile.
    pub(crate) fn decide(group: &'a [&'a Request], view: &ReadView, hash_key: &HashKey) -> Self {
        if group.iter().all(|request| request.condition.is_none()) {
            return Self { group, decided: Vec::new() };
        }
        // The changes of the requests so far, which are not in the memtable yet.
        let mut changes: HashMap<&[u8], Option<&[u8]>, RandomState> = HashMap::default();
        let mut decide = |request: &&'a Request| {
            let Some(condition) = &request.condition else {
                for_each_entry(&request.ops, 0, |entry| {
                    changes.insert(entry.key, value_of(&entry));
                });
                return None;
            };
            if view.memtables().all(|memtable| memtable.log() > condition.since) {
                *condition.decision.lock() = Decision::LookUpAgain;
                return Some((Vec::new(), 0));
            }
            let expected = condition.expected.as_deref();
            let mut written = Vec::new();
            let mut winners = Vec::new();
            for_each_entry(&request.ops, 0, |entry| {
                let holds = match changes.get(entry.key) {
                    Some(value) => *value == expected,
                    None => holds_in_memtables(view, entry.key, expected, hash_key),
                };
                if holds {
                    changes.insert(entry.key, value_of(&entry));
                    winners.push(entry);
                }
                written.push(holds);
            });
            let all = winners.len() == written.len();
            *condition.decision.lock() = Decision::Written(written);
            (!all).then(|| encode(&winners))
        };
        Self { group, decided: group.iter().map(&mut decide).collect() }
    }

    /// The encoded entries of each request, and their number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.group.iter().enumerate().map(|(index, request)| match self.decided.get(index) {
            Some(Some((ops, entries))) => (ops.as_slice(), *entries),
            _ => (request.ops.as_slice(), request.entries),
        })
    }
}

fn value_of<'a>(entry: &EntryRef<'a>) -> Option<&'a [u8]> {
    (entry.kind == EntryKind::Put).then_some(entry.value)
}

/// Whether the condition, which held at the lookup, still holds.
fn holds_in_memtables(
    view: &ReadView,
    key: &[u8],
    expected: Option<&[u8]>,
    hash_key: &HashKey,
) -> bool {
    let key = LookupKey::new(key, hash_key, view.memtable.hash_function());
    let mut newest = view
        .memtables()
        .filter(|memtable| memtable.may_contain(&key))
        .filter_map(|memtable| memtable.get(key.bytes(), Seq::MAX));
    match newest.next() {
        Some((EntryKind::Put, value)) => expected == Some(&value),
        Some((EntryKind::Delete, _)) => expected.is_none(),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread::scope;

    use super::*;
    use crate::sync::{with_hook, yield_now};
    use crate::vfs::{Fault, FaultRule, FaultVfs, FileKind, Operation, RealVfs};
    use crate::{Db, Options};

    const PLACE: &str = "between the lookup of a conditional write and its commit";

    /// Makes `meanwhile` happen between the lookup and the commit of an insertion. Returns the store, and
    /// whether the insertion was made.
    fn insert_beside(meanwhile: impl Fn(&Db) -> Result<()> + 'static) -> (Db, bool) {
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
            made.set(Some(db.insert_if_absent("key", "own").expect("a sound disk")));
        });
        (db, made.get().expect("set above"))
    }

    #[test]
    fn a_change_between_lookup_and_commit_counts_wherever_it_is() -> Result<()> {
        let flushed = |db: &Db| db.put("key", "other").and_then(|()| db.flush());
        for (number, expected) in [true, false, false, false, true, true, true].iter().enumerate() {
            let (db, made) = insert_beside(move |db| match number {
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
    fn insert_in_a_group(full: bool) -> Vec<bool> {
        let dir = crate::tempdir::tempdir();
        let faults = FaultVfs::new(Arc::new(RealVfs));
        let db = Options::new().vfs(Arc::new(faults.clone())).open(dir.path()).expect("a store");
        let inner = Arc::clone(db.inner().expect("it is open"));
        let results = scope(|scope| {
            let writer = inner.commits.writer();
            let threads = [(); 3].map(|()| scope.spawn(|| db.insert_if_absent("key", "value")));
            while inner.commits.waiting() < threads.len() {
                yield_now();
            }
            if full {
                let rule = FaultRule::new(Fault::NoSpace).kinds([FileKind::Wal]);
                faults.add(rule.operations([Operation::Append, Operation::Write]));
            }
            drop(writer);
            threads.map(|thread| thread.join().expect("no panic").expect("room for one")).into()
        });
        assert_eq!(faults.injected().len(), usize::from(full));
        assert_eq!(inner.sequences.newest(), 1, "one entry was written");
        results
    }

    #[test]
    fn one_request_of_a_group_wins_also_when_the_group_is_committed_one_by_one() {
        for full in [false, true] {
            let results = insert_in_a_group(full);
            assert_eq!(results.iter().filter(|made| **made).count(), 1, "{results:?}");
        }
    }
}
