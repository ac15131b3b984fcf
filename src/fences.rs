//! Search in sorted keys by eight bytes of each.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use crate::key::head;

/// Eight bytes of each of some sorted keys, side by side. Mostly these bytes decide a search, without a
/// pointer to follow. The caller has the keys, and compares those whose eight bytes are equal.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fences {
    /// The common prefix of all keys.
    common: Box<[u8]>,
    /// The head of the prefix, and the bits that the prefix has of it.
    start: u64,
    mask: u64,
    /// The eight bytes of each key after the common prefix, in order.
    heads: Vec<u64>,
}

/// The largest number of keys with equal heads that a search prefetches.
const MOST_PREFETCHED: usize = 32;

impl Fences {
    pub(crate) fn new<'a>(keys: impl DoubleEndedIterator<Item = &'a [u8]> + Clone) -> Self {
        let first = keys.clone().next().unwrap_or_default();
        let last = keys.clone().next_back().unwrap_or_default();
        let same = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let common: Box<[u8]> = first.iter().take(same).copied().collect();
        let mask = u64::MAX.checked_shl(64 - 8 * same.min(8) as u32).unwrap_or(0);
        let heads = keys.map(|key| head(key.get(same..).unwrap_or_default())).collect();
        Self { start: head(&common), mask, common, heads }
    }

    /// Inserts a key at a position. Returns false, and changes nothing, if the key lacks the common prefix,
    /// or if there are no keys: the common prefix of one key would be the whole key.
    #[must_use]
    pub(crate) fn insert(&mut self, at: usize, key: &[u8]) -> bool {
        let rest = key.strip_prefix(&*self.common);
        let rest = rest.filter(|_| !self.heads.is_empty() && at <= self.heads.len());
        if let Some(rest) = rest {
            reserve_quarter(&mut self.heads, 1, 4);
            self.heads.insert(at, head(rest));
        }
        rest.is_some()
    }

    /// Whether the key has what the common prefix has behind eight bytes. Most prefixes have nothing there, and
    /// are not compared.
    #[inline]
    fn has_long_prefix(&self, key: &[u8]) -> bool {
        self.common.len() <= 8 || key.starts_with(&self.common)
    }

    pub(crate) fn reserve(&mut self, keys: usize) {
        self.heads.reserve_exact(keys.saturating_sub(self.heads.len()));
    }

    pub(crate) fn memory(&self) -> usize {
        self.common.len() + self.heads.capacity() * size_of::<u64>()
    }

    /// The number of keys less than `key`. Calls `is_below` only with the numbers of keys that have an equal
    /// head, to compare them with `key`.
    #[inline]
    pub(crate) fn below(&self, key: &[u8], is_below: impl Fn(usize) -> bool) -> usize {
        self.below_prefetching(key, |_| (), is_below)
    }

    /// As [`below`](Self::below). First calls `prefetch` for the keys with an equal head, unless they are
    /// many.
    #[inline]
    pub(crate) fn below_prefetching(
        &self,
        key: &[u8],
        prefetch: impl Fn(usize),
        is_below: impl Fn(usize) -> bool,
    ) -> usize {
        let head = match key.get(self.common.len()..) {
            Some(rest) if head(key) & self.mask == self.start && self.has_long_prefix(key) => {
                head(rest)
            }
            _ => return if *key < *self.common { 0 } else { self.heads.len() },
        };
        let mut low = self.heads.partition_point(|other| *other < head);
        let mut same = match self.heads.get(low..) {
            Some(from @ [first, ..]) if *first == head => {
                from.partition_point(|other| *other == head)
            }
            _ => 0,
        };
        if same <= MOST_PREFETCHED {
            (low..low + same).for_each(prefetch);
        }
        while same > 0 {
            let half = same / 2;
            if is_below(low + half) {
                low += half + 1;
                same -= half + 1;
            } else {
                same = half;
            }
        }
        low
    }
}

/// Reserves room for `more` items. A full vector grows by a quarter, not to its double: memtables have a
/// limit of memory.
pub(crate) fn reserve_quarter<T>(vec: &mut Vec<T>, more: usize, least: usize) {
    if vec.capacity() - vec.len() < more {
        vec.reserve_exact(more.max(vec.len() / 4).max(least));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;

    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// The keys have a common prefix, end within or right behind it, have zeros where others end, or are
    /// equal.
    #[test]
    fn a_search_finds_the_place_that_comparing_all_keys_finds() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        let (mut compared, mut inserted) = (0, 0);
        for round in 0..3000 {
            let common = vec![b'k'; [0, 3, 12][round % 3]];
            let (bytes, longest) = ([2, 3, 255][round / 3 % 3], [1, 3, 10, 20][round / 9 % 4]);
            let mut key = |outside: bool| {
                let mut key = common.clone();
                if outside && rng.random_bool(0.3) {
                    key.truncate(rng.random_range(0..=common.len()));
                    key.extend([b'j', b'k', b'l'].get(rng.random_range(0..4)));
                }
                key.extend((0..rng.random_range(0..=longest)).map(|_| rng.random_range(0..bytes)));
                key
            };
            let mut keys: Vec<Vec<u8>> = (0..round % 40).map(|_| key(false)).collect();
            keys.sort();
            let mut fences = Fences::new(keys.iter().map(Vec::as_slice));
            if !keys.is_empty() && round % 2 == 1 {
                // One key is inserted last, if the others have its prefix.
                let last = round % keys.len();
                let others = keys.iter().enumerate().filter(|(number, _)| *number != last);
                let others: Vec<_> = others.map(|(_, key)| key.as_slice()).collect();
                let mut grown = Fences::new(others.into_iter());
                if grown.insert(last, &keys[last]) {
                    fences = grown;
                    inserted += 1;
                }
            }
            let others: Vec<_> = (0..30).map(|_| key(true)).collect();
            for key in keys.iter().chain(&others) {
                let expected = keys.iter().filter(|other| *other < key).count();
                let fetched = RefCell::new(BTreeSet::new());
                let fetch = |n| _ = fetched.borrow_mut().insert(n);
                let is_below = |n: usize| {
                    assert!(fetched.borrow().contains(&n) || keys.len() > MOST_PREFETCHED);
                    &keys[n] < key
                };
                let found = fences.below_prefetching(key, fetch, is_below);
                assert_eq!(found, expected, "{key:?} among {keys:?}");
                compared += 1;
            }
        }
        println!("{compared} searches, {inserted} insertions");
        assert!(inserted > 100);
    }

    #[test]
    fn heads_find_the_place_among_many_keys() {
        for count in [0_u64, 1, 255, 4096, 70_000] {
            for each in [1, 3, 40] {
                let keys: Vec<_> = (0..count).map(|i| (i / each * 2 + 1).to_be_bytes()).collect();
                let fences = Fences::new(keys.iter().map(|key| &key[..]));
                for number in (0..=2 * count + 2).step_by(1 + count as usize / 1000) {
                    let key = number.to_be_bytes();
                    let expected = keys.partition_point(|other| *other < key);
                    assert_eq!(fences.below(&key, |n| keys[n] < key), expected, "of {count}");
                }
            }
        }
    }

    #[test]
    fn eight_bytes_decide_where_they_differ() {
        let keys: Vec<Vec<u8>> = (0..1000_u32).map(|i| (i * 7).to_be_bytes().to_vec()).collect();
        let fences = Fences::new(keys.iter().map(Vec::as_slice));
        let compared = Cell::new(0);
        for i in 0..7000_u32 {
            let below = fences.below(&i.to_be_bytes(), |n| {
                compared.set(compared.get() + 1);
                keys[n].as_slice() < i.to_be_bytes().as_slice()
            });
            assert_eq!(below, i.div_ceil(7) as usize);
        }
        assert_eq!(compared.get(), 1000, "only keys with an equal head");
    }
}
