//! A homogeneous ribbon filter (Dillinger, Hübschle-Schneider, Sanders and Walzer, *Fast Succinct Retrieval
//! and Approximate Membership using Ribbon*, 2022) of width 64, stored by columns.
//!
//! A hash gives a start row s and 64 coefficients c; the first coefficient is 1. The matrix Z of m rows and r
//! columns is a random solution of c · Z[s … s+63] = 0 for every key; a solution always exists. For an absent
//! key a column gives 0 with probability 1/2, so all columns give 0 with probability 2^−r.
//!
//! # Rate and rows
//! Let f be the fraction of absent hashes whose equations depend linearly on those of the keys. They pass any
//! number of columns, so the rate is f + (1 − f) · 2^−r. f halves with each 0.015 more rows per key.
//! [`rows_per_key`] grows with r, so that f stays at a few per cent of 2^−r. The predicted rate contains the
//! exact f.

mod array;
mod columns;
#[cfg(target_arch = "x86_64")]
mod layout;
mod prober;
mod solver;
#[cfg(target_arch = "x86_64")]
mod vector;

pub(crate) use array::check;
pub(crate) use columns::first_columns;
pub use columns::{FirstColumns, narrowed, narrowed_rate};
pub(crate) use prober::{RibbonProber, may_contain};

use self::array::{MAX_COLUMNS, MAX_ROWS, SEGMENT, segment_start, words};
use self::solver::{COLUMNS_AT_ONCE, RibbonSolver};
use crate::built::{Built, rate_aim};
use crate::geometry::Geometry;
use crate::hash::mix;
use crate::instructions::Instructions;

/// A filter is built again if its rate is more than this factor times the rate of its columns alone.
const REJECTED_FROM: f64 = 1.125;

/// Rows per key for a number of columns. Measured means of filters with a million keys:
///
/// | rows per key | 1.04 | 1.06 | 1.08 | 1.10 | 1.12 | 1.14 | 1.16 | 1.20 |
/// |---|---|---|---|---|---|---|---|---|
/// | −log2 f | 4.9 | 7.4 | 10.2 | 13.1 | 15.1 | 22.9 | 26.2 | 32.3 |
///
/// In single filters f differs from the mean by factors of ten, in small ones by factors of hundreds.
fn rows_per_key(columns: f64) -> f64 {
    1.045 + columns / 128.0
}

pub(crate) fn array_bytes(geometry: &Geometry) -> usize {
    8 * words(geometry)
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

/// Solves bits per key = rows per key · columns; at least one column.
pub(crate) fn for_bits(keys: u64, bits_per_key: f64) -> Geometry {
    let base = rows_per_key(0.0);
    let columns = 64.0 * ((base * base + bits_per_key / 32.0).sqrt() - base);
    let columns = columns.clamp(1.0, f64::from(MAX_COLUMNS));
    let m = rows(keys, columns);
    with_wide(m, columns as u32, (columns.fract() * (m / SEGMENT) as f64) as u64)
}

/// Chooses the columns so that the mean of 2^−r over the start rows is the rate, less a margin for f.
pub(crate) fn for_rate(keys: u64, rate: f64) -> Geometry {
    let aim = rate_aim(rate, keys) / 1.03;
    let k = (-aim.log2()).floor().clamp(1.0, f64::from(MAX_COLUMNS));
    let wide_part = (2.0 * (1.0 - aim * k.exp2())).clamp(0.0, 1.0);
    let m = rows(keys, k + wide_part);
    let wide = (wide_part * (m - 63) as f64 / SEGMENT as f64).ceil() as u64;
    with_wide(m, k as u32, if wide == 0 { 0 } else { wide + 1 })
}

pub(crate) fn grow(geometry: &Geometry) -> Geometry {
    let segments = geometry.m / SEGMENT;
    let more = segments.div_ceil(32);
    let m = geometry.m + more * SEGMENT;
    let wide = geometry.wide + (geometry.wide * more).div_ceil(segments);
    with_wide(m.min(MAX_ROWS), geometry.k, wide)
}

/// The start row from which on probes test k columns. Probes of earlier rows test k + 1.
fn narrow_from(geometry: &Geometry) -> u64 {
    SEGMENT * geometry.wide.saturating_sub(1)
}

pub(crate) fn build(geometry: &Geometry, hashes: Vec<u64>) -> Built {
    let seed = hashes.iter().fold(hashes.len() as u64, |sum, &hash| sum.wrapping_add(mix(hash)));
    let solver = RibbonSolver::eliminate(geometry, hashes);
    let narrow = (-f64::from(geometry.k)).exp2();
    let [in_wide, in_narrow] = solver.dependent(geometry, narrow_from(geometry));
    let starts = (geometry.m - 63) as f64;
    let by_columns = columns_alone(geometry);
    let predicted_rate =
        by_columns + (in_wide * (1.0 - narrow / 2.0) + in_narrow * (1.0 - narrow)) / starts;
    let mut array = vec![0; array_bytes(geometry)];
    for first in (0..=geometry.k as usize).step_by(COLUMNS_AT_ONCE) {
        solve(&solver, seed, first, |segment, columns| {
            let width = geometry.k as usize + usize::from(segment < geometry.wide);
            let here = width.saturating_sub(first).min(COLUMNS_AT_ONCE);
            let start = segment_start(geometry, segment) + first;
            let (words, _) = array[8 * start..][..8 * here].as_chunks_mut::<8>();
            for (word, column) in words.iter_mut().zip(columns) {
                *word = column.to_le_bytes();
            }
        });
    }
    Built { array, predicted_rate, is_rejected: predicted_rate > REJECTED_FROM * by_columns }
}

fn solve(
    solver: &RibbonSolver,
    seed: u64,
    first: usize,
    take: impl FnMut(u64, &[u64; COLUMNS_AT_ONCE]),
) {
    #[cfg(target_arch = "x86_64")]
    let take = match vector::solve(Instructions::best(), solver, seed, first, take) {
        Ok(()) => return,
        Err(take) => take,
    };
    solver.solve_all(seed, first, take);
}

/// The mean of 2^−r over the start rows: the rate without f.
fn columns_alone(geometry: &Geometry) -> f64 {
    let wide_part = narrow_from(geometry) as f64 / (geometry.m - 63) as f64;
    (-f64::from(geometry.k)).exp2() * (1.0 - wide_part / 2.0)
}

/// The rate of the columns and f. log2 f is interpolated from the table of [`rows_per_key`]; [`REJECTED_FROM`]
/// limits f.
pub(crate) fn expected_rate(keys: u64, geometry: &Geometry) -> f64 {
    let by_columns = columns_alone(geometry);
    let rows_per_key = geometry.m as f64 / keys as f64;
    let dependent = (-4.9 - 137.0 * (rows_per_key - 1.04)).exp2();
    by_columns + dependent.min((REJECTED_FROM - 1.0) * by_columns) * (1.0 - by_columns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instructions::forced::{on_each, on_scalar};

    fn hashes(keys: u64, salt: u64) -> Vec<u64> {
        (0..keys).map(|i| mix(mix(salt) ^ i)).collect()
    }

    #[test]
    fn all_instructions_build_the_same_and_answer_the_same() {
        let m = 40 * SEGMENT;
        let keys = hashes(2100, 1);
        let absent = hashes(20_000, 2);
        let geometries: Vec<Geometry> = (1..=MAX_COLUMNS)
            .flat_map(|k| [0, 1, 2, 17, 39].map(|wide| Geometry { m, k, wide }))
            .collect();
        let plain: Vec<_> = geometries
            .iter()
            .map(|geometry| {
                let mut array = Vec::new();
                on_scalar(|| array = build(geometry, keys.clone()).array);
                let answers: Vec<_> =
                    absent.iter().map(|&h| array::may_contain(geometry, &array, h)).collect();
                (array, answers)
            })
            .collect();
        let mut compared = 0;
        on_each(|instructions| {
            for (geometry, (array, answers)) in geometries.iter().zip(&plain) {
                assert!(
                    build(geometry, keys.clone()).array == *array,
                    "{instructions:?} {geometry:?}"
                );
                let probe = |array: &[u8], hash| may_contain(instructions, geometry, array, hash);
                assert!(keys.iter().all(|&key| probe(array, key)), "{instructions:?} {geometry:?}");
                for (&hash, &answer) in absent.iter().zip(answers) {
                    assert_eq!(probe(array, hash), answer, "{instructions:?} {geometry:?}");
                }
                // The last start row has no second segment. A short array ends early.
                let last = array::may_contain(geometry, array, u64::MAX);
                assert_eq!(probe(array, u64::MAX), last);
                let short = &array[..array.len() - 8];
                assert!(probe(short, u64::MAX));
                for hash in (0..200).map(|i| u64::MAX - (mix(i) >> 5)) {
                    let answer = array::may_contain(geometry, short, hash);
                    assert_eq!(probe(short, hash), answer, "{instructions:?} {geometry:?}");
                }
                assert!(probe(&[], 0));
                compared += answers.len();
            }
        });
        println!("{} geometries, {compared} answers compared", geometries.len());
    }

    #[test]
    fn rows_grow_with_keys_and_columns() {
        // 64,000 × (1.045 + 7/128) / 64 is 1099.7 segments, with 14 columns it is 1154.4.
        assert_eq!((rows(64_000, 7.0), rows(64_000, 14.0)), (64 * 1100, 64 * 1155));
        assert_eq!((rows(1, 7.0), rows(1 << 60, 7.0)), (128, MAX_ROWS));
        let geometry = |m, k, wide| Geometry { m, k, wide };
        assert_eq!(with_wide(640, 5, 3), geometry(640, 5, 3));
        assert_eq!(with_wide(640, 5, 9), geometry(640, 5, 9));
        assert_eq!(with_wide(640, 47, 10), geometry(640, 48, 0));
        assert_eq!(with_wide(640, 48, 10), geometry(640, 48, 9));
        assert_eq!(grow(&geometry(64 * 640, 7, 320)), geometry(64 * 660, 7, 330));
        assert_eq!(grow(&geometry(128, 1, 1)), geometry(192, 1, 2));
    }

    #[test]
    fn the_geometry_for_bits_has_these_bits() {
        for bits in [1.1, 2.0, 5.5, 7.75, 10.0, 20.3, 40.0] {
            let geometry = for_bits(1_000_000, bits);
            let taken = 64.0 * words(&geometry) as f64 / 1e6;
            assert!((taken / bits - 1.0).abs() < 0.005, "{bits}: {taken}, {geometry:?}");
        }
    }

    #[test]
    fn the_geometry_for_a_rate_has_the_fewest_columns() {
        for keys in [1, 100, 3000, 1_000_000] {
            for rate in [0.4, 0.3, 0.1, 0.01, 0.003, 1e-5, 1e-9] {
                let (geometry, aim) = (for_rate(keys, rate), rate_aim(rate, keys) / 1.03);
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

    #[test]
    fn the_predicted_rate_is_the_rate() {
        for (keys, m, k, wide) in [
            (1000, 1024, 3, 0),
            (1000, 1024, 3, 9),
            (2000, 2048, 2, 20),
            (2000, 2048, 5, 31),
            (300, 320, 4, 3),
        ] {
            let geometry = Geometry { m, k, wide };
            let (mut found, mut expected, probes) = (0, 0.0, 5000);
            for salt in 0..200 {
                let built = build(&geometry, hashes(keys, 2 * salt));
                let absent = hashes(probes, 2 * salt + 1);
                let is_passing = |hash: &&u64| array::may_contain(&geometry, &built.array, **hash);
                found += absent.iter().filter(is_passing).count();
                expected += built.predicted_rate * probes as f64;
            }
            println!("{geometry:?}: {found} found, {expected:.0} expected");
            assert!((found as f64 / expected - 1.0).abs() < 0.03, "{geometry:?}");
        }
        let is_rejected =
            |keys, m| build(&Geometry { m, k: 8, wide: 0 }, hashes(keys, 1)).is_rejected;
        assert!(is_rejected(1000, 1024) && !is_rejected(1000, 1280));
    }

    /// f is 2^−13.12 at 1.1 rows per key; at low rates [`REJECTED_FROM`] limits it.
    #[test]
    fn the_expected_rate_is_that_of_the_columns_and_f() {
        let expected = |k| expected_rate(64_000, &Geometry { m: 70_400, k, wide: 0 });
        for (k, f) in [(10, (-13.12_f64).exp2()), (20, 0.125 * (-20.0_f64).exp2())] {
            let by_columns = (-f64::from(k)).exp2();
            let sum = by_columns + f * (1.0 - by_columns);
            assert!((expected(k) / sum - 1.0).abs() < 1e-9, "{k} columns");
        }
    }
}
