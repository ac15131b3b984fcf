//! A bumped ribbon filter (Dillinger, Hübschle-Schneider, Sanders and Walzer, *Fast Succinct Retrieval
//! and Approximate Membership using Ribbon*, 2022) of width 64, stored by columns.
//!
//! A hash gives a start row s, 64 coefficients c, the first of which is 1, and a right-hand side b with a bit for
//! each column. The matrix Z of m rows and r columns is a solution of c · Z[s … s+63] = b for every key. For an
//! absent key a column gives its bit of b with probability 1/2, so all columns do with probability 2^−r.
//!
//! # Layers
//! Not every system of equations has a solution. So the first of two or three [layers] bumps four keys in a hundred to
//! the next one, where another hash of the key gives the equation. In the last layer the ribbon is homogeneous:
//! b is 0, so a solution always exists. Small filters have only this layer.
//!
//! # Rate and rows
//! In the last layer, let f be the fraction of absent hashes whose equations depend linearly on those of its keys.
//! They pass any number of columns, so the rate there is f + (1 − f) · 2^−r. f halves with each 0.015 more rows per
//! key. A filter with one layer has [`rows_per_key`], so that f stays at a few per cent of 2^−r; with more layers, the
//! last one has few hashes, and there are fewer [rows](layered_rows). The predicted rate contains the exact f, and the
//! exact fraction of hashes that each layer has.

mod array;
mod bumping;
mod columns;
mod layers;
#[cfg(target_arch = "x86_64")]
mod layout;
mod prober;
mod solver;
#[cfg(target_arch = "x86_64")]
mod vector;

pub(crate) use array::check;
pub(crate) use columns::first_columns;
pub use columns::{FirstColumns, narrowed, narrowed_rate};
pub(crate) use prober::RibbonProber;

use self::array::{MAX_COLUMNS, MAX_ROWS, matrix_words, segment_start, words};
use self::layers::{HALF, LAYERED_FROM, Layer, Layers, SEGMENT};
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

/// The rows that a filter with two or three layers needs so that its last layer is not crowded, as measured.
fn layered_rows(keys: u64, columns: f64) -> f64 {
    let keys = keys as f64;
    keys + (keys / 130.0).min(110.0 + keys / 340.0) + 44.0 + columns
}

fn rows(keys: u64, columns: f64) -> u64 {
    let segments = |rows: f64| (rows / SEGMENT as f64).ceil() as u64;
    let mut all = segments(keys as f64 * rows_per_key(columns));
    if all >= LAYERED_FROM {
        all = segments(layered_rows(keys, columns)).max(LAYERED_FROM);
    }
    (all * SEGMENT).clamp(2 * SEGMENT, MAX_ROWS)
}

fn with_wide(m: u64, k: u32, wide: u64) -> Geometry {
    if wide >= m / SEGMENT && k < MAX_COLUMNS {
        Geometry { m, k: k + 1, wide: 0 }
    } else {
        Geometry { m, k, wide: wide.min(m / SEGMENT - 1) }
    }
}

/// The columns for these bits; at least one. A filter with one layer is a little larger: its rows are rounded up.
pub(crate) fn for_bits(keys: u64, bits_per_key: f64) -> Geometry {
    let base = rows_per_key(0.0);
    let alone = 64.0 * ((base * base + bits_per_key / 32.0).sqrt() - base);
    let mut columns = alone.clamp(1.0, f64::from(MAX_COLUMNS));
    let mut m = rows(keys, columns);
    if m >= SEGMENT * LAYERED_FROM {
        m = rows(keys, bits_per_key.min(f64::from(MAX_COLUMNS)));
        let bits = keys as f64 * bits_per_key - 64.0 * Layers::of(m).bump_words() as f64;
        columns = (bits / m as f64).clamp(1.0, f64::from(MAX_COLUMNS));
    }
    with_wide(m, columns as u32, (columns.fract() * (m / SEGMENT) as f64) as u64)
}

/// Chooses the columns so that the rate of the columns alone is the requested one, less a margin.
pub(crate) fn for_rate(keys: u64, rate: f64) -> Geometry {
    let is_layered = rows(keys, 1.0) >= SEGMENT * LAYERED_FROM;
    let aim = rate_aim(rate, keys) / if is_layered { 1.01 } else { 1.03 };
    let k = (-aim.log2()).floor().clamp(1.0, f64::from(MAX_COLUMNS));
    let m = rows(keys, k + (2.0 * (1.0 - aim * k.exp2())).clamp(0.0, 1.0));
    let (mut wide, mut enough) = (0, m / SEGMENT);
    while wide < enough {
        let middle = u64::midpoint(wide, enough);
        if columns_alone(&Geometry { m, k: k as u32, wide: middle }) > aim {
            wide = middle + 1;
        } else {
            enough = middle;
        }
    }
    with_wide(m, k as u32, wide)
}

pub(crate) fn grow(geometry: &Geometry) -> Geometry {
    let segments = geometry.m / SEGMENT;
    let more = segments.div_ceil(32);
    let m = geometry.m + more * SEGMENT;
    let wide = geometry.wide + (geometry.wide * more).div_ceil(segments);
    with_wide(m.min(MAX_ROWS), geometry.k, wide)
}

/// The start rows of a layer whose probes test k + 1 columns, the first ones. Those of later rows test k.
fn wide_rows(geometry: &Geometry, layer: &Layer) -> u64 {
    let segments = geometry.wide.saturating_sub(1 + layer.base);
    (SEGMENT * segments).min(layer.start_rows())
}

pub(crate) fn build(geometry: &Geometry, mut hashes: Vec<u64>) -> Built {
    let seed = hashes.iter().fold(hashes.len() as u64, |sum, &hash| sum.wrapping_add(mix(hash)));
    let mut array = vec![0; array_bytes(geometry)];
    let columns = geometry.k + u32::from(geometry.wide > 0);
    let mask = !(u64::MAX << columns);
    let layers = Layers::of(geometry.m);
    let mut rates = Rates { geometry, reached: 1.0, rate: 0.0 };
    for layer in layers.bumping() {
        let (solver, bumped) = bumping::eliminate(&layer, mask, hashes);
        solve_layer(geometry, &layer, &solver, seed, &mut array);
        let bits = &mut array[8 * matrix_words(geometry)..];
        for (bucket, two) in (layer.base as usize..).zip(&bumped.bits) {
            bits[bucket / 4] |= two << (2 * (bucket % 4));
        }
        rates.add_bumping(&layer, &bumped.bits);
        hashes = bumped.hashes;
    }
    let solver = RibbonSolver::eliminate(&layers.last, hashes);
    solve_layer(geometry, &layers.last, &solver, seed, &mut array);
    let predicted_rate = rates.with_last(&layers.last, &solver);
    let is_rejected = predicted_rate > REJECTED_FROM * columns_alone(geometry);
    Built { array, predicted_rate, is_rejected }
}

/// The rate of a filter, layer by layer.
struct Rates<'a> {
    geometry: &'a Geometry,
    /// The fraction of hashes that the layers so far bumped.
    reached: f64,
    rate: f64,
}

impl Rates<'_> {
    /// A hash that is not bumped passes with probability 2^−r: its right-hand side is random.
    fn add_bumping(&mut self, layer: &Layer, bits: &[u8]) {
        let each = self.reached / layer.start_rows() as f64;
        let mut bumped = 0.0;
        for (segment, bits) in (layer.base..).zip(bits) {
            // The last segment has one start row.
            let starts = if segment + 1 == layer.base + layer.segments { 1 } else { 64 };
            let below = (HALF * bits.count_ones() as usize).min(starts);
            let columns = self.geometry.k + u32::from(segment + 1 < self.geometry.wide);
            self.rate += each * (starts - below) as f64 * (-f64::from(columns)).exp2();
            bumped += each * below as f64;
        }
        self.reached = bumped;
    }

    /// In the last layer a hash with a dependent equation passes any number of columns.
    fn with_last(self, layer: &Layer, solver: &RibbonSolver) -> f64 {
        let starts = layer.start_rows() as f64;
        let wide_rows = wide_rows(self.geometry, layer);
        let [in_wide, in_narrow] = solver.dependent(self.geometry.k, wide_rows);
        let narrow = (-f64::from(self.geometry.k)).exp2();
        let by_columns = narrow * (1.0 - wide_rows as f64 / starts / 2.0);
        let dependent = in_wide * (1.0 - narrow / 2.0) + in_narrow * (1.0 - narrow);
        (self.rate + self.reached * (by_columns + dependent / starts)).min(1.0)
    }
}

/// Solves a layer, and writes its segments.
fn solve_layer(
    geometry: &Geometry,
    layer: &Layer,
    solver: &RibbonSolver,
    seed: u64,
    array: &mut [u8],
) {
    for first in (0..=geometry.k as usize).step_by(COLUMNS_AT_ONCE) {
        solve(solver, seed ^ mix(layer.base), first, |segment, columns| {
            let segment = layer.base + segment;
            let width = geometry.k as usize + usize::from(segment < geometry.wide);
            let here = width.saturating_sub(first).min(COLUMNS_AT_ONCE);
            let start = segment_start(geometry, segment) + first;
            let (words, _) = array[8 * start..][..8 * here].as_chunks_mut::<8>();
            for (word, column) in words.iter_mut().zip(columns) {
                *word = column.to_le_bytes();
            }
        });
    }
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

/// The mean of 2^−r over layers and start rows, by the shares that the layers are made for: the rate without f.
fn columns_alone(geometry: &Geometry) -> f64 {
    let layers = Layers::of(geometry.m);
    let mut wide_part = 0.0;
    for layer in layers.bumping().chain([layers.last]) {
        let part = wide_rows(geometry, &layer) as f64 / layer.start_rows() as f64;
        wide_part += layer.share * part;
    }
    (-f64::from(geometry.k)).exp2() * (1.0 - wide_part / 2.0)
}

/// The rate of the columns and f. log2 f is interpolated from the table of [`rows_per_key`]; [`REJECTED_FROM`]
/// limits f.
pub(crate) fn expected_rate(keys: u64, geometry: &Geometry) -> f64 {
    let by_columns = columns_alone(geometry);
    if geometry.m >= SEGMENT * LAYERED_FROM {
        return by_columns;
    }
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
                let prober = |array: &[u8]| RibbonProber::new(*geometry, array.to_vec().into());
                let whole = prober(array);
                let probe = |hash| whole.may_contain(hash);
                assert!(keys.iter().all(|&key| probe(key)), "{instructions:?} {geometry:?}");
                for (&hash, &answer) in absent.iter().zip(answers) {
                    assert_eq!(probe(hash), answer, "{instructions:?} {geometry:?}");
                }
                // The last start row has no second segment. A short array ends early.
                let last = array::may_contain(geometry, array, u64::MAX);
                assert_eq!(probe(u64::MAX), last);
                let short = &array[..array.len() - 8];
                let cut = prober(short);
                assert!(cut.may_contain(u64::MAX));
                for hash in (0..200).map(|i| u64::MAX - (mix(i) >> 5)) {
                    let answer = array::may_contain(geometry, short, hash);
                    assert_eq!(cut.may_contain(hash), answer, "{instructions:?} {geometry:?}");
                }
                assert!(prober(&[]).may_contain(0));
                compared += answers.len();
            }
        });
        println!("{} geometries, {compared} answers compared", geometries.len());
    }

    #[test]
    fn rows_grow_with_keys_and_columns() {
        // 300 × (1.045 + 7/128) is 329.9, with 30 columns 383.8. 64,000 + 110 + 64,000/340 + 44 + 7 is 64,349.2.
        assert_eq!((rows(300, 7.0), rows(300, 30.0)), (384, 384));
        assert_eq!((rows(64_000, 7.0), rows(64_000, 40.0)), (64 * 1006, 64 * 1006));
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
                let margin = if keys > 1000 { 1.01 } else { 1.03 };
                let (geometry, aim) = (for_rate(keys, rate), rate_aim(rate, keys) / margin);
                assert!(columns_alone(&geometry) <= aim * 1.000_000_1, "{keys} at {rate}");
                let fewer = match geometry {
                    Geometry { m, k, wide: 0 } => Geometry { m, k: k - 1, wide: m / SEGMENT - 1 },
                    Geometry { wide, .. } => Geometry { wide: wide - 1, ..geometry },
                };
                assert!(columns_alone(&fewer) > aim, "{keys} at {rate}: {geometry:?}");
                if keys > 1000 {
                    let columns = f64::from(geometry.k) + f64::from(geometry.wide > 0);
                    let off = geometry.m as f64 - layered_rows(keys, columns);
                    assert!((-1.0..64.0).contains(&off), "{keys} at {rate}: {off}");
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
            (300, 320, 4, 0),
            (21_000, 21_056, 5, 320),
        ] {
            let geometry = Geometry { m, k, wide };
            let (mut found, mut expected, probes) = (0, 0.0, 5000);
            for salt in 0..200 {
                let built = build(&geometry, hashes(keys, 2 * salt));
                let absent = hashes(probes, 2 * salt + 1);
                let is_passing = |hash: &&u64| array::may_contain(&geometry, &built.array, **hash);
                found += absent.iter().filter(is_passing).count();
                expected += built.predicted_rate * probes as f64;
                if let Some(layer) = Layers::of(m).bumping().next() {
                    let bits = &built.array[8 * matrix_words(&geometry)..];
                    let starts = 0..layer.start_rows() as usize;
                    let is_bumped = |start| layers::is_bumped(bits, start) == Some(true);
                    let bumped = starts.filter(|&start| is_bumped(start)).count() as f64;
                    let prober = RibbonProber::new(geometry, built.array.into());
                    assert_eq!(prober.bumped(), Some(bumped / layer.start_rows() as f64));
                }
            }
            println!("{geometry:?}: {found} found, {expected:.0} expected");
            assert!((found as f64 / expected - 1.0).abs() < 0.03, "{geometry:?}");
        }
        let is_rejected =
            |keys, m| build(&Geometry { m, k: 8, wide: 0 }, hashes(keys, 1)).is_rejected;
        assert!(is_rejected(630, 640) && !is_rejected(600, 704));
        assert!(is_rejected(3000, 3008) && !is_rejected(3000, 3136));
    }

    /// In a filter with one layer f is 2^−13.12 at 1.1 rows per key; at low rates [`REJECTED_FROM`] limits it.
    #[test]
    fn the_expected_rate_is_that_of_the_columns_and_f() {
        let expected = |k| expected_rate(640, &Geometry { m: 704, k, wide: 0 });
        for (k, f) in [(10, (-13.12_f64).exp2()), (20, 0.125 * (-20.0_f64).exp2())] {
            let by_columns = (-f64::from(k)).exp2();
            let sum = by_columns + f * (1.0 - by_columns);
            assert!((expected(k) / sum - 1.0).abs() < 1e-9, "{k} columns");
        }
        let layered = expected_rate(64_000, &Geometry { m: 64_384, k: 10, wide: 0 });
        assert_eq!(layered.to_bits(), (-10_f64).exp2().to_bits());
    }

    #[test]
    fn equal_hashes_and_hashes_of_one_bucket_are_all_found() {
        for (keys, spread) in [(1, 64), (5000, 1), (5000, 64), (40_000, 1), (40_000, 1 << 20)] {
            let geometry = for_bits(keys, 8.0);
            // All hashes from `spread` values, beginning with an arbitrary one: one bucket of the first layer.
            let mut hashes: Vec<u64> = (0..keys).map(|i| (1 << 63) + i % spread).collect();
            hashes.extend([u64::MAX, u64::MAX, 0]);
            let built = build(&geometry, hashes.clone());
            let is_found = |&hash: &u64| array::may_contain(&geometry, &built.array, hash);
            assert!(hashes.iter().all(is_found), "{keys} keys of {spread}");
            assert!(built.predicted_rate <= 1.0, "{keys} keys of {spread}");
        }
    }

    /// Any header and any bytes: the lengths of the layers follow from the rows, and each bit of a bucket is valid.
    #[test]
    fn a_forged_ribbon_is_refused_or_answers_as_the_scalar_code_does() {
        let noise: bytes::Bytes = (0..300_000).map(|i| mix(i) as u8).collect();
        let mut drawn = 0;
        let mut below = |most: u64| {
            drawn += 1;
            mix(drawn) % most
        };
        let (mut refused, mut layered, mut passed) = (0, 0, 0);
        for case in 0..100_000 {
            let m = if case % 8 == 0 { below(u64::MAX) } else { SEGMENT * below(700) };
            let (k, wide) = (below(52) as u32, below(m / SEGMENT + 3));
            let geometry = Geometry { m, k, wide };
            if check(&geometry).is_err() || array_bytes(&geometry) > noise.len() {
                refused += 1;
                continue;
            }
            let bytes = array_bytes(&geometry);
            let start = below((noise.len() - bytes + 1) as u64) as usize;
            let array = noise.slice(start..start + bytes);
            let prober = RibbonProber::new(geometry, array.clone());
            for hash in [0, u64::MAX, mix(case), mix(case ^ 1 << 40)] {
                let expected = array::may_contain(&geometry, &array, hash);
                assert_eq!(prober.may_contain(hash), expected, "{geometry:?} {hash:x}");
                passed += u32::from(expected);
            }
            layered += u32::from(prober.bumped().is_some_and(|share| share > 0.1 && share < 0.9));
        }
        println!("{refused} refused or too long, {layered} with layers, {passed} hashes passed");
        assert!(refused > 10_000 && layered > 10_000 && passed > 100);
    }
}
