//! A finished array, checked once.
//!
//! A probe takes two to four nanoseconds. Checks, and calculations that depend on the geometry alone, would
//! double this.

#![expect(unsafe_code, reason = "calls of functions that check neither processor nor array")]

use bytes::Bytes;

use super::Probe;
#[cfg(target_arch = "x86_64")]
use super::ribbon_shape::Shape;
use crate::geometry::Geometry;
use crate::modulus::Modulus;
use crate::prefetch::prefetch;

/// Offsets of bytes in the array; their cache lines usually decide a probe of the hash. Offsets may repeat,
/// or lie behind the end of the array.
pub(crate) type Touched = fn(&Prober, u64) -> [usize; 4];

/// Needs the instructions of its path, and an array of the length that the geometry requires.
type ProbeOne = unsafe fn(&Prober, u64) -> bool;

/// As [`ProbeOne`], for many hashes.
type ProbeMany = unsafe fn(&Prober, &[u64], &mut [bool]);

/// Code without checks, for one array of the length that its geometry requires.
pub(crate) struct Unchecked {
    pub(super) probe_one: ProbeOne,
    pub(super) probe_many: ProbeMany,
    /// Blocked: the number of blocks. Ribbon: the number of start rows.
    #[cfg(target_arch = "x86_64")]
    pub(super) places: u64,
    #[cfg(target_arch = "x86_64")]
    pub(super) ribbon: Shape,
}

impl Unchecked {
    pub(crate) fn new(probe_one: ProbeOne) -> Self {
        Self {
            probe_one,
            probe_many: Prober::many_checked,
            #[cfg(target_arch = "x86_64")]
            places: 0,
            #[cfg(target_arch = "x86_64")]
            ribbon: Shape::default(),
        }
    }
}

/// An immutable array with its geometry, and numbers that follow from both.
#[derive(Clone)]
pub struct Prober {
    probe_one: ProbeOne,
    probe_many: ProbeMany,
    pub(super) array: Bytes,
    pub(super) geometry: Geometry,
    probe: Probe,
    touched: Touched,
    /// For division by `geometry.m`.
    pub(crate) modulus: Modulus,
    #[cfg(target_arch = "x86_64")]
    pub(super) places: u64,
    #[cfg(target_arch = "x86_64")]
    pub(super) ribbon: Shape,
}

impl Prober {
    /// `unchecked` gives code without checks for this geometry and an array of this length, or `None`.
    pub(crate) fn new(
        geometry: Geometry,
        array: Bytes,
        probe: Probe,
        touched: Touched,
        unchecked: fn(&Geometry, usize) -> Option<Unchecked>,
    ) -> Self {
        let found = unchecked(&geometry, array.len());
        let code = found.unwrap_or_else(|| Unchecked::new(Self::may_contain_checked));
        Self {
            array,
            geometry,
            probe,
            touched,
            modulus: Modulus::of(geometry.m),
            probe_one: code.probe_one,
            probe_many: code.probe_many,
            #[cfg(target_arch = "x86_64")]
            places: code.places,
            #[cfg(target_arch = "x86_64")]
            ribbon: code.ribbon,
        }
    }

    /// The array.
    pub fn array(&self) -> &Bytes {
        &self.array
    }

    /// The geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// For division by `m` of the geometry.
    pub fn modulus(&self) -> Modulus {
        self.modulus
    }

    /// Whether the filter may have the hash. `false` is certain.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        // SAFETY: the path comes from `Path::best`, so the processor has its instructions. A function
        // without checks was chosen only for an array as long as the geometry says, which never changes.
        unsafe { (self.probe_one)(self, hash) }
    }

    /// Prefetches what a probe of this hash reads.
    pub fn prefetch(&self, hash: u64) {
        for byte in (self.touched)(self, hash) {
            prefetch(&self.array, byte);
        }
    }

    /// The offsets whose cache lines [`prefetch`](Self::prefetch) loads.
    #[cfg(test)]
    pub(crate) fn touched(&self, hash: u64) -> [usize; 4] {
        (self.touched)(self, hash)
    }

    /// Not inlined into code without checks, which would then need more registers.
    #[inline(never)]
    pub(super) fn may_contain_checked(&self, hash: u64) -> bool {
        self.probe.may_contain(&self.geometry, &self.array, hash)
    }

    fn many_checked(&self, hashes: &[u64], answers: &mut [bool]) {
        self.probe.may_contain_many(&self.geometry, &self.array, hashes, answers);
    }

    /// The answers for many hashes, up to the length of the shorter slice.
    pub fn may_contain_many(&self, hashes: &[u64], answers: &mut [bool]) {
        // SAFETY: as in `may_contain`.
        unsafe { (self.probe_many)(self, hashes, answers) }
    }
}
