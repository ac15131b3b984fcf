//! The array of a standard Bloom filter: positions of a key, and probes with checks.

use super::bloom_rate::MAX_PROBES;
use super::geometry::Geometry;
use super::mix::{GOLDEN, mix};
use super::modulus::Modulus;

/// The most bits: one tebibyte.
pub(super) const MAX_BITS: u64 = 1 << 43;

pub(super) fn check(geometry: &Geometry) -> Result<(), String> {
    let Geometry { m, k, wide } = *geometry;
    if m == 0 || m > MAX_BITS {
        return Err(format!("a bloom filter has 1 to {MAX_BITS} bits, not {m}"));
    }
    if k == 0 || k > MAX_PROBES || wide != 0 {
        return Err(format!("a bloom filter has 1 to {MAX_PROBES} probes a key, not {k}"));
    }
    Ok(())
}

/// A multiple of 8: the array has whole words.
pub(super) fn array_bytes(geometry: &Geometry) -> usize {
    geometry.m.div_ceil(64) as usize * 8
}

/// The second hash of double hashing: the first output of SplitMix64 with the first hash as its state.
#[inline]
pub(super) fn second_hash(hash: u64) -> u64 {
    mix(hash.wrapping_add(GOLDEN))
}

/// The positions of a key in a filter of m bits and k probes a key.
pub(super) fn positions(
    modulus: Modulus,
    k: u32,
    (h1, h2): (u64, u64),
) -> impl Iterator<Item = u64> + use<> {
    let step = modulus.remainder(h2);
    let mut next = modulus.remainder(h1);
    (0..k).map(move |_| {
        let position = next;
        next = modulus.sum(next, step);
        position
    })
}

/// Whether all bits of a key are set. Bits behind the end of a short array count as set.
pub(super) fn may_contain(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    all_set(geometry, array, (hash, second_hash(hash)))
}

/// As `may_contain`, for any two hashes.
pub(super) fn all_set(geometry: &Geometry, array: &[u8], hashes: (u64, u64)) -> bool {
    positions(Modulus::of(geometry.m), geometry.k, hashes).all(|position| {
        array.get((position / 8) as usize).is_none_or(|byte| byte >> (position % 8) & 1 == 1)
    })
}
