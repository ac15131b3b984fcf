//! A small store on a disk in memory, and histories of its keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use criba_schedules::vfs::{SimVfs, Vfs};
use criba_schedules::{Batch, Db, FilterPolicy, Options, Value};

/// Small limits: about six changes fill a memtable, two tables are compacted, and files are reopened.
pub(crate) fn options(vfs: impl Vfs + 'static) -> Options {
    Options::new()
        .vfs(Arc::new(vfs))
        .seed(1)
        .memtable_bytes(1024)
        .table_bytes(1024)
        .level_base_bytes(4096)
        .block_bytes(64)
        .cache_bytes(1 << 16)
        .max_open_files(2)
        .l0_compaction_trigger(2)
        .l0_slowdown_trigger(4)
        .l0_stop_trigger(6)
}

pub(crate) fn open(vfs: &SimVfs) -> Db {
    options(vfs.clone()).open("/store").unwrap()
}

/// A policy that is not the default one.
pub(crate) fn other_policy() -> FilterPolicy {
    FilterPolicy::ribbon().with_bits_per_key(7.0)
}

pub(crate) fn key(number: usize) -> [u8; 1] {
    [b'a' + number as u8]
}

pub(crate) fn value(version: u64) -> [u8; 8] {
    version.to_be_bytes()
}

pub(crate) fn version(value: &Value) -> u64 {
    u64::from_be_bytes(value.as_ref().try_into().expect("a version"))
}

/// Writes all these keys with the same version, in one batch.
pub(crate) fn batch(keys: impl IntoIterator<Item = usize>, version: u64) -> Batch {
    let mut batch = Batch::new();
    for number in keys {
        batch.put(key(number), value(version));
    }
    batch
}

/// The versions of keys, which only grow: the newest whose write began, and the oldest that a new read may
/// return. shuttle does not switch threads in here.
#[derive(Debug)]
pub(crate) struct History<const KEYS: usize> {
    begun: [AtomicU64; KEYS],
    known: [AtomicU64; KEYS],
}

impl<const KEYS: usize> History<KEYS> {
    pub(crate) fn new() -> Self {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        Self { begun: zeros(), known: zeros() }
    }

    /// Calls `write` with the next version of a key.
    pub(crate) fn write<T>(&self, number: usize, version: u64, write: impl FnOnce() -> T) -> T {
        self.begun[number].fetch_max(version, Ordering::Relaxed);
        let written = write();
        self.known[number].fetch_max(version, Ordering::Relaxed);
        written
    }

    /// Calls `read` for a key. It must return a version that was known before, or a newer one whose write
    /// has begun. Later reads return no older one.
    pub(crate) fn check(&self, number: usize, read: impl FnOnce() -> Option<Value>) -> u64 {
        let known = self.known[number].load(Ordering::Relaxed);
        let Some(found) = read().as_ref().map(version) else {
            assert_eq!(known, 0, "key {number} is missed, version {known} of which was known");
            return 0;
        };
        let begun = self.begun[number].load(Ordering::Relaxed);
        assert!(found >= known, "key {number}: version {found}, but {known} was known");
        assert!(found <= begun, "key {number}: version {found}, but only {begun} was begun");
        self.known[number].fetch_max(found, Ordering::Relaxed);
        found
    }
}
