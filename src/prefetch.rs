//! Prefetching: a cache miss takes a hundred nanoseconds or more, and ten at once take little longer than one.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "an instruction of the processor")
)]

/// Prefetches the cache line of a byte of the array; nothing beyond its end.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn prefetch(array: &[u8], byte: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    if let Some(byte) = array.get(byte) {
        // SAFETY: the address is one of the array's. The instruction has no result, and no address makes it
        // fail.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
    }
}

/// Nothing: other processors have no stable intrinsic for it.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn prefetch(_: &[u8], _: usize) {}
