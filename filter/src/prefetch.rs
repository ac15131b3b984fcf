//! Prefetching. A cache miss takes a hundred nanoseconds or more; ten cache misses at once take little
//! longer.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "an instruction of the processor")
)]

/// The number of filters that are prefetched at once. A processor can wait for about this many cache misses.
pub const IN_FLIGHT: usize = 16;

/// Prefetches the cache line that holds a byte of the array. Does nothing beyond the end of the array.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn prefetch(array: &[u8], byte: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    if let Some(byte) = array.get(byte) {
        // SAFETY: the address lies in the array. The instruction has no result, and cannot fail.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
    }
}

/// Does nothing: for other processors there is no stable intrinsic.
#[cfg(not(target_arch = "x86_64"))]
pub fn prefetch(_: &[u8], _: usize) {}
