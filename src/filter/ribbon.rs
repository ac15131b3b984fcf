//! A homogeneous ribbon filter (Dillinger, Hübschle-Schneider, Sanders and Walzer, *Fast Succinct
//! Retrieval and Approximate Membership using Ribbon*, 2022) with a band of 64 and columns apart.
//!
//! A hash gives a start row s and 64 coefficients c, the first of them 1. The table Z of m rows and r
//! columns is a random solution of c · Z[s … s+63] = 0 for every key. For an absent key each column
//! gives 0 with probability 1/2, so all of them do with 2^−r. A solution always exists; [`band`] finds
//! one.
//!
//! # Layout
//! A *segment* is 64 rows, stored as one little-endian 64-bit word a column: bit i of word j is row i of
//! column j. Segments follow one another, the first `wide` of them with one column more than the
//! others. A probe reads two neighbouring segments whatever its start row, and asks the columns that
//! both of them have. Columns do not depend on one another, so the first r′ of them are a filter by
//! themselves: [`narrowed`].
//!
//! # Rate and rows
//! A part f of all absent hashes has equations that follow from those of the keys. They pass whatever
//! the number of columns, so that the rate is f + (1 − f) · 2^−r. f falls by half with each hundredth
//! and a half more rows a key, and [`rows_per_key`] grows with r to keep it at a few hundredths of 2^−r.
//! Of a finished filter f is known exactly, and in the prediction.

use super::band::{Band, COLUMNS_AT_ONCE};
use super::hash::{GOLDEN, fast_range, mix};
use super::kind::{Built, Geometry, Kind, Probe, ProbeMany, below};
#[cfg(target_arch = "x86_64")]
use super::simd;
use super::simd::Path;

const SEGMENT: u64 = 64;
const MAX_ROWS: u64 = 1 << 40;
const MAX_COLUMNS: u32 = 48;
/// A filter that passes so much more than its columns alone would is built again.
const UNLUCKY: f64 = 1.125;

pub(super) static KIND: Kind = Kind {
    id: 3,
    name: "ribbon",
    for_rate,
    for_bits,
    lowest_rate: 1e-12,
    expected_rate,
    roomier,
    check,
    array_bytes: |geometry| 8 * words(geometry),
    build,
    probe,
    probe_many,
    touched,
};

/// Rows for each key, by columns. Measured, as the mean over tables of a million keys each:
///
/// | rows a key | 1.04 | 1.06 | 1.08 | 1.10 | 1.12 | 1.14 | 1.16 | 1.20 |
/// |---|---|---|---|---|---|---|---|---|
/// | −log2 f | 4.9 | 7.4 | 10.2 | 13.1 | 15.1 | 22.9 | 26.2 | 32.3 |
///
/// Single tables scatter about that by factors of ten, the more the rarer f is, and small ones by
/// hundreds; those that come out far too high are built again.
fn rows_per_key(columns: f64) -> f64 {
    1.045 + columns / 128.0
}

pub(super) fn words(geometry: &Geometry) -> usize {
    (geometry.m / SEGMENT * u64::from(geometry.k) + geometry.wide) as usize
}

fn rows(keys: u64, columns: f64) -> u64 {
    let segments = (keys as f64 * rows_per_key(columns) / SEGMENT as f64).ceil() as u64;
    (segments * SEGMENT).clamp(2 * SEGMENT, MAX_ROWS)
}

fn with_wide(m: u64, k: u32, wide: u64) -> Geometry {
    if wide >= m / SEGMENT && k < MAX_COLUMNS {
        Geometry { m, k: k + 1, wide: 0 }
    } else {
        Geometry { m, k, wide: wide.min(m / SEGMENT - 1) }
    }
}

/// Bits a key are rows a key times columns; at least one column.
fn for_bits(keys: u64, bits_per_key: f64) -> Geometry {
    let base = rows_per_key(0.0);
    let columns = 64.0 * ((base * base + bits_per_key / 32.0).sqrt() - base);
    let columns = columns.clamp(1.0, f64::from(MAX_COLUMNS));
    let m = rows(keys, columns);
    with_wide(m, columns as u32, (columns.fract() * (m / SEGMENT) as f64) as u64)
}

/// The mean over start rows of 2^−r must come to the rate, and f leave room.
fn for_rate(keys: u64, rate: f64) -> Geometry {
    let aim = below(rate, keys) / 1.03;
    let k = (-aim.log2()).floor().clamp(1.0, f64::from(MAX_COLUMNS));
    let wide_part = (2.0 * (1.0 - aim * k.exp2())).clamp(0.0, 1.0);
    let m = rows(keys, k + wide_part);
    let wide = (wide_part * (m - 63) as f64 / SEGMENT as f64).ceil() as u64;
    with_wide(m, k as u32, if wide == 0 { 0 } else { wide + 1 })
}

fn roomier(geometry: &Geometry) -> Geometry {
    let segments = geometry.m / SEGMENT;
    let more = segments.div_ceil(32);
    let m = geometry.m + more * SEGMENT;
    let wide = geometry.wide + (geometry.wide * more).div_ceil(segments);
    with_wide(m.min(MAX_ROWS), geometry.k, wide)
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
pub(super) fn equation(geometry: &Geometry, hash: u64) -> (usize, u64) {
    equation_among(geometry.m - 63, hash)
}

#[inline]
pub(super) fn equation_among(start_rows: u64, hash: u64) -> (usize, u64) {
    (fast_range(hash, start_rows) as usize, hash.wrapping_mul(GOLDEN) | 1)
}

/// Coefficients as they lie over the segment of their start row, and over the next one.
#[inline]
pub(super) fn halves(s: usize, c: u64) -> (u64, u64) {
    // Shifts take their counts mod 64: these are s and 63 − s.
    (c.wrapping_shl(s as u32), (c >> 1).wrapping_shr(!s as u32))
}

/// The word with which a segment starts.
#[inline]
pub(super) fn segment_start(geometry: &Geometry, segment: u64) -> usize {
    (segment * u64::from(geometry.k) + segment.min(geometry.wide)) as usize
}

/// From this start row on a probe asks k columns, before it one more.
fn narrow_from(geometry: &Geometry) -> u64 {
    SEGMENT * geometry.wide.saturating_sub(1)
}

fn build(geometry: &Geometry, hashes: Vec<u64>) -> Built {
    let seed = hashes.iter().fold(hashes.len() as u64, |sum, &hash| sum.wrapping_add(mix(hash)));
    let band = Band::eliminate(geometry, hashes);
    let narrow = (-f64::from(geometry.k)).exp2();
    let [in_wide, in_narrow] = band.dependent(geometry, narrow_from(geometry));
    let starts = (geometry.m - 63) as f64;
    let by_columns = columns_alone(geometry);
    let predicted_rate =
        by_columns + (in_wide * (1.0 - narrow / 2.0) + in_narrow * (1.0 - narrow)) / starts;
    let mut array = vec![0; 8 * words(geometry)];
    for first in (0..=geometry.k as usize).step_by(COLUMNS_AT_ONCE) {
        band.solve(seed, first, |segment, columns| {
            let width = geometry.k as usize + usize::from(segment < geometry.wide);
            let here = width.saturating_sub(first).min(COLUMNS_AT_ONCE);
            let start = segment_start(geometry, segment) + first;
            let (words, _) = array[8 * start..][..8 * here].as_chunks_mut::<8>();
            for (word, column) in words.iter_mut().zip(columns) {
                *word = column.to_le_bytes();
            }
        });
    }
    Built { array, predicted_rate, unlucky: predicted_rate > UNLUCKY * by_columns }
}

/// The mean over start rows of 2^−r.
fn columns_alone(geometry: &Geometry) -> f64 {
    let wide_part = narrow_from(geometry) as f64 / (geometry.m - 63) as f64;
    (-f64::from(geometry.k)).exp2() * (1.0 - wide_part / 2.0)
}

/// The columns' own rate, and f as a line through the table of [`rows_per_key`]. Filters for which f
/// comes out too high are built again, so that it adds no more than [`UNLUCKY`] allows.
fn expected_rate(keys: u64, geometry: &Geometry) -> f64 {
    let by_columns = columns_alone(geometry);
    let rows_per_key = geometry.m as f64 / keys as f64;
    let dependent = (-4.9 - 137.0 * (rows_per_key - 1.04)).exp2();
    by_columns + dependent.min((UNLUCKY - 1.0) * by_columns) * (1.0 - by_columns)
}

/// The shape of the first columns of a filter: of at least 1, at most `k`.
pub(super) fn narrowed(geometry: &Geometry, columns: u32) -> Geometry {
    Geometry { k: columns.clamp(1, geometry.k), wide: 0, ..*geometry }
}

/// The rate of a filter of which these columns are kept, from the rate of all of it: what passes for
/// other reasons than too few columns passes as before.
pub(super) fn narrowed_rate(geometry: &Geometry, predicted_rate: f64, columns: u32) -> f64 {
    let all = columns_alone(geometry);
    let dependent = ((predicted_rate - all) / (1.0 - all)).max(0.0);
    let kept = columns_alone(&narrowed(geometry, columns));
    dependent + (1.0 - dependent) * kept
}

/// What a probe reads: `columns` words from each of two places. The coefficients are shifted, not the
/// rows: the two halves serve all columns.
pub(super) struct Question {
    pub(super) first: usize,
    pub(super) second: usize,
    pub(super) columns: usize,
    pub(super) low: u64,
    pub(super) high: u64,
}

#[inline]
pub(super) fn question(geometry: &Geometry, hash: u64) -> Question {
    let (s, c) = equation(geometry, hash);
    let segment = (s / 64) as u64;
    let first = segment_start(geometry, segment);
    let (low, high) = halves(s, c);
    Question {
        first,
        second: first + geometry.k as usize + usize::from(segment < geometry.wide),
        columns: geometry.k as usize + usize::from(segment + 1 < geometry.wide),
        low,
        high,
    }
}

fn probe() -> Probe {
    #[cfg(target_arch = "x86_64")]
    if let Some(probe) = simd::ribbon::probe(Path::best()) {
        return probe;
    }
    may_contain
}

fn probe_many() -> ProbeMany {
    #[cfg(target_arch = "x86_64")]
    if let Some(probe) = simd::ribbon::probe_many(Path::best()) {
        return probe;
    }
    may_contain_many
}

/// Eight columns of each segment, of which one in 256 absent keys passes all.
fn touched(geometry: &Geometry, hash: u64) -> [usize; 4] {
    let (s, _) = equation(geometry, hash);
    let segment = (s / 64) as u64;
    let [first, second] =
        [segment, segment + 1].map(|segment| 8 * segment_start(geometry, segment));
    [first, first + 63, second, second + 63]
}

fn may_contain_many(geometry: &Geometry, array: &[u8], hashes: &[u64], answers: &mut [bool]) {
    for (&hash, answer) in hashes.iter().zip(answers) {
        *answer = may_contain(geometry, array, hash);
    }
}

/// An array that is too short answers "maybe" for what it does not hold. A key that starts with the
/// last segment has no second one to ask, and no coefficients left for it.
pub(super) fn may_contain(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let Question { first, second, columns, low, high } = question(geometry, hash);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::simd::forced::{on_each_path, on_scalar};

    fn hashes(keys: u64, salt: u64) -> Vec<u64> {
        (0..keys).map(|i| mix(mix(salt) ^ i)).collect()
    }

    /// Every number of columns, alone and mixed with one more.
    #[test]
    fn every_path_builds_the_same_and_answers_the_same() {
        let m = 40 * SEGMENT;
        let keys = hashes(2100, 1);
        let absent = hashes(20_000, 2);
        let shapes: Vec<Geometry> = (1..=MAX_COLUMNS)
            .flat_map(|k| [0, 1, 2, 17, 39].map(|wide| Geometry { m, k, wide }))
            .collect();
        let plain: Vec<_> = shapes
            .iter()
            .map(|geometry| {
                let mut array = Vec::new();
                on_scalar(|| array = build(geometry, keys.clone()).array);
                let answers: Vec<_> =
                    absent.iter().map(|&h| may_contain(geometry, &array, h)).collect();
                (array, answers)
            })
            .collect();
        let mut compared = 0;
        on_each_path(|path| {
            for (geometry, (array, answers)) in shapes.iter().zip(&plain) {
                assert!(build(geometry, keys.clone()).array == *array, "{path:?} {geometry:?}");
                let probe = probe();
                assert!(
                    keys.iter().all(|&key| probe(geometry, array, key)),
                    "{path:?} {geometry:?}"
                );
                for (&hash, &answer) in absent.iter().zip(answers) {
                    assert_eq!(probe(geometry, array, hash), answer, "{path:?} {geometry:?}");
                }
                let mut many = vec![false; absent.len()];
                probe_many()(geometry, array, &absent, &mut many);
                assert!(many == *answers, "{path:?} {geometry:?}");
                // The last start row has no second segment to ask; and an array cut short must not be
                // read beyond its end.
                assert_eq!(
                    probe(geometry, array, u64::MAX),
                    may_contain(geometry, array, u64::MAX)
                );
                let short = &array[..array.len() - 8];
                assert!(probe(geometry, short, u64::MAX));
                for hash in (0..200).map(|i| u64::MAX - (mix(i) >> 5)) {
                    let answer = may_contain(geometry, short, hash);
                    assert_eq!(probe(geometry, short, hash), answer, "{path:?} {geometry:?}");
                }
                assert!(probe(geometry, &[], 0));
                compared += answers.len();
            }
        });
        println!("{} shapes, {compared} answers compared", shapes.len());
    }

    #[test]
    fn rows_grow_with_keys_and_columns() {
        // 64,000 × (1.045 + 7/128) / 64 is 1099.7 segments, with 14 columns it is 1154.4.
        assert_eq!((rows(64_000, 7.0), rows(64_000, 14.0)), (64 * 1100, 64 * 1155));
        assert_eq!((rows(1, 7.0), rows(1 << 60, 7.0)), (128, MAX_ROWS));
        let shape = |m, k, wide| Geometry { m, k, wide };
        assert_eq!(with_wide(640, 5, 3), shape(640, 5, 3));
        assert_eq!(with_wide(640, 5, 9), shape(640, 5, 9));
        assert_eq!(with_wide(640, 47, 10), shape(640, 48, 0));
        assert_eq!(with_wide(640, 48, 10), shape(640, 48, 9));
        assert_eq!(roomier(&shape(64 * 640, 7, 320)), shape(64 * 660, 7, 330));
        assert_eq!(roomier(&shape(128, 1, 1)), shape(192, 1, 2));
    }

    #[test]
    fn a_shape_takes_the_bits_asked_for() {
        for bits in [1.1, 2.0, 5.5, 7.75, 10.0, 20.3, 40.0] {
            let geometry = for_bits(1_000_000, bits);
            let taken = 64.0 * words(&geometry) as f64 / 1e6;
            assert!((taken / bits - 1.0).abs() < 0.005, "{bits}: {taken}, {geometry:?}");
        }
    }

    /// The columns alone keep a few hundredths below the rate; with one wide segment less they do not.
    #[test]
    fn the_fewest_columns_give_the_rate() {
        for keys in [1, 100, 3000, 1_000_000] {
            for rate in [0.4, 0.3, 0.1, 0.01, 0.003, 1e-5, 1e-9] {
                let (geometry, aim) = (for_rate(keys, rate), below(rate, keys) / 1.03);
                assert!(columns_alone(&geometry) <= aim * 1.000_000_1, "{keys} at {rate}");
                let fewer = match geometry {
                    Geometry { m, k, wide: 0 } => Geometry { m, k: k - 1, wide: m / SEGMENT - 1 },
                    Geometry { wide, .. } => Geometry { wide: wide - 1, ..geometry },
                };
                assert!(columns_alone(&fewer) > aim, "{keys} at {rate}: {geometry:?}");
                if keys > 1000 {
                    let segments = (geometry.m / SEGMENT) as f64;
                    let columns = f64::from(geometry.k) + geometry.wide as f64 / segments;
                    let off = geometry.m as f64 / keys as f64 - rows_per_key(columns);
                    assert!(
                        (0.0..2.0 * 64.0 / keys as f64).contains(&off),
                        "{keys} at {rate}: {off}"
                    );
                }
            }
        }
    }

    /// With so many keys for the rows that a good part of all hashes follow from them.
    #[test]
    fn the_prediction_is_the_rate() {
        for (keys, m, k, wide) in [
            (1000, 1024, 3, 0),
            (1000, 1024, 3, 9),
            (2000, 2048, 2, 20),
            (2000, 2048, 5, 31),
            (300, 320, 4, 3),
        ] {
            let geometry = Geometry { m, k, wide };
            let (mut found, mut expected, asked) = (0, 0.0, 5000);
            for salt in 0..200 {
                let built = build(&geometry, hashes(keys, 2 * salt));
                let absent = hashes(asked, 2 * salt + 1);
                let passing = absent.iter().filter(|&&h| may_contain(&geometry, &built.array, h));
                found += passing.count();
                expected += built.predicted_rate * asked as f64;
            }
            println!("{geometry:?}: {found} found, {expected:.0} expected");
            assert!((found as f64 / expected - 1.0).abs() < 0.03, "{geometry:?}");
        }
        let is_unlucky = |keys, m| build(&Geometry { m, k: 8, wide: 0 }, hashes(keys, 1)).unlucky;
        assert!(is_unlucky(1000, 1024) && !is_unlucky(1000, 1280));
    }

    /// At 1.1 rows a key f is 2^−13.12; of a rarer rate it is what is not built again.
    #[test]
    fn what_is_expected_is_the_columns_rate_and_f() {
        let expected = |k| expected_rate(64_000, &Geometry { m: 70_400, k, wide: 0 });
        for (k, f) in [(10, (-13.12_f64).exp2()), (20, 0.125 * (-20.0_f64).exp2())] {
            let by_columns = (-f64::from(k)).exp2();
            let sum = by_columns + f * (1.0 - by_columns);
            assert!((expected(k) / sum - 1.0).abs() < 1e-9, "{k} columns");
        }
    }

    /// With a part of all hashes in the span of the keys, the rates of more and of fewer columns
    /// follow from one another: that part does not shrink with the columns.
    #[test]
    fn the_rates_of_fewer_columns_follow_from_the_stored_one() {
        // Start rows of which four in ten ask eleven columns.
        let geometry = Geometry { m: 63 + 10 * SEGMENT, k: 10, wide: 5 };
        let ideal = 0.8 * (-10_f64).exp2();
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        near(narrowed_rate(&geometry, ideal, 4), 1.0 / 16.0);
        let excess = 0.001;
        let rate = narrowed_rate(&geometry, excess + (1.0 - excess) * ideal, 4);
        near(rate, excess + (1.0 - excess) / 16.0);
        near(narrowed_rate(&geometry, 0.0, 4), 1.0 / 16.0);
    }
}
