//! Probes of blocked filters.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "calls of functions that need instructions of this processor")
)]

use bytes::Bytes;

use super::array::{self, block};
#[cfg(target_arch = "x86_64")]
use super::array::{BLOCK_BITS, array_bytes, check};
#[cfg(target_arch = "x86_64")]
use super::vector;
use crate::geometry::Geometry;
use crate::instructions::Instructions;

/// A blocked filter.
#[derive(Clone)]
pub struct BlockedProber {
    pub(crate) array: Bytes,
    pub(crate) geometry: Geometry,
    instructions: Instructions,
    code: Code,
}

/// The code of a probe.
#[derive(Clone, Copy)]
enum Code {
    /// Reads within the array, whatever its length.
    Checked,
    /// AVX-512 without checks, for an array of this number of blocks.
    #[cfg(target_arch = "x86_64")]
    Whole { blocks: u64 },
}

impl Code {
    #[cfg(target_arch = "x86_64")]
    fn of(instructions: Instructions, geometry: &Geometry, array: &[u8]) -> Self {
        let is_whole = check(geometry).is_ok() && array.len() == array_bytes(geometry);
        match instructions {
            Instructions::Avx512 if is_whole => Self::Whole { blocks: geometry.m / BLOCK_BITS },
            _ => Self::Checked,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn of(_: Instructions, _: &Geometry, _: &[u8]) -> Self {
        Self::Checked
    }
}

impl BlockedProber {
    pub(crate) fn new(geometry: Geometry, array: Bytes) -> Self {
        let instructions = Instructions::best();
        let code = Code::of(instructions, &geometry, &array);
        Self { array, geometry, instructions, code }
    }

    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        match self.code {
            Code::Checked => may_contain(self.instructions, &self.geometry, &self.array, hash),
            // SAFETY: `Instructions::best` found that the processor has them. The array has all blocks, and never
            // changes.
            #[cfg(target_arch = "x86_64")]
            Code::Whole { blocks } => unsafe { vector::whole(&self.array, blocks, hash) },
        }
    }

    pub(crate) fn may_contain_many(&self, hashes: &[u64], answers: &mut [bool]) {
        match self.code {
            Code::Checked => {
                for (&hash, answer) in hashes.iter().zip(answers) {
                    *answer = self.may_contain(hash);
                }
            }
            // SAFETY: as in `may_contain`.
            #[cfg(target_arch = "x86_64")]
            Code::Whole { blocks } => unsafe {
                vector::many_whole(&self.array, blocks, hashes, answers);
            },
        }
    }

    pub(crate) fn prefetch_offsets(&self, hash: u64) -> [usize; 4] {
        let (start, _) = block(&self.geometry, hash);
        [start; 4]
    }
}

/// Whether a filter of this geometry and array may have the hash, with instructions that this processor has.
pub(super) fn may_contain(
    instructions: Instructions,
    geometry: &Geometry,
    array: &[u8],
    hash: u64,
) -> bool {
    match instructions {
        Instructions::Scalar => array::may_contain(geometry, array, hash),
        // SAFETY: `Instructions::best` found that the processor has them.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => unsafe { vector::avx2(geometry, array, hash) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => unsafe { vector::avx512(geometry, array, hash) },
    }
}
