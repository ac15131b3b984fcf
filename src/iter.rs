//! Walking sorted sources in either direction, and many of them as one.

use std::cmp::Ordering;
use std::fmt::Debug;

use crate::error::Result;
use crate::key::{self, EntryRef};
use crate::value::Value;

/// Which way a cursor walks. Backward is the exact reverse: keys descending, and for one key the
/// oldest change first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// A position in a sorted source of changes.
///
/// After an error the position is undefined, and the cursor must not be used further.
pub(crate) trait Cursor: Debug + Send {
    /// The current entry; `None` past the last one.
    fn entry(&self) -> Option<EntryRef<'_>>;

    /// The current entry's value, cheap to keep.
    fn value(&self) -> Value;

    /// Goes on to the next entry in the cursor's direction.
    fn advance(&mut self) -> Result<()>;
}

/// Several cursors of one direction as one, in order: a binary heap of them, the next one on top.
#[derive(Debug)]
pub(crate) struct MergeCursor {
    /// Cursors that have an entry.
    heap: Vec<Box<dyn Cursor>>,
    direction: Direction,
}

impl MergeCursor {
    pub(crate) fn new(mut cursors: Vec<Box<dyn Cursor>>, direction: Direction) -> Self {
        cursors.retain(|cursor| cursor.entry().is_some());
        let mut merged = Self { heap: cursors, direction };
        for root in (0..merged.heap.len() / 2).rev() {
            merged.sift_down(root);
        }
        merged
    }

    /// Whether the cursor at `a` comes before the one at `b`.
    fn before(&self, a: usize, b: usize) -> bool {
        let order = match (self.heap[a].entry(), self.heap[b].entry()) {
            (Some(a), Some(b)) => key::compare((a.key, a.seq), (b.key, b.seq)),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        match self.direction {
            Direction::Forward => order == Ordering::Less,
            Direction::Backward => order == Ordering::Greater,
        }
    }

    fn sift_down(&mut self, mut root: usize) {
        loop {
            let left = 2 * root + 1;
            if left >= self.heap.len() {
                return;
            }
            let right = left + 1;
            let child =
                if right < self.heap.len() && self.before(right, left) { right } else { left };
            if !self.before(child, root) {
                return;
            }
            self.heap.swap(child, root);
            root = child;
        }
    }
}

impl Cursor for MergeCursor {
    fn entry(&self) -> Option<EntryRef<'_>> {
        self.heap.first()?.entry()
    }

    fn value(&self) -> Value {
        self.heap.first().map(|cursor| cursor.value()).unwrap_or_default()
    }

    fn advance(&mut self) -> Result<()> {
        let Some(top) = self.heap.first_mut() else { return Ok(()) };
        top.advance()?;
        if top.entry().is_none() {
            self.heap.swap_remove(0);
        }
        self.sift_down(0);
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::key::{EntryKind, Seq};

    /// A cursor over a list, for tests.
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
    fn many_sources_come_out_as_one_in_both_directions() {
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
