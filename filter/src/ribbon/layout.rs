//! Where the words of a ribbon lie, computed once for each filter.

use super::array::{
    Equation, check, equation, equation_among, equation_from, matrix_words, segment_start, words,
};
use super::layers::{Layers, bump_byte, is_bumped, is_bumped_by};
use crate::geometry::Geometry;
use crate::hash::mix;

/// The layout of a sound ribbon, for probes without checks.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) layers: Layers,
    /// Whether the first layer is not the last one.
    is_layered: bool,
    /// Of the first layer.
    start_rows: u64,
    /// The bits of the buckets begin at this byte.
    bits: usize,
    /// Below this start row, eight words of both segments lie within the array: for all rows of layers that bump.
    whole: u64,
    columns: u32,
    /// Below this start row, both segments have one column more.
    wide_rows: u64,
    wide_segments: u64,
    /// For narrow segments, then for wide ones: the offset at which segment 0 would start, and the length of
    /// a segment, in bytes.
    runs: [(usize, usize); 2],
}

impl Layout {
    /// `None` for an unsound geometry, an array of another length, or one that is too short for whole vectors.
    pub(super) fn of(geometry: &Geometry, array_bytes: usize) -> Option<Self> {
        if check(geometry).is_err() || array_bytes != 8 * words(geometry) {
            return None;
        }
        let Geometry { m, k, wide } = *geometry;
        let is_within =
            |&segment: &u64| segment_start(geometry, segment + 1) + 8 <= words(geometry);
        // A segment has at least one word, so the last one within is near the end.
        let last = (0..m / 64).rev().find(is_within)?;
        let layers = Layers::of(m);
        if last + 1 < layers.last.base {
            return None;
        }
        let first = layers.bumping().next();
        let bytes = 8 * k as usize;
        Some(Self {
            is_layered: first.is_some(),
            start_rows: first.unwrap_or(layers.last).start_rows(),
            bits: 8 * matrix_words(geometry),
            layers,
            whole: 64 * (last + 1),
            columns: k,
            wide_rows: 64 * wide.saturating_sub(1),
            wide_segments: wide,
            runs: [(8 * wide as usize, bytes), (0, bytes + 8)],
        })
    }

    /// The equation in the first layer. `None` if the hash is bumped, or starts behind the whole rows of a filter
    /// with one layer. `read` reads a byte of the array, which lies within it.
    #[inline]
    pub(super) fn first_equation(
        &self,
        hash: u64,
        read: impl FnOnce(usize) -> u8,
    ) -> Option<Equation> {
        let mut equation = equation_from(self.start_rows, hash);
        let is_here = if self.is_layered {
            !is_bumped_by(read(self.bits + bump_byte(equation.start)), equation.start)
        } else {
            equation.right = 0;
            (equation.start as u64) < self.whole
        };
        is_here.then_some(equation)
    }

    /// The equation of a hash for which [`first_equation`](Self::first_equation) has none, and whether it starts at
    /// a whole row.
    #[inline]
    pub(super) fn equation_elsewhere(&self, array: &[u8], hash: u64) -> Option<(Equation, bool)> {
        let bits = array.get(self.bits..)?;
        if self.layers.second.segments > 0 {
            let equation = equation(&self.layers.second, mix(hash));
            if !is_bumped(bits, equation.start)? {
                return Some((equation, true));
            }
        }
        let equation = equation_among(&self.layers, bits, hash)?;
        Some((equation, (equation.start as u64) < self.whole))
    }

    /// For a start row below `whole`.
    #[inline]
    pub(super) fn words(&self, start: usize) -> FirstWords {
        let row = start as u64;
        let segment = row / 64;
        let (first, bytes) = self.runs[usize::from(segment < self.wide_segments)];
        let columns = self.columns + u32::from(row < self.wide_rows);
        FirstWords { first: first + segment as usize * bytes, bytes, columns }
    }
}

/// The words that a probe reads first: eight from `first` on, and eight of the next segment.
pub(super) struct FirstWords {
    pub(super) first: usize,
    /// The length of its segment in bytes. The next segment follows.
    pub(super) bytes: usize,
    pub(super) columns: u32,
}

#[cfg(test)]
mod tests {
    use super::super::array::{Equation, words_of};
    use super::*;

    #[test]
    fn a_layout_knows_what_may_be_read_whole() {
        let mut layouts = 0;
        for k in (1..=20).chain([48]) {
            for (segments, wide) in [(40, 0), (40, 1), (40, 2), (40, 17), (40, 39), (9, 4), (2, 0)]
            {
                let geometry = Geometry { m: 64 * segments, k, wide };
                let end = 8 * words(&geometry);
                let start = |segment| 8 * segment_start(&geometry, segment);
                let is_within = |segment: u64| start(segment + 1) + 64 <= end;
                let Some(layout) = Layout::of(&geometry, end) else {
                    let last = Layers::of(geometry.m).last.base;
                    assert!(!is_within(last.saturating_sub(1)), "{geometry:?}");
                    continue;
                };
                for segment in 0..segments {
                    for row in [64 * segment, 64 * segment + 63] {
                        assert_eq!(is_within(segment), row < layout.whole, "{geometry:?}");
                        if row >= layout.whole {
                            continue;
                        }
                        let FirstWords { first, bytes, columns } = layout.words(row as usize);
                        assert_eq!((first, first + bytes), (start(segment), start(segment + 1)));
                        let expected = columns_at(&geometry, segment);
                        assert_eq!(columns as usize, expected, "{geometry:?}");
                    }
                }
                layouts += 1;
            }
        }
        assert!(layouts > 120, "{layouts}");
    }

    fn columns_at(geometry: &Geometry, segment: u64) -> usize {
        let equation = Equation { start: 64 * segment as usize, coefficients: 1, right: 0 };
        let probe = words_of(geometry, equation);
        assert_eq!(probe.first, segment_start(geometry, segment));
        probe.columns
    }
}
