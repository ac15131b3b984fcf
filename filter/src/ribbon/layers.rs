//! The layers of a ribbon: where their rows lie, and which keys they bump.
//!
//! The layers lie one behind the other in one array of segments, so columns are stored, dropped and widened as if
//! there were one layer. A *bucket* is a segment of a layer other than the last. It has a bit for each half: keys
//! that start in a half whose bit is 1 are *bumped* to the next layer. The lengths of the layers follow from the
//! number of rows alone.

pub(crate) const SEGMENT: u64 = 64;

/// Filters with fewer segments have only the last layer, in which no key is bumped.
pub(crate) const LAYERED_FROM: u64 = 12;
/// Filters with fewer segments have two layers: of three, the second would have too few buckets.
const THREE_FROM: u64 = 300;

/// The fractions of hashes that the first layer bumps, and that both bump, for the lengths below. In filters of
/// fewer than ten thousand keys they differ from these by up to a third of them.
const BUMPED: f64 = 0.036;
const BUMPED_TWICE: f64 = 0.0011;

/// Rows that a bit of a bucket is for.
pub(crate) const HALF: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Layer {
    /// The number of its first segment.
    pub(crate) base: u64,
    pub(crate) segments: u64,
    /// The fraction of hashes that it has.
    pub(crate) share: f64,
}

impl Layer {
    /// The number of rows at which equations can start: an equation ends in its layer.
    #[inline]
    pub(crate) fn start_rows(&self) -> u64 {
        SEGMENT * self.segments - 63
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Layers {
    /// Without segments if the filter has fewer layers.
    pub(crate) first: Layer,
    pub(crate) second: Layer,
    pub(crate) last: Layer,
}

impl Layers {
    #[inline]
    pub(crate) fn of(m: u64) -> Self {
        let all = m / SEGMENT;
        let (last, second, bumped, twice) = if all < LAYERED_FROM {
            (all, 0, 1.0, 1.0)
        } else if all < THREE_FROM {
            (2 + all * 45 / 1000, 0, BUMPED, BUMPED)
        } else {
            let last = 2 + all / 600;
            (last, (all - last) * 40 / 1000, BUMPED, BUMPED_TWICE)
        };
        let first = all - last - second;
        Self {
            first: Layer { base: 0, segments: first, share: 1.0 - bumped },
            second: Layer { base: first, segments: second, share: bumped - twice },
            last: Layer { base: first + second, segments: last, share: twice },
        }
    }

    /// The layers that can bump keys: none, one or two.
    #[inline]
    pub(crate) fn bumping(&self) -> impl Iterator<Item = Layer> {
        [self.first, self.second].into_iter().filter(|layer| layer.segments > 0)
    }

    /// The words of the bits of all buckets.
    pub(crate) fn bump_words(&self) -> usize {
        self.last.base.div_ceil(32) as usize
    }
}

/// Whether a key that starts at a row is bumped. `bits` are those of all buckets; `None` if they end before.
#[inline]
pub(crate) fn is_bumped(bits: &[u8], start: usize) -> Option<bool> {
    bits.get(bump_byte(start)).map(|&byte| is_bumped_by(byte, start))
}

/// The number of the byte that has the bump bit of a start row.
#[inline]
pub(crate) fn bump_byte(start: usize) -> usize {
    start / (8 * HALF)
}

#[inline]
pub(crate) fn is_bumped_by(byte: u8, start: usize) -> bool {
    byte >> (start / HALF % 8) & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_lie_one_behind_the_other_and_have_all_hashes() {
        for all in (2..2000_u64).chain([10_000, 1 << 20, 1 << 34]) {
            let layers = Layers::of(SEGMENT * all);
            let Layers { first, second, last } = layers;
            assert_eq!((first.base, second.base), (0, first.segments));
            assert_eq!(last.base, first.segments + second.segments);
            assert_eq!(last.base + last.segments, all);
            assert!(
                last.segments >= 2 && (first.share + second.share + last.share - 1.0).abs() < 1e-12
            );
            let bumping = [LAYERED_FROM, THREE_FROM].map(|from| all >= from);
            assert_eq!([first, second].map(|layer| layer.segments > 0), bumping);
            assert_eq!(layers.bumping().count(), bumping.iter().filter(|&&bumps| bumps).count());
        }
    }
}
