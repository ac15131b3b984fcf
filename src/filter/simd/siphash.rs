//! SipHash-1-3 of several keys of one length at once, one key in each lane of a vector.
//!
//! The compiler vectorises such a loop over arrays for AVX-512, but not for AVX2.

#![expect(
    unsafe_code,
    reason = "vector loads and stores, and calls of functions for this processor"
)]

use std::arch::x86_64::{
    __m256i, _mm256_add_epi64, _mm256_loadu_si256, _mm256_or_si256, _mm256_set1_epi64x,
    _mm256_setr_epi8, _mm256_shuffle_epi8, _mm256_shuffle_epi32, _mm256_slli_epi64,
    _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256, _mm512_add_epi64, _mm512_loadu_epi64,
    _mm512_rol_epi64, _mm512_set1_epi64, _mm512_storeu_epi64, _mm512_xor_si512,
};

use super::super::siphash::{LANES, WORD, initial, length_byte, rest, word};
use super::Path;

/// The hashes of keys of one length; `None` if this path has no vector code.
pub(in crate::filter) fn siphash_1_3_lanes(
    path: Path,
    key: [u64; 2],
    keys: &[&[u8]; LANES],
) -> Option<[u64; LANES]> {
    match path {
        Path::Scalar => None,
        Path::Avx2 => {
            let mut hashes = [0; LANES];
            let (fours, _) = keys.as_chunks();
            for (keys, hashes) in fours.iter().zip(hashes.as_chunks_mut().0) {
                // SAFETY: `Path::best` gives a path only if the processor has its instructions.
                *hashes = unsafe { by_fours(key, keys) };
            }
            Some(hashes)
        }
        // SAFETY: as above.
        Path::Avx512 => Some(unsafe { by_eights(key, keys) }),
    }
}

/// Bytes of a rotation to the left by 16 bits.
#[target_feature(enable = "avx2")]
fn rotated_by_16(lanes: __m256i) -> __m256i {
    let places = _mm256_setr_epi8(
        6, 7, 0, 1, 2, 3, 4, 5, 14, 15, 8, 9, 10, 11, 12, 13, //
        6, 7, 0, 1, 2, 3, 4, 5, 14, 15, 8, 9, 10, 11, 12, 13,
    );
    _mm256_shuffle_epi8(lanes, places)
}

#[target_feature(enable = "avx2")]
fn rotated_by_32(lanes: __m256i) -> __m256i {
    _mm256_shuffle_epi32::<0b10_11_00_01>(lanes)
}

#[target_feature(enable = "avx2")]
fn rotated<const LEFT: i32, const RIGHT: i32>(lanes: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_slli_epi64::<LEFT>(lanes), _mm256_srli_epi64::<RIGHT>(lanes))
}

/// A function for vectors of one width. `rotated` has the rotations by 13, 16, 17, 21 and 32 bits.
macro_rules! by_lanes {
    (
        $name:ident, $features:literal, $lanes:literal, $load:ident, $store:ident, $all:ident,
        $add:ident, $xor:ident, [$r13:expr, $r16:expr, $r17:expr, $r21:expr, $r32:expr]
    ) => {
        #[target_feature(enable = $features)]
        fn $name(key: [u64; 2], keys: &[&[u8]; $lanes]) -> [u64; $lanes] {
            // SAFETY: the array is as long as the vector. The load needs no alignment.
            let load = |words: [u64; $lanes]| unsafe { $load(words.as_ptr().cast()) };
            let [mut a, mut b, mut c, mut d] = initial(key).map(|word| $all(word as i64));
            macro_rules! round {
                () => {
                    a = $add(a, b);
                    c = $add(c, d);
                    b = $xor($r13(b), a);
                    d = $xor($r16(d), c);
                    a = $add($r32(a), d);
                    c = $add(c, b);
                    d = $xor($r21(d), a);
                    b = $xor($r17(b), c);
                    c = $r32(c);
                };
            }
            let length = keys[0].len();
            let mut lanes = [0; $lanes];
            // Loops: the functions of arrays that take closures are not inlined here.
            for at in 0..length / WORD {
                for (lane, bytes) in lanes.iter_mut().zip(keys) {
                    *lane = word(bytes.as_chunks().0[at]);
                }
                let next = load(lanes);
                d = $xor(d, next);
                round!();
                a = $xor(a, next);
            }
            let mut last = $all(length_byte(length) as i64);
            if length % WORD != 0 {
                for (lane, bytes) in lanes.iter_mut().zip(keys) {
                    *lane = rest(bytes);
                }
                last = $xor(last, load(lanes));
            }
            d = $xor(d, last);
            round!();
            a = $xor(a, last);
            c = $xor(c, $all(0xFF));
            round!();
            round!();
            round!();
            let mut hashes = [0_u64; $lanes];
            // SAFETY: as for the loads.
            unsafe { $store(hashes.as_mut_ptr().cast(), $xor($xor(a, b), $xor(c, d))) };
            hashes
        }
    };
}

by_lanes!(
    by_fours,
    "avx2",
    4,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_set1_epi64x,
    _mm256_add_epi64,
    _mm256_xor_si256,
    [rotated::<13, 51>, rotated_by_16, rotated::<17, 47>, rotated::<21, 43>, rotated_by_32]
);

by_lanes!(
    by_eights,
    "avx512f",
    8,
    _mm512_loadu_epi64,
    _mm512_storeu_epi64,
    _mm512_set1_epi64,
    _mm512_add_epi64,
    _mm512_xor_si512,
    [
        _mm512_rol_epi64::<13>,
        _mm512_rol_epi64::<16>,
        _mm512_rol_epi64::<17>,
        _mm512_rol_epi64::<21>,
        _mm512_rol_epi64::<32>
    ]
);
