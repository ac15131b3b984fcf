//! Walking a memtable in either direction.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use super::{MemEntry, Memtable, Ordered, Place};
use crate::error::Result;
use crate::iter::{Cursor, Direction};
use crate::key::{EntryRef, Seq};
use crate::sync::passing;
use crate::value::Value;

/// The most entries fetched at once.
const MAX_CHUNK: usize = 64;

/// A position in a memtable. It fetches a few entries at a time, and finds its place again by key
/// for the next few, so it borrows nothing and holds up nobody.
#[derive(Debug)]
pub(crate) struct MemtableCursor {
    memtable: Arc<Memtable>,
    direction: Direction,
    /// The entries fetched and not passed yet; the first is the current one.
    chunk: VecDeque<MemEntry>,
    /// How many to fetch next time: few at first, since many scans are short.
    chunk_size: usize,
}

impl MemtableCursor {
    /// A cursor at the first entry, in `direction`, whose user key lies within `start`.
    pub(crate) fn new(memtable: Arc<Memtable>, direction: Direction, start: Bound<&[u8]>) -> Self {
        // In internal-key order a key's changes run from (key, MAX) to (key, 0).
        let (first, last) = (Seq::MAX, 0);
        let bound = match (direction, start) {
            (_, Bound::Unbounded) => Bound::Unbounded,
            (Direction::Forward, Bound::Included(key)) => Bound::Included((key, first)),
            (Direction::Forward, Bound::Excluded(key)) => Bound::Excluded((key, last)),
            (Direction::Backward, Bound::Included(key)) => Bound::Included((key, last)),
            (Direction::Backward, Bound::Excluded(key)) => Bound::Excluded((key, first)),
        };
        let mut cursor = Self { memtable, direction, chunk: VecDeque::new(), chunk_size: 4 };
        cursor.fetch(bound.map(|(key, seq)| Place::new(key, seq)));
        cursor
    }

    fn fetch(&mut self, from: Bound<Place<'_>>) {
        passing("before a memtable is read on");
        let from = from.as_ref().map(|place| place as &dyn Ordered);
        let mut next = match self.direction {
            Direction::Forward => self.memtable.entries.lower_bound(from),
            Direction::Backward => self.memtable.entries.upper_bound(from),
        };
        while let Some(entry) = next {
            self.chunk.push_back(entry.value().clone());
            if self.chunk.len() >= self.chunk_size {
                break;
            }
            next = match self.direction {
                Direction::Forward => entry.next(),
                Direction::Backward => entry.prev(),
            };
        }
        self.chunk_size = (self.chunk_size * 2).min(MAX_CHUNK);
    }
}

impl Cursor for MemtableCursor {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.chunk.front().map(MemEntry::as_ref)
    }

    fn value(&self) -> Value {
        self.chunk.front().map(MemEntry::value).unwrap_or_default()
    }

    fn advance(&mut self) -> Result<()> {
        if let Some(passed) = self.chunk.pop_front()
            && self.chunk.is_empty()
        {
            self.fetch(Bound::Excluded(passed.place()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::EntryKind;

    #[test]
    fn walks_from_any_bound_in_both_directions() -> Result<()> {
        let memtable = Arc::new(Memtable::new(1, None));
        for i in 0..200_u64 {
            // Two changes of each key, so a bound must take or leave both.
            for seq in [2 * i + 1, 2 * i + 2] {
                let key = format!("{i:03}").into_bytes();
                memtable.insert(EntryRef { key: &key, seq, kind: EntryKind::Put, value: b"" });
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
                let mut expected: Vec<_> =
                    memtable.entries.iter().map(|entry| entry.value().clone()).collect();
                if direction == Direction::Backward {
                    expected.reverse();
                }
                expected.retain(|entry| lies_within(entry.as_ref().key));
                let mut cursor = MemtableCursor::new(Arc::clone(&memtable), direction, start);
                let mut seen = Vec::new();
                while let Some(entry) = cursor.chunk.front() {
                    seen.push(entry.clone());
                    cursor.advance()?;
                }
                assert_eq!(seen, expected, "{direction:?} {start:?}");
            }
        }
        Ok(())
    }
}
