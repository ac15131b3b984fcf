//! Asking for memory before it is needed: who misses the caches waits a hundred nanoseconds or more, and
//! ten such waits at once take little longer than one.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "an instruction of the processor")
)]

/// Asks for the cache line of this byte, if the array has it.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn prefetch(array: &[u8], byte: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    if let Some(byte) = array.get(byte) {
        // SAFETY: the address is one of the array's. The instruction reads nothing that the program could
        // see, and fails at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(byte).cast()) };
    }
}

/// Other processors find their own ways to overlap reads.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn prefetch(_: &[u8], _: usize) {}
