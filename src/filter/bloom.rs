//! The standard Bloom filter (Bloom, CACM 1970) with double hashing (Kirsch and Mitzenmacher,
//! *Less Hashing, Same Performance*, 2006): the reference, and the oracle of any other kind.
//!
//! The positions of a key are (h1 + i·h2) mod m for i = 0 … k−1, in exact arithmetic: both hashes
//! are reduced mod m first, then a step costs one addition and one comparison, no division.

use std::f64::consts::LN_2;

use super::hash::{GOLDEN, mix};
use super::kind::{Built, Geometry, Kind, below};

/// The most probes a filter may ask for.
const MAX_PROBES: u32 = 64;
/// The most bits a filter may have: 2^43 bits, a tebibyte.
const MAX_BITS: u64 = 1 << 43;
/// From how many keys on a filter asked for by its rate is the textbook's.
pub(super) const TEXTBOOK_FROM: u64 = 1000;
pub(super) const TEXTBOOK_EXCESS: f64 = 0.015;

pub(super) static KIND: Kind = Kind {
    id: 1,
    name: "bloom",
    for_rate,
    for_bits,
    lowest_rate: 1e-6,
    expected_rate: |keys, geometry| {
        expected_rate(geometry, keys, &shared_bits(geometry.m, geometry.k))
    },
    roomier: |geometry| Geometry { m: (geometry.m.div_ceil(16) * 17).min(MAX_BITS), ..*geometry },
    check,
    array_bytes,
    build,
    probe: || may_contain,
    probe_many: || may_contain_many,
    touched,
};

/// The textbook's m = ⌈−n ln p / (ln 2)²⌉ and k = max(1, round(m/n · ln 2)), and more bits where they
/// would not give the rate: with few keys or low rates, because of double hashing, m comes to about
/// √(9n/p). From [`TEXTBOOK_FROM`] keys on, up to [`TEXTBOOK_EXCESS`] above the rate stays as it is: a
/// whole number of probes costs the textbook that much.
fn for_rate(keys: u64, rate: f64) -> Geometry {
    let mut geometry = with_best_k(keys, (-(keys as f64) * rate.ln() / (LN_2 * LN_2)).ceil());
    let shared = shared_bits(1, geometry.k);
    if keys >= TEXTBOOK_FROM
        && expected_rate(&geometry, keys, &shared) <= rate * (1.0 + TEXTBOOK_EXCESS)
    {
        return geometry;
    }
    let aim = below(rate, keys);
    while expected_rate(&geometry, keys, &shared) > aim && geometry.m < MAX_BITS {
        geometry.m = (geometry.m + geometry.m.div_ceil(64)).min(MAX_BITS);
    }
    geometry
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

/// The rate to expect before the keys are hashed.
fn expected_rate(geometry: &Geometry, keys: u64, shared: &SharedBits) -> f64 {
    let set = f64::from(geometry.k) * keys as f64;
    rate_at(geometry, -(-set / geometry.m as f64).exp_m1(), keys, shared)
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

/// The first probes: in a filter that is half full an absent key has two on average.
fn touched(geometry: &Geometry, hash: u64) -> [usize; 4] {
    let mut positions = positions(geometry, two_hashes(hash));
    [(); 4].map(|()| positions.next().map_or(0, |position| position as usize / 8))
}

fn may_contain_many(geometry: &Geometry, array: &[u8], hashes: &[u64], answers: &mut [bool]) {
    for (&hash, answer) in hashes.iter().zip(answers) {
        *answer = may_contain(geometry, array, hash);
    }
}

fn all_set(geometry: &Geometry, array: &[u8], hashes: (u64, u64)) -> bool {
    positions(geometry, hashes).all(|position| {
        array.get((position / 8) as usize).is_none_or(|byte| byte >> (position % 8) & 1 == 1)
    })
}

/// Up to this many bits the false-positive rate of the finished filter is counted, not estimated:
/// that takes 0.2 ms.
const COUNTED_UP_TO_BITS: u64 = 2048;

/// The false-positive rate of a finished filter for keys that hash evenly.
fn predicted_rate(geometry: &Geometry, bits: &[u8], keys: u64) -> f64 {
    let m = geometry.m as f64;
    if geometry.m <= COUNTED_UP_TO_BITS {
        return passing_pairs(geometry, bits) as f64 / (m * m);
    }
    let words = bits.as_chunks::<8>().0.iter();
    let ones: u64 = words.map(|word| u64::from(u64::from_le_bytes(*word).count_ones())).sum();
    rate_at(geometry, ones as f64 / m, keys, &shared_bits(geometry.m, geometry.k))
}

/// The rate at a fill of the array.
///
/// The well-known fill^k is right for independent probes. Double hashing does worse in small filters,
/// because a step may share a factor with m (or be 0) and because the steps of two keys may be small
/// multiples of one another: 12 times fill^k at one key, 1.01 times at 1,000. Hence two corrections:
///
/// * φ(d) of m steps have order d for each divisor d of m; for d < k they touch d bits only;
/// * the positions of a probe that share c bits with those of a key need only the other k − c by
///   chance; [`shared_bits`] says how often that is.
fn rate_at(geometry: &Geometry, fill: f64, keys: u64, shared: &SharedBits) -> f64 {
    let m = geometry.m as f64;
    let k = geometry.k as i32;
    let independent = fill.powi(k);
    let short_orbits: f64 = (1..k)
        .filter(|&d| geometry.m.is_multiple_of(d as u64))
        .map(|d| f64::from(totient(d as u32)) / m * (fill.powi(d) - independent))
        .sum();
    // A position that is known to be set is worth 1/fill = 1 + u. What one and what two positions of a
    // probe owe to the same key is in the fill already, so that only the rest of (1 + u)^c is excess.
    let u = 1.0 / fill - 1.0;
    let choose_two = |c: i32| f64::from(c * (c - 1) / 2);
    let pairs = |c: i32| choose_two(c) * u * u;
    let excess = |c: i32| independent * ((1.0 + u).powi(c) - 1.0 - f64::from(c) * u - pairs(c));
    let per_key: f64 =
        shared.iter().zip(0..=k).map(|(&times, c)| f64::from(times) * excess(c)).sum();
    // Positions differ, so the second finds one set bit less than the first.
    let without_repetition = -independent * choose_two(k) * u / m;
    let sum = independent + without_repetition + short_orbits;
    (sum + 2.0 * keys as f64 * per_key / (m * m)).clamp(0.0, 1.0)
}

/// At `[c]`: in how many relations of start and step two keys share c bits.
type SharedBits = [u32; MAX_PROBES as usize + 1];

/// Two arithmetic progressions of k terms, their steps in the ratio p : q, at every offset: terms i and
/// j of them meet where i·p − j·q is that offset, and then again each q terms of the first and p of the
/// second. If p and q have a factor g in common with m, the steps' ratio is theirs but for one of φ(g)
/// multiples of m/g. One common term is what chance gives, and two make no excess. Steps of
/// opposite signs count as often again, which is the 2 in [`rate_at`].
fn shared_bits(m: u64, k: u32) -> SharedBits {
    const LARGEST_RATIO: u32 = 8;
    let mut shared = [0; MAX_PROBES as usize + 1];
    for p in 1..k.min(LARGEST_RATIO) {
        for q in 1..k.min(LARGEST_RATIO) {
            let factor = gcd(p, q);
            if !m.is_multiple_of(u64::from(factor)) {
                continue;
            }
            for i in 0..k {
                for j in (0..k).filter(|&j| i < q || j < p) {
                    let common = ((k - 1 - i) / q).min((k - 1 - j) / p) + 1;
                    if common > 2 {
                        shared[common as usize] += totient(factor);
                    }
                }
            }
        }
    }
    shared
}

/// How many of the m² pairs (start, step) find all their bits set: for each step, the AND of k
/// rotations of the array, 64 starts at a time. Step b and step m − b visit the same sets.
fn passing_pairs(geometry: &Geometry, bits: &[u8]) -> u64 {
    let m = geometry.m as usize;
    let bit = |i: usize| u64::from(bits[i % m / 8] >> (i % m % 8) & 1);
    // The array twice over, and a word more, so that any rotation is a plain shifted read.
    let mut doubled = vec![0_u64; 2 * m.div_ceil(64) + 2];
    for i in 0..doubled.len() * 64 {
        doubled[i / 64] |= bit(i) << (i % 64);
    }
    let mut passing = vec![0_u64; m.div_ceil(64)];
    let mut total = 0;
    for step in 0..=m / 2 {
        passing.fill(u64::MAX);
        let mut rotation = 0;
        for _ in 0..geometry.k {
            let (word, shift) = (rotation / 64, rotation as u32 % 64);
            let rotated = doubled[word..].iter().zip(&doubled[word + 1..]);
            for (passing, (low, high)) in passing.iter_mut().zip(rotated) {
                *passing &= low >> shift | high << 1 << (63 - shift);
            }
            rotation = (rotation + step) % m;
        }
        if let Some(last) = passing.last_mut().filter(|_| !m.is_multiple_of(64)) {
            *last &= (1 << (m % 64)) - 1;
        }
        let weight = if step == 0 || 2 * step == m { 1 } else { 2 };
        total += weight * passing.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
    }
    total
}

/// Euler's φ: how many of 1 … n have no factor in common with n.
fn totient(n: u32) -> u32 {
    (1..=n).filter(|&i| gcd(i, n) == 1).count() as u32
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
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

    /// As when a shape that was fixed for few keys gets many: the header must hold a rate all the same.
    #[test]
    fn a_filter_with_all_bits_set_predicts_that_everything_passes() {
        for (keys, m, k) in [(400, 100, 7), (20_000, 5000, 7), (100_000, 5000, 1)] {
            let geometry = shape(m, k);
            let built = build(&geometry, hashes(keys, 4));
            assert!((0..m).all(|i| built.array[(i / 8) as usize] >> (i % 8) & 1 == 1));
            let expected = expected_rate(&geometry, 100 * m, &shared_bits(m, k));
            for rate in [built.predicted_rate, expected] {
                assert!((rate - 1.0).abs() < 1e-12, "{geometry:?}: {rate}");
            }
        }
    }

    /// The textbook's bits where they will do, and hardly more than the fewest that do elsewhere.
    #[test]
    fn few_bits_give_the_rate() {
        for keys in [1, 2, 10, 100, 999, 1000, 3000] {
            for rate in [0.9_f64, 0.5, 0.1, 0.01, 0.003, 1e-4] {
                let textbook = (-(keys as f64) * rate.ln() / (LN_2 * LN_2)).ceil() as u64;
                let Geometry { m, k, .. } = for_rate(keys, rate);
                let shared = shared_bits(1, k);
                let expected = |m| expected_rate(&shape(m, k), keys, &shared);
                if keys >= TEXTBOOK_FROM && expected(textbook) <= rate * (1.0 + TEXTBOOK_EXCESS) {
                    assert_eq!(m, textbook, "{keys} keys at {rate}");
                    continue;
                }
                let aim = below(rate, keys);
                assert!(expected(m) <= aim, "{keys} keys at {rate}: {m} bits");
                let fewest = (textbook..=2 * m).find(|&m| expected(m) <= aim).unwrap();
                assert!(m <= fewest + fewest / 8 + 1, "{keys} keys at {rate}: {m}, not {fewest}");
            }
        }
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

    /// Of an array with bits set at random: by steps that come back soon, and by what keys add, which is
    /// the rest of a binomial sum.
    #[test]
    fn the_rate_at_a_fill_is_made_of_its_parts() {
        for (m, k, ones) in [(420_u64, 7_u32, 210_u64), (840, 9, 500), (1001, 5, 400)] {
            let geometry = shape(m, k);
            let fill = ones as f64 / m as f64;
            let shared = shared_bits(m, k);
            let all_set = |step: u64| -> f64 {
                let orbit = m / u64::from(gcd(m as u32, step as u32));
                let positions = 0..orbit.min(k.into());
                positions.map(|i| (ones - i) as f64 / (m - i) as f64).product()
            };
            let exact = (0..m).map(all_set).sum::<f64>() / m as f64;
            let without_keys = rate_at(&geometry, fill, 0, &shared);
            assert!((without_keys / exact - 1.0).abs() < 0.005, "{m} {k}: {without_keys} {exact}");

            let u = 1.0 / fill - 1.0;
            let choose = |c: u32, j: u32| (0..j).map(move |i| f64::from(c - i) / f64::from(i + 1));
            let beyond_two = |c: u32| -> f64 {
                (3..=c).map(|j| choose(c, j).product::<f64>() * u.powi(j as i32)).sum()
            };
            let sum: f64 = (3..=k).map(|c| f64::from(shared[c as usize]) * beyond_two(c)).sum();
            let added = 100.0 * 2.0 * fill.powi(k as i32) * sum / (m * m) as f64;
            let with_keys = rate_at(&geometry, fill, 100, &shared);
            assert!(((with_keys - without_keys) / added - 1.0).abs() < 1e-6, "{m} {k}");
        }
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
        // Where both can be had, the formula must agree with the count: within 1 %, or within 6 % for
        // the small m with the most small factors, where relations come in crowds.
        let hard = [(2100, 7, 0.03), (2100, 10, 0.06), (3000, 14, 0.06), (4096, 10, 0.03)];
        let easy =
            [(2049, 7), (2053, 7), (2099, 10), (2100, 3), (8400, 7)].map(|(m, k)| (m, k, 0.01));
        for (m, k, within) in easy.into_iter().chain(hard) {
            let geometry = shape(m, k);
            let keys = (m as f64 * LN_2 / f64::from(k)) as u64;
            let (mut counted, mut formula) = (0.0, 0.0);
            for salt in 0..8 {
                let bits = build(&geometry, hashes(keys, salt)).array;
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
