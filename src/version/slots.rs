//! What probes read of the filters of many tables, side by side: one cache line for each Bloom filter.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use bytes::Bytes;
use criba_filter::HashFunction;
use criba_filter::store::{Modulus, Prober, all_set, prefetch, second_hash};

use crate::filter::LookupKey;
use crate::sstable::Filter;

/// The filters of the tables of a version, by number, of any kind and hash function.
#[derive(Default)]
pub(crate) struct Slots(Vec<Slot>);

/// One cache line.
#[repr(align(64))]
enum Slot {
    Bloom {
        array: Bytes,
        modulus: Modulus,
        salt: u64,
        k: u32,
        function: HashFunction,
    },
    Other {
        prober: Box<Prober>,
        salt: u64,
        function: HashFunction,
    },
    /// No filter in memory.
    Without,
}

/// A probe that was begun: its memory is prefetched.
#[derive(Clone, Copy)]
pub(crate) struct Begun<'a> {
    slot: &'a Slot,
    hash: u64,
    /// Position of the first bit, in a Bloom filter.
    position: u64,
}

impl Slots {
    /// `None` for a table without a filter in memory.
    pub(crate) fn of<'a>(filters: impl Iterator<Item = Option<&'a Filter>>) -> Self {
        Self(filters.map(|filter| filter.map_or(Slot::Without, Slot::of)).collect())
    }

    /// Whether the filter of this number denies the key. `true` is certain.
    #[inline]
    pub(crate) fn is_negative(&self, number: usize, key: &LookupKey<'_>) -> bool {
        match self.0.get(number) {
            Some(Slot::Bloom { array, modulus, salt, k, function }) => {
                let hash = function.salted(key.hash(*function), *salt);
                !all_set(array, *modulus, *k, modulus.remainder(hash), || second_hash(hash))
            }
            Some(Slot::Other { prober, salt, function }) => {
                !prober.may_contain(function.salted(key.hash(*function), *salt))
            }
            Some(Slot::Without) | None => false,
        }
    }

    /// Begins a probe, and prefetches what its end reads first.
    #[inline]
    pub(crate) fn begin(&self, number: usize, key: &LookupKey<'_>) -> Begun<'_> {
        static WITHOUT: Slot = Slot::Without;
        self.0.get(number).unwrap_or(&WITHOUT).begin(key)
    }

    /// Whether there is a filter in memory.
    #[inline]
    pub(crate) fn has(&self, number: usize) -> bool {
        self.0.get(number).is_some_and(|slot| !matches!(slot, Slot::Without))
    }
}

impl Slot {
    fn of(filter: &Filter) -> Self {
        let (prober, header) = (filter.prober(), filter.header());
        let (salt, function) = (header.salt, header.hash);
        match prober {
            Prober::Bloom(bloom) => {
                let (array, modulus) = (prober.array().clone(), bloom.modulus());
                Self::Bloom { array, modulus, salt, k: prober.geometry().k, function }
            }
            _ => Self::Other { prober: Box::new(prober.clone()), salt, function },
        }
    }

    #[inline]
    fn begin(&self, key: &LookupKey<'_>) -> Begun<'_> {
        let (hash, position) = match self {
            Self::Bloom { array, modulus, salt, function, .. } => {
                let hash = function.salted(key.hash(*function), *salt);
                let position = modulus.remainder(hash);
                prefetch(array, (position / 8) as usize);
                (hash, position)
            }
            Self::Other { prober, salt, function } => {
                let hash = function.salted(key.hash(*function), *salt);
                prober.prefetch(hash);
                (hash, 0)
            }
            Self::Without => (0, 0),
        };
        Begun { slot: self, hash, position }
    }
}

impl Begun<'_> {
    /// As [`Slots::is_negative`].
    #[inline]
    pub(crate) fn is_negative(&self) -> bool {
        match self.slot {
            Slot::Bloom { array, modulus, k, .. } => {
                !all_set(array, *modulus, *k, self.position, || second_hash(self.hash))
            }
            Slot::Other { prober, .. } => !prober.may_contain(self.hash),
            Slot::Without => false,
        }
    }
}

impl std::fmt::Debug for Slots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slots").field("count", &self.0.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_one_cache_line() {
        assert_eq!(size_of::<Slot>(), 64);
    }
}
