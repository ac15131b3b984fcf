//! Counts of requests.

use std::sync::atomic::{AtomicU64, Ordering};

/// The purpose of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// Data blocks for lookups: each is one disk read of the store's statistics.
    Blocks,
    /// Many data blocks at once, for scans and compactions.
    Ranges,
    /// Filters and indexes of tables.
    Tails,
    /// Filter files.
    Filters,
    /// Manifests, to read one.
    Manifests,
    /// A listing of names.
    Lists,
    /// Parts of tables and filter files, to write them.
    Uploads,
    /// Manifests and pins, to write one.
    Publications,
    /// Removals of objects.
    Removals,
}

impl Purpose {
    /// All purposes, in the order of their declaration.
    pub const ALL: [Self; 9] = [
        Self::Blocks,
        Self::Ranges,
        Self::Tails,
        Self::Filters,
        Self::Manifests,
        Self::Lists,
        Self::Uploads,
        Self::Publications,
        Self::Removals,
    ];
}

/// Requests of one purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RequestCounts {
    /// Requests, repeated ones too.
    pub requests: u64,
    /// Of these, requests that repeated a failed one.
    pub repeated: u64,
    /// Bytes read or written.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    repeated: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Requests([Counters; Purpose::ALL.len()]);

impl Requests {
    pub(crate) fn began(&self, purpose: Purpose, is_repeated: bool) {
        let counters = &self.0[purpose as usize];
        counters.requests.fetch_add(1, Ordering::Relaxed);
        counters.repeated.fetch_add(is_repeated.into(), Ordering::Relaxed);
    }

    pub(crate) fn moved(&self, purpose: Purpose, bytes: u64) {
        self.0[purpose as usize].bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self, purpose: Purpose) -> RequestCounts {
        let Counters { requests, repeated, bytes } = &self.0[purpose as usize];
        RequestCounts {
            requests: requests.load(Ordering::Relaxed),
            repeated: repeated.load(Ordering::Relaxed),
            bytes: bytes.load(Ordering::Relaxed),
        }
    }
}
