//! The entries of a memtable in order: leaves of about a hundred entries, and a directory of their first
//! targets.
//!
//! A search in a leaf or in the directory reads eight bytes of each key, side by side. A skip list or tree of
//! entries would follow two pointers per step, mostly to uncached memory.
//!
//! # Why no entry is missed
//! A leaf has all entries from its start, which never changes, to its end, where the next leaf starts. A full
//! leaf is split under its lock: the upper part is in the directory before the lock is released. A thread
//! that finds a leaf locks it, checks its end, and searches the directory again if the target lies beyond.
//!
//! No thread waits for a leaf while it holds the directory's lock, so a thread with a leaf's lock may wait
//! for the directory.

use std::cmp::Ordering;
use std::ops::Bound;

use super::leaf::Leaf;
use super::search_key::{Edge, SearchKey};
use crate::expiry::Stored;
use crate::fences::{Fences, reserve_quarter};
use crate::key::{EntryRef, Seq};
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{Arc, AtomicU64, AtomicUsize, RwLock, ShardedLock, sync_point};

#[derive(Debug, Default)]
pub(super) struct Leaves {
    first: Arc<LeafCell>,
    others: ShardedLock<Directory>,
}

#[derive(Debug, Default)]
struct LeafCell {
    /// The first target of the leaf; `None` for the first leaf.
    start: Option<Edge>,
    /// A cursor holds the leaf as it was: the next insertion copies it.
    leaf: RwLock<Arc<Leaf>>,
    /// [`Leaf::hidden_from`] for readers that do not lock the leaf; `Seq::MAX` for "none".
    hidden_from: AtomicU64,
    entries: AtomicUsize,
}

impl LeafCell {
    fn new(start: Edge, leaf: Leaf) -> Self {
        let leaf = Arc::new(leaf);
        let cell =
            Self { start: Some(start), leaf: RwLock::new(Arc::clone(&leaf)), ..Self::default() };
        cell.describe(&leaf);
        cell
    }

    fn describe(&self, leaf: &Leaf) {
        self.hidden_from.store(leaf.hidden_from().unwrap_or(Seq::MAX), Release);
        self.entries.store(leaf.len(), Relaxed);
    }

    /// The number of entries, if a reader at `seq` sees no value among them. An insertion that the reader sees
    /// has ended; others change nothing for it.
    fn hidden_entries(&self, seq: Seq) -> Option<usize> {
        (self.hidden_from.load(Acquire) <= seq).then(|| self.entries.load(Relaxed))
    }
}

/// All leaves but the first.
#[derive(Debug, Default)]
struct Directory {
    leaves: Vec<Arc<LeafCell>>,
    fences: Fences,
}

impl Directory {
    fn last_within(&self, bound: Bound<&SearchKey<'_>>) -> Option<&Arc<LeafCell>> {
        let within = match bound {
            Bound::Unbounded => self.leaves.len(),
            Bound::Included(target) => self.beginning(target, Ordering::is_le),
            Bound::Excluded(target) => self.beginning(target, Ordering::is_lt),
        };
        within.checked_sub(1).map(|number| &self.leaves[number])
    }

    /// The number of starts whose comparison with a target `counts`.
    fn beginning(&self, target: &SearchKey<'_>, counts: fn(Ordering) -> bool) -> usize {
        let begins = |start: &Edge| counts(start.target().compare(target));
        self.fences
            .below(target.key, |number| self.leaves[number].start.as_ref().is_some_and(begins))
    }

    fn insert(&mut self, start: &Edge, cell: LeafCell) {
        let at = self.beginning(&start.target(), Ordering::is_lt);
        reserve_quarter(&mut self.leaves, 1, 4);
        self.leaves.insert(at, Arc::new(cell));
        if !self.fences.insert(at, start.target().key) {
            let starts = self.leaves.iter().map(|cell| cell.start.as_ref());
            self.fences =
                Fences::new(starts.map(|start| start.map_or(&[][..], |start| start.target().key)));
        }
    }
}

impl Leaves {
    /// Inserts an entry. Returns the growth of the memory in bytes, wrapping if it shrinks.
    pub(super) fn insert(&self, entry: EntryRef<'_>) -> usize {
        let target = SearchKey::new(entry.key, entry.seq);
        loop {
            let cell = self.find(Bound::Included(&target));
            let mut leaf = cell.leaf.write();
            if !leaf.reaches(&target) {
                continue;
            }
            let before = leaf.memory();
            let leaf = Arc::make_mut(&mut leaf);
            let mut after = 0;
            if let Some((start, upper)) = leaf.insert(entry) {
                after += start.memory() + upper.memory();
                self.others.write().insert(&start, LeafCell::new(start.clone(), upper));
            }
            cell.describe(leaf);
            after += leaf.memory();
            return after.wrapping_sub(before);
        }
    }

    pub(super) fn get(&self, key: &[u8], seq: Seq) -> Option<Stored> {
        let mut target = SearchKey::new(key, seq);
        loop {
            let cell = self.find(Bound::Included(&target));
            sync_point("between finding a leaf and locking it");
            let leaf = cell.leaf.read();
            if !leaf.reaches(&target) {
                continue;
            }
            let below = leaf.below(&target);
            if let Some(entry) = leaf.entry(below) {
                let stored = || Stored { kind: entry.kind, value: leaf.value(below) };
                return (entry.key == key).then(stored);
            }
            // The next entry is where the next cell begins. It may be one of this key.
            let next = leaf.end.as_ref()?.target();
            target.seq = (next.key == key).then_some(next.seq)?;
        }
    }

    pub(super) fn containing(&self, target: &SearchKey<'_>) -> Arc<Leaf> {
        self.read_when(Bound::Included(target), |leaf| leaf.reaches(target))
    }

    /// The first entry from a target on: its leaf and its number there.
    pub(super) fn first_from(&self, target: &SearchKey<'_>) -> Option<(Arc<Leaf>, usize)> {
        let leaf = self.containing(target);
        let number = leaf.below(target);
        if number < leaf.len() {
            return Some((leaf, number));
        }
        Some((self.after(&leaf)?, 0))
    }

    /// The part of all entries before a target, as if all leaves had equally many. With one leaf it is exact.
    pub(super) fn part_below(&self, target: &SearchKey<'_>) -> f64 {
        let others = self.others.read();
        let (before, leaves) = (others.beginning(target, Ordering::is_le), 1 + others.leaves.len());
        let cell = Arc::clone(before.checked_sub(1).map_or(&self.first, |n| &others.leaves[n]));
        drop(others);
        let leaf = cell.leaf.read();
        (before as f64 + leaf.below(target) as f64 / leaf.len().max(1) as f64) / leaves as f64
    }

    pub(super) fn first(&self) -> Arc<Leaf> {
        Arc::clone(&self.first.leaf.read())
    }

    pub(super) fn last(&self) -> Arc<Leaf> {
        self.read_when(Bound::Unbounded, |leaf| leaf.end.is_none())
    }

    pub(super) fn after(&self, leaf: &Leaf) -> Option<Arc<Leaf>> {
        leaf.end.as_ref().map(|end| self.containing(&end.target()))
    }

    pub(super) fn before(&self, leaf: &Leaf) -> Option<Arc<Leaf>> {
        Some(self.ending_at(leaf.start.as_ref()?))
    }

    /// The leaf before the one that starts at an edge.
    fn ending_at(&self, start: &Edge) -> Arc<Leaf> {
        let start = start.target();
        let ends_there =
            |leaf: &Leaf| leaf.end.as_ref().is_some_and(|end| end.target().compare(&start).is_eq());
        self.read_when(Bound::Excluded(&start), ends_there)
    }

    /// The first leaf after `end` that a reader at `seq` has to enter, and the number of entries that this passes:
    /// of leaves without a value for the reader, whose keys are all less than `limit`.
    pub(super) fn after_hidden(
        &self,
        end: &Edge,
        seq: Seq,
        limit: Option<&[u8]>,
    ) -> (Arc<Leaf>, usize) {
        let others = self.others.read();
        let mut number = others.beginning(&end.target(), Ordering::is_lt);
        let mut passed = 0;
        while let [cell, next, ..] = &others.leaves[number..]
            && let Some(entries) = cell.hidden_entries(seq)
            && let Some(edge) = next.start.as_ref().filter(|edge| edge.parts_keys())
            && limit.is_none_or(|limit| edge.key() <= limit)
        {
            passed += entries;
            number += 1;
        }
        let cell = Arc::clone(&others.leaves[number]);
        drop(others);
        let leaf = Arc::clone(&cell.leaf.read());
        (leaf, passed)
    }

    /// As [`after_hidden`](Self::after_hidden), backward from `start`, where a leaf ends; all keys are greater
    /// than `limit`.
    pub(super) fn before_hidden(
        &self,
        start: &Edge,
        seq: Seq,
        limit: Option<&[u8]>,
    ) -> (Arc<Leaf>, usize) {
        let others = self.others.read();
        let mut number = others.beginning(&start.target(), Ordering::is_lt);
        let mut passed = 0;
        let mut start = start;
        while let Some(cell) = number.checked_sub(1).map(|before| &others.leaves[before])
            && let Some(entries) = cell.hidden_entries(seq)
            && let Some(edge) = cell.start.as_ref().filter(|edge| edge.parts_keys())
            && limit.is_none_or(|limit| edge.key() > limit)
        {
            passed += entries;
            number -= 1;
            start = edge;
        }
        let start = start.clone();
        drop(others);
        (self.ending_at(&start), passed)
    }

    /// The newest sequence number; 0 without entries.
    pub(super) fn newest(&self) -> Seq {
        let others = self.others.read().leaves.clone();
        let newest = |cell: &LeafCell| cell.leaf.read().newest();
        others.iter().map(|cell| newest(cell)).fold(newest(&self.first), Seq::max)
    }

    /// The last leaf that starts within `bound`. Repeats the search until `is_meant` accepts the leaf, which
    /// may have been split.
    fn read_when(
        &self,
        bound: Bound<&SearchKey<'_>>,
        is_meant: impl Fn(&Leaf) -> bool,
    ) -> Arc<Leaf> {
        loop {
            let cell = self.find(bound);
            sync_point("between finding a leaf and locking it");
            let leaf = cell.leaf.read();
            if is_meant(&leaf) {
                return Arc::clone(&leaf);
            }
        }
    }

    /// The last leaf that starts within `bound`, or the first leaf.
    fn find(&self, bound: Bound<&SearchKey<'_>>) -> Arc<LeafCell> {
        Arc::clone(self.others.read().last_within(bound).unwrap_or(&self.first))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::cmp::Reverse;
    use std::collections::BTreeMap;

    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use crate::key::EntryKind;

    use super::{Arc, EntryRef, Leaf, Leaves, SearchKey, Seq};
    use crate::sync::with_hook;

    type Version = (Vec<u8>, Reverse<Seq>);
    type Map = BTreeMap<Version, Vec<u8>>;

    fn in_order(leaves: &Leaves) -> Vec<(Version, Vec<u8>)> {
        let runs = std::iter::successors(Some(leaves.first()), |leaf| leaves.after(leaf));
        runs.flat_map(|leaf| all_of(&leaf)).collect()
    }

    fn all_of(leaf: &Leaf) -> Vec<(Version, Vec<u8>)> {
        let entries = (0..leaf.len()).filter_map(|number| {
            let EntryRef { key, seq, value, .. } = leaf.entry(number)?;
            Some(((key.to_vec(), Reverse(seq)), value.to_vec()))
        });
        entries.collect()
    }

    /// A leaf hides its puts from a reader only if newer entries of their keys, which the reader sees, are there.
    #[test]
    fn a_hidden_leaf_has_no_value_for_its_readers() {
        let mut rng = ChaCha8Rng::seed_from_u64(39);
        let mut hidden = 0;
        for keys in [1, 2, 5, 40, 1000] {
            let (leaves, count) = (Leaves::default(), 1000);
            let mut seqs: Vec<Seq> = (1..=count).collect();
            for at in 0..seqs.len() - 3 {
                // As of threads that insert side by side.
                seqs.swap(at, at + rng.random_range(0..4));
            }
            let mut all: Vec<(String, Seq)> = Vec::new();
            for seq in seqs {
                let key = rng.random_range(0..keys).to_string();
                let kind = if rng.random_ratio(2, 3) { EntryKind::Delete } else { EntryKind::Put };
                leaves.insert(EntryRef { key: key.as_bytes(), seq, kind, value: b"" });
                all.push((key, seq));
            }
            for leaf in std::iter::successors(Some(leaves.first()), |leaf| leaves.after(leaf)) {
                let Some(from) = leaf.hidden_from() else { continue };
                hidden += 1;
                for entry in (0..leaf.len()).filter_map(|number| leaf.entry(number)) {
                    let is_hidden = all.iter().any(|(key, seq)| {
                        key.as_bytes() == entry.key && (entry.seq + 1..=from).contains(seq)
                    });
                    assert!(entry.kind == EntryKind::Delete || is_hidden, "{keys} keys: {entry:?}");
                }
            }
        }
        assert!(hidden > 5, "{hidden} hidden leaves");
    }

    /// Against a sorted map: keys that are random, ascending, descending, or written more often than a leaf
    /// has entries; short and long.
    #[test]
    fn leaves_hold_what_a_map_holds() {
        let mut rng = ChaCha8Rng::seed_from_u64(17);
        let mut searches = 0;
        for round in 0..40_usize {
            let (leaves, mut map) = (Leaves::default(), Map::new());
            let begin = ["", "common/begin/of/all/"][round % 2];
            let (mut memory, count) = (0_usize, [1, 100, 129, 1000, 3000][round / 8]);
            for seq in 1..=count {
                let number = match round / 2 % 4 {
                    0 => rng.random_range(0..1_000_000),
                    1 => seq,
                    2 => 1_000_000 - seq,
                    _ => rng.random_range(0..3),
                };
                let mut key = format!("{begin}{number:06}").into_bytes();
                key.truncate(if rng.random_ratio(1, 50) { rng.random_range(0..8) } else { 99 });
                let longest = if rng.random_ratio(1, 20) { 3000 } else { 60 };
                let value = vec![seq as u8; rng.random_range(0..longest)];
                let kind = EntryKind::Put;
                let grown = leaves.insert(EntryRef { key: &key, seq, kind, value: &value });
                memory = memory.wrapping_add(grown);
                map.insert((key, Reverse(seq)), value);
            }
            let all: Vec<_> = map.clone().into_iter().collect();
            assert!(in_order(&leaves) == all, "round {round}");
            let mut backward = Vec::new();
            for leaf in std::iter::successors(Some(leaves.last()), |leaf| leaves.before(leaf)) {
                backward.splice(0..0, all_of(&leaf));
            }
            assert!(backward == all, "round {round}, backward");
            let bytes: usize = all.iter().map(|((key, _), value)| key.len() + value.len()).sum();
            assert!(memory >= bytes && memory < 3 * bytes + 16_384, "{memory} for {bytes}");
            for (key, _) in map.keys().step_by(7) {
                for seq in [0, 1, rng.random_range(0..=count), count, Seq::MAX] {
                    for key in [key.clone(), [key, &b"0"[..]].concat()] {
                        let newest = map.range((key.clone(), Reverse(seq))..).next();
                        let expected = newest.filter(|((other, _), _)| *other == key);
                        let found = leaves.get(&key, seq).map(|found| found.value.to_vec());
                        assert_eq!(
                            found.as_ref(),
                            expected.map(|(_, value)| value),
                            "{key:?} {seq}"
                        );
                        searches += 1;
                    }
                }
            }
        }
        println!("{searches} searches");
    }

    #[test]
    fn a_leaf_with_a_reader_is_not_changed() {
        let leaves = Leaves::default();
        let insert = |i: u64| {
            let kind = EntryKind::Put;
            leaves.insert(EntryRef { key: &i.to_be_bytes(), seq: i + 1, kind, value: b"v" })
        };
        (0..100).for_each(|i| _ = insert(2 * i));
        let read = leaves.first();
        let before = all_of(&read);
        (0..100).for_each(|i| _ = insert(2 * i + 1));
        assert_eq!(all_of(&read), before);
        assert_eq!(in_order(&leaves).len(), 200);
        // It ends where it ended: what follows it follows.
        assert!(leaves.after(&read).is_none());
    }

    #[test]
    fn a_leaf_that_was_split_is_noticed() {
        fn insert(leaves: &Leaves, i: u64) {
            let kind = EntryKind::Put;
            leaves.insert(EntryRef { key: &i.to_be_bytes(), seq: i + 1, kind, value: b"v" });
        }
        let last = 990_u64.to_be_bytes();
        for search in [
            (|leaves, last| leaves.get(last, Seq::MAX).is_some()) as fn(&Leaves, &[u8]) -> bool,
            |leaves, last| leaves.containing(&SearchKey::new(last, Seq::MAX)).end.is_none(),
            |leaves, _| leaves.last().end.is_none(),
        ] {
            let leaves = Arc::new(Leaves::default());
            (0..100).for_each(|i| insert(&leaves, 10 * i));
            assert!(leaves.first().end.is_none());
            let (splits, looked, found) = (Arc::clone(&leaves), Cell::new(0), Cell::new(false));
            let split = move |_: &str| {
                looked.set(looked.get() + 1);
                if looked.get() == 1 {
                    (0..50).for_each(|i| insert(&splits, 10 * i + 1));
                }
            };
            let passed = with_hook(split, || found.set(search(&leaves, &last)));
            assert!(leaves.first().end.is_some());
            assert!(found.get());
            assert_eq!(passed, 2, "it was looked for again");
        }
    }

    #[test]
    fn nothing_is_missed_while_leaves_are_split() {
        const ENTRIES: u64 = 60_000;
        let leaves = Leaves::default();
        let key = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        let inserted = crate::sync::AtomicU64::new(0);
        let order = crate::sync::Ordering::SeqCst;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut walks = 0;
                loop {
                    let there = inserted.load(order);
                    let mut forward = in_order(&leaves);
                    let mut backward: Vec<_> =
                        std::iter::successors(Some(leaves.last()), |leaf| leaves.before(leaf))
                            .flat_map(|leaf| all_of(&leaf).into_iter().rev().collect::<Vec<_>>())
                            .collect();
                    backward.reverse();
                    for walked in [&mut forward, &mut backward] {
                        assert!(walked.is_sorted_by(|a, b| a.0 < b.0));
                        walked.retain(|((_, Reverse(seq)), _)| *seq <= there);
                        assert_eq!(walked.len() as u64, there);
                    }
                    for i in (0..there).step_by(31) {
                        assert!(leaves.get(&key(i), Seq::MAX).is_some(), "{i} of {there}");
                    }
                    walks += 1;
                    if there == ENTRIES {
                        break println!("{walks} walks in each direction");
                    }
                }
            });
            for i in 0..ENTRIES {
                let kind = EntryKind::Put;
                leaves.insert(EntryRef { key: &key(i), seq: i + 1, kind, value: b"" });
                inserted.store(i + 1, order);
            }
        });
    }
}
