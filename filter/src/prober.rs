//! A finished array, checked once, for probes of two to four nanoseconds.

use bytes::Bytes;

use crate::blocked::BlockedProber;
use crate::bloom::BloomProber;
use crate::geometry::Geometry;
use crate::kind::FilterKind;
use crate::prefetch::prefetch;
use crate::ribbon::RibbonProber;

/// An immutable array with its geometry, and numbers that follow from both. An array that is too short for its
/// geometry answers "maybe" where it ends.
#[derive(Clone)]
#[repr(u8)] // a tag of its own: one hidden in a field would take three instructions more
pub enum Prober {
    /// A Bloom filter.
    Bloom(BloomProber),
    /// A blocked filter.
    Blocked(BlockedProber),
    /// A ribbon.
    Ribbon(RibbonProber),
}

impl Prober {
    /// A filter of this kind.
    pub fn new(kind: FilterKind, geometry: Geometry, array: Bytes) -> Self {
        match kind {
            FilterKind::Bloom => Self::Bloom(BloomProber::new(geometry, array)),
            FilterKind::Blocked => Self::Blocked(BlockedProber::new(geometry, array)),
            FilterKind::Ribbon => Self::Ribbon(RibbonProber::new(geometry, array)),
        }
    }

    /// The array.
    pub fn array(&self) -> &Bytes {
        match self {
            Self::Bloom(prober) => &prober.array,
            Self::Blocked(prober) => &prober.array,
            Self::Ribbon(prober) => &prober.array,
        }
    }

    /// The geometry.
    pub fn geometry(&self) -> &Geometry {
        match self {
            Self::Bloom(prober) => &prober.geometry,
            Self::Blocked(prober) => &prober.geometry,
            Self::Ribbon(prober) => &prober.geometry,
        }
    }

    /// The fraction of hashes whose probes read a second layer; `None` for filters without layers. Takes
    /// microseconds.
    pub fn bumped(&self) -> Option<f64> {
        match self {
            Self::Bloom(_) | Self::Blocked(_) => None,
            Self::Ribbon(prober) => prober.bumped(),
        }
    }

    /// Whether the filter may have the hash. `false` is certain.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        match self {
            Self::Bloom(prober) => prober.may_contain(hash),
            Self::Blocked(prober) => prober.may_contain(hash),
            Self::Ribbon(prober) => prober.may_contain(hash),
        }
    }

    /// The answers for many hashes, up to the length of the shorter slice.
    pub fn may_contain_many(&self, hashes: &[u64], answers: &mut [bool]) {
        match self {
            Self::Bloom(prober) => prober.may_contain_many(hashes, answers),
            Self::Blocked(prober) => prober.may_contain_many(hashes, answers),
            Self::Ribbon(prober) => prober.may_contain_many(hashes, answers),
        }
    }

    /// Prefetches what a probe of this hash reads.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        for offset in self.prefetch_offsets(hash) {
            prefetch(self.array(), offset);
        }
    }

    /// Offsets of bytes whose cache lines usually decide a probe of the hash. Offsets may repeat, or lie behind
    /// the end of the array.
    #[inline]
    pub(crate) fn prefetch_offsets(&self, hash: u64) -> [usize; 4] {
        match self {
            Self::Bloom(prober) => prober.prefetch_offsets(hash),
            Self::Blocked(prober) => prober.prefetch_offsets(hash),
            Self::Ribbon(prober) => prober.prefetch_offsets(hash),
        }
    }
}
