//! Entries, and their order: by user key; the entries of one key, newest first.

use std::cmp::Ordering;

use crate::error::{Error, Result};

/// The longest user key, in bytes.
pub const MAX_KEY_BYTES: usize = u16::MAX as usize;
/// The longest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 1 << 30;

/// An expiring entry stores its expiry in so many bytes before its value.
pub(crate) const EXPIRY_BYTES: usize = 8;

/// A sequence number. Entries are numbered from 1, without gaps. 0 is less than the number of any entry.
pub(crate) type Seq = u64;

/// What an entry does to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum EntryKind {
    /// A tombstone: the key has no value.
    Delete = 0,
    /// The key has the entry's value.
    Put = 1,
    /// The key has the entry's value until a time.
    Expiring = 3,
    // 2 is reserved for range tombstones (see format.md); no reader of this version accepts it.
}

impl EntryKind {
    /// The kind with this number, of an entry that stores so many bytes for its key.
    #[inline]
    pub(crate) fn of_entry(byte: u8, stored: usize) -> Option<Self> {
        if byte == Self::Put as u8 && stored <= MAX_VALUE_BYTES {
            return Some(Self::Put); // most entries
        }
        Self::of_rarer_entry(byte, stored)
    }

    #[inline]
    fn of_rarer_entry(byte: u8, stored: usize) -> Option<Self> {
        match byte {
            0 if stored == 0 => Some(Self::Delete),
            3 if (EXPIRY_BYTES..=MAX_VALUE_BYTES + EXPIRY_BYTES).contains(&stored) => {
                Some(Self::Expiring)
            }
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryRef<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) seq: Seq,
    pub(crate) kind: EntryKind,
    /// What is stored: the value, of an expiring entry behind its expiry.
    pub(crate) value: &'a [u8],
}

pub(crate) fn compare(a: (&[u8], Seq), b: (&[u8], Seq)) -> Ordering {
    a.0.cmp(b.0).then_with(|| b.1.cmp(&a.1))
}

/// The first eight bytes of a key, padded with zeros, as a big-endian number. Keys with different heads are
/// in the order of their heads.
#[inline]
pub(crate) fn head(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; 8];
    head[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(head)
}

pub(crate) fn check_lengths(key: usize, value: usize) -> Result<()> {
    for (what, length, limit) in [("key", key, MAX_KEY_BYTES), ("value", value, MAX_VALUE_BYTES)] {
        if length > limit {
            return Err(Error::TooLong { what, length: length as u64, limit: limit as u64 });
        }
    }
    Ok(())
}

/// The least key greater than all keys that start with `prefix`.
pub(crate) fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut successor = prefix.to_vec();
    while let Some(last) = successor.pop() {
        if last < u8::MAX {
            successor.push(last + 1);
            return Some(successor);
        }
    }
    None
}
