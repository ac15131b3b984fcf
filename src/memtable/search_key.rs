//! The order of a memtable's entries.

use std::cmp::Ordering;

use crate::key::{self, EntryRef, Seq};
use crate::sync::Arc;

/// The memory of a leaf in the directory beside its edge and content.
const LISTED_BYTES: usize = 136;

/// A position in the order of entries: key and sequence number.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchKey<'a> {
    /// First bytes of the key, which decide most comparisons.
    head: u64,
    pub(super) key: &'a [u8],
    pub(super) seq: Seq,
}

impl<'a> SearchKey<'a> {
    pub(super) fn new(key: &'a [u8], seq: Seq) -> Self {
        Self { head: key::head(key), key, seq }
    }

    #[inline]
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        let by_key = || key::compare((self.key, self.seq), (other.key, other.seq));
        self.head.cmp(&other.head).then_with(by_key)
    }
}

/// The start of a leaf and the end of the one before: the position of an entry, or the one before all entries of
/// a key.
#[derive(Debug, Clone)]
pub(super) struct Edge {
    /// The first bytes of the key: most comparisons need no more.
    head: u64,
    key: Arc<[u8]>,
    seq: Seq,
}

impl Edge {
    /// The target of an entry, whose newer entries lie before it.
    pub(super) fn within(entry: EntryRef<'_>) -> Self {
        Self { head: key::head(entry.key), key: entry.key.into(), seq: entry.seq }
    }

    /// The target before all entries of this one's key.
    pub(super) fn before(entry: EntryRef<'_>) -> Self {
        Self { seq: Seq::MAX, ..Self::within(entry) }
    }

    /// Whether no key has entries on both sides.
    pub(super) fn parts_keys(&self) -> bool {
        self.seq == Seq::MAX
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    pub(super) fn target(&self) -> SearchKey<'_> {
        SearchKey { head: self.head, key: &self.key, seq: self.seq }
    }

    /// The memory taken in bytes, with its leaf in the directory.
    pub(super) fn memory(&self) -> usize {
        self.key.len() + size_of::<Self>() + LISTED_BYTES
    }
}
