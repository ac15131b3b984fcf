//! The kinds of filters.

use std::fmt;

use crate::built::Built;
use crate::geometry::Geometry;
use crate::{blocked, bloom, ribbon};

/// A kind of filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FilterKind {
    /// The standard Bloom filter, with k probes by double hashing. Its rate is 1 % at 9.585 bits per key.
    Bloom,
    /// A Bloom filter in 64-byte blocks: the fastest to build and to probe. A probe reads one cache line. Its
    /// rate is 1.05 % at 10 bits per key. Not for stores.
    Blocked,
    /// A bumped ribbon filter, slower to build. Its rate is 0.50 % at 7.75 bits per key, 0.105 % at 10, and
    /// higher below ten thousand keys.
    Ribbon,
}

impl FilterKind {
    #[doc(hidden)]
    pub const ALL: [Self; 3] = [Self::Bloom, Self::Blocked, Self::Ribbon];

    #[doc(hidden)]
    pub fn with_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.id() == id)
    }

    /// The number in the bytes of filters.
    #[doc(hidden)]
    pub fn id(self) -> u8 {
        match self {
            Self::Bloom => 1,
            Self::Blocked => 2,
            Self::Ribbon => 4,
        }
    }

    /// The number of ribbons with one layer, which are no longer read.
    #[doc(hidden)]
    pub const OLD_RIBBON: u8 = 3;

    /// Fails with the fault of a geometry that no filter of this kind has.
    #[doc(hidden)]
    pub fn check(self, geometry: &Geometry) -> Result<(), String> {
        match self {
            Self::Bloom => bloom::check(geometry),
            Self::Blocked => blocked::check(geometry),
            Self::Ribbon => ribbon::check(geometry),
        }
    }

    /// The length of the array of a checked geometry.
    #[doc(hidden)]
    pub fn array_bytes(self, geometry: &Geometry) -> usize {
        match self {
            Self::Bloom => bloom::array_bytes(geometry),
            Self::Blocked => blocked::array_bytes(geometry),
            Self::Ribbon => ribbon::array_bytes(geometry),
        }
    }

    /// The next larger geometry that an attempt to build a filter tries; the same at the limit of the kind.
    #[doc(hidden)]
    pub fn grow(self, geometry: &Geometry) -> Geometry {
        match self {
            Self::Bloom => bloom::grow(geometry),
            Self::Blocked => blocked::grow(geometry),
            Self::Ribbon => ribbon::grow(geometry),
        }
    }

    /// The lowest false-positive rate that a filter of this kind is made for.
    #[doc(hidden)]
    pub fn lowest_rate(self) -> f64 {
        match self {
            Self::Bloom | Self::Blocked => 1e-6,
            Self::Ribbon => 1e-12,
        }
    }

    /// The geometry with nearly the fewest bits for a rate, for at least one key.
    pub(crate) fn for_rate(self, keys: u64, rate: f64) -> Geometry {
        match self {
            Self::Bloom => bloom::for_rate(keys, rate),
            Self::Blocked => blocked::for_rate(keys, rate),
            Self::Ribbon => ribbon::for_rate(keys, rate),
        }
    }

    /// The geometry for a number of bits per key, for at least one key.
    pub(crate) fn for_bits(self, keys: u64, bits_per_key: f64) -> Geometry {
        match self {
            Self::Bloom => bloom::for_bits(keys, bits_per_key),
            Self::Blocked => blocked::for_bits(keys, bits_per_key),
            Self::Ribbon => ribbon::for_bits(keys, bits_per_key),
        }
    }

    /// The mean rate of filters of this geometry, for at least one key. Takes microseconds.
    pub(crate) fn expected_rate(self, keys: u64, geometry: &Geometry) -> f64 {
        match self {
            Self::Bloom => bloom::expected_rate(keys, geometry),
            Self::Blocked => blocked::expected_rate(keys, geometry),
            Self::Ribbon => ribbon::expected_rate(keys, geometry),
        }
    }

    /// The filter of uniformly distributed hashes.
    pub(crate) fn build(self, geometry: &Geometry, hashes: Vec<u64>) -> Built {
        match self {
            Self::Bloom => bloom::build(geometry, &hashes),
            Self::Blocked => blocked::build(geometry, &hashes),
            Self::Ribbon => ribbon::build(geometry, hashes),
        }
    }
}

impl fmt::Display for FilterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bloom => "bloom",
            Self::Blocked => "blocked",
            Self::Ribbon => "ribbon",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names() {
        let names = FilterKind::ALL.map(|kind| kind.to_string());
        assert_eq!(names, ["bloom", "blocked", "ribbon"]);
    }

    #[test]
    fn geometries_are_sound_within_the_limits_of_their_kind() {
        let is_sound =
            |kind: FilterKind, (m, k, wide)| kind.check(&Geometry { m, k, wide }).is_ok();
        for (kind, sound, unsound) in [
            (
                FilterKind::Bloom,
                &[(1, 1, 0), (1 << 43, 64, 0)][..],
                &[(0, 1, 0), ((1 << 43) + 1, 1, 0), (9, 0, 0), (9, 65, 0), (9, 1, 1)][..],
            ),
            (
                FilterKind::Blocked,
                &[(512, 8, 0), (1 << 43, 8, 0)],
                &[(0, 8, 0), ((1 << 43) + 512, 8, 0), (700, 8, 0), (512, 7, 0), (512, 8, 1)],
            ),
            (
                FilterKind::Ribbon,
                &[(128, 1, 0), (128, 48, 1), (1 << 40, 48, 0)],
                &[
                    (64, 1, 0),
                    (130, 1, 0),
                    ((1 << 40) + 64, 1, 0),
                    (128, 0, 0),
                    (128, 49, 0),
                    (128, 1, 2),
                ],
            ),
        ] {
            for &geometry in sound {
                assert!(is_sound(kind, geometry), "{kind} {geometry:?}");
            }
            for &geometry in unsound {
                assert!(!is_sound(kind, geometry), "{kind} {geometry:?}");
            }
        }
    }

    #[test]
    fn larger_geometries_are_sound_and_not_much_larger() {
        for kind in FilterKind::ALL {
            for keys in [1 << 20, (1 << 20) + 12_345, 1 << 50] {
                for geometry in [kind.for_bits(keys, 64.0), kind.for_rate(keys, kind.lowest_rate())]
                {
                    let larger = kind.grow(&geometry);
                    assert_eq!((kind.check(&geometry), kind.check(&larger)), (Ok(()), Ok(())));
                    let part =
                        kind.array_bytes(&larger) as f64 / kind.array_bytes(&geometry) as f64;
                    let most = keys == 1 << 50;
                    assert!(most || (1.02..1.08).contains(&part), "{kind} {geometry:?}: {part}");
                    assert!(!most || (1.0..1.08).contains(&part), "{kind} {geometry:?}: {part}");
                }
            }
        }
    }
}
