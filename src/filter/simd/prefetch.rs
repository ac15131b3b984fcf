//! Asking for memory before it is needed: a probe that misses the caches waits a hundred nanoseconds or
//! more, and ten such waits at once take little longer than one.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "an instruction of the processor")
)]

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
const CACHE_LINE: usize = 64;

/// Asks for the cache lines of these bytes, if the array has them.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn prefetch(array: &[u8], bytes: Range<usize>) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    let bytes = array.get(bytes).unwrap_or_default();
    for line in bytes.chunks(CACHE_LINE).chain(bytes.last_chunk::<1>().map(<[u8; 1]>::as_slice)) {
        // SAFETY: the address is one of the array's. The instruction reads nothing that the program could
        // see, and fails at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}

/// Other processors find their own ways to overlap reads.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn prefetch(_: &[u8], _: Range<usize>) {}
