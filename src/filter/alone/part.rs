//! One array of some kind with its shape, wherever its bytes are.

use std::fmt;
use std::ops::{Deref, Range};

use memmap2::Mmap;

use super::sizing::invalid;
use crate::error::{IoContext, Result};
use crate::filter::kind::{FilterKind, Geometry, Probe};
use crate::sealed::SealedBytes;
use crate::sync::Arc;

/// Where the bytes of an array are.
pub(super) enum Array {
    /// On the heap, to be changed.
    Owned(Vec<u8>),
    /// In memory of their own, at the start of a page, and read-only.
    Sealed(SealedBytes),
    /// In a file.
    Mapped(Arc<Mmap>, Range<usize>),
}

impl Array {
    /// Zeros; an error if there is no memory for so many.
    pub(super) fn zeroed(length: usize) -> Result<Self> {
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(length)
            .map_err(|e| invalid("capacity", format!("no memory for {length} bytes: {e}")))?;
        bytes.resize(length, 0);
        Ok(Self::Owned(bytes))
    }

    pub(super) fn sealed(bytes: &[u8]) -> Result<Self> {
        let sealed = SealedBytes::filled(bytes.len(), |memory| {
            memory.copy_from_slice(bytes);
            Ok(())
        });
        Ok(Self::Sealed(sealed.context("map memory", "for a filter".as_ref())?))
    }

    /// The bytes, to be changed; a copy if they could not be.
    pub(super) fn to_mut(&mut self) -> &mut Vec<u8> {
        if !matches!(self, Self::Owned(_)) {
            *self = Self::Owned(self.to_vec());
        }
        match self {
            Self::Owned(bytes) => bytes,
            Self::Sealed(_) | Self::Mapped(..) => unreachable!("just made owned"),
        }
    }
}

impl Deref for Array {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Sealed(bytes) => bytes,
            Self::Mapped(map, range) => map.get(range.clone()).unwrap_or_default(),
        }
    }
}

/// An array of some kind, its shape, and the way to ask it.
pub(super) struct Part {
    pub(super) kind: FilterKind,
    pub(super) geometry: Geometry,
    /// Mixed into each hash; 0 for none.
    pub(super) salt: u64,
    pub(super) array: Array,
    probe: Probe,
}

impl Part {
    pub(super) fn new(kind: FilterKind, geometry: Geometry, salt: u64, array: Array) -> Self {
        Self { kind, geometry, salt, array, probe: (kind.kind().probe)() }
    }

    /// Whether the key of this hash, already salted, may be in.
    #[inline]
    pub(super) fn may_contain(&self, salted: u64) -> bool {
        (self.probe)(&self.geometry, &self.array, salted)
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part")
            .field("kind", &self.kind)
            .field("geometry", &self.geometry)
            .finish_non_exhaustive()
    }
}
