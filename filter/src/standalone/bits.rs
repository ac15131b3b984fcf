//! The bits of a Bloom filter with inserts.

use super::fullness::Fullness;
use super::part::{Array, Part};
use super::sizing::{self, estimated_len, rate_at};
use crate::bloom::{self, Modulus, expected_fill, set_bits, words};
use crate::error::Result;
use crate::geometry::Geometry;
use crate::kind::FilterKind;

/// A part of kind Bloom, without a salt, that counts its ones.
#[derive(Debug)]
pub(super) struct Bits {
    pub(super) part: Part,
    ones: u64,
}

impl Bits {
    /// An empty part. Fails if the geometry is invalid or memory is short.
    pub(super) fn empty(geometry: Geometry) -> Result<Self> {
        sizing::check_geometry(&geometry)?;
        let kind = FilterKind::Bloom;
        let array = Array::zeroed(kind.array_bytes(&geometry))?;
        Ok(Self { part: Part::new(kind, geometry, 0, array), ones: 0 })
    }

    /// The part must be of kind Bloom, with no bit set behind its m bits.
    pub(super) fn of(part: Part) -> Self {
        let ones = ones(words(&part.array));
        Self { part, ones }
    }

    /// Sets the bits of a hash. Returns whether one of them was not set before.
    pub(super) fn insert(&mut self, hash: u64) -> bool {
        let Geometry { m, k, .. } = self.part.geometry;
        let new = set_bits(self.part.array.to_mut(), Modulus::of(m), k, hash);
        self.ones += new;
        new > 0
    }

    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        bloom::may_contain(&self.part.geometry, &self.part.array, hash)
    }

    /// Sets the bits that are set in `other`, which must have the same geometry.
    pub(super) fn unite(&mut self, other: &Self) {
        let mine = self.part.array.to_mut();
        for (mine, other) in mine.iter_mut().zip(other.part.array.iter()) {
            *mine |= other;
        }
        self.ones = ones(words(mine));
    }

    /// The number of ones in the union with `other`, which must have the same geometry.
    pub(super) fn ones_united(&self, other: &Self) -> u64 {
        let (mine, other) = (words(&self.part.array), words(&other.part.array));
        ones(mine.zip(other).map(|(mine, other)| mine | other))
    }

    pub(super) fn copied(&self) -> Self {
        let Part { kind, geometry, salt, ref array, .. } = self.part;
        Self { part: Part::new(kind, geometry, salt, Array::Owned(array.to_vec())), ..*self }
    }

    pub(super) fn geometry(&self) -> Geometry {
        self.part.geometry
    }

    pub(super) fn ones(&self) -> u64 {
        self.ones
    }

    pub(super) fn occupancy(&self) -> f64 {
        self.ones as f64 / self.part.geometry.m as f64
    }

    pub(super) fn estimated_len(&self) -> f64 {
        estimated_len(&self.part.geometry, self.ones)
    }

    pub(super) fn rate(&self) -> f64 {
        rate_at(&self.part.geometry, self.ones)
    }

    pub(super) fn fullness(&self, capacity: f64) -> Fullness {
        let geometry = &self.part.geometry;
        Fullness::of(self.occupancy(), expected_fill(geometry, capacity), geometry.m)
    }
}

fn ones(words: impl Iterator<Item = u64>) -> u64 {
    words.map(|word| u64::from(word.count_ones())).sum()
}
