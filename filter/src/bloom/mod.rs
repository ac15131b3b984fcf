//! The standard Bloom filter (Bloom, CACM 1970) with double hashing (Kirsch and Mitzenmacher, *Less Hashing,
//! Same Performance*, 2006).
//!
//! The positions of a key are (h1 + i·h2) mod m for i = 0 … k−1, in exact arithmetic. Both hashes are
//! reduced mod m first, so that a step costs one addition and one comparison.

mod array;
mod modulus;
mod prober;
mod rate;

use std::f64::consts::LN_2;

#[cfg(test)]
pub(crate) use array::positions;
pub use array::{all_set, second_hash};
pub(crate) use array::{array_bytes, check, may_contain, set_bits};
pub use modulus::Modulus;
pub(crate) use prober::BloomProber;
pub(crate) use rate::{MAX_PROBES, expected_fill, short_orbits, textbook_bits, words};

use self::array::MAX_BITS;
use self::rate::{predicted_rate, shared_bits};
use crate::built::{Built, rate_aim};
use crate::geometry::Geometry;

/// From this number of keys on, a filter for a rate has the textbook's geometry …
pub(crate) const TEXTBOOK_FROM: u64 = 1000;
/// … unless its rate is higher by more than this fraction. The rounding of k may cost as much.
pub(crate) const TEXTBOOK_EXCESS: f64 = 0.015;

/// The textbook's m = ⌈−n ln p / (ln 2)²⌉ and k = max(1, round(m/n · ln 2)); more bits if these miss the
/// rate. Because of double hashing, filters of few keys or low rates need about √(9n/p) bits.
pub(crate) fn for_rate(keys: u64, rate: f64) -> Geometry {
    let mut geometry = with_best_k(keys, textbook_bits(keys as f64, rate));
    let shared = shared_bits(1, geometry.k);
    if keys >= TEXTBOOK_FROM
        && rate::expected_rate(&geometry, keys, &shared) <= rate * (1.0 + TEXTBOOK_EXCESS)
    {
        return geometry;
    }
    let aim = rate_aim(rate, keys);
    while rate::expected_rate(&geometry, keys, &shared) > aim && geometry.m < MAX_BITS {
        geometry.m = (geometry.m + geometry.m.div_ceil(64)).min(MAX_BITS);
    }
    geometry
}

pub(crate) fn for_bits(keys: u64, bits_per_key: f64) -> Geometry {
    with_best_k(keys, (keys as f64 * bits_per_key).ceil())
}

/// Takes microseconds.
pub(crate) fn expected_rate(keys: u64, geometry: &Geometry) -> f64 {
    rate::expected_rate(geometry, keys, &shared_bits(geometry.m, geometry.k))
}

pub(crate) fn grow(geometry: &Geometry) -> Geometry {
    Geometry { m: (geometry.m.div_ceil(16) * 17).min(MAX_BITS), ..*geometry }
}

fn with_best_k(keys: u64, m: f64) -> Geometry {
    let m = (m as u64).clamp(1, MAX_BITS);
    let k = (m as f64 / keys as f64 * LN_2).round() as u32;
    Geometry { m, k: k.clamp(1, MAX_PROBES), wide: 0 }
}

/// Bit `i` of the array is bit `i mod 8` of byte `i / 8`; as the words are little-endian, it is also bit
/// `i mod 64` of word `i / 64`.
pub(crate) fn build(geometry: &Geometry, hashes: &[u64]) -> Built {
    let mut array = vec![0_u8; array_bytes(geometry)];
    let keys = hashes.len() as u64;
    let modulus = Modulus::of(geometry.m);
    for &hash in hashes {
        set_bits(&mut array, modulus, geometry.k, hash);
    }
    let predicted_rate = predicted_rate(geometry, &array, keys);
    Built { array, predicted_rate, is_rejected: false }
}

#[cfg(test)]
mod tests {
    use super::rate::{expected_rate, passing_pairs, rate_at};
    use super::*;
    use crate::hash::{GOLDEN, mix};

    fn hashes(keys: u64, salt: u64) -> Vec<u64> {
        (0..keys).map(|i| mix(mix(salt) ^ i)).collect()
    }

    fn bits_and_probes(m: u64, k: u32) -> Geometry {
        Geometry { m, k, wide: 0 }
    }

    #[test]
    fn no_inserted_key_is_rejected() {
        let mut probes = 0;
        for keys in (1..200).chain([1_000, 20_000]) {
            for bits_per_key in [0.1, 1.0, 7.3, 10.0, 40.0] {
                let geometry = for_bits(keys, bits_per_key);
                let hashes = hashes(keys, 1);
                let bits = build(&geometry, &hashes).array;
                assert_eq!(bits.len(), array_bytes(&geometry));
                assert!(hashes.iter().all(|&h| may_contain(&geometry, &bits, h)), "{geometry:?}");
                probes += keys;
            }
        }
        assert!(probes > 100_000);
    }

    #[test]
    fn a_filter_with_all_bits_set_predicts_a_rate_of_one() {
        for (keys, m, k) in [(400, 100, 7), (20_000, 5000, 7), (100_000, 5000, 1)] {
            let geometry = bits_and_probes(m, k);
            let built = build(&geometry, &hashes(keys, 4));
            assert!((0..m).all(|i| built.array[(i / 8) as usize] >> (i % 8) & 1 == 1));
            let expected = expected_rate(&geometry, 100 * m, &shared_bits(m, k));
            for rate in [built.predicted_rate, expected] {
                assert!((rate - 1.0).abs() < 1e-12, "{geometry:?}: {rate}");
            }
        }
    }

    #[test]
    fn the_geometry_for_a_rate_has_few_bits() {
        for keys in [1, 2, 10, 100, 999, 1000, 3000] {
            for rate in [0.9_f64, 0.5, 0.1, 0.01, 0.003, 1e-4] {
                let textbook = textbook_bits(keys as f64, rate) as u64;
                let Geometry { m, k, .. } = for_rate(keys, rate);
                let shared = shared_bits(1, k);
                let expected = |m| expected_rate(&bits_and_probes(m, k), keys, &shared);
                if keys >= TEXTBOOK_FROM && expected(textbook) <= rate * (1.0 + TEXTBOOK_EXCESS) {
                    assert_eq!(m, textbook, "{keys} keys at {rate}");
                    continue;
                }
                let aim = rate_aim(rate, keys);
                assert!(expected(m) <= aim, "{keys} keys at {rate}: {m} bits");
                let fewest = (textbook..=2 * m).find(|&m| expected(m) <= aim).unwrap();
                assert!(m <= fewest + fewest / 8 + 1, "{keys} keys at {rate}: {m}, not {fewest}");
            }
        }
    }

    #[test]
    fn positions_follow_the_formula() {
        let geometry = bits_and_probes(1_000_003, 9);
        let h1 = 0xC81B_A000_0000_0007;
        let h2 = second_hash(h1);
        assert_eq!(h2, mix(h1.wrapping_add(GOLDEN)));
        let expected: Vec<u64> =
            (0..9).map(|i| ((u128::from(h1) + i * u128::from(h2)) % 1_000_003) as u64).collect();
        assert_eq!(
            positions(Modulus::of(geometry.m), geometry.k, (h1, h2)).collect::<Vec<_>>(),
            expected
        );
    }

    #[test]
    fn the_predicted_rate_is_the_rate() {
        for (keys, m, k) in [(1, 10, 7), (5, 48, 7), (7, 64, 4), (50, 480, 7), (90, 901, 3)] {
            let geometry = bits_and_probes(m, k);
            let bits = build(&geometry, &hashes(keys, 2)).array;
            let mut passing = 0;
            for h1 in 0..m {
                for h2 in 0..m {
                    passing += u64::from(all_set(&bits, Modulus::of(m), k, h1, || h2));
                }
            }
            assert_eq!(passing_pairs(&geometry, &bits), passing, "{geometry:?}");
        }
        // Within 1 %; within 6 % for small m with many small factors, which have many relations.
        let hard = [(2100, 7, 0.03), (2100, 10, 0.06), (3000, 14, 0.06), (4096, 10, 0.03)];
        let easy =
            [(2049, 7), (2053, 7), (2099, 10), (2100, 3), (8400, 7)].map(|(m, k)| (m, k, 0.01));
        for (m, k, within) in easy.into_iter().chain(hard) {
            let geometry = bits_and_probes(m, k);
            let keys = (m as f64 * LN_2 / f64::from(k)) as u64;
            let (mut counted, mut formula) = (0.0, 0.0);
            for salt in 0..8 {
                let bits = build(&geometry, &hashes(keys, salt)).array;
                let fill =
                    bits.iter().map(|byte| f64::from(byte.count_ones())).sum::<f64>() / m as f64;
                counted += passing_pairs(&geometry, &bits) as f64 / (m * m) as f64;
                formula += rate_at(&geometry, fill, keys, &shared_bits(m, k));
            }
            println!("m {m}, k {k}: counted {:.4e}, formula {:.4e}", counted / 8.0, formula / 8.0);
            assert!((formula / counted - 1.0).abs() < within, "m {m}: {formula} {counted}");
        }
    }
}
