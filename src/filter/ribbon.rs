//! A homogeneous ribbon filter (Dillinger, Hübschle-Schneider, Sanders and Walzer, *Fast Succinct
//! Retrieval and Approximate Membership using Ribbon*, 2022) with a band of 64 and columns apart.
//!
//! A hash gives a start row s and 64 coefficients c, the first of them 1. The table Z of m rows and r
//! columns is a random solution of c · Z[s … s+63] = 0 for every key. For an absent key each column
//! gives 0 with probability 1/2, so all of them do with 2^−r. A solution always exists.
//!
//! A *segment* is 64 rows, stored as one word a column, so that a probe reads two neighbouring
//! segments whatever its start row. The first `wide` segments have one column more than the others;
//! a key is asked the columns that both of its segments have. Columns do not depend on one another.

use super::hash::{GOLDEN, fast_range, mix};
use super::kind::{Built, Geometry, Kind};

/// Rows a key: at 1.08 the rate can double.
const ROWS_PER_KEY: f64 = 1.10;
const SEGMENT: u64 = 64;
const MAX_ROWS: u64 = 1 << 40;
const MAX_COLUMNS: u32 = 48;

pub(super) static KIND: Kind = Kind {
    id: 3,
    name: "ribbon",
    for_rate,
    for_bits,
    lowest_rate: 1e-12,
    roomier: |geometry| Geometry {
        m: geometry.m + geometry.m.div_ceil(16 * SEGMENT) * SEGMENT,
        ..*geometry
    },
    check,
    array_bytes: |geometry| (8 * words(geometry)) as usize,
    build,
    probe: || may_contain,
};

fn words(geometry: &Geometry) -> u64 {
    geometry.m / SEGMENT * u64::from(geometry.k) + geometry.wide
}

fn with_columns(keys: u64, columns: f64) -> Geometry {
    let rows = (keys as f64 * ROWS_PER_KEY / SEGMENT as f64).ceil() as u64 * SEGMENT;
    let m = rows.clamp(2 * SEGMENT, MAX_ROWS);
    let columns = columns.clamp(1.0, f64::from(MAX_COLUMNS));
    let wide = (columns.fract() * (m / SEGMENT) as f64).round() as u64;
    let (k, wide) =
        if wide == m / SEGMENT { (columns as u32 + 1, 0) } else { (columns as u32, wide) };
    Geometry { m, k, wide }
}

fn for_bits(keys: u64, bits_per_key: f64) -> Geometry {
    with_columns(keys, bits_per_key / ROWS_PER_KEY)
}

/// The mean over segments of 2^−r or 2^−(r+1) must come to the rate.
fn for_rate(keys: u64, rate: f64) -> Geometry {
    let columns = (-rate.log2()).max(1.0);
    let narrow = (-columns.floor()).exp2();
    let wide_part = ((narrow - rate) / (narrow / 2.0)).clamp(0.0, 1.0);
    with_columns(keys, columns.floor() + wide_part)
}

fn check(geometry: &Geometry) -> Result<(), String> {
    let Geometry { m, k, wide } = *geometry;
    if !m.is_multiple_of(SEGMENT) || !(2 * SEGMENT..=MAX_ROWS).contains(&m) {
        return Err(format!("a ribbon has two or more segments of {SEGMENT} rows, not {m} rows"));
    }
    if k == 0 || k > MAX_COLUMNS || wide >= m / SEGMENT {
        return Err(format!("a ribbon has 1 to {MAX_COLUMNS} columns, not {k} and {wide} wide"));
    }
    Ok(())
}

/// A key's start row and coefficients.
#[inline]
fn equation(geometry: &Geometry, hash: u64) -> (usize, u64) {
    (fast_range(hash, geometry.m - 63) as usize, hash.wrapping_mul(GOLDEN) | 1)
}

fn build(geometry: &Geometry, mut hashes: Vec<u64>) -> Built {
    hashes.sort_unstable(); // in the order of their start rows, which keeps the rows in the cache
    let m = geometry.m as usize;
    let mut rows = vec![0_u64; m];
    for &hash in &hashes {
        let (mut s, mut c) = equation(geometry, hash);
        while c != 0 {
            if rows[s] == 0 {
                rows[s] = c;
                break;
            }
            c ^= rows[s];
            let skip = c.trailing_zeros();
            s += skip as usize;
            c = c.checked_shr(skip).unwrap_or(0);
        }
    }
    // From the last row up: `next[j]` holds the 64 rows of column j that follow. A row that no key
    // determines takes any bits, but not always 0: the zero solution contains everything.
    let columns = geometry.k as usize + 1;
    let mut next = vec![0_u64; columns];
    let mut array = vec![0_u64; words(geometry) as usize];
    let mut end = array.len();
    for i in (0..m).rev() {
        let free = mix(i as u64 ^ 0x5EED);
        for (j, column) in next.iter_mut().enumerate() {
            let shifted = *column << 1;
            let bit = match rows[i] {
                0 => free >> j & 1,
                c => u64::from((shifted & c).count_ones() & 1),
            };
            *column = shifted | bit;
        }
        if (i as u64).is_multiple_of(SEGMENT) {
            let wide = (i as u64 / SEGMENT) < geometry.wide;
            let width = geometry.k as usize + usize::from(wide);
            array[end - width..end].copy_from_slice(&next[..width]);
            end -= width;
        }
    }
    let segments = (geometry.m / SEGMENT) as f64;
    let wide_part = geometry.wide as f64 / segments;
    let predicted_rate = (-f64::from(geometry.k)).exp2() * (1.0 - wide_part / 2.0);
    let array = array.iter().flat_map(|word| word.to_le_bytes()).collect();
    Built { array, predicted_rate, unlucky: false }
}

fn may_contain(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let (s, c) = equation(geometry, hash);
    let (segment, offset) = ((s / 64) as u64, (s % 64) as u32);
    // The coefficients are shifted, not the rows: the two halves serve all columns.
    let low = c << offset;
    let high = if offset == 0 { 0 } else { c >> (64 - offset) };
    let start = segment * u64::from(geometry.k) + segment.min(geometry.wide);
    let first_width = u64::from(geometry.k) + u64::from(segment < geometry.wide);
    let columns = geometry.k as usize + usize::from(segment + 1 < geometry.wide);
    let word = |at: usize| {
        let bytes = array.get(8 * at..).and_then(|rest| rest.first_chunk::<8>());
        bytes.map(|bytes| u64::from_le_bytes(*bytes))
    };
    let (first, second) = (start as usize, (start + first_width) as usize);
    let mut parity = 0;
    for j in 0..columns {
        let (Some(a), b) = (word(first + j), word(second + j)) else { return true };
        parity |= ((a & low) ^ (b.unwrap_or(0) & high)).count_ones();
    }
    parity & 1 == 0
}
