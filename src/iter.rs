//! Cursors over sorted entries, in either direction, and their merge.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fmt::Debug;

use crate::error::Result;
use crate::key::{self, EntryRef, Seq};
use crate::value::Value;

/// The direction of a cursor. Backward is the exact reverse of forward: the entries of a key come oldest
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

impl Direction {
    #[inline]
    pub(crate) fn pick<T>(self, forward: T, backward: T) -> T {
        match self {
            Self::Forward => forward,
            Self::Backward => backward,
        }
    }
}

/// A position in sorted entries. After an error it must not be used.
pub(crate) trait Cursor: Debug + Send {
    /// The current entry; `None` at the end.
    fn entry(&self) -> Option<EntryRef<'_>>;

    /// The key of the current entry. It may share the memory of its block.
    fn key(&self) -> Value {
        self.entry().map(|entry| Value::copied(entry.key)).unwrap_or_default()
    }

    /// The value of the current entry. It may share the memory of its block.
    fn value(&self) -> Value;

    fn advance(&mut self) -> Result<()>;

    /// Leaves the current entry, and entries of its key that a reader at `seq` does not need: moves to the newest
    /// one that it sees, or to another key. A cursor that cannot skip any advances by one.
    fn skip_versions(&mut self, _seq: Seq) -> Result<()> {
        self.advance()
    }

    /// Passes entries that a reader at `seq` does not need, as long as their keys come before `limit` in this
    /// direction, and returns their number. It is 0 for a cursor that cannot pass several at once.
    fn pass_hidden(&mut self, _seq: Seq, _limit: Option<&[u8]>) -> usize {
        0
    }

    /// Whether there is no current entry.
    fn at_end(&self) -> bool {
        self.entry().is_none()
    }
}

/// Entries to be merged, from the next one on.
pub(crate) trait Source {
    fn entry(&self) -> Option<EntryRef<'_>>;

    /// Rank among equal entries: the highest comes first in a heap.
    fn rank(&self) -> u8 {
        0
    }
}

/// A source in the heap of a merge. The greatest has the next entry.
#[derive(Debug)]
pub(crate) struct Next<S> {
    pub(crate) source: S,
    direction: Direction,
}

impl<S: Source> Next<S> {
    pub(crate) fn new(source: S, direction: Direction) -> Self {
        Self { source, direction }
    }
}

impl<S: Source> Ord for Next<S> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.source.entry(), other.source.entry()) {
            (Some(a), Some(b)) => {
                let order = key::compare((a.key, a.seq), (b.key, b.seq));
                let order = self.direction.pick(order.reverse(), order);
                order.then_with(|| self.source.rank().cmp(&other.source.rank()))
            }
            (a, b) => a.is_some().cmp(&b.is_some()),
        }
    }
}

impl<S: Source> PartialOrd for Next<S> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<S: Source> PartialEq for Next<S> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<S: Source> Eq for Next<S> {}

/// A cursor to be merged.
#[derive(Debug)]
struct Merged {
    cursor: Box<dyn Cursor>,
    is_counted: bool,
}

impl Source for Merged {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.cursor.entry()
    }
}

#[derive(Debug)]
pub(crate) struct MergeCursor {
    sources: BinaryHeap<Next<Merged>>,
    /// The entries that [`pass`](Self::pass) and the like left in the cursor that [`count`](Self::count) added.
    pub(crate) counted: usize,
}

impl MergeCursor {
    pub(crate) fn new(cursors: Vec<Box<dyn Cursor>>, direction: Direction) -> Self {
        let sources = cursors.into_iter().filter(|cursor| cursor.entry().is_some());
        let next = |cursor| Next::new(Merged { cursor, is_counted: false }, direction);
        Self { sources: sources.map(next).collect(), counted: 0 }
    }

    /// Adds a cursor whose passed entries are counted.
    pub(crate) fn count(&mut self, cursor: Box<dyn Cursor>, direction: Direction) {
        if cursor.entry().is_some() {
            self.sources.push(Next::new(Merged { cursor, is_counted: true }, direction));
        }
    }

    /// Leaves an entry that its reader does not need.
    pub(crate) fn pass(&mut self) -> Result<()> {
        self.count_next();
        self.advance()
    }

    fn count_next(&mut self) {
        self.counted += usize::from(self.sources.peek().is_some_and(|next| next.source.is_counted));
    }

    fn advance_by(&mut self, step: impl FnOnce(&mut dyn Cursor) -> Result<()>) -> Result<()> {
        let Some(mut next) = self.sources.peek_mut() else { return Ok(()) };
        step(&mut *next.source.cursor)?;
        if next.source.cursor.at_end() {
            PeekMut::pop(next);
        }
        Ok(())
    }
}

impl Cursor for MergeCursor {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.sources.peek()?.source.cursor.entry()
    }

    fn key(&self) -> Value {
        self.sources.peek().map(|next| next.source.cursor.key()).unwrap_or_default()
    }

    fn value(&self) -> Value {
        self.sources.peek().map(|next| next.source.cursor.value()).unwrap_or_default()
    }

    fn advance(&mut self) -> Result<()> {
        self.advance_by(|cursor| cursor.advance())
    }

    fn skip_versions(&mut self, seq: Seq) -> Result<()> {
        self.count_next();
        self.advance_by(|cursor| cursor.skip_versions(seq))
    }

    /// Passes entries of one cursor: those before `limit` and before the entries of all other cursors.
    fn pass_hidden(&mut self, seq: Seq, limit: Option<&[u8]>) -> usize {
        let Some(mut next) = self.sources.pop() else { return 0 };
        let other =
            self.sources.peek().and_then(|other| other.source.cursor.entry()).map(|e| e.key);
        let nearer = match (other, limit) {
            (Some(a), Some(b)) => Some(next.direction.pick(a.min(b), a.max(b))),
            (other, limit) => other.or(limit),
        };
        let passed = next.source.cursor.pass_hidden(seq, nearer);
        self.counted += if next.source.is_counted { passed } else { 0 };
        if !next.source.cursor.at_end() {
            self.sources.push(next);
        }
        passed
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::key::EntryKind;
    #[derive(Debug)]
    pub(crate) struct ListCursor {
        entries: Vec<(Vec<u8>, Seq, EntryKind, Vec<u8>)>,
        at: usize,
    }

    impl ListCursor {
        pub(crate) fn new(
            mut entries: Vec<(Vec<u8>, Seq, EntryKind, Vec<u8>)>,
            direction: Direction,
        ) -> Self {
            entries.sort_by(|a, b| key::compare((&a.0, a.1), (&b.0, b.1)));
            if direction == Direction::Backward {
                entries.reverse();
            }
            Self { entries, at: 0 }
        }
    }

    impl Cursor for ListCursor {
        fn entry(&self) -> Option<EntryRef<'_>> {
            let (key, seq, kind, value) = self.entries.get(self.at)?;
            Some(EntryRef { key, seq: *seq, kind: *kind, value })
        }

        fn value(&self) -> Value {
            self.entry().map(|entry| Value::copied(entry.value)).unwrap_or_default()
        }

        fn advance(&mut self) -> Result<()> {
            self.at += 1;
            Ok(())
        }
    }

    #[test]
    fn cursors_are_merged_in_both_directions() {
        for direction in [Direction::Forward, Direction::Backward] {
            let mut all = Vec::new();
            let mut cursors: Vec<Box<dyn Cursor>> = Vec::new();
            for source in 0..9_u64 {
                // Source 4 is empty; keys repeat between sources with other sequence numbers.
                let entries: Vec<_> = (0..source % 5 * 10)
                    .map(|i| {
                        let key = format!("{:03}", i * 7 % 50).into_bytes();
                        (key, source * 100 + i, EntryKind::Put, vec![])
                    })
                    .collect();
                all.extend(entries.iter().map(|e| (e.0.clone(), e.1)));
                cursors.push(Box::new(ListCursor::new(entries, direction)));
            }
            all.sort_by(|a, b| key::compare((&a.0, a.1), (&b.0, b.1)));
            if direction == Direction::Backward {
                all.reverse();
            }
            let mut merged = MergeCursor::new(cursors, direction);
            let mut seen = Vec::new();
            while let Some(entry) = merged.entry() {
                seen.push((entry.key.to_vec(), entry.seq));
                merged.advance().expect("lists do not fail");
            }
            assert_eq!(seen, all);
            assert_eq!(seen.len(), 160);
        }
    }
}
