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
    (1..prober.geometry.k).all(|_| {
        position = modulus.sum(position, step);
        is_set(position)
    })
}
