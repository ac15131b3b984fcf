//! Probes of ribbons. Checks, and numbers that follow from the geometry alone, would double the time of a probe,
//! so they are made once.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "calls of functions that need instructions of this processor")
)]

use bytes::Bytes;

use super::array::{self, matrix_words, probe_words};
use super::layers::{HALF, Layers, is_bumped};
#[cfg(target_arch = "x86_64")]
use super::layout::Layout;
#[cfg(target_arch = "x86_64")]
use super::vector;
use crate::geometry::Geometry;
use crate::instructions::Instructions;

/// A ribbon.
#[derive(Clone)]
pub struct RibbonProber {
    pub(crate) array: Bytes,
    pub(crate) geometry: Geometry,
    code: Code,
}

/// The code of a probe.
#[derive(Clone, Copy)]
enum Code {
    /// Reads within the array, whatever its length.
    Checked,
    /// Four columns at a time, without checks.
    #[cfg(target_arch = "x86_64")]
    Fours(Layout),
    /// Eight columns at a time, without checks.
    #[cfg(target_arch = "x86_64")]
    Eights(Layout),
}

impl Code {
    #[cfg(target_arch = "x86_64")]
    fn of(instructions: Instructions, geometry: &Geometry, array_bytes: usize) -> Self {
        match (instructions, Layout::of(geometry, array_bytes)) {
            (Instructions::Avx2, Some(layout)) => Self::Fours(layout),
            (Instructions::Avx512, Some(layout)) => Self::Eights(layout),
            _ => Self::Checked,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn of(_: Instructions, _: &Geometry, _: usize) -> Self {
        Self::Checked
    }
}

impl RibbonProber {
    pub(crate) fn new(geometry: Geometry, array: Bytes) -> Self {
        let code = Code::of(Instructions::best(), &geometry, array.len());
        Self { array, geometry, code }
    }

    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        match &self.code {
            Code::Checked => self.may_contain_checked(hash),
            // SAFETY: `Instructions::best` found that the processor has them. The layout is that of the array,
            // which never changes.
            #[cfg(target_arch = "x86_64")]
            Code::Fours(layout) => unsafe {
                vector::by_fours(layout, &self.geometry, &self.array, hash)
            },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Code::Eights(layout) => unsafe {
                vector::by_eights(layout, &self.geometry, &self.array, hash)
            },
        }
    }

    pub(crate) fn may_contain_many(&self, hashes: &[u64], answers: &mut [bool]) {
        match &self.code {
            Code::Checked => {
                for (&hash, answer) in hashes.iter().zip(answers) {
                    *answer = self.may_contain_checked(hash);
                }
            }
            // SAFETY: as in `may_contain`.
            #[cfg(target_arch = "x86_64")]
            Code::Fours(layout) => unsafe {
                vector::many_by_fours(layout, &self.geometry, &self.array, hashes, answers);
            },
            // SAFETY: as in `may_contain`.
            #[cfg(target_arch = "x86_64")]
            Code::Eights(layout) => unsafe {
                vector::many_by_eights(layout, &self.geometry, &self.array, hashes, answers);
            },
        }
    }

    #[inline(never)]
    fn may_contain_checked(&self, hash: u64) -> bool {
        array::may_contain(&self.geometry, &self.array, hash)
    }

    /// The fraction of hashes that the first layer bumps; `None` with one layer.
    pub(crate) fn bumped(&self) -> Option<f64> {
        let layer = Layers::of(self.geometry.m).bumping().next()?;
        let bits = self.array.get(8 * matrix_words(&self.geometry)..)?;
        // All buckets but the last, which has one start row.
        let halves = 2 * (layer.segments as usize - 1);
        let (whole, rest) = bits.split_at_checked(halves / 8)?;
        let ones: u32 = whole.iter().map(|byte| byte.count_ones()).sum();
        let ones = ones + (rest.first()? & !(u8::MAX << (halves % 8))).count_ones();
        let in_last = u32::from(is_bumped(bits, HALF * halves)?);
        Some(f64::from(HALF as u32 * ones + in_last) / layer.start_rows() as f64)
    }

    fn layers(&self) -> Layers {
        match &self.code {
            #[cfg(target_arch = "x86_64")]
            Code::Fours(layout) | Code::Eights(layout) => layout.layers,
            Code::Checked => Layers::of(self.geometry.m),
        }
    }

    /// Eight columns of both segments of a probe. One in 256 absent keys passes these columns.
    pub(crate) fn prefetch_offsets(&self, hash: u64) -> [usize; 4] {
        let words = probe_words(&self.geometry, &self.layers(), &self.array, hash);
        let Some(words) = words else { return [0; 4] };
        let [first, second] = [8 * words.first, 8 * words.second];
        [first, first + 63, second, second + 63]
    }
}
