//! A finished array, ready to be asked.
//!
//! Of the two to four nanoseconds of a probe as many would go into the call, into checks and into numbers
//! that come out the same each time. So they are done once, when a filter is made or read; and a probe of
//! a sound array is one call with two arguments.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "calls of code for the processor at hand, without checks")
)]

use bytes::Bytes;

use super::super::kind::{FilterKind, Geometry, Probe};
#[cfg(target_arch = "x86_64")]
use super::{Path, blocked, ribbon};
use crate::prefetch::prefetch;

/// A way to ask an array, with checks or without.
type Ask = fn(&Prober, u64) -> bool;

/// One without, before it is known that it may be gone.
#[cfg(target_arch = "x86_64")]
type Unchecked = unsafe fn(&Prober, u64) -> bool;

/// An array that nothing changes any more, with its shape. What is here beside them follows from them.
#[derive(Clone)]
pub(in crate::filter) struct Prober {
    ask: Ask,
    pub(super) array: Bytes,
    pub(super) geometry: Geometry,
    probe: Probe,
    touched: fn(&Geometry, u64) -> [usize; 4],
    /// Blocked: blocks. Ribbon: start rows.
    #[cfg(target_arch = "x86_64")]
    pub(super) places: u64,
    #[cfg(target_arch = "x86_64")]
    pub(super) ribbon: ribbon::Shape,
}

impl Prober {
    pub(in crate::filter) fn new(kind: FilterKind, geometry: Geometry, array: Bytes) -> Self {
        let prober = Self {
            array,
            geometry,
            probe: (kind.kind().probe)(),
            touched: kind.kind().touched,
            ask: Self::may_contain_checked,
            #[cfg(target_arch = "x86_64")]
            places: 0,
            #[cfg(target_arch = "x86_64")]
            ribbon: ribbon::Shape::default(),
        };
        #[cfg(target_arch = "x86_64")]
        let prober = prober.without_checks(kind);
        prober
    }

    /// Leaves the checks out where this processor has a way to, and where they are not needed, because
    /// the shape is sound and the array is the shape's.
    #[cfg(target_arch = "x86_64")]
    fn without_checks(self, kind: FilterKind) -> Self {
        let Self { geometry, .. } = self;
        let sound = (kind.kind().check)(&geometry).is_ok()
            && self.array.len() == (kind.kind().array_bytes)(&geometry);
        if !sound {
            return self;
        }
        let ribbon = |ask| {
            let shape = ribbon::Shape::of(&geometry)?;
            Some((ask, geometry.m - 63, shape))
        };
        let unchecked = match (kind, Path::best()) {
            (FilterKind::Ribbon, Path::Avx512) => ribbon(ribbon::ask as Unchecked),
            (FilterKind::Ribbon, Path::Avx2) => ribbon(ribbon::ask_by_fours),
            (FilterKind::Blocked, Path::Avx512) => {
                Some((blocked::ask as Unchecked, geometry.m / 512, ribbon::Shape::default()))
            }
            _ => None,
        };
        let Some((ask, places, ribbon)) = unchecked else { return self };
        // SAFETY: the two types differ in `unsafe` alone, which is there because the processor might not
        // have the instructions, which `Path::best` says it has; and because the array might not be
        // the shape's, which it was found to be just now, and nothing changes either any more.
        let ask = unsafe { std::mem::transmute::<Unchecked, Ask>(ask) };
        Self { ask, places, ribbon, ..self }
    }

    pub(in crate::filter) fn array(&self) -> &Bytes {
        &self.array
    }

    pub(in crate::filter) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Whether the key of this hash may be in; "no" is certain.
    #[inline]
    pub(in crate::filter) fn may_contain(&self, hash: u64) -> bool {
        (self.ask)(self, hash)
    }

    /// Asks for the memory that [`may_contain`](Self::may_contain) of this hash will mostly read, and does
    /// not wait for it.
    pub(in crate::filter) fn prefetch(&self, hash: u64) {
        for byte in (self.touched)(&self.geometry, hash) {
            prefetch(&self.array, byte);
        }
    }

    /// Bytes of the array, whose cache lines [`prefetch`](Self::prefetch) asks for.
    #[cfg(test)]
    pub(in crate::filter) fn touched(&self, hash: u64) -> [usize; 4] {
        (self.touched)(&self.geometry, hash)
    }

    /// The same with checks, of any array.
    pub(super) fn may_contain_checked(&self, hash: u64) -> bool {
        (self.probe)(&self.geometry, &self.array, hash)
    }
}
