//! Blocked filters in plain Rust: the layout of the bits, and the reference for the vector code.
//!
//! The high bits of a hash choose the block. Its product with an odd constant gives the number of a bit in
//! each word: six bits per word, from bit 16 up.

use crate::geometry::Geometry;
use crate::hash::{GOLDEN, fast_range};

pub(crate) const BLOCK_BITS: u64 = 512;
pub(crate) const BLOCK_BYTES: usize = 64;
pub(crate) const WORDS: u32 = 8;
pub(crate) const MAX_BITS: u64 = 1 << 43;

pub(crate) fn check(geometry: &Geometry) -> Result<(), String> {
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

pub(crate) fn array_bytes(geometry: &Geometry) -> usize {
    (geometry.m / 8) as usize
}

/// The offset of a key's block in the array, and the product that gives its bits.
#[inline]
pub(crate) fn block(geometry: &Geometry, hash: u64) -> (usize, u64) {
    block_of(geometry.m / BLOCK_BITS, hash)
}

#[inline]
pub(crate) fn block_of(blocks: u64, hash: u64) -> (usize, u64) {
    (fast_range(hash, blocks) as usize * BLOCK_BYTES, hash.wrapping_mul(GOLDEN))
}

/// The number of the key's bit in word `j`.
#[inline]
fn bit(product: u64, j: usize) -> u64 {
    1 << (product >> (16 + 6 * j) & 63)
}

#[expect(clippy::inline_always, reason = "compiled anew for each processor's instructions")]
#[inline(always)]
pub(crate) fn insert_all(geometry: &Geometry, array: &mut [u8], hashes: &[u64]) {
    for &hash in hashes {
        let (start, product) = block(geometry, hash);
        let (words, _) = array[start..start + BLOCK_BYTES].as_chunks_mut::<8>();
        for (j, word) in words.iter_mut().enumerate() {
            *word = (u64::from_le_bytes(*word) | bit(product, j)).to_le_bytes();
        }
    }
}

/// Whether all bits of a key are set. In a block behind the end of a short array, all bits count as set.
pub(crate) fn may_contain(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let (start, product) = block(geometry, hash);
    let Some(block) = array.get(start..start + BLOCK_BYTES) else { return true };
    let mut missing = 0;
    for (j, word) in block.as_chunks::<8>().0.iter().enumerate() {
        missing |= !u64::from_le_bytes(*word) & bit(product, j); // no branch to mispredict
    }
    missing == 0
}
