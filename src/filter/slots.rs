//! What probes read of the filters of many tables, side by side: one cache line for each Bloom filter.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use bytes::Bytes;

use super::filter_block::Filter;
use super::lookup_key::HashedKey;
use criba_filter::store::{IN_FLIGHT, Modulus, Prober, all_set, prefetch, second_hash};
use criba_filter::{FilterKind, HashFunction};

/// The filters of the tables of a version, by number. All have one kind and one hash function, so that a lookup
/// needs one hash and one loop.
pub(crate) struct Slots {
    hash: HashFunction,
    kind: Kind,
}

enum Kind {
    Bloom(Vec<BloomSlot>),
    Other(Vec<OtherSlot>),
}

/// One cache line.
#[derive(Default)]
#[repr(align(64))]
struct BloomSlot {
    array: Bytes,
    modulus: Modulus,
    salt: u64,
    k: u32,
}

struct OtherSlot {
    salt: u64,
    prober: Prober,
}

impl Slots {
    /// `None` if the filters differ in kind or hash function, or if there is none. A number without a filter
    /// must not be probed.
    pub(crate) fn of<'a>(
        filters: impl Iterator<Item = Option<&'a Filter>> + Clone,
    ) -> Option<Self> {
        let headers = filters.clone().flatten().map(Filter::header);
        let mut made = headers.map(|header| (header.kind, header.hash));
        let (kind, hash) = made.next()?;
        if made.any(|other| other != (kind, hash)) {
            return None;
        }
        let kind = if kind == FilterKind::Bloom {
            Kind::Bloom(
                filters.map(|filter| filter.map(BloomSlot::of).unwrap_or_default()).collect(),
            )
        } else {
            let any = filters.clone().flatten().next()?;
            Kind::Other(filters.map(|filter| OtherSlot::of(filter.unwrap_or(any))).collect())
        };
        Some(Self { hash, kind })
    }

    /// The place in `numbers` of the first filter that may have the key; `None` if each denies it.
    #[inline]
    pub(crate) fn first_maybe(&self, numbers: &[u16], key: HashedKey<'_>) -> Option<usize> {
        let HashedKey { function, hash, .. } = key;
        match (&self.kind, numbers) {
            (Kind::Bloom(slots), [_]) => first_maybe(slots, numbers, |slot| {
                let hash = function.salted(hash, slot.salt);
                slot.may_contain(hash, slot.modulus.remainder(hash))
            }),
            (Kind::Bloom(slots), _) => {
                first_maybe_bloom(slots, numbers, |salt| function.salted(hash, salt))
            }
            (Kind::Other(slots), _) => {
                first_maybe_other(slots, numbers, |salt| function.salted(hash, salt))
            }
        }
    }

    pub(crate) fn hash(&self) -> HashFunction {
        self.hash
    }

    /// Prefetches what [`first_maybe`](Self::first_maybe) reads.
    #[inline]
    pub(crate) fn prefetch(&self, numbers: &[u16], key: HashedKey<'_>) {
        let HashedKey { function, hash, .. } = key;
        match &self.kind {
            Kind::Bloom(slots) => of_numbers(slots, numbers).for_each(|slot| {
                let position = slot.modulus.remainder(function.salted(hash, slot.salt));
                prefetch(&slot.array, (position / 8) as usize);
            }),
            Kind::Other(slots) => of_numbers(slots, numbers).for_each(|slot| {
                slot.prober.prefetch(function.salted(hash, slot.salt));
            }),
        }
    }
}

/// Prefetches the first bits of several filters before it tests them.
#[inline(never)]
fn first_maybe_bloom(
    slots: &[BloomSlot],
    numbers: &[u16],
    salted: impl Fn(u64) -> u64,
) -> Option<usize> {
    let mut firsts = [(0, 0); IN_FLIGHT];
    for (chunk, numbers) in numbers.chunks(IN_FLIGHT).enumerate() {
        for (&number, first) in numbers.iter().zip(&mut firsts) {
            let Some(slot) = slots.get(usize::from(number)) else { return Some(0) };
            let hash = salted(slot.salt);
            let position = slot.modulus.remainder(hash);
            prefetch(&slot.array, (position / 8) as usize);
            *first = (hash, position);
        }
        let mut filters = numbers.iter().zip(&firsts);
        let maybe = filters.position(|(&number, &(hash, position))| {
            slots.get(usize::from(number)).is_none_or(|slot| slot.may_contain(hash, position))
        });
        if let Some(at) = maybe {
            return Some(chunk * IN_FLIGHT + at);
        }
    }
    None
}

#[inline(never)]
fn first_maybe_other(
    slots: &[OtherSlot],
    numbers: &[u16],
    salted: impl Fn(u64) -> u64,
) -> Option<usize> {
    if numbers.len() > 1 {
        of_numbers(slots, numbers).for_each(|slot| slot.prober.prefetch(salted(slot.salt)));
    }
    first_maybe(slots, numbers, |slot| slot.prober.may_contain(salted(slot.salt)))
}

/// A number without a slot may have the key.
#[inline]
fn first_maybe<S>(slots: &[S], numbers: &[u16], may: impl Fn(&S) -> bool) -> Option<usize> {
    numbers.iter().position(|&number| slots.get(usize::from(number)).is_none_or(&may))
}

/// Each number has a slot.
#[inline]
fn of_numbers<'a, S>(slots: &'a [S], numbers: &'a [u16]) -> impl Iterator<Item = &'a S> {
    numbers.iter().map_while(|&number| slots.get(usize::from(number)))
}

impl BloomSlot {
    fn of(filter: &Filter) -> Self {
        let (prober, salt) = (filter.prober(), filter.header().salt);
        let k = prober.geometry().k;
        Self { array: prober.array().clone(), modulus: prober.modulus(), salt, k }
    }

    #[inline]
    fn may_contain(&self, hash: u64, first: u64) -> bool {
        all_set(&self.array, self.modulus, self.k, first, || second_hash(hash))
    }
}

impl OtherSlot {
    fn of(filter: &Filter) -> Self {
        Self { salt: filter.header().salt, prober: filter.prober().clone() }
    }
}

impl std::fmt::Debug for Slots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = match &self.kind {
            Kind::Bloom(slots) => slots.len(),
            Kind::Other(slots) => slots.len(),
        };
        f.debug_struct("Slots").field("count", &count).field("hash", &self.hash).finish()
    }
}
