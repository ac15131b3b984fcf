//! Theory of Bloom filters of m bits and k probes with n keys.
//!
//! The probes of a key are (h1 + i·h2) mod m. [`classic_rate`] is the formula of all five sources. It takes
//! bits as independent, the number of ones as its mean, and the probes of a key as unrelated. It is off by
//! 0.8 % at the notebook's m = 1000, k = 4, n = 200, and by a hundredth of that in a filter a hundred times
//! as large. [`rate`] has the next terms; [`exact_rate`] is exact, for millions of lookups in very small
//! filters.
//!
//! The library computes some of the same to size filters. Theory takes nothing from there, since it checks
//! it.

use std::f64::consts::LN_2;

/// (1 − e^(−kn/m))^k.
pub fn classic_rate(m: u64, k: u32, n: u64) -> f64 {
    let load = f64::from(k) * n as f64 / m as f64;
    (-(-load).exp_m1()).powi(k as i32)
}

/// The rate at m/n bits per key and k probes, for large filters.
pub fn rate_at_ratio(bits_per_key: f64, k: u32) -> f64 {
    (-(-f64::from(k) / bits_per_key).exp_m1()).powi(k as i32)
}

/// m = ⌈−n ln p / (ln 2)²⌉ and k = round(m/n · ln 2): the sources' shape for n keys at a rate p.
pub fn classic_shape(n: u64, rate: f64) -> (u64, u32) {
    let m = (-(n as f64) * rate.ln() / (LN_2 * LN_2)).ceil();
    (m as u64, best_probes(m / n as f64))
}

/// round(b · ln 2), the number of probes for b bits a key.
pub fn best_probes(bits_per_key: f64) -> u32 {
    (bits_per_key * LN_2).round().max(1.0) as u32
}

/// The mean number of distinct bits of a key: k, less what short orbits repeat. One step in m/φ(d) has the
/// order d, if d divides m.
fn bits_of_a_key(m: u64, k: u32) -> f64 {
    let short = (1..k).filter(|&d| m.is_multiple_of(u64::from(d)));
    let lost: f64 = short.map(|d| f64::from(totient(d)) * f64::from(k - d)).sum();
    f64::from(k) - lost / m as f64
}

/// The mean share of set bits: 1 − (1 − b/m)^n, where b, about k, is the mean number of bits of a key. Exact.
pub fn fill(m: u64, k: u32, n: u64) -> f64 {
    -((-bits_of_a_key(m, k) / m as f64).ln_1p() * n as f64).exp_m1()
}

/// The variance of the share of set bits, from the chance that two bits are both unset, whatever their
/// distance.
fn variance_of_fill(m: u64, k: u32, n: u64) -> f64 {
    let (bits, k) = (m as f64, f64::from(k));
    let keys = n as f64;
    let one_unset = ((-k / bits).ln_1p() * keys).exp();
    let missed_both = 1.0 - 2.0 * k / bits + k * (k - 1.0) / (bits * (bits - 1.0).max(1.0));
    let both_unset = missed_both.max(0.0).powf(keys);
    let of_a_bit = one_unset * (1.0 - one_unset);
    let of_two = both_unset - one_unset * one_unset;
    ((of_a_bit + (bits - 1.0) * of_two) / bits).max(0.0)
}

/// The mean false-positive rate over all hashes, with the first terms beyond fill^k.
///
/// By inclusion and exclusion over the probes, with q = 1 − fill:
/// * Two bits are unset together less often than q², by a share n·k/m²: this subtracts C(k,2)·q²·fill^(k−2)
///   times that share.
/// * An absent key with the step of one of the n keys, or its opposite, shares s = k − |j| bits with it if it
///   starts j steps away. From three bits on this adds fill^(k−s) · (1 − fill^s − s·q·fill^(s−1) −
///   C(s,2)·q²·fill^(s−2)).
/// * One step in m/φ(d) repeats after d probes, if d divides m; such a key meets d bits only.
///
/// (Bose and others, *On the false-positive rate of Bloom filters*, 2008, have the first; Dillinger and
/// Manolios, *Bloom Filters in Probabilistic Verification*, 2004, the others.) Within 0.3 % from m = 1000 on,
/// tested against [`exact_rate`].
pub fn rate(m: u64, k: u32, n: u64) -> f64 {
    let (fill, bits, keys, probes) = (fill(m, k, n), m as f64, n as f64, k as i32);
    let unset = 1.0 - fill;
    let set = |bits: i32| fill.powi(bits.max(0)); // where the power is negative, its factor is 0
    let pairs = |of: i32| f64::from(of * (of - 1) / 2) * unset * unset * set(of - 2);
    let crowded = keys * f64::from(k) / (bits * bits) * pairs(probes);
    let overlaps = (1 - probes..probes)
        .map(|start| probes - start.abs())
        .map(|s| set(probes - s) * (1.0 - set(s) - f64::from(s) * unset * set(s - 1) - pairs(s)));
    let overlapping = 2.0 * keys / (bits * bits) * overlaps.sum::<f64>();
    let short_steps: f64 = (1..k)
        .filter(|&d| m.is_multiple_of(u64::from(d)))
        .map(|d| f64::from(totient(d)) / bits * (set(d as i32) - set(probes)))
        .sum();
    (set(probes) - crowded + overlapping + short_steps).clamp(0.0, 1.0)
}

/// The standard deviation of the false-positive rate between filters of different hashes: k·fill^(k−1) times
/// that of the fill.
pub fn spread(m: u64, k: u32, n: u64) -> f64 {
    f64::from(k) * fill(m, k, n).powi(k as i32 - 1) * variance_of_fill(m, k, n).sqrt()
}

/// The exact mean false-positive rate over all hashes: by inclusion and exclusion over the probes, the chance
/// that n keys leave some of them unset, counted over all pairs of steps. Takes about m² · 4^k steps; k is at
/// most 8.
pub fn exact_rate(m: u64, k: u32, n: u64) -> f64 {
    let sets = 1_usize << k;
    let (mut places, mut passed) = (Vec::new(), 0.0);
    for step in 0..m {
        // For each set of the absent key's probes: the starts, over all steps, of keys that touch it.
        let mut touching = vec![0_u64; sets];
        for other in 0..m {
            // A key touches place t·step if it starts at t·step − i·other.
            places.clear();
            for t in 0..u64::from(k) {
                let starts = (0..u64::from(k)).map(|i| (t * step + (m - other) * i) % m);
                places.extend(starts.map(|start| (start, 1_usize << t)));
            }
            places.sort_unstable();
            let mut by_probes = vec![0_u64; sets];
            for same in places.chunk_by(|a, b| a.0 == b.0) {
                by_probes[same.iter().fold(0, |all, (_, probe)| all | probe)] += 1;
            }
            for (set, touching) in touching.iter_mut().enumerate() {
                let any = by_probes.iter().enumerate().filter(|(probes, _)| probes & set != 0);
                *touching += any.map(|(_, starts)| starts).sum::<u64>();
            }
        }
        let unset_by_all =
            |touching: u64| (1.0 - touching as f64 / (m as f64 * m as f64)).powf(n as f64);
        let signed = touching.iter().enumerate().map(|(set, &touching)| {
            if set.count_ones() % 2 == 0 { unset_by_all(touching) } else { -unset_by_all(touching) }
        });
        passed += signed.sum::<f64>();
    }
    passed / m as f64
}

/// Euler's φ: the count of 1 … n without a common factor with n.
fn totient(n: u32) -> u32 {
    fn gcd(a: u32, b: u32) -> u32 {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    (1..=n).filter(|&i| gcd(i, n) == 1).count() as u32
}

#[cfg(test)]
mod tests {
    use criba_filter::{Bloom, Hashing};

    use super::*;
    use crate::check::mean_and_sd;
    use crate::experiment::key;

    #[test]
    fn the_formulas_give_what_the_sources_print() {
        assert!((classic_rate(1000, 4, 200) - 0.0920).abs() < 5e-5);
        assert!((rate_at_ratio(3.0, 3) - 0.2526).abs() < 5e-5);
        assert_eq!(classic_shape(500_000, 0.01), (4_792_530, 7));
        assert_eq!(classic_shape(1_000_000, 0.001), (14_377_588, 10));
    }

    #[test]
    fn small_cases_come_out_by_hand() {
        for n in 0..10 {
            let by_hand = 1.0 - 0.75_f64.powi(n as i32);
            assert!((exact_rate(4, 1, n) - by_hand).abs() < 1e-12);
            assert!((rate(4, 1, n) - by_hand).abs() < 1e-12);
        }
        // Two bits, two probes, one key. With step 0, half of the time, both probes are one bit. The
        // key sets one bit or both; the absent key passes if its bits are among them:
        // 1/2 · 1 for a key that sets both, 1/2 · (1/2 · 1/2) for one that sets one.
        assert!((exact_rate(2, 2, 1) - 0.625).abs() < 1e-12);
    }

    #[test]
    fn the_first_terms_are_enough_from_a_thousand_bits_on() {
        for (m, k, n) in [(1000, 4, 200), (1009, 4, 100), (1001, 3, 300), (1000, 2, 700)] {
            let (exact, near) = (exact_rate(m, k, n), rate(m, k, n));
            let off = near / exact - 1.0;
            println!("m = {m}, k = {k}, n = {n}: exact {exact:.6}, near {near:.6}, off {off:.2e}");
            assert!(off.abs() < 0.003, "{off}");
        }
    }

    #[test]
    fn rates_scatter_between_filters_as_theory_says() {
        let seed = 5_u128;
        for (m, k, n) in [(1000, 4, 200), (5000, 7, 500), (20_000, 3, 9000), (2000, 1, 1500)] {
            let rates: Vec<f64> = (0..3000)
                .map(|i| {
                    let hashing = Hashing::keyed((seed << 64 | i).to_le_bytes());
                    let filter = Bloom::with_geometry(m, k).and_then(|f| f.with_hashing(hashing));
                    let mut filter = filter.expect("a sound shape");
                    filter.extend((0..n).map(|i| key(0, i)));
                    filter.occupancy().powi(k as i32)
                })
                .collect();
            let (mean, sd) = mean_and_sd(&rates);
            let ratio = sd / spread(m, k, n);
            println!("m = {m}, k = {k}, n = {n}: mean {mean:.5}, sd {ratio:.3} of theory's");
            // Of 3000 draws the standard deviation is known within 1.3 %: four of them, and some for
            // the approximation.
            assert!((0.94..1.06).contains(&ratio), "{ratio}");
        }
    }
}
