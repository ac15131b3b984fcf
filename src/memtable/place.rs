//! The order of a memtable's entries.

use std::borrow::Borrow;
use std::cmp::Ordering;

use crate::key::{self, EntryRef, Seq};
use crate::sync::Arc;

/// What the list's node has beside its edge, and the headers of its allocations.
const NODE_BYTES: usize = 80;

/// The place of a version of a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// Of the key; decides where it can.
    head: u64,
    pub(super) key: &'a [u8],
    pub(super) seq: Seq,
}

impl<'a> Place<'a> {
    pub(super) fn new(key: &'a [u8], seq: Seq) -> Self {
        Self { head: key::head(key), key, seq }
    }

    #[inline]
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        let by_key = || key::compare((self.key, self.seq), (other.key, other.seq));
        self.head.cmp(&other.head).then_with(by_key)
    }
}

/// Where a leaf begins, and the one before it ends: the place of an entry.
#[derive(Debug, Clone)]
pub(super) struct Edge {
    /// Of the key, beside the pointer to it: most comparisons follow none.
    head: u64,
    key: Arc<[u8]>,
    seq: Seq,
}

impl Edge {
    pub(super) fn of(entry: EntryRef<'_>) -> Self {
        Self { head: key::head(entry.key), key: entry.key.into(), seq: entry.seq }
    }

    #[inline]
    pub(super) fn place(&self) -> Place<'_> {
        Place { head: self.head, key: &self.key, seq: self.seq }
    }

    /// What it takes, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.key.len() + size_of::<Self>() + NODE_BYTES
    }
}

/// What has a place, so that a search among edges needs no edge of its own.
pub(super) trait Placed {
    fn place(&self) -> Place<'_>;
}

impl Placed for Place<'_> {
    fn place(&self) -> Place<'_> {
        *self
    }
}

impl Placed for Edge {
    #[inline]
    fn place(&self) -> Place<'_> {
        self.place()
    }
}

impl<'a> Borrow<dyn Placed + 'a> for Edge {
    fn borrow(&self) -> &(dyn Placed + 'a) {
        self
    }
}

impl Ord for dyn Placed + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().compare(&other.place())
    }
}

impl PartialOrd for dyn Placed + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Placed + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for dyn Placed + '_ {}

impl Ord for Edge {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().compare(&other.place())
    }
}

impl PartialOrd for Edge {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Edge {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Edge {}
