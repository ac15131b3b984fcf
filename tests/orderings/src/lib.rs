//! The filter of the memtable: the only own code of the store with atomics weaker than sequentially
//! consistent. The same source files run on the atomics of loom, in which a relaxed load returns every
//! value that the memory model allows.

// The unit tests of the source are run where it belongs.
#![cfg(not(test))]

#[path = "../../../src/memtable/filter.rs"]
mod memtable_filter;

mod sync;

// The source takes its hash from the crate `criba_filter`: here from this one.
extern crate self as criba_filter;

/// A hash function under which a key is its own hash.
#[derive(Debug, Clone, Copy)]
pub struct HashFunction;

impl HashFunction {
    /// The hash of a key of eight bytes.
    pub fn of(self, key: &[u8], _: &store::HashKey) -> u64 {
        key.try_into().map_or(0, u64::from_le_bytes)
    }
}

/// The other items that the source takes.
pub mod store {
    /// An odd number without a pattern.
    pub const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

    /// No key: the hash needs none.
    #[derive(Debug)]
    pub struct HashKey;

    /// Maps a hash to 0 … length−1 by its high bits.
    pub fn fast_range(hash: u64, length: u64) -> u64 {
        ((u128::from(hash) * u128::from(length)) >> 64) as u64
    }
}

/// The filter of a memtable.
#[derive(Debug)]
pub struct Filter(memtable_filter::MemtableFilter);

impl Default for Filter {
    fn default() -> Self {
        Self(memtable_filter::MemtableFilter::new(HashFunction, store::HashKey))
    }
}

impl Filter {
    /// Sets the bits of a key.
    pub fn insert(&self, key: u64) {
        self.0.insert(&key.to_le_bytes());
    }

    /// Whether the key may be there.
    pub fn may_contain(&self, key: u64) -> bool {
        self.0.may_contain(|_| key)
    }
}
