//! Where the words of a ribbon lie, computed once for each filter.

use super::array::{check, segment_start, words};
use crate::geometry::Geometry;

/// The layout of a sound ribbon, for probes without checks.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) start_rows: u64,
    /// Below this start row, eight words of both segments lie within the array.
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
        let bytes = 8 * k as usize;
        Some(Self {
            start_rows: m - 63,
            whole: 64 * (last + 1),
            columns: k,
            wide_rows: 64 * wide.saturating_sub(1),
            wide_segments: wide,
            runs: [(8 * wide as usize, bytes), (0, bytes + 8)],
        })
    }

    /// `None` for a row from `whole` on.
    #[inline]
    pub(super) fn words(&self, s: usize) -> Option<FirstWords> {
        let row = s as u64;
        if row >= self.whole {
            return None;
        }
        let segment = row / 64;
        let (start, bytes) = self.runs[usize::from(segment < self.wide_segments)];
        let columns = self.columns + u32::from(row < self.wide_rows);
        Some(FirstWords { first: start + segment as usize * bytes, bytes, columns })
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
    use super::super::array::probe_words;
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
                    assert!(!is_within(0), "{geometry:?}");
                    continue;
                };
                for segment in 0..segments {
                    for row in [64 * segment, 64 * segment + 63] {
                        let first_words = layout.words(row as usize);
                        assert_eq!(is_within(segment), first_words.is_some(), "{geometry:?}");
                        let Some(FirstWords { first, bytes, columns }) = first_words else {
                            continue;
                        };
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
        let start_rows = u128::from(geometry.m - 63);
        // The first hash that falls into the segment's first row.
        let hash = ((u128::from(64 * segment) << 64).div_ceil(start_rows)) as u64;
        let probe = probe_words(geometry, hash);
        assert_eq!(probe.first, segment_start(geometry, segment));
        probe.columns
    }
}
