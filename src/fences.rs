//! Sorted keys that are searched for the place of another.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use crate::key::head;

/// The order of some keys, mostly decided by eight bytes of each, which lie side by side: a search reads
/// few cache lines and follows no pointers. The keys themselves stay where they are, and are asked for
/// where eight bytes do not tell.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fences {
    /// What all keys begin with.
    common: Box<[u8]>,
    /// Of each key the eight bytes behind that; ascending.
    heads: Vec<u64>,
    /// Where there are many: of each few of these the last one, of each few of those the last, and so on up
    /// to a few. Halving all of them would miss the processor's caches at almost each step; so a search
    /// does with a few neighbours of each rank, and all ranks but the lowest stay in the caches.
    ranks: Vec<Vec<u64>>,
}

/// How many neighbours have one above them.
const FEW: usize = 16;
/// So many are halved faster.
const MANY: usize = 16 * FEW;
/// Of so many at most it is told that they may be asked about.
const TOLD: usize = 32;

impl Fences {
    /// Of these keys, which ascend.
    pub(crate) fn new<'a>(keys: impl DoubleEndedIterator<Item = &'a [u8]> + Clone) -> Self {
        let first = keys.clone().next().unwrap_or_default();
        let last = keys.clone().next_back().unwrap_or_default();
        let same = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let common: Box<[u8]> = first.iter().take(same).copied().collect();
        let heads: Vec<_> = keys.map(|key| head(key.get(same..).unwrap_or_default())).collect();
        Self { common, ranks: ranks(&heads), heads }
    }

    /// Puts a key in, as the one of a number; unless it does not begin as all others do, or there are none.
    #[must_use]
    pub(crate) fn insert(&mut self, at: usize, key: &[u8]) -> bool {
        let rest = key.strip_prefix(&*self.common);
        // The first key of all alone would say that others begin with nothing in particular.
        let rest = rest.filter(|_| !self.heads.is_empty() && at <= self.heads.len());
        if let Some(rest) = rest {
            self.ranks.clear();
            make_room(&mut self.heads, 1, 4);
            self.heads.insert(at, head(rest));
        }
        rest.is_some()
    }

    /// Makes room for so many keys in all.
    pub(crate) fn reserve(&mut self, keys: usize) {
        self.heads.reserve_exact(keys.saturating_sub(self.heads.len()));
    }

    /// The memory taken, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let above: usize = self.ranks.iter().map(Vec::capacity).sum();
        self.common.len() + (self.heads.capacity() + above) * size_of::<u64>()
    }

    /// How many of the keys are less than `key`; `is_below` tells whether one is whose first bytes are the
    /// same.
    pub(crate) fn below(&self, key: &[u8], is_below: impl Fn(usize) -> bool) -> usize {
        self.below_fetching(key, |_| (), is_below)
    }

    /// The same. Before, unless they are many, `fetch` is told of the keys that `is_below` may be asked
    /// about, so that their memory is on its way at once.
    pub(crate) fn below_fetching(
        &self,
        key: &[u8],
        fetch: impl Fn(usize),
        is_below: impl Fn(usize) -> bool,
    ) -> usize {
        // No bytes are not compared: they have no address that is there, from which the vector code of
        // memcmp takes a hundred nanoseconds to read nothing.
        if self.heads.is_empty() {
            return 0;
        }
        let (common, rest) = key.split_at(self.common.len().min(key.len()));
        if !self.common.is_empty() && *common != *self.common {
            // All keys are on the same side of it.
            return if *common < *self.common { 0 } else { self.heads.len() };
        }
        let head = head(rest);
        let mut low = self.heads_below(head);
        let mut same = match self.heads.get(low..) {
            Some(from @ [first, ..]) if *first == head => {
                from.partition_point(|other| *other == head)
            }
            _ => 0,
        };
        if same <= TOLD {
            (low..low + same).for_each(fetch);
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

    fn heads_below(&self, head: u64) -> usize {
        let within = |rank: &[u64]| rank.partition_point(|other| *other < head);
        if self.ranks.is_empty() {
            return within(&self.heads);
        }
        // In each rank the number of those below is also the number of the few, one rank lower, among
        // which the first that is not below lies; or there is none.
        let ranks = self.ranks.iter().rev().chain([&self.heads]);
        ranks.fold(0, |few, rank| {
            let start = (few * FEW).min(rank.len());
            let end = (start + FEW).min(rank.len());
            start + within(rank.get(start..end).unwrap_or_default())
        })
    }
}

fn ranks(heads: &[u64]) -> Vec<Vec<u64>> {
    let above = |rank: &[u64]| -> Vec<u64> {
        rank.chunks(FEW).filter_map(|few| few.last().copied()).collect()
    };
    let ranks = std::iter::successors(Some(above(heads)), |rank| Some(above(rank)));
    if heads.len() < MANY { Vec::new() } else { ranks.take_while(|rank| rank.len() > 1).collect() }
}

/// Lets a vector grow by a quarter where it has to, not by all of it: memory for what may never come is
/// taken from what came.
pub(crate) fn make_room<T>(vec: &mut Vec<T>, more: usize, least: usize) {
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

    /// Keys that begin alike, end within or right behind what they have in common, have zeros where
    /// others end, or come twice.
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
                // One is put in after the others, if they begin as it does.
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
                    assert!(fetched.borrow().contains(&n) || keys.len() > TOLD);
                    &keys[n] < key
                };
                let found = fences.below_fetching(key, fetch, is_below);
                assert_eq!(found, expected, "{key:?} among {keys:?}");
                compared += 1;
            }
        }
        println!("{compared} searches, {inserted} insertions");
        assert!(inserted > 100);
    }

    /// Few and many, around the numbers where another rank begins, some of them equal.
    #[test]
    fn ranks_find_what_halving_finds() {
        for count in [0, 1, MANY - 1, MANY, MANY + 1, 4095, 4096, 4097, 70_000] {
            for each in [1, 3, 40] {
                let keys: Vec<_> = (0..count).map(|i| (i / each * 2 + 1).to_be_bytes()).collect();
                let fences = Fences::new(keys.iter().map(|key| &key[..]));
                assert_eq!(fences.ranks.is_empty(), count < MANY);
                assert!(fences.ranks.last().is_none_or(|top| top.len() <= FEW));
                for number in (0..=2 * count + 2).step_by(1 + count / 1000) {
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
        let asked = Cell::new(0);
        for i in 0..7000_u32 {
            let below = fences.below(&i.to_be_bytes(), |n| {
                asked.set(asked.get() + 1);
                keys[n].as_slice() < i.to_be_bytes().as_slice()
            });
            assert_eq!(below, i.div_ceil(7) as usize);
        }
        assert_eq!(asked.get(), 1000, "only for a key that is one of them");
    }
}
