//! The bits of a Bloom filter that grows by inserts, and how many of them are set.

use super::fullness::Fullness;
use super::part::{Array, Part};
use super::sizing::{self, estimated_len, expected_fill, rate_at};
use crate::error::Result;
use crate::filter::bloom::{positions, two_hashes};
use crate::filter::kind::{FilterKind, Geometry};

/// A part of kind bloom, without a salt, that counts its ones.
#[derive(Debug)]
pub(super) struct Bits {
    pub(super) part: Part,
    ones: u64,
}

impl Bits {
    /// No bit set; an error if there is no such shape or no memory for it.
    pub(super) fn empty(geometry: Geometry) -> Result<Self> {
        sizing::check_geometry(&geometry)?;
        let kind = FilterKind::Bloom;
        let array = Array::zeroed((kind.kind().array_bytes)(&geometry))?;
        Ok(Self { part: Part::new(kind, geometry, 0, array), ones: 0 })
    }

    /// The ones that are there already; the part is of kind bloom, of the right length, and has no
    /// bits set beyond its m.
    pub(super) fn of(part: Part) -> Self {
        let ones = ones(part.array.chunks_exact(8).map(word));
        Self { part, ones }
    }

    /// Whether a bit was set that had not been.
    pub(super) fn insert(&mut self, hash: u64) -> bool {
        let array = self.part.array.to_mut();
        let before = self.ones;
        for position in positions(&self.part.geometry, two_hashes(hash)) {
            let (byte, bit) = (&mut array[(position / 8) as usize], 1 << (position % 8));
            self.ones += u64::from(*byte & bit == 0);
            *byte |= bit;
        }
        self.ones > before
    }

    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        self.part.may_contain(hash)
    }

    /// Sets what is set in bits of the same shape.
    pub(super) fn unite(&mut self, other: &Self) {
        let mine = self.part.array.to_mut();
        for (mine, other) in mine.iter_mut().zip(other.part.array.iter()) {
            *mine |= other;
        }
        self.ones = ones(mine.chunks_exact(8).map(word));
    }

    /// How many bits the union with bits of the same shape would have.
    pub(super) fn ones_united(&self, other: &Self) -> u64 {
        let (mine, other) = (self.part.array.chunks_exact(8), other.part.array.chunks_exact(8));
        ones(mine.zip(other).map(|(mine, other)| word(mine) | word(other)))
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

fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
