//! Vector code for blocked filters: one block at a time.

#![expect(unsafe_code, reason = "vector loads, and calls of functions for this processor")]

use std::arch::x86_64::{
    __m512i, _mm256_add_epi64, _mm256_and_si256, _mm256_loadu_si256, _mm256_set1_epi64x,
    _mm256_setr_epi64x, _mm256_sllv_epi64, _mm256_srlv_epi64, _mm256_testc_si256,
    _mm512_bitshuffle_epi64_mask, _mm512_loadu_si512, _mm512_multishift_epi64_epi8,
    _mm512_set1_epi64, _mm512_setr_epi64,
};

use super::array::{BLOCK_BYTES, block, block_of, insert_all};
use crate::geometry::Geometry;
use crate::instructions::Instructions;

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512bitalg,bmi2")]
pub(super) fn avx512(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let (start, product) = block(geometry, hash);
    if start + BLOCK_BYTES > array.len() {
        return true;
    }
    // SAFETY: the array has the 64 bytes from `start` on. The load needs no alignment.
    let bytes = unsafe { _mm512_loadu_si512(array.as_ptr().add(start).cast()) };
    has_all(bytes, product)
}

/// Makes no checks: the array has this number of blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512bitalg,bmi2")]
pub(super) fn whole(array: &[u8], blocks: u64, hash: u64) -> bool {
    let (start, product) = block_of(blocks, hash);
    // SAFETY: `start` is that of one of the blocks of the array. The load needs no alignment.
    let bytes = unsafe { _mm512_loadu_si512(array.as_ptr().add(start).cast()) };
    has_all(bytes, product)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512bitalg,bmi2")]
pub(super) fn many_whole(array: &[u8], blocks: u64, hashes: &[u64], answers: &mut [bool]) {
    for (&hash, answer) in hashes.iter().zip(answers) {
        *answer = whole(array, blocks, hash);
    }
}

/// Whether each word has its bit. All eight bytes of a lane hold the same bit number.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512bitalg")]
fn has_all(block: __m512i, product: u64) -> bool {
    const EACH_BYTE: i64 = 0x0101_0101_0101_0101;
    let shifts = _mm512_setr_epi64(
        16 * EACH_BYTE,
        22 * EACH_BYTE,
        28 * EACH_BYTE,
        34 * EACH_BYTE,
        40 * EACH_BYTE,
        46 * EACH_BYTE,
        52 * EACH_BYTE,
        58 * EACH_BYTE,
    );
    let bits = _mm512_multishift_epi64_epi8(shifts, _mm512_set1_epi64(product as i64));
    _mm512_bitshuffle_epi64_mask(block, bits) == u64::MAX
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn avx2(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let (start, product) = block(geometry, hash);
    if start + BLOCK_BYTES > array.len() {
        return true;
    }
    let product = _mm256_set1_epi64x(product as i64);
    let (one, six_bits) = (_mm256_set1_epi64x(1), _mm256_set1_epi64x(63));
    let first = _mm256_setr_epi64x(16, 22, 28, 34);
    let second = _mm256_add_epi64(first, _mm256_set1_epi64x(24));
    let bits_of = |shifts| {
        _mm256_sllv_epi64(one, _mm256_and_si256(_mm256_srlv_epi64(product, shifts), six_bits))
    };
    // SAFETY: the array has the 64 bytes from `start` on. The loads need no alignment.
    let (low, high) = unsafe {
        let half = array.as_ptr().add(start).cast();
        (_mm256_loadu_si256(half), _mm256_loadu_si256(half.add(1)))
    };
    // `testc`: the first operand has all bits of the second.
    _mm256_testc_si256(low, bits_of(first)) & _mm256_testc_si256(high, bits_of(second)) == 1
}

/// Sets the bits of keys; `false` if this path has no vector code.
pub(super) fn insert(
    instructions: Instructions,
    geometry: &Geometry,
    array: &mut [u8],
    hashes: &[u64],
) -> bool {
    match instructions {
        Instructions::Scalar => return false,
        // SAFETY: `Instructions::best` found that the processor has them.
        Instructions::Avx2 => unsafe { insert_avx2(geometry, array, hashes) },
        // SAFETY: as above.
        Instructions::Avx512 => unsafe { insert_avx512(geometry, array, hashes) },
    }
    true
}

/// The scalar loop, which the compiler vectorises.
#[target_feature(enable = "avx2")]
fn insert_avx2(geometry: &Geometry, array: &mut [u8], hashes: &[u64]) {
    insert_all(geometry, array, hashes);
}

/// The scalar loop, which the compiler vectorises.
#[target_feature(enable = "avx512f")]
fn insert_avx512(geometry: &Geometry, array: &mut [u8], hashes: &[u64]) {
    insert_all(geometry, array, hashes);
}
