//! A Bloom filter in blocks of 512 bits, one cache line. A key sets one bit in each of the eight 64-bit words
//! of one block: a split block Bloom filter (Putze, Sanders and Singler, *Cache-, Hash- and Space-Efficient
//! Bloom Filters*, 2007). Those of Apache Parquet have blocks of 256 bits.

use super::algorithm::{Algorithm, Built, below, probe_each};
use super::blocked_scalar::{
    BLOCK_BITS, BLOCK_BYTES, MAX_BITS, WORDS, array_bytes, check, insert_all, may_contain, place,
};
use super::geometry::Geometry;
#[cfg(target_arch = "x86_64")]
use super::simd;
use super::simd::{Path, Probe, Prober};

pub(crate) static ALGORITHM: Algorithm = Algorithm {
    id: 2,
    name: "blocked",
    for_rate,
    for_bits,
    lowest_rate: 1e-6,
    expected_rate: |keys, geometry| expected_rate(keys, geometry.m / BLOCK_BITS),
    roomier,
    check,
    array_bytes,
    build,
    probe,
    touched,
    #[cfg(target_arch = "x86_64")]
    unchecked: |geometry, bytes| simd::blocked::unchecked(Path::best(), geometry, bytes),
    #[cfg(not(target_arch = "x86_64"))]
    unchecked: |_, _| None,
};

fn with_blocks(blocks: u64) -> Geometry {
    let blocks = blocks.clamp(1, MAX_BITS / BLOCK_BITS);
    Geometry { m: blocks * BLOCK_BITS, k: WORDS, wide: 0 }
}

fn for_bits(keys: u64, bits_per_key: f64) -> Geometry {
    with_blocks((keys as f64 * bits_per_key / BLOCK_BITS as f64).ceil() as u64)
}

fn roomier(geometry: &Geometry) -> Geometry {
    let blocks = geometry.m / BLOCK_BITS;
    with_blocks(blocks + blocks.div_ceil(16))
}

/// Nearly the fewest blocks that give the rate, by bisection.
fn for_rate(keys: u64, rate: f64) -> Geometry {
    let rate = below(rate, keys);
    let (mut too_few, mut enough) = (0, 1);
    while expected_rate(keys, enough) > rate && enough < MAX_BITS / BLOCK_BITS {
        (too_few, enough) = (enough, 2 * enough);
    }
    while enough - too_few > 1 + enough / 4096 {
        let middle = u64::midpoint(too_few, enough);
        if expected_rate(keys, middle) > rate { too_few = middle } else { enough = middle }
    }
    with_blocks(enough)
}

/// The expected rate of n keys in B blocks. Let q = 63/64. In a block with j keys, the bit of an absent key
/// is set in one word with probability 1 − q^j, and in all eight with Σ (−1)^i · C(8, i) · q^(ij). j is
/// binomial in n and 1/B, so the mean of q^(ij) is (1 − (1 − q^i)/B)^n.
fn expected_rate(keys: u64, blocks: u64) -> f64 {
    let (n, b) = (keys as f64, blocks as f64);
    let q = 63.0_f64 / 64.0;
    let choose = [1.0, -8.0, 28.0, -56.0, 70.0, -56.0, 28.0, -8.0, 1.0];
    let terms =
        choose.iter().zip(0..).map(|(c, i)| c * (n * (-(1.0 - q.powi(i)) / b).ln_1p()).exp());
    terms.sum::<f64>().max(0.0) // rounding errors are about 1e-14
}

#[expect(clippy::needless_pass_by_value, reason = "the type of `Algorithm::build`")]
fn build(geometry: &Geometry, hashes: Vec<u64>) -> Built {
    let mut array = vec![0; array_bytes(geometry)];
    insert(geometry, &mut array, &hashes);
    let predicted_rate = predicted_rate(&array);
    Built { array, predicted_rate, unlucky: false }
}

fn insert(geometry: &Geometry, array: &mut [u8], hashes: &[u64]) {
    #[cfg(target_arch = "x86_64")]
    if simd::blocked::insert(Path::best(), geometry, array, hashes) {
        return;
    }
    insert_all(geometry, array, hashes);
}

/// The exact rate for uniform hashes: the mean over the blocks of the product of the fills of eight words.
fn predicted_rate(array: &[u8]) -> f64 {
    let (blocks, _) = array.as_chunks::<BLOCK_BYTES>();
    let fill = |word: &[u8; 8]| f64::from(u64::from_le_bytes(*word).count_ones()) / 64.0;
    let rate = |block: &[u8; BLOCK_BYTES]| block.as_chunks().0.iter().map(fill).product::<f64>();
    blocks.iter().map(rate).sum::<f64>() / blocks.len() as f64
}

fn probe() -> Probe {
    #[cfg(target_arch = "x86_64")]
    if let Some(probe) = simd::blocked::probe(Path::best()) {
        return probe;
    }
    Probe::scalar(may_contain, |geometry, array, hashes, answers| {
        probe_each(hashes, answers, |hash| may_contain(geometry, array, hash));
    })
}

fn touched(prober: &Prober, hash: u64) -> [usize; 4] {
    [place(prober.geometry(), hash).0; 4]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::mix;
    use crate::simd::forced::on_each_path;

    #[test]
    fn every_path_builds_the_same_and_answers_the_same() {
        let geometry = for_bits(1_000_000, 10.0);
        let keys: Vec<u64> = (0..1_000_000).map(|i| mix(i ^ 1 << 40)).collect();
        let mut plain = vec![0; array_bytes(&geometry)];
        insert_all(&geometry, &mut plain, &keys);
        on_each_path(|path| {
            let built = build(&geometry, keys.clone());
            assert!(built.array == plain, "{path:?}");
            let probe = probe();
            assert!(keys.iter().all(|&key| probe.may_contain(&geometry, &plain, key)), "{path:?}");
            let mut passed = 0;
            for i in 0..1_000_000 {
                let hash = mix(i ^ 1 << 41);
                let answer = probe.may_contain(&geometry, &plain, hash);
                assert_eq!(answer, may_contain(&geometry, &plain, hash), "{path:?} {hash:x}");
                passed += u32::from(answer);
            }
            assert!((9_500..11_500).contains(&passed), "{path:?} {passed}");
            let many: Vec<u64> = (0..100_000).map(|i| mix(i ^ 1 << 41)).collect();
            let mut answers = vec![false; many.len()];
            probe.may_contain_many(&geometry, &plain, &many, &mut answers);
            let singly = many.iter().map(|&hash| may_contain(&geometry, &plain, hash));
            assert!(singly.eq(answers), "{path:?}");
            // The array ends within its last block; a probe must not read behind the end.
            assert!(probe.may_contain(&geometry, &plain[..plain.len() - 1], u64::MAX));
            assert!(probe.may_contain(&geometry, &[], 0));
        });
    }

    #[test]
    fn the_expected_rate_is_the_mean_over_binomial_blocks() {
        for (keys, blocks) in [(1, 1), (5, 1), (50, 1), (100, 3), (10_000, 200), (10_000, 150)] {
            let (n, b) = (keys as f64, blocks as f64);
            let mut probability = (1.0 - 1.0 / b).powf(n);
            let mut sum = if blocks == 1 { (1.0 - (63.0_f64 / 64.0).powf(n)).powi(8) } else { 0.0 };
            for j in 0..keys.min(2000) {
                let j = j as f64;
                sum += probability * (1.0 - (63.0_f64 / 64.0).powf(j)).powi(8);
                probability *= (n - j) / (j + 1.0) / (b - 1.0).max(1.0);
            }
            let closed = expected_rate(keys, blocks);
            assert!(
                (closed / sum - 1.0).abs() < 1e-3 || sum < 1e-10,
                "{keys} {blocks}: {closed} {sum}"
            );
        }
    }

    #[test]
    fn the_geometry_for_a_rate_has_the_fewest_blocks() {
        for keys in [1, 10, 1_000, 1_000_000, 1 << 34] {
            for rate in [0.9, 0.3, 0.01, 1e-6] {
                let blocks = for_rate(keys, rate).m / BLOCK_BITS;
                assert!(expected_rate(keys, blocks) <= rate, "{keys} {rate}");
                let fewer = blocks - blocks.div_ceil(1000);
                assert!(
                    fewer == 0 || expected_rate(keys, fewer) > below(rate, keys),
                    "{keys} {rate} {blocks}"
                );
            }
        }
    }
}
