//! Vector code for ribbons: eight or four columns at a time.

#![expect(unsafe_code, reason = "vector loads, and calls of functions for this processor")]
#![expect(clippy::cast_ptr_alignment, reason = "the loads need no alignment")]

use std::arch::x86_64::{
    __m256i, _bzhi_u32, _bzhi_u64, _mm256_and_si256, _mm256_castsi256_pd, _mm256_cmpgt_epi64,
    _mm256_loadu_si256, _mm256_maskload_epi64, _mm256_movemask_pd, _mm256_sad_epu8,
    _mm256_set1_epi8, _mm256_set1_epi64x, _mm256_setr_epi8, _mm256_setr_epi64x,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_slli_epi64, _mm256_srli_epi64,
    _mm256_xor_si256, _mm512_and_si512, _mm512_loadu_epi64, _mm512_maskz_loadu_epi64,
    _mm512_popcnt_epi64, _mm512_set1_epi64, _mm512_shrdv_epi64, _mm512_test_epi64_mask,
    _mm512_xor_si512,
};

use super::array::{Equation, ProbeWords, all_columns, halves, words_of};
use super::layout::{FirstWords, Layout};
use super::solver::{COLUMNS_AT_ONCE, RibbonSolver};
use crate::geometry::Geometry;
use crate::instructions::Instructions;

/// Whether all words lie within the array. If not, the scalar code answers.
#[inline]
fn is_within(array: &[u8], words: &ProbeWords) -> bool {
    8 * (words.second + words.columns) <= array.len()
}

/// Not inlined into code without checks, which would then need more registers.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512dq,avx512vpopcntdq,bmi2")]
fn all_by_eights(
    geometry: &Geometry,
    array: &[u8],
    start: usize,
    coefficients: u64,
    right: u64,
) -> bool {
    all_columns_avx512(array, &words_of(geometry, Equation { start, coefficients, right }))
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vpopcntdq,bmi2")]
fn all_columns_avx512(array: &[u8], words: &ProbeWords) -> bool {
    if !is_within(array, words) {
        return all_columns(array, words);
    }
    let low = _mm512_set1_epi64(words.low as i64);
    let high = _mm512_set1_epi64(words.high as i64);
    let mut columns = _bzhi_u64(u64::MAX, words.columns as u32); // one bit each, at most 49
    let mut right = words.right;
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
        let odd = _mm512_test_epi64_mask(_mm512_popcnt_epi64(both), _mm512_set1_epi64(1));
        if (odd ^ right as u8) & mask != 0 {
            return false;
        }
        right >>= 8;
        columns >>= 8;
        if columns == 0 {
            return true;
        }
        at += 8;
    }
}

/// The equation in the first layer, if it has the hash.
///
/// # Safety
/// The layout is that of the array.
#[inline]
unsafe fn first_equation(layout: &Layout, array: &[u8], hash: u64) -> Option<Equation> {
    // SAFETY: the layout reads within its array.
    layout.first_equation(hash, |at| unsafe { *array.get_unchecked(at) })
}

/// Makes no checks: the layout is that of the array.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vbmi2,avx512vpopcntdq,bmi2")]
pub(super) fn by_eights(layout: &Layout, geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    // SAFETY: the layout is that of the array, so the equation starts at a whole row.
    unsafe {
        match first_equation(layout, array, hash) {
            Some(equation) => eights_of(layout, geometry, array, equation),
            None => elsewhere_by_eights(layout, geometry, array, hash),
        }
    }
}

/// Four hashes in a hundred come here.
#[cold]
#[inline(never)]
#[target_feature(enable = "avx512f,avx512dq,avx512vbmi2,avx512vpopcntdq,bmi2")]
fn elsewhere_by_eights(layout: &Layout, geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let Some((equation, is_whole)) = layout.equation_elsewhere(array, hash) else { return true };
    if is_whole {
        // SAFETY: the layout is that of the array.
        unsafe { eights_of(layout, geometry, array, equation) }
    } else {
        all_columns_avx512(array, &words_of(geometry, equation))
    }
}

/// Whole vectors of both segments need no masks. One absent key in 256 passes the first eight columns.
///
/// # Safety
/// The layout is that of the array, and the equation starts at a whole row.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vbmi2,avx512vpopcntdq,bmi2")]
unsafe fn eights_of(
    layout: &Layout,
    geometry: &Geometry,
    array: &[u8],
    equation: Equation,
) -> bool {
    let Equation { start, coefficients, right } = equation;
    let FirstWords { first, bytes, columns } = layout.words(start);
    // SAFETY: `Layout::of` found 64 bytes of both segments within the array for each whole row, and the array is
    // as long as the layout says. The loads need no alignment.
    let (a, b) = unsafe {
        let a = array.as_ptr().add(first);
        (_mm512_loadu_epi64(a.cast()), _mm512_loadu_epi64(a.add(bytes).cast()))
    };
    // The count is taken mod 64.
    let rows = _mm512_shrdv_epi64(a, b, _mm512_set1_epi64(start as i64));
    let both = _mm512_and_si512(rows, _mm512_set1_epi64(coefficients as i64));
    let odd = _mm512_test_epi64_mask(_mm512_popcnt_epi64(both), _mm512_set1_epi64(1));
    _bzhi_u32(u32::from(odd ^ right as u8), columns) == 0
        && (columns <= 8 || all_by_eights(geometry, array, start, coefficients, right))
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

/// As [`by_eights`].
#[inline]
#[target_feature(enable = "avx2,bmi2")]
pub(super) fn by_fours(layout: &Layout, geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    // SAFETY: as in `by_eights`.
    unsafe {
        match first_equation(layout, array, hash) {
            Some(equation) => fours_of(layout, geometry, array, equation),
            None => elsewhere_by_fours(layout, geometry, array, hash),
        }
    }
}

#[cold]
#[inline(never)]
#[target_feature(enable = "avx2,bmi2")]
fn elsewhere_by_fours(layout: &Layout, geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let Some((equation, is_whole)) = layout.equation_elsewhere(array, hash) else { return true };
    if is_whole {
        // SAFETY: the layout is that of the array.
        unsafe { fours_of(layout, geometry, array, equation) }
    } else {
        all_columns_avx2(array, &words_of(geometry, equation))
    }
}

/// # Safety
/// As for [`eights_of`].
#[inline]
#[target_feature(enable = "avx2,bmi2")]
unsafe fn fours_of(layout: &Layout, geometry: &Geometry, array: &[u8], equation: Equation) -> bool {
    let Equation { start, coefficients, right } = equation;
    let FirstWords { first, bytes, columns } = layout.words(start);
    let (low, high) = halves(start, coefficients);
    let (low, high) = (_mm256_set1_epi64x(low as i64), _mm256_set1_epi64x(high as i64));
    let differ = |at: usize| {
        // SAFETY: as in `eights_of`; `at` is 0 or 4, of eight words.
        let (a, b) = unsafe {
            let a = array.as_ptr().add(first + 8 * at);
            (_mm256_loadu_si256(a.cast()), _mm256_loadu_si256(a.add(bytes).cast()))
        };
        let both = _mm256_xor_si256(_mm256_and_si256(a, low), _mm256_and_si256(b, high));
        (odd_lanes(both) ^ (right >> at) as u32) & 15
    };
    _bzhi_u32(differ(0), columns) == 0
        && (columns <= 4
            || _bzhi_u32(differ(4), columns - 4) == 0
                && (columns <= 8 || all_by_fours(geometry, array, start, coefficients, right)))
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

/// As [`all_by_eights`].
#[inline(never)]
#[target_feature(enable = "avx2,bmi2")]
fn all_by_fours(
    geometry: &Geometry,
    array: &[u8],
    start: usize,
    coefficients: u64,
    right: u64,
) -> bool {
    all_columns_avx2(array, &words_of(geometry, Equation { start, coefficients, right }))
}

#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn all_columns_avx2(array: &[u8], words: &ProbeWords) -> bool {
    if !is_within(array, words) {
        return all_columns(array, words);
    }
    let low = _mm256_set1_epi64x(words.low as i64);
    let high = _mm256_set1_epi64x(words.high as i64);
    let lanes = _mm256_setr_epi64x(0, 1, 2, 3);
    let mut differ = 0;
    let mut at = 0;
    while at < words.columns {
        let left = (words.columns - at) as i64;
        let mask = _mm256_cmpgt_epi64(_mm256_set1_epi64x(left), lanes);
        // SAFETY: as in `all_columns_avx512`.
        let (a, b) = unsafe {
            let start = array.as_ptr().cast::<i64>().add(at);
            (
                _mm256_maskload_epi64(start.add(words.first), mask),
                _mm256_maskload_epi64(start.add(words.second), mask),
            )
        };
        let both = _mm256_xor_si256(_mm256_and_si256(a, low), _mm256_and_si256(b, high));
        differ |= _bzhi_u32((odd_lanes(both) ^ (words.right >> at) as u32) & 15, left as u32);
        at += 4;
    }
    differ == 0
}

/// A bit for each lane: its parity.
#[target_feature(enable = "avx2")]
fn odd_lanes(lanes: __m256i) -> u32 {
    // Moves the lowest bit of each lane to its sign bit.
    let signs = _mm256_castsi256_pd(_mm256_slli_epi64::<63>(parities(lanes)));
    _mm256_movemask_pd(signs) as u32
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
