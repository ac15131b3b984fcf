//! Ribbons, eight or four columns at a time.

#![expect(unsafe_code, reason = "vector loads, and calls of code for the processor at hand")]
#![expect(clippy::cast_ptr_alignment, reason = "the loads need no alignment")]

use std::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_cmpgt_epi64, _mm256_maskload_epi64, _mm256_or_si256,
    _mm256_sad_epu8, _mm256_set1_epi8, _mm256_set1_epi64x, _mm256_setr_epi8, _mm256_setr_epi64x,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_testz_si256,
    _mm256_xor_si256, _mm512_and_si512, _mm512_maskz_loadu_epi64, _mm512_popcnt_epi64,
    _mm512_set1_epi64, _mm512_test_epi64_mask, _mm512_xor_si512,
};

use super::super::band::{Band, COLUMNS_AT_ONCE};
use super::super::kind::{Geometry, Probe};
use super::super::ribbon::{Question, may_contain, question};
use super::Path;

pub(in crate::filter) fn probe(path: Path) -> Option<Probe> {
    match path {
        Path::Scalar => None,
        // SAFETY: `Path::best` gives a path only where the processor has its instructions.
        Path::Avx2 => Some(|geometry, array, hash| unsafe { avx2(geometry, array, hash) }),
        // SAFETY: as above.
        Path::Avx512 => Some(|geometry, array, hash| unsafe { avx512(geometry, array, hash) }),
    }
}

/// Both places of a question at once: the first word of the first, and how far on the second begins.
/// `None` at the end of the array, where the plain code knows what to do.
#[inline]
fn both<'a>(array: &'a [u8], question: &Question) -> Option<(&'a [u8], usize)> {
    let Question { first, second, columns, .. } = *question;
    Some((array.get(8 * first..8 * (second + columns))?, second - first))
}

#[target_feature(enable = "avx512f,avx512vpopcntdq")]
fn avx512(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let question = question(geometry, hash);
    let Some((words, second)) = both(array, &question) else {
        return may_contain(geometry, array, hash);
    };
    let low = _mm512_set1_epi64(question.low as i64);
    let high = _mm512_set1_epi64(question.high as i64);
    let mut at = 0;
    while at < question.columns {
        let left = (question.columns - at).min(8);
        let mask = 0xff_u8 >> (8 - left);
        // SAFETY: `words` has `second + columns` words of 8 bytes, and `at + left` is at most `columns`.
        // Lanes that the mask leaves out are not read. The loads need no alignment.
        let (a, b) = unsafe {
            let a = words.as_ptr().cast::<i64>().add(at);
            (_mm512_maskz_loadu_epi64(mask, a), _mm512_maskz_loadu_epi64(mask, a.add(second)))
        };
        let both = _mm512_xor_si512(_mm512_and_si512(a, low), _mm512_and_si512(b, high));
        if _mm512_test_epi64_mask(_mm512_popcnt_epi64(both), _mm512_set1_epi64(1)) != 0 {
            return false;
        }
        at += 8;
    }
    true
}

#[target_feature(enable = "avx2")]
fn avx2(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let question = question(geometry, hash);
    let Some((words, second)) = both(array, &question) else {
        return may_contain(geometry, array, hash);
    };
    let low = _mm256_set1_epi64x(question.low as i64);
    let high = _mm256_set1_epi64x(question.high as i64);
    let lanes = _mm256_setr_epi64x(0, 1, 2, 3);
    let mut odd = _mm256_setzero_si256();
    let mut at = 0;
    while at < question.columns {
        let left = (question.columns - at) as i64;
        let mask = _mm256_cmpgt_epi64(_mm256_set1_epi64x(left), lanes);
        // SAFETY: `words` has `second + columns` words of 8 bytes. The mask leaves out the lanes from
        // `columns − at` on, and what it leaves out is not read. The loads need no alignment.
        let (a, b) = unsafe {
            let a = words.as_ptr().cast::<i64>().add(at);
            (_mm256_maskload_epi64(a, mask), _mm256_maskload_epi64(a.add(second), mask))
        };
        let both = _mm256_xor_si256(_mm256_and_si256(a, low), _mm256_and_si256(b, high));
        odd = _mm256_or_si256(odd, parities(both));
        at += 4;
    }
    _mm256_testz_si256(odd, _mm256_set1_epi64x(1)) == 1
}

/// In bit 0 of each lane the parity of the lane: that of each byte from a table of half-bytes, and the
/// sum over the bytes.
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

/// Back substitution; gives `take` back if this path has no way of its own.
pub(in crate::filter) fn solve<F: FnMut(u64, &[u64; COLUMNS_AT_ONCE])>(
    path: Path,
    band: &Band,
    seed: u64,
    first: usize,
    take: F,
) -> Result<(), F> {
    match path {
        Path::Scalar => return Err(take),
        // SAFETY: `Path::best` gives a path only where the processor has its instructions.
        Path::Avx2 => unsafe { solve_avx2(band, seed, first, take) },
        // SAFETY: as above.
        Path::Avx512 => unsafe { solve_avx512(band, seed, first, take) },
    }
    Ok(())
}

/// The plain loop; the compiler has an instruction that counts bits.
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2")]
fn solve_avx2(
    band: &Band,
    seed: u64,
    first: usize,
    take: impl FnMut(u64, &[u64; COLUMNS_AT_ONCE]),
) {
    band.solve_all(seed, first, take);
}

/// The plain loop; the compiler has an instruction that counts the bits of eight columns.
#[target_feature(enable = "avx512f,avx512vpopcntdq,popcnt,bmi1,bmi2")]
fn solve_avx512(
    band: &Band,
    seed: u64,
    first: usize,
    take: impl FnMut(u64, &[u64; COLUMNS_AT_ONCE]),
) {
    band.solve_all(seed, first, take);
}
