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

/// A cursor to be merged. The greatest cursor in the heap has the next entry.
#[derive(Debug)]
struct Source {
    cursor: Box<dyn Cursor>,
    direction: Direction,
    is_counted: bool,
}

impl Ord for Source {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = match (self.cursor.entry(), other.cursor.entry()) {
            (Some(a), Some(b)) => key::compare((a.key, a.seq), (b.key, b.seq)),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        self.direction.pick(order.reverse(), order)
    }
}

impl PartialOrd for Source {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Source {}

#[derive(Debug)]
pub(crate) struct MergeCursor {
    sources: BinaryHeap<Source>,
    /// The entries that [`pass`](Self::pass) and the like left in the cursor that [`count`](Self::count) added.
    pub(crate) counted: usize,
}

impl MergeCursor {
    pub(crate) fn new(cursors: Vec<Box<dyn Cursor>>, direction: Direction) -> Self {
        let sources = cursors.into_iter().filter(|cursor| cursor.entry().is_some());
        let source = |cursor| Source { cursor, direction, is_counted: false };
        Self { sources: sources.map(source).collect(), counted: 0 }
    }

    /// Adds a cursor whose passed entries are counted.
    pub(crate) fn count(&mut self, cursor: Box<dyn Cursor>, direction: Direction) {
        if cursor.entry().is_some() {
            self.sources.push(Source { cursor, direction, is_counted: true });
        }
    }

    /// Leaves an entry that its reader does not need.
    pub(crate) fn pass(&mut self) -> Result<()> {
        self.count_next();
        self.advance()
    }

    fn count_next(&mut self) {
        self.counted += usize::from(self.sources.peek().is_some_and(|next| next.is_counted));
    }

    fn advance_by(&mut self, step: impl FnOnce(&mut dyn Cursor) -> Result<()>) -> Result<()> {
        let Some(mut next) = self.sources.peek_mut() else { return Ok(()) };
        step(&mut *next.cursor)?;
        if next.cursor.at_end() {
            PeekMut::pop(next);
        }
        Ok(())
    }
}

impl Cursor for MergeCursor {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.sources.peek()?.cursor.entry()
    }

    fn key(&self) -> Value {
        self.sources.peek().map(|next| next.cursor.key()).unwrap_or_default()
    }

    fn value(&self) -> Value {
        self.sources.peek().map(|next| next.cursor.value()).unwrap_or_default()
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
        let other = self.sources.peek().and_then(|other| other.cursor.entry()).map(|e| e.key);
        let nearer = match (other, limit) {
            (Some(a), Some(b)) => Some(next.direction.pick(a.min(b), a.max(b))),
            (other, limit) => other.or(limit),
        };
        let passed = next.cursor.pass_hidden(seq, nearer);
        self.counted += if next.is_counted { passed } else { 0 };
        if !next.cursor.at_end() {
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
