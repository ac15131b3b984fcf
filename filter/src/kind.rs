//! The kinds of filters.

use std::fmt;

use bytes::Bytes;

use super::algorithm::Algorithm;
use super::geometry::Geometry;
use super::simd::Prober;
use super::{blocked, bloom, ribbon};

/// A kind of filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FilterKind {
    /// The standard Bloom filter, with k probes by double hashing. Its rate is 1 % at 9.585 bits per key.
    Bloom,
    /// A Bloom filter in 64-byte blocks: the fastest to build and to probe. A probe reads one cache line. Its
    /// rate is 1.05 % at 10 bits per key. Not for stores.
    Blocked,
    /// A homogeneous ribbon filter, slower to build. Its rate is 0.76 % at 7.75 bits per key, 0.20 % at 10,
    /// and higher below a thousand keys.
    Ribbon,
}

impl FilterKind {
    #[doc(hidden)]
    pub const ALL: [Self; 3] = [Self::Bloom, Self::Blocked, Self::Ribbon];

    pub(crate) fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::Bloom => &bloom::ALGORITHM,
            Self::Blocked => &blocked::ALGORITHM,
            Self::Ribbon => &ribbon::ALGORITHM,
        }
    }

    #[doc(hidden)]
    pub fn prober(self, geometry: Geometry, array: Bytes) -> Prober {
        let algorithm = self.algorithm();
        // Code without checks relies on a sound geometry.
        let is_sound = self.check(&geometry).is_ok();
        let unchecked = if is_sound { algorithm.unchecked } else { |_: &Geometry, _| None };
        Prober::new(geometry, array, (algorithm.probe)(), algorithm.touched, unchecked)
    }

    #[doc(hidden)]
    pub fn with_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.id() == id)
    }

    /// The number in the bytes of filters.
    #[doc(hidden)]
    pub fn id(self) -> u8 {
        self.algorithm().id
    }

    /// Fails with the fault of a geometry that no filter of this kind has.
    #[doc(hidden)]
    pub fn check(self, geometry: &Geometry) -> Result<(), String> {
        (self.algorithm().check)(geometry)
    }

    /// The length of the array of a checked geometry.
    #[doc(hidden)]
    pub fn array_bytes(self, geometry: &Geometry) -> usize {
        (self.algorithm().array_bytes)(geometry)
    }

    /// The next larger geometry that an attempt to build a filter tries; the same at the limit of the kind.
    #[doc(hidden)]
    pub fn roomier(self, geometry: &Geometry) -> Geometry {
        (self.algorithm().roomier)(geometry)
    }

    /// The lowest false-positive rate that a filter of this kind is made for.
    #[doc(hidden)]
    pub fn lowest_rate(self) -> f64 {
        self.algorithm().lowest_rate
    }
}

impl fmt::Display for FilterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm().name)
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
            let Algorithm { for_bits, for_rate, lowest_rate, roomier, check, array_bytes, .. } =
                kind.algorithm();
            for keys in [1 << 20, (1 << 20) + 12_345, 1 << 50] {
                for geometry in [for_bits(keys, 64.0), for_rate(keys, *lowest_rate)] {
                    assert_eq!((check(&geometry), check(&roomier(&geometry))), (Ok(()), Ok(())));
                    let part =
                        array_bytes(&roomier(&geometry)) as f64 / array_bytes(&geometry) as f64;
                    let most = keys == 1 << 50;
                    assert!(most || (1.02..1.08).contains(&part), "{kind} {geometry:?}: {part}");
                    assert!(!most || (1.0..1.08).contains(&part), "{kind} {geometry:?}: {part}");
                }
            }
        }
    }
}
