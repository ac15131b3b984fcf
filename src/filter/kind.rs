//! The table of kinds: all that the rest of the engine knows of bloom, blocked and ribbon filters.

use std::fmt;

use super::{blocked, bloom, ribbon};

/// A kind of filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FilterKind {
    /// The standard Bloom filter, k probes by double hashing: 1 % at 9.585 bits a key.
    Bloom,
    /// A Bloom filter in 64-byte blocks, one bit in each of eight words: the fastest to build and to
    /// ask, one cache line a key; 1.05 % at 10 bits a key.
    Blocked,
    /// A homogeneous ribbon filter: 0.76 % at 7.75 bits a key, 0.20 % at 10. Slower to build, and with rows to
    /// spare in tables of fewer than a thousand keys.
    Ribbon,
}

/// The shape of a filter: what [`FilterKind`] its three numbers belong to says what they count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bloom and blocked: bits, for blocked 512 a block. Ribbon: rows, 64 a segment.
    pub m: u64,
    /// Bloom and blocked: bits set for a key, for blocked always 8. Ribbon: columns.
    pub k: u32,
    /// Ribbon: how many segments, from the first on, have one column more. Otherwise 0.
    pub wide: u64,
}

/// A filter's array, and the false-positive rate that its finished bits give.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) array: Vec<u8>,
    pub(super) predicted_rate: f64,
    /// The hashes fell so that the rate is far from what the shape promises; others may do better.
    pub(super) unlucky: bool,
}

/// Whether a filter of this shape and array may contain the key of a hash; "no" is certain.
pub(super) type Probe = fn(&Geometry, &[u8], u64) -> bool;

/// The same for many hashes, each answer in the place of its hash.
pub(super) type ProbeMany = fn(&Geometry, &[u8], &[u64], &mut [bool]);

/// What a kind has to say for itself. Hashes are 64 bits, evenly spread; n is at least 1.
pub(super) struct Kind {
    /// The number in the header.
    pub(super) id: u8,
    pub(super) name: &'static str,
    /// The shape for n keys at a rate.
    pub(super) for_rate: fn(u64, f64) -> Geometry,
    /// The shape for n keys at so many bits a key.
    pub(super) for_bits: fn(u64, f64) -> Geometry,
    /// The lowest rate that can be asked for.
    pub(super) lowest_rate: f64,
    /// The rate to expect of n keys in a shape, before they are hashed. Takes microseconds.
    pub(super) expected_rate: fn(u64, &Geometry) -> f64,
    /// The next larger shape, some sixteenth larger, for hashes that do badly in this one.
    pub(super) roomier: fn(&Geometry) -> Geometry,
    /// Says what is wrong with a shape.
    pub(super) check: fn(&Geometry) -> Result<(), String>,
    /// The length of the array in bytes; the shape has been checked.
    pub(super) array_bytes: fn(&Geometry) -> usize,
    pub(super) build: fn(&Geometry, Vec<u64>) -> Built,
    /// The fastest probe that this processor has.
    pub(super) probe: fn() -> Probe,
    /// Likewise for many hashes at once, without a call for each.
    pub(super) probe_many: fn() -> ProbeMany,
    /// Bytes of the array in whose cache lines a probe of this hash mostly finds all that it reads to
    /// deny it. Some may be named twice, or lie behind the end.
    pub(super) touched: fn(&Geometry, u64) -> [usize; 4],
}

/// What to aim at where a rate must not be exceeded: finished bits scatter about what is expected, the
/// less the more keys there are.
pub(super) fn below(rate: f64, keys: u64) -> f64 {
    rate * (0.998 - 1.0 / (keys as f64 + 9.0).sqrt())
}

impl FilterKind {
    pub(crate) const ALL: [Self; 3] = [Self::Bloom, Self::Blocked, Self::Ribbon];

    pub(super) fn kind(self) -> &'static Kind {
        match self {
            Self::Bloom => &bloom::KIND,
            Self::Blocked => &blocked::KIND,
            Self::Ribbon => &ribbon::KIND,
        }
    }

    pub(super) fn with_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.kind().id == id)
    }
}

impl fmt::Display for FilterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().name)
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
    fn shapes_are_sound_within_the_limits_of_their_kind() {
        let is_sound =
            |kind: FilterKind, (m, k, wide)| (kind.kind().check)(&Geometry { m, k, wide }).is_ok();
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
            for &shape in sound {
                assert!(is_sound(kind, shape), "{kind} {shape:?}");
            }
            for &shape in unsound {
                assert!(!is_sound(kind, shape), "{kind} {shape:?}");
            }
        }
    }

    /// However much is asked for, there is a shape; and one that is larger, up to the largest.
    #[test]
    fn larger_shapes_are_sound_and_not_much_larger() {
        for kind in FilterKind::ALL {
            let Kind { for_bits, for_rate, roomier, check, array_bytes, .. } = kind.kind();
            for keys in [1 << 20, (1 << 20) + 12_345, 1 << 50] {
                for shape in [for_bits(keys, 64.0), for_rate(keys, kind.kind().lowest_rate)] {
                    assert_eq!((check(&shape), check(&roomier(&shape))), (Ok(()), Ok(())));
                    let part = array_bytes(&roomier(&shape)) as f64 / array_bytes(&shape) as f64;
                    let most = keys == 1 << 50;
                    assert!(most || (1.02..1.08).contains(&part), "{kind} {shape:?}: {part}");
                    assert!(!most || (1.0..1.08).contains(&part), "{kind} {shape:?}: {part}");
                }
            }
        }
    }

    /// What is aimed at leaves room for chance: about one part in √n of n keys, and never the whole.
    #[test]
    fn the_aim_is_below_the_rate_by_what_may_scatter() {
        for keys in (0..40).map(|i| 1_u64 << i) {
            let aim = below(0.01, keys) / 0.01;
            let scatter = 1.0 / (keys as f64).sqrt();
            assert!(aim > 0.6 && aim > 0.997 - scatter, "{keys} keys: {aim}");
            assert!(aim < 0.999 && (keys < 100 || aim < 1.0 - 0.9 * scatter), "{keys} keys: {aim}");
        }
    }
}
