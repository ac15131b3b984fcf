//! A Bloom filter in blocks of 512 bits, one cache line: eight 64-bit words, one bit in each (a split
//! block Bloom filter, as Apache Parquet has with half the block: Putze, Sanders and Singler, *Cache-,
//! Hash- and Space-Efficient Bloom Filters*, 2007).
//!
//! The high bits of the hash choose the block; its product with an odd constant gives six fresh bits
//! for each word.

use super::hash::{GOLDEN, fast_range};
use super::kind::{Built, Geometry, Kind};

const BLOCK_BITS: u64 = 512;
const BLOCK_BYTES: usize = 64;
const WORDS: u32 = 8;
const MAX_BITS: u64 = 1 << 43;

pub(super) static KIND: Kind = Kind {
    id: 2,
    name: "blocked",
    for_rate,
    for_bits,
    lowest_rate: 1e-6,
    check,
    array_bytes: |geometry| (geometry.m / 8) as usize,
    build,
    probe: || may_contain,
};

fn with_blocks(blocks: f64) -> Geometry {
    let blocks = (blocks.ceil() as u64).clamp(1, MAX_BITS / BLOCK_BITS);
    Geometry { m: blocks * BLOCK_BITS, k: WORDS, wide: 0 }
}

fn for_bits(keys: u64, bits_per_key: f64) -> Geometry {
    with_blocks(keys as f64 * bits_per_key / BLOCK_BITS as f64)
}

/// By bisection over the bits a key: the rate falls with each of them.
fn for_rate(keys: u64, rate: f64) -> Geometry {
    let (mut low, mut high) = (0.1_f64, 200.0_f64);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if expected_rate(middle) > rate { low = middle } else { high = middle }
    }
    for_bits(keys, high)
}

/// The rate at so many bits a key: the keys of a block are Poisson-distributed, and each sets one of
/// 64 bits in each word.
fn expected_rate(bits_per_key: f64) -> f64 {
    let mean = BLOCK_BITS as f64 / bits_per_key;
    let mut probability = (-mean).exp();
    let (mut rate, mut keys) = (0.0, 0.0);
    while keys < mean + 12.0 * mean.sqrt() + 30.0 {
        let fill = 1.0 - (63.0_f64 / 64.0).powf(keys);
        rate += probability * fill.powi(WORDS as i32);
        keys += 1.0;
        probability *= mean / keys;
    }
    rate
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

/// Where a key's block starts in the array, and the hash that its bits come from.
#[inline]
fn place(geometry: &Geometry, hash: u64) -> (usize, u64) {
    let block = fast_range(hash, geometry.m / BLOCK_BITS);
    (block as usize * BLOCK_BYTES, hash.wrapping_mul(GOLDEN))
}

/// The bit of word `j`, from six bits of the product.
#[inline]
fn bit(product: u64, j: usize) -> u64 {
    1 << (product >> (16 + 6 * j) & 63)
}

fn build(geometry: &Geometry, hashes: Vec<u64>) -> Built {
    let mut words = vec![0_u64; (geometry.m / 64) as usize];
    for hash in hashes {
        let (start, product) = place(geometry, hash);
        for (j, word) in words[start / 8..start / 8 + 8].iter_mut().enumerate() {
            *word |= bit(product, j);
        }
    }
    let predicted_rate = predicted_rate(&words);
    let array = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    Built { array, predicted_rate, unlucky: false }
}

/// Exactly the part of all hashes that pass: in each block the product of its words' fills.
fn predicted_rate(words: &[u64]) -> f64 {
    let blocks = words.chunks_exact(8);
    let count = blocks.len() as f64;
    blocks.map(|b| b.iter().map(|w| f64::from(w.count_ones()) / 64.0).product::<f64>()).sum::<f64>()
        / count
}

fn may_contain(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let (start, product) = place(geometry, hash);
    let Some(block) = array.get(start..start + BLOCK_BYTES) else { return true };
    let mut missing = 0;
    for (j, word) in block.chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(word.try_into().unwrap_or([0xff; 8]));
        missing |= !word & bit(product, j); // no early exit, so no branch to mispredict
    }
    missing == 0
}
