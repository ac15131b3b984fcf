//! A Bloom filter over any hashes, for what criba's filters do not offer: other hashes, other numbers of
//! probes, bits read per lookup.

use std::collections::HashSet;

#[derive(Debug, Clone)]
pub(in crate::experiments) struct Plain {
    words: Vec<u64>,
    m: u64,
    k: u32,
}

impl Plain {
    pub(in crate::experiments) fn new(m: u64, k: u32) -> Self {
        Self { words: vec![0; m.div_ceil(64) as usize], m, k }
    }

    /// (h1 + i·h2) mod m for i = 0 … k − 1.
    fn positions(&self, (h1, h2): (u64, u64)) -> impl Iterator<Item = u64> + use<> {
        let (m, step) = (self.m, h2 % self.m);
        let next = move |place: &u64| {
            let next = place + step;
            Some(if next < m { next } else { next - m })
        };
        std::iter::successors(Some(h1 % m), next).take(self.k as usize)
    }

    fn is_set(&self, position: u64) -> bool {
        self.words[(position / 64) as usize] >> (position % 64) & 1 == 1
    }

    pub(in crate::experiments) fn insert(&mut self, hashes: (u64, u64)) {
        for position in self.positions(hashes) {
            self.words[(position / 64) as usize] |= 1 << (position % 64);
        }
    }

    pub(in crate::experiments) fn contains(&self, hashes: (u64, u64)) -> bool {
        self.positions(hashes).all(|position| self.is_set(position))
    }

    /// Whether it would set k more bits.
    pub(in crate::experiments) fn would_be_new(&self, hashes: (u64, u64)) -> bool {
        let places = || self.positions(hashes);
        places().all(|place| !self.is_set(place))
            && places().collect::<HashSet<_>>().len() == self.k as usize
    }

    /// The bits that a lookup reads: up to the first unset one.
    pub(in crate::experiments) fn looked_at(&self, hashes: (u64, u64)) -> u32 {
        let passed = self.positions(hashes).take_while(|&position| self.is_set(position)).count();
        (passed as u32 + 1).min(self.k)
    }

    pub(in crate::experiments) fn asked_with(self, k: u32) -> Self {
        Self { k, ..self }
    }

    /// Its first 64 bits.
    pub(in crate::experiments) fn word(&self) -> u64 {
        self.words[0]
    }

    pub(in crate::experiments) fn bytes(&self) -> usize {
        8 * self.words.len()
    }

    pub(in crate::experiments) fn fill(&self) -> f64 {
        let set: u32 = self.words.iter().map(|word| word.count_ones()).sum();
        f64::from(set) / self.m as f64
    }
}

#[cfg(test)]
mod tests {
    use criba_filter::{Bloom, Hashing};

    use super::*;
    use crate::experiment::key;
    use crate::experiments::hash_families::hashes::{Family, sip_key};

    #[test]
    fn over_cribas_hash_it_is_cribas_filter() {
        let (seed, m, k) = (9, 5000, 7);
        let hashing = Hashing::keyed(sip_key(seed));
        let theirs = Bloom::with_geometry(m, k).and_then(|filter| filter.with_hashing(hashing));
        let mut theirs = theirs.expect("a sound shape");
        let mut plain = Plain::new(m, k);
        let hashes = |family, i| Family::SipHash.hashes(seed, &key(family, i));
        for i in 0..600 {
            theirs.insert(key(0, i));
            plain.insert(hashes(0, i));
        }
        assert!((theirs.occupancy() - plain.fill()).abs() < 1e-12);
        let answers = (0..20_000).filter(|&i| theirs.contains(key(1, i))).count();
        let agreed =
            (0..20_000).filter(|&i| theirs.contains(key(1, i)) == plain.contains(hashes(1, i)));
        println!("seed {seed}: {answers} of 20,000 passed");
        assert!(answers > 100 && agreed.count() == 20_000);
    }

    #[test]
    fn a_lookup_ends_at_the_first_bit_that_is_not_set() {
        let mut plain = Plain::new(100, 5);
        assert_eq!(plain.looked_at((10, 1)), 1);
        plain.insert((10, 1));
        let looked_at = [10, 11, 14, 15, 9].map(|start| plain.looked_at((start, 1)));
        assert_eq!(looked_at, [5, 5, 2, 1, 1]);
        assert!(plain.contains((10, 1)) && !plain.clone().asked_with(6).contains((10, 1)));
    }
}
