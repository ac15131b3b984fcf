//! The standard Bloom filter (Bloom, CACM 1970) with double hashing (Kirsch and Mitzenmacher,
//! *Less Hashing, Same Performance*, 2006): the reference, and the oracle of any other kind.
//!
//! The positions of a key are (h1 + i·h2) mod m for i = 0 … k−1, in exact arithmetic: both hashes
//! are reduced mod m first, then a step costs one addition and one comparison, no division.

use std::f64::consts::LN_2;

use super::hash::{GOLDEN, mix};
use super::kind::{Built, Geometry, Kind};

/// The most probes a filter may ask for.
const MAX_PROBES: u32 = 64;
/// The most bits a filter may have: 2^43 bits, a tebibyte.
const MAX_BITS: u64 = 1 << 43;

pub(super) static KIND: Kind = Kind {
    id: 1,
    name: "bloom",
    for_rate,
    for_bits,
    lowest_rate: 1e-15,
    check,
    array_bytes,
    build,
    probe: || may_contain,
};

/// m = ⌈−n ln p / (ln 2)²⌉, k = max(1, round(m/n · ln 2)).
fn for_rate(keys: u64, rate: f64) -> Geometry {
    with_best_k(keys, (-(keys as f64) * rate.ln() / (LN_2 * LN_2)).ceil())
}

/// m = ⌈n · bits⌉, k = max(1, round(m/n · ln 2)).
fn for_bits(keys: u64, bits_per_key: f64) -> Geometry {
    with_best_k(keys, (keys as f64 * bits_per_key).ceil())
}

fn with_best_k(keys: u64, m: f64) -> Geometry {
    let m = (m as u64).clamp(1, MAX_BITS);
    let k = (m as f64 / keys as f64 * LN_2).round() as u32;
    Geometry { m, k: k.clamp(1, MAX_PROBES), wide: 0 }
}

fn check(geometry: &Geometry) -> Result<(), String> {
    let Geometry { m, k, wide } = *geometry;
    if m == 0 || m > MAX_BITS {
        return Err(format!("a bloom filter has 1 to {MAX_BITS} bits, not {m}"));
    }
    if k == 0 || k > MAX_PROBES || wide != 0 {
        return Err(format!("a bloom filter has 1 to {MAX_PROBES} probes a key, not {k}"));
    }
    Ok(())
}

/// Whole 64-bit words.
fn array_bytes(geometry: &Geometry) -> usize {
    geometry.m.div_ceil(64) as usize * 8
}

/// The two hashes of double hashing: the hash itself, and the next output of SplitMix64 after it.
pub(super) fn two_hashes(hash: u64) -> (u64, u64) {
    (hash, mix(hash.wrapping_add(GOLDEN)))
}

/// The positions of one key.
pub(super) fn positions(
    geometry: &Geometry,
    (h1, h2): (u64, u64),
) -> impl Iterator<Item = u64> + use<> {
    let Geometry { m, k, .. } = *geometry;
    let step = h2 % m;
    let mut next = h1 % m;
    (0..k).map(move |_| {
        let position = next;
        next += step;
        if next >= m {
            next -= m;
        }
        position
    })
}

/// The bit array of these keys: bit `i` is bit `i mod 64` of the little-endian word `i / 64`,
/// which is bit `i mod 8` of byte `i / 8`.
fn build(geometry: &Geometry, hashes: Vec<u64>) -> Built {
    let mut array = vec![0_u8; array_bytes(geometry)];
    let keys = hashes.len() as u64;
    for hash in hashes {
        for position in positions(geometry, two_hashes(hash)) {
            array[(position / 8) as usize] |= 1 << (position % 8);
        }
    }
    let predicted_rate = predicted_rate(geometry, &array, keys);
    Built { array, predicted_rate, unlucky: false }
}

/// Whether all bits of a key are set. An array that is too short answers "maybe" for what it does not
/// hold.
fn may_contain(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    all_set(geometry, array, two_hashes(hash))
}

fn all_set(geometry: &Geometry, array: &[u8], hashes: (u64, u64)) -> bool {
    positions(geometry, hashes).all(|position| {
        array.get((position / 8) as usize).is_none_or(|byte| byte >> (position % 8) & 1 == 1)
    })
}

/// Up to this many bits the false-positive rate of the finished filter is counted, not estimated.
const COUNTED_UP_TO_BITS: u64 = 8192;

/// The false-positive rate of a finished filter for keys that hash evenly.
///
/// The well-known fill^k is right for independent probes. Double hashing does better or worse in
/// small filters, because a step may share a factor with m (or be 0) and because keys with equal
/// steps overlap: 12 times fill^k at one key, 1.01 times at 1,000. So a small filter is counted
/// exactly, over all m² pairs of start and step, and a large one is corrected for the two effects:
///
/// * φ(d) of m steps have order d for each divisor d of m; for d < k they touch d bits only;
/// * a key with the step ±b of one of n keys, shifted by j of its steps, shares k − |j| of its bits.
fn predicted_rate(geometry: &Geometry, bits: &[u8], keys: u64) -> f64 {
    let m = geometry.m as f64;
    if geometry.m <= COUNTED_UP_TO_BITS {
        return passing_pairs(geometry, bits) as f64 / (m * m);
    }
    let ones: u64 = bits.iter().map(|byte| u64::from(byte.count_ones())).sum();
    let fill = ones as f64 / m;
    let k = geometry.k as i32;
    let independent = fill.powi(k);
    let short_orbits: f64 = (1..k)
        .filter(|&d| geometry.m.is_multiple_of(d as u64))
        .map(|d| f64::from(totient(d as u32)) / m * (fill.powi(d) - independent))
        .sum();
    let per_key: f64 = (1 - k..k).map(|j| fill.powi(j.abs()) - independent).sum();
    let overlaps = 2.0 * keys as f64 * per_key / (m * m);
    (independent + short_orbits + overlaps).clamp(0.0, 1.0)
}

/// How many of the m² pairs (start, step) find all their bits set: for each step, the AND of k
/// rotations of the array, 64 starts at a time. Step b and step m − b visit the same sets.
fn passing_pairs(geometry: &Geometry, bits: &[u8]) -> u64 {
    let m = geometry.m as usize;
    let bit = |i: usize| u64::from(bits[i % m / 8] >> (i % m % 8) & 1);
    // The array twice over, and a word more, so that any rotation is a plain shifted read.
    let mut doubled = vec![0_u64; 2 * m / 64 + 2];
    for i in 0..doubled.len() * 64 {
        doubled[i / 64] |= bit(i) << (i % 64);
    }
    let word_at = |start: usize| {
        let (word, shift) = (start / 64, start % 64);
        let high = if shift == 0 { 0 } else { doubled[word + 1] << (64 - shift) };
        doubled[word] >> shift | high
    };
    let mut total = 0;
    for step in 0..=m / 2 {
        let weight = if step == 0 || 2 * step == m { 1 } else { 2 };
        for first in (0..m).step_by(64) {
            let mut passing = if m - first < 64 { (1 << (m - first)) - 1 } else { u64::MAX };
            let mut rotation = first;
            for _ in 0..geometry.k {
                passing &= word_at(rotation);
                if passing == 0 {
                    break;
                }
                rotation += step;
                if rotation >= m {
                    rotation -= m;
                }
            }
            total += weight * u64::from(passing.count_ones());
        }
    }
    total
}

/// Euler's φ: how many of 1 … n have no factor in common with n.
fn totient(n: u32) -> u32 {
    fn gcd(a: u32, b: u32) -> u32 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    (1..=n).filter(|&i| gcd(i, n) == 1).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(keys: u64, salt: u64) -> Vec<u64> {
        (0..keys).map(|i| mix(mix(salt) ^ i)).collect()
    }

    fn shape(m: u64, k: u32) -> Geometry {
        Geometry { m, k, wide: 0 }
    }

    #[test]
    fn no_key_of_its_own_is_ever_denied() {
        let mut asked = 0;
        for keys in (1..200).chain([1_000, 20_000]) {
            for bits_per_key in [0.1, 1.0, 7.3, 10.0, 40.0] {
                let geometry = for_bits(keys, bits_per_key);
                let hashes = hashes(keys, 1);
                let bits = build(&geometry, hashes.clone()).array;
                assert_eq!(bits.len(), array_bytes(&geometry));
                assert!(hashes.iter().all(|&h| may_contain(&geometry, &bits, h)), "{geometry:?}");
                asked += keys;
            }
        }
        assert!(asked > 100_000);
    }

    #[test]
    fn positions_follow_the_formula() {
        let geometry = shape(1_000_003, 9);
        let (h1, h2) = two_hashes(0xC81B_A000_0000_0007);
        assert_eq!((h1, h2), (0xC81B_A000_0000_0007, mix(h1.wrapping_add(GOLDEN))));
        let expected: Vec<u64> =
            (0..9).map(|i| ((u128::from(h1) + i * u128::from(h2)) % 1_000_003) as u64).collect();
        assert_eq!(positions(&geometry, (h1, h2)).collect::<Vec<_>>(), expected);
    }

    /// The counted prediction against brute force over all pairs, and the corrected formula against
    /// the count where both can be had.
    #[test]
    fn the_prediction_is_the_rate() {
        for (keys, m, k) in [(1, 10, 7), (5, 48, 7), (7, 64, 4), (50, 480, 7), (90, 901, 3)] {
            let geometry = shape(m, k);
            let bits = build(&geometry, hashes(keys, 2)).array;
            let mut passing = 0;
            for h1 in 0..m {
                for h2 in 0..m {
                    passing += u64::from(all_set(&geometry, &bits, (h1, h2)));
                }
            }
            assert_eq!(passing_pairs(&geometry, &bits), passing, "{geometry:?}");
        }
        // Just past the limit the corrected formula must agree with the count within 1 %. Rarer
        // coincidences (steps that are small multiples of one another) make up the rest.
        for m in [8193, 8209, 8400] {
            let geometry = shape(m, 7);
            let keys = m * 10 / 96;
            let bits = build(&geometry, hashes(keys, 3)).array;
            let counted = passing_pairs(&geometry, &bits) as f64 / (m * m) as f64;
            let corrected = predicted_rate(&geometry, &bits, keys);
            assert!((corrected / counted - 1.0).abs() < 0.01, "m {m}: {corrected} {counted}");
        }
    }
}
