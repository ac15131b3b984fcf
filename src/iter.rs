//! Cursors over sorted entries, in either direction, and their merge.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fmt::Debug;

use crate::error::Result;
use crate::key::{self, EntryRef};
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
pub(crate) struct MergeCursor(BinaryHeap<Source>);

impl MergeCursor {
    pub(crate) fn new(cursors: Vec<Box<dyn Cursor>>, direction: Direction) -> Self {
        let sources = cursors.into_iter().filter(|cursor| cursor.entry().is_some());
        Self(sources.map(|cursor| Source { cursor, direction }).collect())
    }
}

impl Cursor for MergeCursor {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.0.peek()?.cursor.entry()
    }

    fn key(&self) -> Value {
        self.0.peek().map(|next| next.cursor.key()).unwrap_or_default()
    }

    fn value(&self) -> Value {
        self.0.peek().map(|next| next.cursor.value()).unwrap_or_default()
    }

    fn advance(&mut self) -> Result<()> {
        let Some(mut next) = self.0.peek_mut() else { return Ok(()) };
        next.cursor.advance()?;
        if next.cursor.at_end() {
            PeekMut::pop(next);
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::key::{EntryKind, Seq};
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
