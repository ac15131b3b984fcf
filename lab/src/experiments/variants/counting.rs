//! A counting Bloom filter: a counter of four bits instead of each bit (Fan and others, *Summary Cache*,
//! 2000).

use super::Removable;
use crate::theory;

const MOST: u8 = 15;

pub(super) struct Counting {
    m: u64,
    k: u32,
    /// Two counters a byte.
    counters: Vec<u8>,
}

impl Counting {
    /// An empty filter for this number of keys at a rate.
    pub(super) fn new(keys: u64, rate: f64) -> Self {
        let (m, k) = theory::classic_shape(keys, rate);
        Self { m, k, counters: vec![0; m.div_ceil(2) as usize] }
    }

    /// (h1 + i·h2) mod m; h1 and h2 are the halves of the hash. m is below 2^32.
    fn places(&self, hash: u64) -> impl Iterator<Item = u64> + use<> {
        let within = |half: u64, m: u64| (half * m) >> 32;
        let (m, step) = (self.m, within(hash & 0xFFFF_FFFF, self.m));
        let first = within(hash >> 32, m);
        (0..u64::from(self.k)).map(move |i| (first + i * step) % m)
    }

    fn counter(&self, place: u64) -> u8 {
        self.counters[place as usize / 2] >> (4 * (place % 2)) & MOST
    }

    fn change(&mut self, place: u64, by: i8) {
        let count = self.counter(place);
        // One that is full has lost count, and stays.
        if count < MOST && (by > 0 || count > 0) {
            let byte = &mut self.counters[place as usize / 2];
            let one = 1_u8 << (4 * (place % 2));
            *byte = if by > 0 { *byte + one } else { *byte - one };
        }
    }
}

impl Removable for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn bits(&self) -> f64 {
        8.0 * self.counters.len() as f64
    }

    fn insert(&mut self, hash: u64) -> bool {
        for place in self.places(hash) {
            self.change(place, 1);
        }
        true
    }

    fn contains(&self, hash: u64) -> bool {
        self.places(hash).all(|place| self.counter(place) > 0)
    }

    fn remove(&mut self, hash: u64) {
        for place in self.places(hash) {
            self.change(place, -1);
        }
    }

    fn expected(&self, keys: u64) -> (f64, f64, &'static str) {
        let Self { m, k, .. } = *self;
        (theory::rate(m, k, keys), theory::spread(m, k, keys), "(1 − e^(−kn/m))^k")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_out_leaves_nothing() {
        let mut filter = Counting::new(100, 0.01);
        let hash = |i: u64| (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (0..100).for_each(|i| assert!(filter.insert(hash(i))));
        (0..100).for_each(|i| filter.remove(hash(i)));
        assert!(filter.counters.iter().all(|&pair| pair == 0));
    }
}
