//! Walking a memtable in either direction.

use std::ops::{Bound, Range};
use std::sync::Arc;

use super::Memtable;
use super::leaf::Leaf;
use super::leaves::Leaves;
use super::search_key::SearchKey;
use crate::error::Result;
use crate::iter::{Cursor, Direction};
use crate::key::{EntryRef, Seq};
use crate::sync::sync_point;
use crate::value::Value;

/// A position in a memtable. It holds a copy of its leaf, so it blocks no writer.
#[derive(Debug)]
pub(crate) struct MemtableCursor {
    memtable: Arc<Memtable>,
    direction: Direction,
    leaf: Arc<Leaf>,
    /// The entries left; the current one is the first, or the last if backward.
    left: Range<usize>,
}

impl MemtableCursor {
    /// A cursor at the first entry, in `direction`, whose user key lies within `start`.
    pub(crate) fn new(memtable: Arc<Memtable>, direction: Direction, start: Bound<&[u8]>) -> Self {
        sync_point("before a memtable is read");
        // In internal-key order a key's entries run from (key, MAX) to (key, 0), and none is there.
        let target = match (direction, start) {
            (_, Bound::Unbounded) => None,
            (Direction::Forward, Bound::Included(key))
            | (Direction::Backward, Bound::Excluded(key)) => Some(SearchKey::new(key, Seq::MAX)),
            (Direction::Forward, Bound::Excluded(key))
            | (Direction::Backward, Bound::Included(key)) => Some(SearchKey::new(key, 0)),
        };
        let leaves = &memtable.leaves;
        let (leaf, left) = match (target, direction) {
            (Some(target), _) => from_target(leaves, direction, &target),
            (None, Direction::Forward) => whole(leaves.first()),
            (None, Direction::Backward) => whole(leaves.last()),
        };
        let mut cursor = Self { memtable, direction, leaf, left };
        cursor.go_on();
        cursor
    }

    /// Moves to the first entry, in this direction, beyond a target.
    fn seek(&mut self, target: &SearchKey<'_>) {
        (self.leaf, self.left) = from_target(&self.memtable.leaves, self.direction, target);
        self.go_on();
    }

    /// Moves to the next leaf if nothing is left in this one.
    fn go_on(&mut self) {
        while self.left.is_empty() {
            sync_point("before a memtable is read on");
            let leaves = &self.memtable.leaves;
            let next = match self.direction {
                Direction::Forward => leaves.after(&self.leaf),
                Direction::Backward => leaves.before(&self.leaf),
            };
            let Some(next) = next else { return };
            (self.leaf, self.left) = whole(next);
        }
    }

    fn current(&self) -> Option<usize> {
        let mut left = self.left.clone();
        match self.direction {
            Direction::Forward => left.next(),
            Direction::Backward => left.next_back(),
        }
    }
}

/// The leaf of a target, and the entries beyond the target.
fn from_target(
    leaves: &Leaves,
    direction: Direction,
    target: &SearchKey<'_>,
) -> (Arc<Leaf>, Range<usize>) {
    let leaf = leaves.containing(target);
    let (below, end) = (leaf.below(target), leaf.len());
    (leaf, direction.pick(below..end, 0..below))
}

fn whole(leaf: Arc<Leaf>) -> (Arc<Leaf>, Range<usize>) {
    let all = 0..leaf.len();
    (leaf, all)
}

impl Cursor for MemtableCursor {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.leaf.entry(self.current()?)
    }

    fn value(&self) -> Value {
        self.current().map(|number| self.leaf.value(number)).unwrap_or_default()
    }

    fn advance(&mut self) -> Result<()> {
        match self.direction {
            Direction::Forward => self.left.next(),
            Direction::Backward => self.left.next_back(),
        };
        self.go_on();
        Ok(())
    }

    fn skip_versions(&mut self, seq: Seq) -> Result<()> {
        let (leaf, left) = (Arc::clone(&self.leaf), self.left.clone());
        self.advance()?;
        let old = self.direction.pick(left.start, left.end.wrapping_sub(1));
        let Some(old) = leaf.entry(old) else { return Ok(()) };
        if self.entry().is_none_or(|next| next.key != old.key) {
            return Ok(());
        }
        match self.direction {
            Direction::Forward => {
                let up_to = if old.seq > seq { seq } else { 0 };
                self.seek(&SearchKey::new(old.key, up_to));
            }
            Direction::Backward => {
                // The newest visible entry, if it is still to come, is the first one from its place on.
                let visible = self.memtable.leaves.first_from(&SearchKey::new(old.key, seq));
                let newer = visible.filter(|(leaf, number)| {
                    leaf.entry(*number).is_some_and(|e| e.key == old.key && e.seq > old.seq)
                });
                match newer {
                    Some((leaf, number)) => (self.leaf, self.left) = (leaf, 0..number + 1),
                    None => self.seek(&SearchKey::new(old.key, Seq::MAX)),
                }
            }
        }
        Ok(())
    }

    fn pass_hidden(&mut self, seq: Seq, limit: Option<&[u8]>) -> usize {
        if self.leaf.hidden_from().is_none_or(|from| from > seq) || self.left.is_empty() {
            return 0;
        }
        let number = self.direction.pick(self.leaf.len() - 1, 0);
        let Some(farthest) = self.leaf.entry(number) else { return 0 };
        let comes_before = |limit| self.direction.pick(farthest.key < limit, farthest.key > limit);
        if !limit.is_none_or(comes_before) {
            return 0;
        }
        let edge = self.direction.pick(&self.leaf.end, &self.leaf.start);
        let mut passed = self.left.len();
        let leaves = &self.memtable.leaves;
        let next = match edge {
            None => None,
            Some(edge) if !edge.parts_keys() => return 0,
            Some(edge) => Some(match self.direction {
                Direction::Forward => leaves.after_hidden(edge, seq, limit),
                Direction::Backward => leaves.before_hidden(edge, seq, limit),
            }),
        };
        match next {
            None => self.left = 0..0,
            Some((leaf, others)) => {
                passed += others;
                (self.leaf, self.left) = whole(leaf);
                self.go_on();
            }
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::EntryKind;

    #[test]
    fn walks_from_any_bound_in_both_directions() -> Result<()> {
        let memtable = Arc::new(Memtable::new(1, 1, None));
        let mut inserted = Vec::new();
        for i in 0..200_u64 {
            // Two changes of each key, so a bound must take or leave both.
            for seq in [2 * i + 2, 2 * i + 1] {
                let key = format!("{i:03}").into_bytes();
                memtable.insert(EntryRef { key: &key, seq, kind: EntryKind::Put, value: b"" });
                inserted.push((key, seq));
            }
        }
        for direction in [Direction::Forward, Direction::Backward] {
            for start in [
                Bound::Unbounded,
                Bound::Included(&b"100"[..]),
                Bound::Excluded(&b"100"[..]),
                Bound::Included(&b"0995"[..]),
                Bound::Excluded(&b"zzz"[..]),
            ] {
                let lies_within = |key: &[u8]| match (direction, start) {
                    (_, Bound::Unbounded) => true,
                    (Direction::Forward, Bound::Included(k)) => key >= k,
                    (Direction::Forward, Bound::Excluded(k)) => key > k,
                    (Direction::Backward, Bound::Included(k)) => key <= k,
                    (Direction::Backward, Bound::Excluded(k)) => key < k,
                };
                let mut expected = inserted.clone();
                if direction == Direction::Backward {
                    expected.reverse();
                }
                expected.retain(|(key, _)| lies_within(key));
                let mut cursor = MemtableCursor::new(Arc::clone(&memtable), direction, start);
                let mut seen = Vec::new();
                while let Some(entry) = cursor.entry() {
                    seen.push((entry.key.to_vec(), entry.seq));
                    cursor.advance()?;
                }
                assert_eq!(seen, expected, "{direction:?} {start:?}");
            }
        }
        Ok(())
    }

    /// Pairs of a put and a tombstone, in order or not, with some values between: the cursor passes the pairs in few
    /// calls, and never a value, nor what lies at the limit or beyond.
    #[test]
    fn leaves_without_a_value_are_passed_at_once() -> Result<()> {
        const PAIRS: u64 = 3000;
        for (step, live) in [(1, 1500), (7, 1500), (1, 0), (1, 2999), (7, PAIRS)] {
            let memtable = Arc::new(Memtable::new(1, 1, None));
            let key = |number: u64| format!("{:05}", number * step % PAIRS).into_bytes();
            let insert = |number: u64, seq, kind| {
                memtable.insert(EntryRef { key: &key(number), seq, kind, value: b"" });
            };
            (0..PAIRS).for_each(|number| insert(number, number + 1, EntryKind::Put));
            for number in (0..PAIRS).filter(|&number| number != live) {
                insert(number, PAIRS + number + 1, EntryKind::Delete);
            }
            let newest = memtable.newest();
            assert_eq!(newest, if live == PAIRS - 1 { 2 * PAIRS - 1 } else { 2 * PAIRS });
            for direction in [Direction::Forward, Direction::Backward] {
                for limit in [None, Some(&b"01000"[..]), Some(&b"02000"[..])] {
                    let table = Arc::clone(&memtable);
                    let mut cursor = MemtableCursor::new(table, direction, Bound::Unbounded);
                    let (mut passed, mut calls, mut seen) = (0, 0, false);
                    while let Some(entry) = cursor.entry() {
                        if limit.is_some_and(|limit| {
                            direction.pick(entry.key >= limit, entry.key <= limit)
                        }) {
                            break;
                        }
                        seen |= live < PAIRS && entry.key == key(live);
                        calls += 1;
                        match cursor.pass_hidden(newest, limit) {
                            0 => {
                                passed += 1;
                                cursor.advance()?;
                            }
                            several => passed += several,
                        }
                    }
                    let before = |at: &[u8]| {
                        limit.is_none_or(|limit| direction.pick(at < limit, at > limit))
                    };
                    let expected = (0..PAIRS)
                        .filter(|&number| before(&key(number)))
                        .map(|number| if number == live { 1 } else { 2 });
                    assert_eq!(passed, expected.sum::<usize>(), "{step} {live} {limit:?}");
                    assert_eq!(seen, live < PAIRS && before(&key(live)), "{step} {live} {limit:?}");
                    assert!(calls < 600, "{calls} calls, {step}, {live}, {direction:?}, {limit:?}");
                }
                // A reader that does not see all tombstones passes nothing at once where it may see a value.
                let older = PAIRS + PAIRS / 2;
                let visible = |number: u64| number == live || PAIRS + number + 1 > older;
                let table = Arc::clone(&memtable);
                let mut cursor = MemtableCursor::new(table, direction, Bound::Unbounded);
                let mut puts = 0;
                while let Some(entry) = cursor.entry() {
                    puts += u64::from(entry.kind == EntryKind::Put && entry.seq <= PAIRS);
                    if cursor.pass_hidden(older, None) == 0 {
                        cursor.advance()?;
                    }
                }
                assert!(puts >= (0..PAIRS).filter(|&number| visible(number)).count() as u64);
            }
        }
        Ok(())
    }
}
