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

use super::algorithm::{Algorithm, Built, below, probe_each};
use super::geometry::Geometry;
use super::mix::mix;
use super::ribbon_scalar::{
    MAX_COLUMNS, MAX_ROWS, SEGMENT, check, equation, may_contain, segment_start, words,
};
use super::ribbon_solver::{COLUMNS_AT_ONCE, RibbonSolver};
#[cfg(target_arch = "x86_64")]
use super::simd;
use super::simd::{Path, Probe, Prober};

/// A filter is built again if its rate is more than this factor times the rate of its columns alone.
const UNLUCKY: f64 = 1.125;

pub(crate) static ALGORITHM: Algorithm = Algorithm {
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
    touched,
    #[cfg(target_arch = "x86_64")]
    unchecked: |geometry, bytes| simd::ribbon::unchecked(Path::best(), geometry, bytes),
    #[cfg(not(target_arch = "x86_64"))]
    unchecked: |_, _| None,
};

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
fn for_bits(keys: u64, bits_per_key: f64) -> Geometry {
    let base = rows_per_key(0.0);
    let columns = 64.0 * ((base * base + bits_per_key / 32.0).sqrt() - base);
    let columns = columns.clamp(1.0, f64::from(MAX_COLUMNS));
    let m = rows(keys, columns);
    with_wide(m, columns as u32, (columns.fract() * (m / SEGMENT) as f64) as u64)
}

/// Chooses the columns so that the mean of 2^−r over the start rows is the rate, less a margin for f.
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

/// The start row from which on probes test k columns. Probes of earlier rows test k + 1.
fn narrow_from(geometry: &Geometry) -> u64 {
    SEGMENT * geometry.wide.saturating_sub(1)
}

fn build(geometry: &Geometry, hashes: Vec<u64>) -> Built {
    let seed = hashes.iter().fold(hashes.len() as u64, |sum, &hash| sum.wrapping_add(mix(hash)));
    let solver = RibbonSolver::eliminate(geometry, hashes);
    let narrow = (-f64::from(geometry.k)).exp2();
    let [in_wide, in_narrow] = solver.dependent(geometry, narrow_from(geometry));
    let starts = (geometry.m - 63) as f64;
    let by_columns = columns_alone(geometry);
    let predicted_rate =
        by_columns + (in_wide * (1.0 - narrow / 2.0) + in_narrow * (1.0 - narrow)) / starts;
    let mut array = vec![0; 8 * words(geometry)];
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
    Built { array, predicted_rate, unlucky: predicted_rate > UNLUCKY * by_columns }
}

fn solve(
    solver: &RibbonSolver,
    seed: u64,
    first: usize,
    take: impl FnMut(u64, &[u64; COLUMNS_AT_ONCE]),
) {
    #[cfg(target_arch = "x86_64")]
    let take = match simd::ribbon::solve(Path::best(), solver, seed, first, take) {
        Ok(()) => return,
        Err(take) => take,
    };
    solver.solve_all(seed, first, take);
}

/// The mean of 2^−r over the start rows: the rate without f.
pub(crate) fn columns_alone(geometry: &Geometry) -> f64 {
    let wide_part = narrow_from(geometry) as f64 / (geometry.m - 63) as f64;
    (-f64::from(geometry.k)).exp2() * (1.0 - wide_part / 2.0)
}

/// The rate of the columns and f. log2 f is interpolated from the table of [`rows_per_key`]; [`UNLUCKY`]
/// limits f.
fn expected_rate(keys: u64, geometry: &Geometry) -> f64 {
    let by_columns = columns_alone(geometry);
    let rows_per_key = geometry.m as f64 / keys as f64;
    let dependent = (-4.9 - 137.0 * (rows_per_key - 1.04)).exp2();
    by_columns + dependent.min((UNLUCKY - 1.0) * by_columns) * (1.0 - by_columns)
}

fn probe() -> Probe {
    #[cfg(target_arch = "x86_64")]
    if let Some(probe) = simd::ribbon::probe(Path::best()) {
        return probe;
    }
    Probe::scalar(may_contain, |geometry, array, hashes, answers| {
        probe_each(hashes, answers, |hash| may_contain(geometry, array, hash));
    })
}

/// Eight columns of both segments of a probe. One in 256 absent keys passes these columns.
fn touched(prober: &Prober, hash: u64) -> [usize; 4] {
    let geometry = prober.geometry();
    let (s, _) = equation(geometry, hash);
    let segment = (s / 64) as u64;
    let [first, second] =
        [segment, segment + 1].map(|segment| 8 * segment_start(geometry, segment));
    [first, first + 63, second, second + 63]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::forced::{on_each_path, on_scalar};

    fn hashes(keys: u64, salt: u64) -> Vec<u64> {
        (0..keys).map(|i| mix(mix(salt) ^ i)).collect()
    }

    #[test]
    fn every_path_builds_the_same_and_answers_the_same() {
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
                    absent.iter().map(|&h| may_contain(geometry, &array, h)).collect();
                (array, answers)
            })
            .collect();
        let mut compared = 0;
        on_each_path(|path| {
            for (geometry, (array, answers)) in geometries.iter().zip(&plain) {
                assert!(build(geometry, keys.clone()).array == *array, "{path:?} {geometry:?}");
                let probe = probe();
                assert!(
                    keys.iter().all(|&key| probe.may_contain(geometry, array, key)),
                    "{path:?} {geometry:?}"
                );
                for (&hash, &answer) in absent.iter().zip(answers) {
                    assert_eq!(
                        probe.may_contain(geometry, array, hash),
                        answer,
                        "{path:?} {geometry:?}"
                    );
                }
                let mut many = vec![false; absent.len()];
                probe.may_contain_many(geometry, array, &absent, &mut many);
                assert!(many == *answers, "{path:?} {geometry:?}");
                // The last start row has no second segment. A short array ends early.
                assert_eq!(
                    probe.may_contain(geometry, array, u64::MAX),
                    may_contain(geometry, array, u64::MAX)
                );
                let short = &array[..array.len() - 8];
                assert!(probe.may_contain(geometry, short, u64::MAX));
                for hash in (0..200).map(|i| u64::MAX - (mix(i) >> 5)) {
                    let answer = may_contain(geometry, short, hash);
                    assert_eq!(
                        probe.may_contain(geometry, short, hash),
                        answer,
                        "{path:?} {geometry:?}"
                    );
                }
                assert!(probe.may_contain(geometry, &[], 0));
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
        assert_eq!(roomier(&geometry(64 * 640, 7, 320)), geometry(64 * 660, 7, 330));
        assert_eq!(roomier(&geometry(128, 1, 1)), geometry(192, 1, 2));
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
                let passing = absent.iter().filter(|&&h| may_contain(&geometry, &built.array, h));
                found += passing.count();
                expected += built.predicted_rate * probes as f64;
            }
            println!("{geometry:?}: {found} found, {expected:.0} expected");
            assert!((found as f64 / expected - 1.0).abs() < 0.03, "{geometry:?}");
        }
        let is_unlucky = |keys, m| build(&Geometry { m, k: 8, wide: 0 }, hashes(keys, 1)).unlucky;
        assert!(is_unlucky(1000, 1024) && !is_unlucky(1000, 1280));
    }

    /// f is 2^−13.12 at 1.1 rows per key; at low rates [`UNLUCKY`] limits it.
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
