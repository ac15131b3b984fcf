//! The keys in the stores, absent keys, and values.

use crate::random::{Random, mix};

pub const VALUE_BYTES: usize = 100;

/// Distinct keys of 16 bytes in random order: those of numbers below `n` are present.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    pub n: u64,
    pub seed: u64,
}

impl Keys {
    /// A key; an absent one from `n` on, which lies between present ones.
    pub fn key(&self, number: u64) -> [u8; 16] {
        // `mix` is a permutation.
        let digits = format!("{:016x}", mix(mix(self.seed).wrapping_add(number)));
        digits.into_bytes().try_into().expect("16 digits")
    }

    /// Bytes that do not compress.
    pub fn value(&self, number: u64) -> [u8; VALUE_BYTES] {
        let mut random = Random::new(self.seed ^ number.rotate_left(32));
        let mut value = [0; VALUE_BYTES];
        for chunk in value.chunks_mut(8) {
            chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
        }
        value
    }

    /// `count` absent keys, no two the same for different ranges of numbers.
    pub fn absent(&self, first: u64, count: u64) -> Vec<[u8; 16]> {
        (first..first + count).map(|number| self.key(self.n + number)).collect()
    }

    /// `count` present keys at random.
    pub fn present(&self, count: u64, random: &mut Random) -> Vec<[u8; 16]> {
        (0..count).map(|_| self.key(random.below(self.n))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn absent_keys_are_others_and_lie_between_present_ones() {
        let keys = Keys { n: 5000, seed: 3 };
        let mut sorted: BTreeMap<_, _> = (0..keys.n).map(|i| (keys.key(i), true)).collect();
        sorted.extend(keys.absent(0, keys.n).into_iter().map(|key| (key, false)));
        assert_eq!(sorted.len(), 10_000);
        let kinds: Vec<bool> = sorted.into_values().collect();
        let changes = kinds.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!((4700..5300).contains(&changes), "{changes}");
        let present = keys.present(100, &mut Random::new(1));
        assert!(present.iter().all(|key| (0..keys.n).any(|i| keys.key(i) == *key)));
        assert_ne!(keys.value(1), keys.value(2));
    }
}
