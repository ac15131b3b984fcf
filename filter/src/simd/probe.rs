//! The functions that probe a filter of one kind, for this processor.

#![expect(unsafe_code, reason = "calls of functions that need instructions of this processor")]

use crate::geometry::Geometry;

/// Probes arrays of any length. An array that is too short answers "maybe".
#[derive(Clone, Copy)]
pub(crate) struct Probe {
    /// `one` and `many` need the instructions of their [`Path`](super::Path).
    pub(super) one: unsafe fn(&Geometry, &[u8], u64) -> bool,
    pub(super) many: unsafe fn(&Geometry, &[u8], &[u64], &mut [bool]),
}

impl Probe {
    pub(crate) fn scalar(
        one: fn(&Geometry, &[u8], u64) -> bool,
        many: fn(&Geometry, &[u8], &[u64], &mut [bool]),
    ) -> Self {
        Self { one, many }
    }

    /// Whether a filter of this geometry and array may have the hash. `false` is certain.
    #[inline]
    pub(crate) fn may_contain(self, geometry: &Geometry, array: &[u8], hash: u64) -> bool {
        // SAFETY: the path comes from `Path::best`, so the processor has its instructions.
        unsafe { (self.one)(geometry, array, hash) }
    }

    pub(crate) fn may_contain_many(
        self,
        geometry: &Geometry,
        array: &[u8],
        hashes: &[u64],
        answers: &mut [bool],
    ) {
        // SAFETY: as in `may_contain`.
        unsafe { (self.many)(geometry, array, hashes, answers) }
    }
}
