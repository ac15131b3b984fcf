//! Probes of one Bloom filter. They need no code without checks: a probe of an absent key reads two bits on
//! average.

use bytes::Bytes;

use super::array::{all_set, positions, second_hash};
use super::modulus::Modulus;
use crate::geometry::Geometry;

/// A Bloom filter, with the reciprocal of its number of bits.
#[derive(Clone)]
pub struct BloomProber {
    pub(crate) array: Bytes,
    pub(crate) geometry: Geometry,
    modulus: Modulus,
}

impl BloomProber {
    pub(crate) fn new(geometry: Geometry, array: Bytes) -> Self {
        Self { array, geometry, modulus: Modulus::of(geometry.m) }
    }

    /// For division by the number of bits.
    pub fn modulus(&self) -> Modulus {
        self.modulus
    }

    /// Not inlined: its loop would fill the loops over probers of any kind.
    #[inline(never)]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        let first = self.modulus.remainder(hash);
        all_set(&self.array, self.modulus, self.geometry.k, first, || second_hash(hash))
    }

    pub(crate) fn may_contain_many(&self, hashes: &[u64], answers: &mut [bool]) {
        for (&hash, answer) in hashes.iter().zip(answers) {
            *answer = self.may_contain(hash);
        }
    }

    /// The first four positions. In a half-full filter a probe of an absent key reads two on average.
    pub(crate) fn prefetch_offsets(&self, hash: u64) -> [usize; 4] {
        let mut positions = positions(self.modulus, self.geometry.k, (hash, second_hash(hash)));
        [(); 4].map(|()| positions.next().map_or(0, |position| position as usize / 8))
    }
}
