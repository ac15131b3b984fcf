//! Merges what was read of all sources, by key and sequence number.

use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::vec;

use super::salvage::{LostEntries, SalvageCursor};
use crate::iter::{Direction, Next, Source};
use crate::key::{EntryKind, EntryRef, Seq, compare};

/// A change that a log holds.
pub(super) struct Change {
    key: Vec<u8>,
    seq: Seq,
    kind: EntryKind,
    value: Vec<u8>,
}

impl Change {
    pub(super) fn new(entry: EntryRef<'_>) -> Self {
        let EntryRef { key, seq, kind, value } = entry;
        Self { key: key.to_vec(), seq, kind, value: value.to_vec() }
    }

    fn entry(&self) -> EntryRef<'_> {
        EntryRef { key: &self.key, seq: self.seq, kind: self.kind, value: &self.value }
    }
}

/// Entries in order.
struct Salvaged {
    entries: Entries,
    /// Whether these entries certainly count: not those of a table that nothing names, or of a frame that may be
    /// the bytes of a value.
    is_current: bool,
}

enum Entries {
    Logs(vec::IntoIter<Change>),
    Table(Box<SalvageCursor>),
}

impl Source for Salvaged {
    fn entry(&self) -> Option<EntryRef<'_>> {
        match &self.entries {
            Entries::Logs(changes) => changes.as_slice().first().map(Change::entry),
            Entries::Table(cursor) => cursor.entry(),
        }
    }

    fn rank(&self) -> u8 {
        u8::from(self.is_current)
    }
}

impl Salvaged {
    fn advance(&mut self, lose: &mut dyn FnMut(LostEntries)) {
        match &mut self.entries {
            Entries::Logs(changes) => drop(changes.next()),
            Entries::Table(cursor) => cursor.advance(lose),
        }
    }
}

/// All sources, by their next entries.
#[derive(Default)]
pub(super) struct Merge(BinaryHeap<Next<Salvaged>>);

impl Merge {
    pub(super) fn add_changes(&mut self, mut changes: Vec<Change>, is_current: bool) {
        changes.sort_unstable_by(|a, b| compare((&a.key, a.seq), (&b.key, b.seq)));
        let entries = Entries::Logs(changes.into_iter());
        self.0.push(Next::new(Salvaged { entries, is_current }, Direction::Forward));
    }

    /// Adds a table at its first sound entry.
    pub(super) fn add_table(&mut self, cursor: SalvageCursor, is_current: bool) {
        let entries = Entries::Table(Box::new(cursor));
        self.0.push(Next::new(Salvaged { entries, is_current }, Direction::Forward));
    }

    /// Passes the newest entry of each key to `take`, in order, and whether it is in force: not if an entry without a
    /// number may be newer. Losses among the entries up to a key are passed to `lose` before that key is.
    pub(super) fn for_each_newest<E>(
        mut self,
        mut lose: impl FnMut(LostEntries),
        mut take: impl FnMut(EntryRef<'_>, bool) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut newest: Option<(Change, bool)> = None;
        while let Some(mut next) = self.0.peek_mut() {
            let is_current = next.source.is_current;
            let Some(entry) = next.source.entry() else {
                PeekMut::pop(next);
                continue;
            };
            match &mut newest {
                Some((change, is_certain)) if change.key == entry.key => {
                    *is_certain &= entry.seq > 0;
                }
                before => {
                    let before = before.replace((Change::new(entry), is_current));
                    if let Some((change, is_certain)) = before {
                        take(change.entry(), is_certain)?;
                    }
                }
            }
            next.source.advance(&mut lose);
        }
        newest.map_or(Ok(()), |(change, is_certain)| take(change.entry(), is_certain))
    }
}
