//! The false-positive rate of a Bloom filter with double hashing.

use std::f64::consts::LN_2;

use crate::geometry::Geometry;

pub(crate) const MAX_PROBES: u32 = 64;

pub(crate) fn textbook_bits(keys: f64, rate: f64) -> f64 {
    (-keys * rate.ln() / (LN_2 * LN_2)).ceil()
}

pub(crate) fn expected_fill(geometry: &Geometry, keys: f64) -> f64 {
    -(-f64::from(geometry.k) * keys / geometry.m as f64).exp_m1()
}

pub(crate) fn expected_rate(geometry: &Geometry, keys: u64, shared: &SharedBits) -> f64 {
    rate_at(geometry, expected_fill(geometry, keys as f64), keys, shared)
}

pub(crate) fn words(array: &[u8]) -> impl Iterator<Item = u64> {
    array.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// In a finished filter of at most this many bits the rate is counted, in 0.2 ms. In a larger one it is
/// estimated.
const COUNTED_UP_TO_BITS: u64 = 2048;

pub(crate) fn predicted_rate(geometry: &Geometry, bits: &[u8], keys: u64) -> f64 {
    let m = geometry.m as f64;
    if geometry.m <= COUNTED_UP_TO_BITS {
        return passing_pairs(geometry, bits) as f64 / (m * m);
    }
    let ones: u64 = words(bits).map(|word| u64::from(word.count_ones())).sum();
    rate_at(geometry, ones as f64 / m, keys, &shared_bits(geometry.m, geometry.k))
}

/// The rate of a filter in which the fraction `fill` of the bits is set.
///
/// With independent positions the rate is fill^k. With double hashing it is 12 times that for one key, and
/// 1.01 times for 1,000 keys, because:
///
/// * A step of order d < k reaches only d bits: [`short_orbits`].
/// * A probe that shares c positions with a key needs only k − c more set bits: [`shared_bits`].
pub(crate) fn rate_at(geometry: &Geometry, fill: f64, keys: u64, shared: &SharedBits) -> f64 {
    let m = geometry.m as f64;
    let k = geometry.k as i32;
    let independent = fill.powi(k);
    let short_orbits = short_orbits(geometry, fill, |d| geometry.m.is_multiple_of(d));
    // Each position that is certainly set multiplies the rate by 1/fill = 1 + u. The measured fill contains
    // the effect of one and of two positions of the same key; only the rest of (1 + u)^c is excess.
    let u = 1.0 / fill - 1.0;
    let choose_two = |c: i32| f64::from(c * (c - 1) / 2);
    let pairs = |c: i32| choose_two(c) * u * u;
    let excess = |c: i32| independent * ((1.0 + u).powi(c) - 1.0 - f64::from(c) * u - pairs(c));
    let per_key: f64 =
        shared.iter().zip(0..=k).map(|(&times, c)| f64::from(times) * excess(c)).sum();
    // The positions of a probe differ, so each has one set bit fewer to hit than the one before.
    let without_repetition = -independent * choose_two(k) * u / m;
    let sum = independent + without_repetition + short_orbits;
    (sum + 2.0 * keys as f64 * per_key / (m * m)).clamp(0.0, 1.0)
}

/// The rate, beyond fill^k, from steps that return to their start within k positions. φ(d) of the m steps
/// have the order d, for each d that `divides` m.
pub(crate) fn short_orbits(geometry: &Geometry, fill: f64, divides: impl Fn(u64) -> bool) -> f64 {
    let (m, k) = (geometry.m as f64, geometry.k as i32);
    let independent = fill.powi(k);
    (1..k)
        .filter(|&d| divides(d as u64))
        .map(|d| f64::from(totient(d as u32)) / m * (fill.powi(d) - independent))
        .sum()
}

/// At index c: the number of relations between the starts and steps of two keys by which they share c bits.
pub(crate) type SharedBits = [u32; MAX_PROBES as usize + 1];

/// Counts the common terms of two arithmetic progressions of k terms with steps in the ratio p : q, at every
/// offset. Terms i and j are equal if i·p − j·q is the offset; then so are terms i + q and j + p. A common
/// factor g of p, q and m multiplies the relations by φ(g). One or two common terms make no excess. Steps of
/// opposite signs double the count: the 2 in [`rate_at`].
pub(crate) fn shared_bits(m: u64, k: u32) -> SharedBits {
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

/// Counts the pairs (start, step), both below m, whose k positions are all set.
pub(crate) fn passing_pairs(geometry: &Geometry, bits: &[u8]) -> u64 {
    let m = geometry.m as usize;
    let bit = |i: usize| u64::from(bits[i % m / 8] >> (i % m % 8) & 1);
    // The bits twice and a word more: each rotation of the bits is then a shifted read.
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

/// Euler's φ: how many of 1 … n have no common factor with n.
fn totient(n: u32) -> u32 {
    (1..=n).filter(|&i| gcd(i, n) == 1).count() as u32
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_has_the_excess_of_short_orbits_and_of_shared_bits() {
        for (m, k, ones) in [(420_u64, 7_u32, 210_u64), (840, 9, 500), (1001, 5, 400)] {
            let geometry = Geometry { m, k, wide: 0 };
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
}
