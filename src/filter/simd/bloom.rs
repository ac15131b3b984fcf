//! The probe of a standard Bloom filter without checks. It needs no vectors: a probe of an absent key reads two
//! bits on average.

#![expect(unsafe_code, reason = "reads of an array whose length was checked")]

use super::super::bloom::{array_bytes, check, second_hash};
use super::super::geometry::Geometry;
use super::{Prober, Unchecked};

/// `None` if the array does not fit the geometry.
pub(in crate::filter) fn unchecked(geometry: &Geometry, bytes: usize) -> Option<Unchecked> {
    let fits = check(geometry).is_ok() && bytes == array_bytes(geometry);
    fits.then(|| Unchecked::new(probe_one))
}

/// The number of bits that are tested at once. The cache lines of a group are loaded at the same time, and one branch
/// follows: a branch for each bit would be mispredicted, as half of the bits are set.
const GROUP: u32 = 3;

/// Makes no checks: [`unchecked`] has checked the array. Half of the absent keys need no second hash.
fn probe_one(prober: &Prober, hash: u64) -> bool {
    let modulus = prober.modulus;
    let is_set = |position: u64| {
        debug_assert!((position / 8) < prober.array.len() as u64);
        // SAFETY: a remainder by m is below m, and the array has m bits.
        let byte = unsafe { *prober.array.get_unchecked((position / 8) as usize) };
        byte >> (position % 8) & 1 == 1
    };
    let mut position = modulus.remainder(hash);
    if !is_set(position) {
        return false;
    }
    let step = modulus.remainder(second_hash(hash));
    let mut left = prober.geometry.k - 1;
    while left > 0 {
        let group = left.min(GROUP);
        let mut all_set = true;
        for _ in 0..group {
            position = modulus.sum(position, step);
            all_set &= is_set(position);
        }
        if !all_set {
            return false;
        }
        left -= group;
    }
    true
}
