//! A Bloom filter in blocks of 512 bits, one cache line. A key sets one bit in each of the eight 64-bit words
//! of one block: a split block Bloom filter (Putze, Sanders and Singler, *Cache-, Hash- and Space-Efficient
//! Bloom Filters*, 2007). Those of Apache Parquet have blocks of 256 bits.

mod array;
mod prober;
#[cfg(target_arch = "x86_64")]
mod vector;

pub(crate) use array::{array_bytes, check};
pub(crate) use prober::BlockedProber;

use self::array::{BLOCK_BITS, BLOCK_BYTES, MAX_BITS, WORDS};
use crate::built::{Built, rate_aim};
use crate::geometry::Geometry;
use crate::instructions::Instructions;

fn with_blocks(blocks: u64) -> Geometry {
    let blocks = blocks.clamp(1, MAX_BITS / BLOCK_BITS);
    Geometry { m: blocks * BLOCK_BITS, k: WORDS, wide: 0 }
}

pub(crate) fn for_bits(keys: u64, bits_per_key: f64) -> Geometry {
    with_blocks((keys as f64 * bits_per_key / BLOCK_BITS as f64).ceil() as u64)
}

pub(crate) fn grow(geometry: &Geometry) -> Geometry {
    let blocks = geometry.m / BLOCK_BITS;
    with_blocks(blocks + blocks.div_ceil(16))
}

/// Nearly the fewest blocks that give the rate, by bisection.
pub(crate) fn for_rate(keys: u64, rate: f64) -> Geometry {
    let rate = rate_aim(rate, keys);
    let (mut too_few, mut enough) = (0, 1);
    while rate_of_blocks(keys, enough) > rate && enough < MAX_BITS / BLOCK_BITS {
        (too_few, enough) = (enough, 2 * enough);
    }
    while enough - too_few > 1 + enough / 4096 {
        let middle = u64::midpoint(too_few, enough);
        if rate_of_blocks(keys, middle) > rate { too_few = middle } else { enough = middle }
    }
    with_blocks(enough)
}

pub(crate) fn expected_rate(keys: u64, geometry: &Geometry) -> f64 {
    rate_of_blocks(keys, geometry.m / BLOCK_BITS)
}

/// The expected rate of n keys in B blocks. Let q = 63/64. In a block with j keys, the bit of an absent key
/// is set in one word with probability 1 − q^j, and in all eight with Σ (−1)^i · C(8, i) · q^(ij). j is
/// binomial in n and 1/B, so the mean of q^(ij) is (1 − (1 − q^i)/B)^n.
fn rate_of_blocks(keys: u64, blocks: u64) -> f64 {
    let (n, b) = (keys as f64, blocks as f64);
    let q = 63.0_f64 / 64.0;
    let choose = [1.0, -8.0, 28.0, -56.0, 70.0, -56.0, 28.0, -8.0, 1.0];
    let terms =
        choose.iter().zip(0..).map(|(c, i)| c * (n * (-(1.0 - q.powi(i)) / b).ln_1p()).exp());
    terms.sum::<f64>().max(0.0) // rounding errors are about 1e-14
}

pub(crate) fn build(geometry: &Geometry, hashes: &[u64]) -> Built {
    let mut array = vec![0; array_bytes(geometry)];
    insert(geometry, &mut array, hashes);
    let predicted_rate = predicted_rate(&array);
    Built { array, predicted_rate, is_rejected: false }
}

fn insert(geometry: &Geometry, array: &mut [u8], hashes: &[u64]) {
    #[cfg(target_arch = "x86_64")]
    if vector::insert(Instructions::best(), geometry, array, hashes) {
        return;
    }
    array::insert_all(geometry, array, hashes);
}

/// The exact rate for uniform hashes: the mean over the blocks of the product of the fills of eight words.
fn predicted_rate(array: &[u8]) -> f64 {
    let (blocks, _) = array.as_chunks::<BLOCK_BYTES>();
    let fill = |word: &[u8; 8]| f64::from(u64::from_le_bytes(*word).count_ones()) / 64.0;
    let rate = |block: &[u8; BLOCK_BYTES]| block.as_chunks().0.iter().map(fill).product::<f64>();
    blocks.iter().map(rate).sum::<f64>() / blocks.len() as f64
}

#[cfg(test)]
mod tests {
    use super::prober::may_contain;
    use super::*;
    use crate::hash::mix;
    use crate::instructions::forced::on_each;

    #[test]
    fn all_instructions_build_the_same_and_answer_the_same() {
        let geometry = for_bits(1_000_000, 10.0);
        let keys: Vec<u64> = (0..1_000_000).map(|i| mix(i ^ 1 << 40)).collect();
        let mut plain = vec![0; array_bytes(&geometry)];
        array::insert_all(&geometry, &mut plain, &keys);
        on_each(|instructions| {
            let built = build(&geometry, &keys);
            assert!(built.array == plain, "{instructions:?}");
            let probe = |array: &[u8], hash| may_contain(instructions, &geometry, array, hash);
            assert!(keys.iter().all(|&key| probe(&plain, key)), "{instructions:?}");
            let mut passed = 0;
            for hash in (0..1_000_000).map(|i| mix(i ^ 1 << 41)) {
                let answer = probe(&plain, hash);
                let expected = array::may_contain(&geometry, &plain, hash);
                assert_eq!(answer, expected, "{instructions:?} {hash:x}");
                passed += u32::from(answer);
            }
            assert!((9_500..11_500).contains(&passed), "{instructions:?} {passed}");
            // The array ends within its last block; a probe must not read behind the end.
            assert!(probe(&plain[..plain.len() - 1], u64::MAX));
            assert!(probe(&[], 0));
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
            let closed = rate_of_blocks(keys, blocks);
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
                assert!(rate_of_blocks(keys, blocks) <= rate, "{keys} {rate}");
                let fewer = blocks - blocks.div_ceil(1000);
                assert!(
                    fewer == 0 || rate_of_blocks(keys, fewer) > rate_aim(rate, keys),
                    "{keys} {rate} {blocks}"
                );
            }
        }
    }
}
