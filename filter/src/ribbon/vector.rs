//! Vector code for ribbons: eight or four columns at a time.

#![expect(unsafe_code, reason = "vector loads, and calls of functions for this processor")]
#![expect(clippy::cast_ptr_alignment, reason = "the loads need no alignment")]

use std::arch::x86_64::{
    __m256i, _bzhi_u32, _bzhi_u64, _mm256_and_si256, _mm256_castsi256_pd, _mm256_cmpgt_epi64,
    _mm256_loadu_si256, _mm256_maskload_epi64, _mm256_movemask_pd, _mm256_or_si256,
    _mm256_sad_epu8, _mm256_set1_epi8, _mm256_set1_epi64x, _mm256_setr_epi8, _mm256_setr_epi64x,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_slli_epi64, _mm256_srli_epi64,
    _mm256_testz_si256, _mm256_xor_si256, _mm512_and_si512, _mm512_loadu_epi64,
    _mm512_maskz_loadu_epi64, _mm512_popcnt_epi64, _mm512_set1_epi64, _mm512_shrdv_epi64,
    _mm512_test_epi64_mask, _mm512_xor_si512,
};

use super::array::{ProbeWords, equation_of, halves, may_contain, probe_words};
use super::layout::{FirstWords, Layout};
use super::solver::{COLUMNS_AT_ONCE, RibbonSolver};
use crate::geometry::Geometry;
use crate::instructions::Instructions;

/// Whether all words lie within the array. If not, the scalar code answers.
#[inline]
fn is_within(array: &[u8], words: &ProbeWords) -> bool {
    8 * (words.second + words.columns) <= array.len()
}

#[cold]
fn at_the_end(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    may_contain(geometry, array, hash)
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vpopcntdq,bmi2")]
pub(super) fn avx512(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let words = probe_words(geometry, hash);
    if !is_within(array, &words) {
        return at_the_end(geometry, array, hash);
    }
    let low = _mm512_set1_epi64(words.low as i64);
    let high = _mm512_set1_epi64(words.high as i64);
    let mut columns = _bzhi_u64(u64::MAX, words.columns as u32); // one bit each, at most 49
    let mut at = 0;
    loop {
        let mask = columns as u8;
        // SAFETY: the array has `second + columns` words of 8 bytes, and `first` ≤ `second`. Words after
        // the last column are masked: not read. The loads need no alignment.
        let (a, b) = unsafe {
            let start = array.as_ptr().cast::<i64>().add(at);
            (
                _mm512_maskz_loadu_epi64(mask, start.add(words.first)),
                _mm512_maskz_loadu_epi64(mask, start.add(words.second)),
            )
        };
        let both = _mm512_xor_si512(_mm512_and_si512(a, low), _mm512_and_si512(b, high));
        if _mm512_test_epi64_mask(_mm512_popcnt_epi64(both), _mm512_set1_epi64(1)) != 0 {
            return false;
        }
        columns >>= 8;
        if columns == 0 {
            return true;
        }
        at += 8;
    }
}

/// As [`avx512`]. Not inlined into code without checks, which would then need more registers.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512dq,avx512vpopcntdq,bmi2")]
fn avx512_checked(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    avx512(geometry, array, hash)
}

/// As [`avx512_checked`].
#[inline(never)]
#[target_feature(enable = "avx2,bmi2")]
fn avx2_checked(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    avx2(geometry, array, hash)
}

/// Makes no checks: the layout is that of the array. Whole vectors of both segments need no masks. One
/// absent key in 256 passes the first eight columns.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vbmi2,avx512vpopcntdq,bmi2")]
pub(super) fn by_eights(layout: &Layout, geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let (s, c) = equation_of(layout.start_rows, hash);
    let Some(FirstWords { first, bytes, columns }) = layout.words(s) else {
        return avx512_checked(geometry, array, hash);
    };
    // SAFETY: `Layout::of` found 64 bytes of both segments within the array for each row with words, and
    // the array is as long as the layout says. The loads need no alignment.
    let (a, b) = unsafe {
        let a = array.as_ptr().add(first);
        (_mm512_loadu_epi64(a.cast()), _mm512_loadu_epi64(a.add(bytes).cast()))
    };
    // The count is taken mod 64.
    let rows = _mm512_shrdv_epi64(a, b, _mm512_set1_epi64(s as i64));
    let both = _mm512_and_si512(rows, _mm512_set1_epi64(c as i64));
    let odd = _mm512_test_epi64_mask(_mm512_popcnt_epi64(both), _mm512_set1_epi64(1));
    _bzhi_u32(odd.into(), columns) == 0 && (columns <= 8 || avx512_checked(geometry, array, hash))
}

#[target_feature(enable = "avx512f,avx512dq,avx512vbmi2,avx512vpopcntdq,bmi2")]
pub(super) fn many_by_eights(
    layout: &Layout,
    geometry: &Geometry,
    array: &[u8],
    hashes: &[u64],
    answers: &mut [bool],
) {
    for (&hash, answer) in hashes.iter().zip(answers) {
        *answer = by_eights(layout, geometry, array, hash);
    }
}

#[inline]
#[target_feature(enable = "avx2,bmi2")]
pub(super) fn by_fours(layout: &Layout, geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let (s, c) = equation_of(layout.start_rows, hash);
    let Some(FirstWords { first, bytes, columns }) = layout.words(s) else {
        return avx2_checked(geometry, array, hash);
    };
    let (low, high) = halves(s, c);
    let (low, high) = (_mm256_set1_epi64x(low as i64), _mm256_set1_epi64x(high as i64));
    let odd = |at: usize| {
        // SAFETY: as in `by_eights`; `at` is 0 or 4, of eight words.
        let (a, b) = unsafe {
            let a = array.as_ptr().add(first + 8 * at);
            (_mm256_loadu_si256(a.cast()), _mm256_loadu_si256(a.add(bytes).cast()))
        };
        let both = _mm256_xor_si256(_mm256_and_si256(a, low), _mm256_and_si256(b, high));
        // Moves the lowest bit of each lane to its sign bit.
        let signs = _mm256_castsi256_pd(_mm256_slli_epi64::<63>(parities(both)));
        _mm256_movemask_pd(signs) as u32
    };
    _bzhi_u32(odd(0), columns) == 0
        && (columns <= 4
            || _bzhi_u32(odd(4), columns - 4) == 0
                && (columns <= 8 || avx2_checked(geometry, array, hash)))
}

#[target_feature(enable = "avx2,bmi2")]
pub(super) fn many_by_fours(
    layout: &Layout,
    geometry: &Geometry,
    array: &[u8],
    hashes: &[u64],
    answers: &mut [bool],
) {
    for (&hash, answer) in hashes.iter().zip(answers) {
        *answer = by_fours(layout, geometry, array, hash);
    }
}

#[inline]
#[target_feature(enable = "avx2,bmi2")]
pub(super) fn avx2(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let words = probe_words(geometry, hash);
    if !is_within(array, &words) {
        return at_the_end(geometry, array, hash);
    }
    let low = _mm256_set1_epi64x(words.low as i64);
    let high = _mm256_set1_epi64x(words.high as i64);
    let lanes = _mm256_setr_epi64x(0, 1, 2, 3);
    let mut odd = _mm256_setzero_si256();
    let mut at = 0;
    while at < words.columns {
        let left = (words.columns - at) as i64;
        let mask = _mm256_cmpgt_epi64(_mm256_set1_epi64x(left), lanes);
        // SAFETY: as in `avx512`.
        let (a, b) = unsafe {
            let start = array.as_ptr().cast::<i64>().add(at);
            (
                _mm256_maskload_epi64(start.add(words.first), mask),
                _mm256_maskload_epi64(start.add(words.second), mask),
            )
        };
        let both = _mm256_xor_si256(_mm256_and_si256(a, low), _mm256_and_si256(b, high));
        odd = _mm256_or_si256(odd, parities(both));
        at += 4;
    }
    _mm256_testz_si256(odd, _mm256_set1_epi64x(1)) == 1
}

/// Bit 0 of each lane of the result is the parity of the lane: a table gives the parities of bytes.
#[target_feature(enable = "avx2")]
fn parities(lanes: __m256i) -> __m256i {
    let table = _mm256_setr_epi8(
        0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0, //
        0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0,
    );
    let folded = _mm256_xor_si256(lanes, _mm256_srli_epi64::<4>(lanes));
    let halves = _mm256_and_si256(folded, _mm256_set1_epi8(15));
    _mm256_sad_epu8(_mm256_shuffle_epi8(table, halves), _mm256_setzero_si256())
}

/// Back substitution; returns `take` if there is no vector code for these instructions.
pub(super) fn solve<F: FnMut(u64, &[u64; COLUMNS_AT_ONCE])>(
    instructions: Instructions,
    solver: &RibbonSolver,
    seed: u64,
    first: usize,
    take: F,
) -> Result<(), F> {
    match instructions {
        Instructions::Scalar => return Err(take),
        // SAFETY: `Instructions::best` found that the processor has them.
        Instructions::Avx2 => unsafe { solve_avx2(solver, seed, first, take) },
        // SAFETY: as above.
        Instructions::Avx512 => unsafe { solve_avx512(solver, seed, first, take) },
    }
    Ok(())
}

/// The scalar loop, with an instruction that counts bits.
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2")]
fn solve_avx2(
    solver: &RibbonSolver,
    seed: u64,
    first: usize,
    take: impl FnMut(u64, &[u64; COLUMNS_AT_ONCE]),
) {
    solver.solve_all(seed, first, take);
}

/// The scalar loop, with an instruction that counts the bits of eight columns.
#[target_feature(enable = "avx512f,avx512vpopcntdq,popcnt,bmi1,bmi2")]
fn solve_avx512(
    solver: &RibbonSolver,
    seed: u64,
    first: usize,
    take: impl FnMut(u64, &[u64; COLUMNS_AT_ONCE]),
) {
    solver.solve_all(seed, first, take);
}
