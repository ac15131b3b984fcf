//! An array with its kind and geometry.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use memmap2::MmapMut;

use super::sizing::invalid;
use crate::error::{IoContext, Result};
use crate::geometry::Geometry;
use crate::kind::FilterKind;
use crate::prober::Prober;

pub(super) enum Array {
    Owned(Vec<u8>),
    /// Read-only: a mapping of memory, or a part of a mapped file.
    Shared(Bytes),
}

impl Array {
    pub(super) fn zeroed(length: usize) -> Result<Self> {
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(length)
            .map_err(|e| invalid("capacity", format!("no memory for {length} bytes: {e}")))?;
        bytes.resize(length, 0);
        Ok(Self::Owned(bytes))
    }

    /// A read-only copy at the start of a page.
    pub(super) fn sealed(bytes: &[u8]) -> Result<Self> {
        let sealed = MmapMut::map_anon(bytes.len()).and_then(|mut memory| {
            memory.copy_from_slice(bytes);
            memory.make_read_only()
        });
        let sealed = sealed.context("map memory", "for a filter".as_ref())?;
        Ok(Self::Shared(Bytes::from_owner(sealed)))
    }

    /// The bytes for writing. Read-only bytes are copied first.
    pub(super) fn to_mut(&mut self) -> &mut Vec<u8> {
        if let Self::Shared(bytes) = self {
            *self = Self::Owned(bytes.to_vec());
        }
        match self {
            Self::Owned(bytes) => bytes,
            Self::Shared(_) => unreachable!("replaced above"),
        }
    }
}

impl Deref for Array {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

pub(super) struct Part {
    pub(super) kind: FilterKind,
    pub(super) geometry: Geometry,
    /// Mixed into each hash; 0 for no salt.
    pub(super) salt: u64,
    pub(super) array: Array,
}

impl Part {
    pub(super) fn new(kind: FilterKind, geometry: Geometry, salt: u64, array: Array) -> Self {
        Self { kind, geometry, salt, array }
    }

    /// The part for probes. Bytes that can still be written to are copied.
    pub(super) fn prober(&self) -> Prober {
        let array = match &self.array {
            Array::Owned(bytes) => Bytes::copy_from_slice(bytes),
            Array::Shared(bytes) => bytes.clone(),
        };
        Prober::new(self.kind, self.geometry, array)
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
