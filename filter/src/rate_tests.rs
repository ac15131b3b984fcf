//! Compares measured with predicted rates, above and below: all kinds, one key to a million, 2 to 20 bits per
//! key.
//!
//! Results of the full test on 2026-11-20 (`cargo test -p criba-filter --lib rate_tests -- --ignored --nocapture`):
//!
//! | kind | cells | rare cells | absent probes | worst, of 4.9 allowed |
//! |---|---|---|---|---|
//! | bloom | 209 | 0 | 24,919,085 | −2.73 σ |
//! | blocked | 209 | 76 | 15,222,184,667 | 1.94 σ |
//! | ribbon | 209 | 0 | 355,214,599 | −2.23 σ |
//!
//! Rare cells are small blocked filters with rates below 1e-7: for these the test gives an upper bound only.

use crate::built::Built;
use crate::hash::{HashFunction, HashKey, mix};
use crate::hash_filter::HashFilter;
use crate::kind::FilterKind;
use crate::recipe::{Recipe, Size};

const SIZES: [u64; 10] = [1, 2, 5, 10, 50, 100, 1_000, 10_000, 100_000, 1_000_000];
/// The rates of filters with fewer keys scatter, so the test averages many filters.
const AVERAGED_BELOW: u64 = 10_000;
const SALTS: u64 = 1_000;
/// The allowed deviations: a correct filter passes all 300 cells of a test in 99.9 % of runs.
const DEVIATIONS: f64 = 4.9;

/// The i-th of a sequence of distinct hashes; the first 2^40 are keys.
fn hash(salt: u64, i: u64) -> u64 {
    mix(mix(salt).wrapping_add(i))
}
const ABSENT: u64 = 1 << 40;

struct Cell {
    probes: u64,
    passed: f64,
    expected: f64,
    spread: f64,
}

impl Cell {
    /// Makes at least 100/rate absent probes, but not many more than `most`.
    fn measure(kind: FilterKind, keys: u64, bits: f64, most: u64) -> Self {
        let salts = if keys < AVERAGED_BELOW { SALTS } else { 1 };
        let filter_of = |salt| {
            let hashes = (0..keys).map(|i| hash(salt, i)).collect();
            HashFilter::build(kind, bits, hashes)
        };
        let pilot = (0..salts.min(20)).map(|salt| filter_of(salt).predicted_rate()).sum::<f64>();
        let rate = pilot / salts.min(20) as f64;
        let each = ((130.0 / rate).min(most as f64) / salts as f64).ceil() as u64;
        let mut cell = Self { probes: salts * each, passed: 0.0, expected: 0.0, spread: 0.0 };
        for salt in 0..salts {
            let filter = filter_of(salt);
            let passed =
                (0..each).filter(|i| filter.may_contain(hash(salt, ABSENT + i))).count() as f64;
            let expected = each as f64 * filter.predicted_rate();
            cell.passed += passed;
            cell.expected += expected;
            cell.spread += (passed - expected).powi(2);
        }
        cell
    }

    /// The error in standard deviations: the signed root of the deviance of a Poisson count, which is right
    /// for small counts too; divided by the spread between filters where that is larger.
    fn deviations(&self) -> f64 {
        let (x, mean) = (self.passed, self.expected);
        let log = if x > 0.0 { x * (x / mean).ln() } else { 0.0 };
        let deviance = (2.0 * (log - x + mean)).max(0.0).sqrt() * (x - mean).signum();
        deviance / (self.spread / mean).sqrt().max(1.0)
    }
}

fn check_rates(kind: FilterKind, sizes: &[u64], bits: &[f64], most: u64) {
    let (mut cells, mut rare, mut probes, mut worst) = (0, 0, 0, 0.0_f64);
    let mut wrong = Vec::new();
    for &keys in sizes {
        for &bits in bits {
            let cell = Cell::measure(kind, keys, bits, most);
            let off = cell.deviations();
            cells += 1;
            probes += cell.probes;
            rare += u32::from(cell.expected < 100.0);
            worst = if off.abs() > worst.abs() { off } else { worst };
            if off.abs() > DEVIATIONS {
                let Cell { passed, expected, probes, .. } = cell;
                wrong.push(format!(
                    "{keys} keys at {bits} bits: {passed} of {probes} passed, {expected:.1} predicted, {off:.1} σ"
                ));
            }
        }
    }
    println!(
        "{kind}: {cells} cells ({rare} rare), {probes} absent probes, worst {worst:.2} σ of {DEVIATIONS}"
    );
    assert!(wrong.is_empty(), "{kind}:\n{}", wrong.join("\n"));
}

const SOME_BITS: [f64; 6] = [2.0, 4.5, 7.75, 10.0, 14.0, 20.0];

#[test]
fn bloom_has_its_predicted_rate() {
    check_rates(FilterKind::Bloom, &SIZES, &SOME_BITS, 20_000_000);
}

#[test]
fn blocked_has_its_predicted_rate() {
    check_rates(FilterKind::Blocked, &SIZES, &SOME_BITS, 4_000_000);
}

#[test]
fn ribbon_has_its_predicted_rate() {
    check_rates(FilterKind::Ribbon, &SIZES, &SOME_BITS, 60_000_000);
}

#[test]
#[ignore = "takes minutes"]
fn every_kind_has_its_predicted_rate_in_full() {
    let bits: Vec<f64> = (2..=20).map(f64::from).collect();
    let sizes: Vec<u64> = SIZES.into_iter().chain([10_000_000]).collect();
    for kind in FilterKind::ALL {
        check_rates(kind, &sizes, &bits, 200_000_000);
    }
}

/// Builds a filter with the salts of a table.
fn build(recipe: &Recipe, table: u64, hashes: &[u64]) -> Built {
    let hash_key = HashKey::new([9; 16]);
    let (_, _, built) = recipe.build(hashes.len() as u64, |attempt| {
        let salt = hash_key.salt(table, 0, attempt);
        hashes.iter().map(|&hash| recipe.hash.salted(hash, salt)).collect()
    });
    built
}

#[test]
fn the_predicted_rate_is_at_most_the_requested_rate() {
    let mut filters = 0;
    for kind in FilterKind::ALL {
        let lowest = kind.lowest_rate();
        for rate in [0.9, 0.3, 0.1, 0.01, 0.001, 1e-6, lowest] {
            for keys in [1, 2, 3, 5, 10, 50, 100, 300, 999, 1_000, 3_000, 10_000, 100_000] {
                let hashes: Vec<u64> = (0..keys).map(|i| hash(77, i)).collect();
                for (key_hash, tables) in
                    [(HashFunction::SipHash13, 0..5), (HashFunction::MurmurHash2, 0..1)]
                {
                    for table in tables {
                        let recipe = Recipe { kind, hash: key_hash, size: Size::Rate(rate) };
                        recipe.check().unwrap();
                        let built = build(&recipe, table, &hashes);
                        let predicted = built.predicted_rate;
                        let limit = match (kind, key_hash) {
                            (FilterKind::Bloom, HashFunction::SipHash13) if keys >= 1000 => {
                                1.015 * rate
                            }
                            // The textbook's m and k without a second attempt.
                            (FilterKind::Bloom, HashFunction::MurmurHash2) if keys >= 1000 => {
                                1.15 * rate
                            }
                            _ => rate,
                        };
                        assert!(predicted <= limit, "{recipe:?}, {keys} keys: {predicted:e}");
                        // The filter has few bits, unless double hashing needs more.
                        let bits = 8.0 * built.array.len() as f64 / keys as f64;
                        let fewest = (-rate.log2()).max(1.0);
                        let plain = kind == FilterKind::Ribbon
                            || (kind == FilterKind::Bloom && rate > 1e-4);
                        if keys >= 10_000 && plain {
                            assert!(
                                bits < 1.55 * fewest + 1.0,
                                "{recipe:?}, {keys} keys: {bits} bits"
                            );
                        }
                        filters += 1;
                    }
                }
            }
        }
    }
    println!("{filters} filters made for a rate, none above it");
}

#[test]
fn the_first_columns_of_a_ribbon_are_a_filter_of_their_predicted_rate() {
    for keys in [1, 300, 100_000] {
        let hashes: Vec<u64> = (0..keys).map(|i| hash(5, i)).collect();
        let whole = HashFilter::build(FilterKind::Ribbon, 12.0, hashes.clone());
        for columns in 1..=whole.geometry().k {
            let kept = whole.narrowed(columns).unwrap();
            assert!(hashes.iter().all(|&hash| kept.may_contain(hash)));
            assert_eq!((kept.geometry().k, kept.geometry().wide), (columns, 0));
            let probes = 400 << columns;
            let passed = (0..probes).filter(|i| kept.may_contain(hash(5, ABSENT + i))).count();
            let expected = probes as f64 * kept.predicted_rate();
            let off = (passed as f64 - expected) / expected.sqrt();
            assert!(
                off.abs() < 5.0,
                "{keys} keys, {columns} columns: {passed}, {expected:.0} predicted"
            );
        }
        // With all k columns, only wide segments lose a column.
        let same = whole.narrowed(u32::MAX).unwrap();
        assert!(same.predicted_rate() >= whole.predicted_rate());
    }
    let blocked = HashFilter::build(FilterKind::Blocked, 10.0, vec![1]);
    assert!(blocked.narrowed(3).is_none());
}

#[test]
fn the_expected_rate_is_the_mean_of_predicted_rates() {
    let (mut cells, mut filters, mut worst) = (0, 0, [0.0_f64; 3]);
    for (kind, worst) in FilterKind::ALL.into_iter().zip(&mut worst) {
        for (keys, tables) in [(100, 1000), (1_000, 300), (10_000, 40), (100_000, 4)] {
            for bits in SOME_BITS {
                let (hash_of_keys, size) = (HashFunction::SipHash13, Size::BitsPerKey(bits));
                let recipe = Recipe { kind, hash: hash_of_keys, size };
                let rate = |table| {
                    let hashes: Vec<u64> = (0..keys).map(|i| hash(table, i)).collect();
                    build(&recipe, table, &hashes).predicted_rate
                };
                let mean = (0..tables).map(rate).sum::<f64>() / tables as f64;
                let off = recipe.expected_rate(keys) / mean - 1.0;
                let within = if keys < 1_000 { 0.06 } else { 0.03 };
                assert!(off.abs() < within, "{kind}, {keys} keys, {bits} bits: {mean:e}, {off}");
                *worst = worst.max(off.abs());
                cells += 1;
                filters += tables;
            }
        }
    }
    println!("{cells} cells of {filters} filters; off by {worst:.3?} at most");
}
