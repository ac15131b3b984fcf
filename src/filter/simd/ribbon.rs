//! Ribbons, eight or four columns at a time.

#![expect(unsafe_code, reason = "vector loads, and calls of code for the processor at hand")]
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

use super::super::band::{Band, COLUMNS_AT_ONCE};
use super::super::kind::{Geometry, Probe, ProbeMany};
use super::super::ribbon::{
    Question, equation_among, halves, may_contain, question, segment_start, words,
};
use super::{Path, Prober, Unproved, UnprovedMany};

pub(in crate::filter) fn probe(path: Path) -> Option<Probe> {
    let probe = match path {
        Path::Scalar => return None,
        Path::Avx2 => avx2 as Unproved,
        Path::Avx512 => avx512 as Unproved,
    };
    // SAFETY: the two types differ in `unsafe` alone, which is there because the processor might not have
    // the instructions; `Path::best` gives a path only where it has. Not a function around it, for a
    // probe takes a few nanoseconds.
    Some(unsafe { std::mem::transmute::<Unproved, Probe>(probe) })
}

pub(in crate::filter) fn probe_many(path: Path) -> Option<ProbeMany> {
    let probe = match path {
        Path::Scalar => return None,
        Path::Avx2 => avx2_many as UnprovedMany,
        Path::Avx512 => avx512_many as UnprovedMany,
    };
    // SAFETY: as in `probe`.
    Some(unsafe { std::mem::transmute::<UnprovedMany, ProbeMany>(probe) })
}

#[target_feature(enable = "avx512f,avx512dq,avx512vpopcntdq,bmi2")]
fn avx512_many(geometry: &Geometry, array: &[u8], hashes: &[u64], answers: &mut [bool]) {
    for (&hash, answer) in hashes.iter().zip(answers) {
        *answer = avx512(geometry, array, hash);
    }
}

#[target_feature(enable = "avx2,bmi2")]
fn avx2_many(geometry: &Geometry, array: &[u8], hashes: &[u64], answers: &mut [bool]) {
    for (&hash, answer) in hashes.iter().zip(answers) {
        *answer = avx2(geometry, array, hash);
    }
}

/// Whether both places of a question lie within the array. At its end they may not, and the plain code
/// knows what to do.
#[inline]
fn is_within(array: &[u8], question: &Question) -> bool {
    8 * (question.second + question.columns) <= array.len()
}

#[cold]
fn at_the_end(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    may_contain(geometry, array, hash)
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vpopcntdq,bmi2")]
fn avx512(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let question = question(geometry, hash);
    if !is_within(array, &question) {
        return at_the_end(geometry, array, hash);
    }
    let low = _mm512_set1_epi64(question.low as i64);
    let high = _mm512_set1_epi64(question.high as i64);
    let mut columns = _bzhi_u64(u64::MAX, question.columns as u32); // a bit for each, at most 49
    let mut at = 0;
    loop {
        let mask = columns as u8;
        // SAFETY: the array has at least `second + columns` words of 8 bytes, and `first` is not more
        // than `second`. The mask has bits for the columns from `at` on, and what it leaves out is not
        // read. The loads need no alignment.
        let (a, b) = unsafe {
            let words = array.as_ptr().cast::<i64>().add(at);
            (
                _mm512_maskz_loadu_epi64(mask, words.add(question.first)),
                _mm512_maskz_loadu_epi64(mask, words.add(question.second)),
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

/// A sound shape, as [`ask`] needs it.
#[derive(Clone, Copy, Default)]
pub(super) struct Shape {
    /// The start rows, from the first on, for which eight words from both places lie within the array.
    whole: u64,
    columns: u32,
    /// The start rows, from the first on, both of whose segments have one column more.
    wide_rows: u64,
    wide_segments: u64,
    /// Of the narrow segments and of the wide ones: the byte at which segment 0 would start, and the
    /// bytes of a segment.
    runs: [(usize, usize); 2],
}

impl Shape {
    /// `None` if no row has eight words behind it.
    pub(super) fn of(geometry: &Geometry) -> Option<Self> {
        let Geometry { m, k, wide } = *geometry;
        let is_within =
            |&segment: &u64| segment_start(geometry, segment + 1) + 8 <= words(geometry);
        // A segment has a word at least, so that the last that is within is near the end.
        let last = (0..m / 64).rev().find(is_within)?;
        let bytes = 8 * k as usize;
        Some(Self {
            whole: 64 * (last + 1),
            columns: k,
            wide_rows: 64 * wide.saturating_sub(1),
            wide_segments: wide,
            runs: [(8 * wide as usize, bytes), (0, bytes + 8)],
        })
    }

    /// `None` for a row where eight words from one place may not lie within the array.
    #[inline]
    fn place(&self, s: usize) -> Option<Place> {
        let row = s as u64;
        if row >= self.whole {
            return None;
        }
        let segment = row / 64;
        let (start, bytes) = self.runs[usize::from(segment < self.wide_segments)];
        let columns = self.columns + u32::from(row < self.wide_rows);
        Some(Place { first: start + segment as usize * bytes, bytes, columns })
    }
}

/// What a start row has in the array.
struct Place {
    /// The byte where its segment starts.
    first: usize,
    /// Of that segment; then the next one starts.
    bytes: usize,
    columns: u32,
}

/// Asks an array of such a shape, as `Prober` has made sure. Both segments are read in whole vectors and
/// the rows are shifted, eight columns at once, which spares masks and the halves of the coefficients; of
/// absent keys one in 256 has any other columns to ask.
#[target_feature(enable = "avx512f,avx512vbmi2,avx512vpopcntdq,bmi2")]
pub(super) fn ask(prober: &Prober, hash: u64) -> bool {
    let (s, c) = equation_among(prober.places, hash);
    let Some(Place { first, bytes, columns }) = prober.ribbon.place(s) else {
        return prober.may_contain_checked(hash);
    };
    // SAFETY: 64 bytes are read from the start of the segment of `s` and from that of the next one, and
    // `Shape::of` found both within the array for all rows that have a place; the array is as long as its
    // shape says. The loads need no alignment.
    let (a, b) = unsafe {
        let a = prober.array.as_ptr().add(first);
        (_mm512_loadu_epi64(a.cast()), _mm512_loadu_epi64(a.add(bytes).cast()))
    };
    // The shift takes its count mod 64.
    let rows = _mm512_shrdv_epi64(a, b, _mm512_set1_epi64(s as i64));
    let both = _mm512_and_si512(rows, _mm512_set1_epi64(c as i64));
    let odd = _mm512_test_epi64_mask(_mm512_popcnt_epi64(both), _mm512_set1_epi64(1));
    _bzhi_u32(odd.into(), columns) == 0 && (columns <= 8 || prober.may_contain_checked(hash))
}

/// The same, four columns at once, of which one absent key in sixteen passes all.
#[target_feature(enable = "avx2,bmi2")]
pub(super) fn ask_by_fours(prober: &Prober, hash: u64) -> bool {
    let (s, c) = equation_among(prober.places, hash);
    let Some(Place { first, bytes, columns }) = prober.ribbon.place(s) else {
        return prober.may_contain_checked(hash);
    };
    let (low, high) = halves(s, c);
    let (low, high) = (_mm256_set1_epi64x(low as i64), _mm256_set1_epi64x(high as i64));
    let odd = |at: usize| {
        // SAFETY: as in `ask`; `at` is 0 or 4 words, of eight.
        let (a, b) = unsafe {
            let a = prober.array.as_ptr().add(first + 8 * at);
            (_mm256_loadu_si256(a.cast()), _mm256_loadu_si256(a.add(bytes).cast()))
        };
        let both = _mm256_xor_si256(_mm256_and_si256(a, low), _mm256_and_si256(b, high));
        // The lowest bit of each lane is made its sign.
        let signs = _mm256_castsi256_pd(_mm256_slli_epi64::<63>(parities(both)));
        _mm256_movemask_pd(signs) as u32
    };
    _bzhi_u32(odd(0), columns) == 0
        && (columns <= 4
            || _bzhi_u32(odd(4), columns - 4) == 0
                && (columns <= 8 || prober.may_contain_checked(hash)))
}

#[inline]
#[target_feature(enable = "avx2,bmi2")]
fn avx2(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let question = question(geometry, hash);
    if !is_within(array, &question) {
        return at_the_end(geometry, array, hash);
    }
    let low = _mm256_set1_epi64x(question.low as i64);
    let high = _mm256_set1_epi64x(question.high as i64);
    let lanes = _mm256_setr_epi64x(0, 1, 2, 3);
    let mut odd = _mm256_setzero_si256();
    let mut at = 0;
    while at < question.columns {
        let left = (question.columns - at) as i64;
        let mask = _mm256_cmpgt_epi64(_mm256_set1_epi64x(left), lanes);
        // SAFETY: the array has at least `second + columns` words of 8 bytes, and `first` is not more
        // than `second`. The mask leaves out the lanes from `columns − at` on, and what it leaves out is
        // not read. The loads need no alignment.
        let (a, b) = unsafe {
            let words = array.as_ptr().cast::<i64>().add(at);
            (
                _mm256_maskload_epi64(words.add(question.first), mask),
                _mm256_maskload_epi64(words.add(question.second), mask),
            )
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read without a check lies within the array, and where the plain code says.
    #[test]
    fn a_shape_knows_what_may_be_read_whole() {
        let mut shapes = 0;
        for k in (1..=20).chain([48]) {
            for (segments, wide) in [(40, 0), (40, 1), (40, 2), (40, 17), (40, 39), (9, 4), (2, 0)]
            {
                let geometry = Geometry { m: 64 * segments, k, wide };
                let end = 8 * words(&geometry);
                let start = |segment| 8 * segment_start(&geometry, segment);
                let is_within = |segment: u64| start(segment + 1) + 64 <= end;
                let Some(shape) = Shape::of(&geometry) else {
                    assert!(!is_within(0), "{geometry:?}");
                    continue;
                };
                for segment in 0..segments {
                    for row in [64 * segment, 64 * segment + 63] {
                        let place = shape.place(row as usize);
                        assert_eq!(is_within(segment), place.is_some(), "{geometry:?}");
                        let Some(Place { first, bytes, columns }) = place else { continue };
                        assert_eq!((first, first + bytes), (start(segment), start(segment + 1)));
                        let question = question_at(&geometry, segment);
                        assert_eq!(columns as usize, question, "{geometry:?}");
                    }
                }
                shapes += 1;
            }
        }
        assert!(shapes > 120, "{shapes}");
    }

    /// The columns that the plain code asks of a segment's rows.
    fn question_at(geometry: &Geometry, segment: u64) -> usize {
        let places = u128::from(geometry.m - 63);
        // The first hash that falls into the segment's first row.
        let hash = ((u128::from(64 * segment) << 64).div_ceil(places)) as u64;
        let asked = question(geometry, hash);
        assert_eq!(asked.first, segment_start(geometry, segment));
        asked.columns
    }
}
