//! The geometry of a Bloom filter for a capacity and a rate, and estimates from the number of its ones.

use std::f64::consts::LN_2;

use crate::bloom::{MAX_PROBES, expected_fill, short_orbits, textbook_bits};
use crate::error::{Error, Result};
use crate::geometry::Geometry;
use crate::kind::FilterKind;

/// The largest filter for a rate: the greater of both limits.
const MOST_BITS: f64 = (1_u64 << 26) as f64;
const MOST_BITS_PER_KEY: f64 = 128.0;

pub(super) fn check_capacity(capacity: u64) -> Result<()> {
    if capacity == 0 {
        return Err(invalid("capacity", "a filter is made for one key at least".into()));
    }
    Ok(())
}

pub(super) fn check_rate(rate: f64) -> Result<()> {
    let lowest = FilterKind::Bloom.lowest_rate();
    if rate >= lowest && rate < 1.0 {
        return Ok(());
    }
    let reason = format!("a rate is at least {lowest:e} and less than 1; {rate:e} is not");
    Err(invalid("rate", reason))
}

pub(super) fn check_geometry(geometry: &Geometry) -> Result<()> {
    FilterKind::Bloom.check(geometry).map_err(|reason| invalid("geometry", reason))
}

pub(super) fn invalid(option: &'static str, reason: String) -> Error {
    Error::InvalidOption { option, reason }
}

/// The geometry with at most this rate for a number of keys, which may be a fraction. Both must be checked.
///
/// The textbook's m = −n ln p / (ln 2)² and k = m/n · ln 2. The rounding of k and double hashing need more
/// bits: 0.1 % more for a million keys at 1 %, 7 % at a rate of 1/(10 n), 60 % at 1/(50 n).
pub(super) fn for_rate(keys: f64, rate: f64) -> Result<Geometry> {
    let check = |geometry: &Geometry| {
        FilterKind::Bloom.check(geometry).map_err(|reason| invalid("capacity", reason))
    };
    let textbook = textbook_bits(keys, rate);
    let k = ((textbook / keys * LN_2).round() as u32).clamp(1, MAX_PROBES);
    let textbook = textbook.max(64.0); // a word
    let shape = |m: f64| Geometry { m: m as u64, k, wide: 0 };
    check(&shape(textbook))?; // at most 2^43 bits: `f64` has exact integers below
    let enough = |m: f64| {
        let geometry = shape(m);
        let fill = expected_fill(&geometry, keys);
        // The factor 1.25 is for rarer coincidences.
        fill.powi(k as i32) + 1.25 * by_double_hashing(&geometry, fill, keys, |d| d == 1) <= rate
    };
    let most = MOST_BITS.max(MOST_BITS_PER_KEY * keys);
    let (mut low, mut high) = (textbook, textbook);
    while !enough(high) {
        if high > most {
            let reason = format!("{rate:e} at {keys} keys takes more than {most} bits");
            return Err(invalid("rate", reason));
        }
        (low, high) = (high, 2.0 * high);
    }
    while high - low > 1.0 {
        let middle = f64::midpoint(low, high).floor();
        if enough(middle) { high = middle } else { low = middle }
    }
    let mut geometry = shape(high);
    // The next m without a divisor from 2 to k − 1: then only the step 0 has a short orbit.
    while (2..u64::from(k)).any(|d| geometry.m.is_multiple_of(d)) {
        geometry.m += 1;
    }
    check(&geometry)?;
    Ok(geometry)
}

/// The estimated number of keys for X ones: −(m/k) · ln(1 − X/m) (Swamidass and Baldi, *Mathematical
/// Correction for Fingerprint Similarity Measures*, 2007).
pub(super) fn estimated_len(geometry: &Geometry, ones: u64) -> f64 {
    let m = geometry.m as f64;
    -m / f64::from(geometry.k) * (-(ones as f64) / m).ln_1p()
}

/// The estimated rate of a filter with this number of ones. The error is up to a quarter with a few keys,
/// below 1 % with a thousand.
pub(super) fn rate_at(geometry: &Geometry, ones: u64) -> f64 {
    if ones >= geometry.m {
        return 1.0;
    }
    let fill = ones as f64 / geometry.m as f64;
    let keys = estimated_len(geometry, ones);
    let more = by_double_hashing(geometry, fill, keys, |d| geometry.m.is_multiple_of(d));
    (fill.powi(geometry.k as i32) + more).min(1.0)
}

/// The rate that double hashing adds to fill^k: by [`short_orbits`], and by absent keys with the step of a
/// key or its opposite. Such an absent key shares k − |j| bits with the key if it starts j steps away.
///
/// This function must not change, because geometries depend on it; `bloom_rate` is more exact.
fn by_double_hashing(
    geometry: &Geometry,
    fill: f64,
    keys: f64,
    divides: impl Fn(u64) -> bool,
) -> f64 {
    let (m, k) = (geometry.m as f64, geometry.k as i32);
    let independent = fill.powi(k);
    let per_key: f64 = (1 - k..k).map(|j| fill.powi(j.abs()) - independent).sum();
    short_orbits(geometry, fill, divides) + 2.0 * keys * per_key / (m * m)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bloom::Modulus;
    use crate::bloom::{positions, second_hash};
    use crate::hash::mix;

    #[test]
    fn large_filters_have_the_size_of_the_textbook() {
        for (keys, rate, m, k) in [
            (5e5, 0.01, 4_792_530.0, 7),
            (1e6, 0.001, 14_377_588.0, 10),
            (1e8, 0.5, 144_269_505.0, 1),
        ] {
            let geometry = for_rate(keys, rate).expect("sensible");
            assert_eq!(geometry.k, k);
            let more = geometry.m as f64 / m - 1.0;
            assert!((-1e-8..0.002).contains(&more), "{keys} at {rate}: {more}");
        }
    }

    #[test]
    fn geometries_never_change() {
        for (keys, rate, m, k) in [
            (1.0, 0.5, 64, 1),
            (20.0, 0.001, 557, 10),
            (1000.0, 0.01, 9623, 7),
            (1000.0, 0.0001, 20_473, 13),
            (1e6, 0.001, 14_377_807, 10),
            (100.0, 1e-6, 52_177, 20),
        ] {
            let geometry = for_rate(keys, rate).expect("sensible");
            assert_eq!((geometry.m, geometry.k), (m, k), "{keys} at {rate}");
        }
    }

    #[test]
    fn the_excess_of_double_hashing_is_that_of_small_filters() {
        for (m, k, keys) in [(60, 6, 8), (211, 10, 10)] {
            let (geometry, modulus) = (Geometry { m, k, wide: 0 }, Modulus::of(m));
            let (mut found, mut expected) = (0.0, 0.0);
            for filter in 0..200 {
                let mut bits = vec![false; m as usize];
                for key in 0..keys {
                    let h1 = mix(mix(filter) ^ key);
                    let hashes = (h1, second_hash(h1));
                    positions(modulus, k, hashes).for_each(|i| bits[i as usize] = true);
                }
                let ones = bits.iter().filter(|&&bit| bit).count() as u64;
                let passes = |hashes| positions(modulus, k, hashes).all(|i| bits[i as usize]);
                let passing = (0..m * m).filter(|i| passes((i / m, i % m))).count();
                let independent: f64 =
                    (0..k.into()).map(|i| (ones - i) as f64 / (m - i) as f64).product();
                found += passing as f64 / (m * m) as f64 - independent;
                let fill = ones as f64 / m as f64;
                expected +=
                    by_double_hashing(&geometry, fill, keys as f64, |d| m.is_multiple_of(d));
            }
            println!("{m} bits, {k} probes, {keys} keys: {:.3} of it", expected / found);
            assert!((expected / found - 1.0).abs() < 0.06);
        }
    }

    #[test]
    fn impossible_rates_are_errors_without_an_endless_search() {
        assert!(for_rate(1e6, 1e-15).is_err());
        assert!(for_rate(1e18, 0.01).is_err(), "more bits than a filter may have");
        for power in 46..64 {
            for rate in [0.9, 0.5, 0.01, 1e-15] {
                let keys = f64::from(power).exp2() * 1.000_000_7;
                assert!(for_rate(keys, rate).is_err(), "{keys} at {rate}");
            }
        }
        assert!(for_rate(1000.0, 1e-9).is_ok());
    }
}
