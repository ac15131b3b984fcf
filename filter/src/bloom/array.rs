//! The array of a standard Bloom filter: positions of a key, insertion and probe.

use super::modulus::Modulus;
use super::rate::MAX_PROBES;
use crate::geometry::Geometry;
use crate::hash::{GOLDEN, mix};

/// The most bits: one tebibyte.
pub(crate) const MAX_BITS: u64 = 1 << 43;

/// The number of bits that are tested at once. Their cache lines are loaded at the same time, and one branch follows: a
/// branch for each bit would be mispredicted, as half of the bits are set.
const GROUP: u32 = 3;

pub(crate) fn check(geometry: &Geometry) -> Result<(), String> {
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
pub(crate) fn array_bytes(geometry: &Geometry) -> usize {
    geometry.m.div_ceil(64) as usize * 8
}

/// The second hash of double hashing: the first output of SplitMix64 with the first hash as its state.
#[inline]
pub fn second_hash(hash: u64) -> u64 {
    mix(hash.wrapping_add(GOLDEN))
}

/// The positions of a key in a filter of m bits and k probes a key.
pub(crate) fn positions(
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

/// Sets the bits of a key. Returns how many of them were not set.
pub(crate) fn set_bits(array: &mut [u8], modulus: Modulus, k: u32, hash: u64) -> u64 {
    let mut new = 0;
    for position in positions(modulus, k, (hash, second_hash(hash))) {
        let (byte, bit) = (&mut array[(position / 8) as usize], 1 << (position % 8));
        new += u64::from(*byte & bit == 0);
        *byte |= bit;
    }
    new
}

/// Whether all bits of a key are set. Bits behind the end of a short array count as set.
pub(crate) fn may_contain(geometry: &Geometry, array: &[u8], hash: u64) -> bool {
    let modulus = Modulus::of(geometry.m);
    all_set(array, modulus, geometry.k, modulus.remainder(hash), || second_hash(hash))
}

/// As `may_contain`, from the first position on. Half of the absent keys need no `second` hash.
#[inline]
pub fn all_set(
    array: &[u8],
    modulus: Modulus,
    k: u32,
    first: u64,
    second: impl FnOnce() -> u64,
) -> bool {
    let is_set = |position: u64| {
        let byte = array.get((position / 8) as usize);
        byte.is_none_or(|byte| byte >> (position % 8) & 1 == 1)
    };
    if !is_set(first) {
        return false;
    }
    let step = modulus.remainder(second());
    let mut position = first;
    let mut next = || {
        position = modulus.sum(position, step);
        is_set(position)
    };
    let mut left = k.saturating_sub(1);
    while left >= GROUP {
        if !(next() & next() & next()) {
            return false;
        }
        left -= GROUP;
    }
    (0..left).all(|_| next())
}
