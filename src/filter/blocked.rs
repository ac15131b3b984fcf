//! A Bloom filter in blocks of 512 bits, one cache line: eight 64-bit words, one bit in each (a split
//! block Bloom filter, as Apache Parquet has with half the block: Putze, Sanders and Singler, *Cache-,
//! Hash- and Space-Efficient Bloom Filters*, 2007).
//!
//! The high bits of the hash choose the block; its product with an odd constant gives six fresh bits
//! for each word, from bit 16 up.

use super::hash::{GOLDEN, fast_range};
use super::kind::{Built, Geometry, Kind, Probe, ProbeMany, below};
#[cfg(target_arch = "x86_64")]
use super::simd;
use super::simd::Path;

const BLOCK_BITS: u64 = 512;
pub(super) const BLOCK_BYTES: usize = 64;
const WORDS: u32 = 8;
const MAX_BITS: u64 = 1 << 43;

pub(super) static KIND: Kind = Kind {
    id: 2,
    name: "blocked",
    for_rate,
    for_bits,
    lowest_rate: 1e-6,
    expected_rate: |keys, geometry| expected_rate(keys, geometry.m / BLOCK_BITS),
    roomier,
    check,
    array_bytes: |geometry| (geometry.m / 8) as usize,
    build,
    probe,
    probe_many,
    touched,
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

/// The fewest blocks that give the rate, by bisection.
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

/// The rate to expect of n keys in B blocks. With j keys in its block a key finds its bit set in one
/// word with probability 1 − q^j, q = 63/64, so in all eight with Σ (−1)^i · C(8, i) · q^(ij). The mean
/// of q^(ij) over j, binomial in n and 1/B, is (1 − (1 − q^i)/B)^n.
fn expected_rate(keys: u64, blocks: u64) -> f64 {
    let (n, b) = (keys as f64, blocks as f64);
    let q = 63.0_f64 / 64.0;
    let choose = [1.0, -8.0, 28.0, -56.0, 70.0, -56.0, 28.0, -8.0, 1.0];
    let terms =
        choose.iter().zip(0..).map(|(c, i)| c * (n * (-(1.0 - q.powi(i)) / b).ln_1p()).exp());
    terms.sum::<f64>().max(0.0) // rounding leaves some 1e-14
}

fn check(geometry: &Geometry) -> Result<(), String> {
    let Geometry { m, k, wide } = *geometry;
    if m == 0 || m > MAX_BITS || !m.is_multiple_of(BLOCK_BITS) {
        return Err(format!(
            "a blocked filter has whole blocks of {BLOCK_BITS} bits, not {m} bits"
        ));
    }
    if k != WORDS || wide != 0 {
        return Err(format!("a blocked filter sets {WORDS} bits a key, not {k}"));
    }
    Ok(())
}

/// Where a key's block starts in the array, and the product that its bits come from.
#[inline]
pub(super) fn place(geometry: &Geometry, hash: u64) -> (usize, u64) {
    place_among(geometry.m / BLOCK_BITS, hash)
}

#[inline]
pub(super) fn place_among(blocks: u64, hash: u64) -> (usize, u64) {
    (fast_range(hash, blocks) as usize * BLOCK_BYTES, hash.wrapping_mul(GOLDEN))
}

/// The bit of word `j`, from six bits of the product.
#[inline]
fn bit(product: u64, j: usize) -> u64 {
    1 << (product >> (16 + 6 * j) & 63)
}

#[expect(clippy::needless_pass_by_value, reason = "as the seam has it: a ribbon works in place")]
fn build(geometry: &Geometry, hashes: Vec<u64>) -> Built {
    let mut array = vec![0; (geometry.m / 8) as usize];
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

#[expect(clippy::inline_always, reason = "compiled anew for each processor's instructions")]
#[inline(always)]
pub(super) fn insert_all(geometry: &Geometry, array: &mut [u8], hashes: &[u64]) {
    for &hash in hashes {
        let (start, product) = place(geometry, hash);
        let (words, _) = array[start..start + BLOCK_BYTES].as_chunks_mut::<8>();
        for (j, word) in words.iter_mut().enumerate() {
            *word = (u64::from_le_bytes(*word) | bit(product, j)).to_le_bytes();
        }
    }
}

/// Exactly the part of all hashes that pass: in each block the product of its words' fills.
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
    may_contain
}

fn probe_many() -> ProbeMany {
    #[cfg(target_arch = "x86_64")]
    if let Some(probe) = simd::blocked::probe_many(Path::best()) {
        return probe;
    }
    may_contain_many
}

fn touched(geometry: &Geometry, hash: u64) -> [usize; 4] {
    [place(geometry, hash).0; 4]
}

fn may_contain_many(geometry: &Geometry, array: &[u8], hashes: &[u64], answers: &mut [bool]) {
    for (&hash, answer) in hashes.iter().zip(answers) {
        *answer = may_contain(geometry, array, hash);
    }
}

/// An array that is too short answers "maybe" for what it does not hold.
fn may_contain(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let (start, product) = place(geometry, hash);
    let Some(block) = array.get(start..start + BLOCK_BYTES) else { return true };
    let mut missing = 0;
    for (j, word) in block.as_chunks::<8>().0.iter().enumerate() {
        missing |= !u64::from_le_bytes(*word) & bit(product, j); // no branch to mispredict
    }
    missing == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::hash::mix;
    use crate::filter::simd::forced::on_each_path;

    #[test]
    fn every_path_builds_the_same_and_answers_the_same() {
        let geometry = for_bits(1_000_000, 10.0);
        let keys: Vec<u64> = (0..1_000_000).map(|i| mix(i ^ 1 << 40)).collect();
        let mut plain = vec![0; (geometry.m / 8) as usize];
        insert_all(&geometry, &mut plain, &keys);
        on_each_path(|path| {
            let built = build(&geometry, keys.clone());
            assert!(built.array == plain, "{path:?}");
            let probe = probe();
            assert!(keys.iter().all(|&key| probe(&geometry, &plain, key)), "{path:?}");
            let mut passed = 0;
            for i in 0..1_000_000 {
                let hash = mix(i ^ 1 << 41);
                let answer = probe(&geometry, &plain, hash);
                assert_eq!(answer, may_contain(&geometry, &plain, hash), "{path:?} {hash:x}");
                passed += u32::from(answer);
            }
            assert!((9_500..11_500).contains(&passed), "{path:?} {passed}");
            let many: Vec<u64> = (0..100_000).map(|i| mix(i ^ 1 << 41)).collect();
            let mut answers = vec![false; many.len()];
            probe_many()(&geometry, &plain, &many, &mut answers);
            let singly = many.iter().map(|&hash| may_contain(&geometry, &plain, hash));
            assert!(singly.eq(answers), "{path:?}");
            // Cut short within the last block, the array must not be read beyond its end.
            assert!(probe(&geometry, &plain[..plain.len() - 1], u64::MAX));
            assert!(probe(&geometry, &[], 0));
        });
    }

    /// The closed form against the sum over the binomial distribution.
    #[test]
    fn the_expected_rate_is_the_mean_over_the_blocks() {
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
    fn the_fewest_blocks_give_the_rate() {
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
