//! Ribbon filters in plain Rust: the layout of the array, and the reference for the vector code.
//!
//! A *segment* has 64 rows, stored as one little-endian word per column: bit i of word j is row i of column
//! j. The first `wide` segments have one more column. The bits of the buckets follow, two each, from the lowest of a
//! byte. A probe reads such a bit and two neighbouring segments, and tests the columns that both have.

use super::layers::{Layer, Layers, SEGMENT, is_bumped};
use crate::geometry::Geometry;
use crate::hash::{GOLDEN, fast_range, mix};

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
    matrix_words(geometry) + Layers::of(geometry.m).bump_words()
}

/// The bits of the buckets begin at this word.
pub(crate) fn matrix_words(geometry: &Geometry) -> usize {
    (geometry.m / SEGMENT * u64::from(geometry.k) + geometry.wide) as usize
}

#[inline]
pub(crate) fn segment_start(geometry: &Geometry, segment: u64) -> usize {
    (segment * u64::from(geometry.k) + segment.min(geometry.wide)) as usize
}

/// The equation of a hash: the sum of the rows whose coefficients are 1 is the right-hand side, in each column.
#[derive(Clone, Copy)]
pub(crate) struct Equation {
    /// The row of the first coefficient.
    pub(crate) start: usize,
    /// Bit i is that of row `start` + i; bit 0 is 1.
    pub(crate) coefficients: u64,
    /// Bit j is that of column j.
    pub(crate) right: u64,
}

/// The equation in a layer that begins at row 0. (In the last layer the right-hand side counts as 0.)
#[inline]
pub(crate) fn equation_from(start_rows: u64, hash: u64) -> Equation {
    let product = u128::from(hash) * u128::from(GOLDEN);
    Equation {
        start: fast_range(hash, start_rows) as usize,
        coefficients: product as u64 | 1,
        right: (product >> 64) as u64,
    }
}

/// The equation in a layer.
#[inline]
pub(crate) fn equation(layer: &Layer, hash: u64) -> Equation {
    let Equation { start, coefficients, right } = equation_from(layer.start_rows(), hash);
    Equation { start: start + (SEGMENT * layer.base) as usize, coefficients, right }
}

/// The equation in the layer that has the hash. `None` if the bits of the buckets are cut short.
pub(crate) fn equation_among(layers: &Layers, bits: &[u8], mut hash: u64) -> Option<Equation> {
    for layer in layers.bumping() {
        let equation = equation(&layer, hash);
        if !is_bumped(bits, equation.start)? {
            return Some(equation);
        }
        hash = mix(hash);
    }
    Some(Equation { right: 0, ..equation(&layers.last, hash) })
}

/// The coefficients of rows in the segment of the start row, and those of rows in the next segment.
#[inline]
pub(crate) fn halves(s: usize, c: u64) -> (u64, u64) {
    // Shift counts are taken mod 64: `!s` is 63 − s.
    (c.wrapping_shl(s as u32), (c >> 1).wrapping_shr(!s as u32))
}

/// The words that a probe reads: `columns` words from `first` on, and as many from `second` on. The coefficients
/// are shifted once for all columns, instead of the rows of each column.
pub(crate) struct ProbeWords {
    pub(crate) first: usize,
    pub(crate) second: usize,
    pub(crate) columns: usize,
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) right: u64,
}

/// `None` if the array ends before a bit of the bucket.
#[inline]
pub(crate) fn probe_words(
    geometry: &Geometry,
    layers: &Layers,
    array: &[u8],
    hash: u64,
) -> Option<ProbeWords> {
    let bits = array.get(8 * matrix_words(geometry)..).unwrap_or_default();
    equation_among(layers, bits, hash).map(|equation| words_of(geometry, equation))
}

#[inline]
pub(crate) fn words_of(geometry: &Geometry, equation: Equation) -> ProbeWords {
    let segment = (equation.start / 64) as u64;
    let first = segment_start(geometry, segment);
    let (low, high) = halves(equation.start, equation.coefficients);
    ProbeWords {
        first,
        second: first + geometry.k as usize + usize::from(segment < geometry.wide),
        columns: geometry.k as usize + usize::from(segment + 1 < geometry.wide),
        low,
        high,
        right: equation.right,
    }
}

/// Whether the filter may have the hash. An array that is too short to say answers "maybe".
pub(crate) fn may_contain(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let words = probe_words(geometry, &Layers::of(geometry.m), array, hash);
    words.is_none_or(|words| all_columns(array, &words))
}

/// Whether all columns give the right-hand side. The last start row has no second segment, and no coefficients for
/// one.
pub(crate) fn all_columns(array: &[u8], words: &ProbeWords) -> bool {
    let ProbeWords { first, second, columns, low, high, right } = *words;
    let at = |start: usize| array.get(8 * start..8 * (start + columns));
    let Some(a) = at(first) else { return true };
    let b = match at(second) {
        Some(b) => b,
        None if high == 0 => a,
        None => return true,
    };
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    let mut differ = 0;
    for (j, (a, b)) in a.as_chunks().0.iter().zip(b.as_chunks().0).enumerate() {
        let sum = ((word(a) & low) ^ (word(b) & high)).count_ones();
        differ |= u64::from(sum) ^ right >> j; // no branch to mispredict
    }
    differ & 1 == 0
}
