//! Ribbon filters in plain Rust: the layout of the array, and the reference for the vector code.
//!
//! A *segment* has 64 rows, stored as one little-endian word per column: bit i of word j is row i of column
//! j. The first `wide` segments have one more column. A probe reads two neighbouring segments, and tests the
//! columns that both have.

use crate::geometry::Geometry;
use crate::hash::{GOLDEN, fast_range};

pub(crate) const SEGMENT: u64 = 64;
pub(crate) const MAX_ROWS: u64 = 1 << 40;
pub(crate) const MAX_COLUMNS: u32 = 48;

pub(crate) fn check(geometry: &Geometry) -> Result<(), String> {
    let Geometry { m, k, wide } = *geometry;
    if !m.is_multiple_of(SEGMENT) || !(2 * SEGMENT..=MAX_ROWS).contains(&m) {
        return Err(format!("a ribbon has two or more segments of {SEGMENT} rows, not {m} rows"));
    }
    if k == 0 || k > MAX_COLUMNS || wide >= m / SEGMENT {
        return Err(format!("a ribbon has 1 to {MAX_COLUMNS} columns, not {k} and {wide} wide"));
    }
    Ok(())
}

pub(crate) fn words(geometry: &Geometry) -> usize {
    (geometry.m / SEGMENT * u64::from(geometry.k) + geometry.wide) as usize
}

#[inline]
pub(crate) fn segment_start(geometry: &Geometry, segment: u64) -> usize {
    (segment * u64::from(geometry.k) + segment.min(geometry.wide)) as usize
}

#[inline]
pub(crate) fn equation(geometry: &Geometry, hash: u64) -> (usize, u64) {
    equation_of(geometry.m - 63, hash)
}

#[inline]
pub(crate) fn equation_of(start_rows: u64, hash: u64) -> (usize, u64) {
    (fast_range(hash, start_rows) as usize, hash.wrapping_mul(GOLDEN) | 1)
}

/// The coefficients of rows in the segment of the start row, and those of rows in the next segment.
#[inline]
pub(crate) fn halves(s: usize, c: u64) -> (u64, u64) {
    // Shift counts are taken mod 64: `!s` is 63 − s.
    (c.wrapping_shl(s as u32), (c >> 1).wrapping_shr(!s as u32))
}

/// The words that a probe reads: `columns` words from `first` on, and as many from `second` on. The coefficients
/// are shifted once for all
/// columns, instead of the rows of each column.
pub(crate) struct ProbeWords {
    pub(crate) first: usize,
    pub(crate) second: usize,
    pub(crate) columns: usize,
    pub(crate) low: u64,
    pub(crate) high: u64,
}

#[inline]
pub(crate) fn probe_words(geometry: &Geometry, hash: u64) -> ProbeWords {
    let (s, c) = equation(geometry, hash);
    let segment = (s / 64) as u64;
    let first = segment_start(geometry, segment);
    let (low, high) = halves(s, c);
    ProbeWords {
        first,
        second: first + geometry.k as usize + usize::from(segment < geometry.wide),
        columns: geometry.k as usize + usize::from(segment + 1 < geometry.wide),
        low,
        high,
    }
}

/// Whether all columns give 0 for a key. Columns behind the end of a short array count as 0. The last start
/// row has no second segment, and no coefficients for one.
pub(crate) fn may_contain(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let ProbeWords { first, second, columns, low, high } = probe_words(geometry, hash);
    let at = |start: usize| array.get(8 * start..8 * (start + columns));
    let Some(a) = at(first) else { return true };
    let b = match at(second) {
        Some(b) => b,
        None if high == 0 => a,
        None => return true,
    };
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let mut odd = 0;
    for (a, b) in a.as_chunks().0.iter().zip(b.as_chunks().0) {
        odd |= ((word(a) & low) ^ (word(b) & high)).count_ones(); // no branch to mispredict
    }
    odd & 1 == 0
}
