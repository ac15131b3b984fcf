//! The filter of the memtable: the only own code of the store with atomics weaker than sequentially
//! consistent. The same source files run on the atomics of loom, in which a relaxed load returns every
//! value that the memory model allows.

// The unit tests of the source are run where it belongs.
#![cfg(not(test))]

#[path = "../../../src/memtable/filter.rs"]
mod memtable_filter;

mod sync;

/// The items that the source takes from `filter`: here a key is its own hash.
mod filter {
    pub(crate) const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

    #[derive(Debug)]
    pub(crate) struct HashKey;

    #[derive(Debug, Clone, Copy)]
    pub(crate) struct HashFunction;

    impl HashFunction {
        #[expect(clippy::unused_self, reason = "as the library's")]
        pub(crate) fn of(self, key: &[u8], _: &HashKey) -> u64 {
            key.try_into().map_or(0, u64::from_le_bytes)
        }
    }

    pub(crate) fn fast_range(hash: u64, length: u64) -> u64 {
        ((u128::from(hash) * u128::from(length)) >> 64) as u64
    }
}

/// The filter of a memtable.
#[derive(Debug)]
pub struct Filter(memtable_filter::MemtableFilter);

impl Default for Filter {
    fn default() -> Self {
        Self(memtable_filter::MemtableFilter::new(filter::HashFunction, filter::HashKey))
    }
}

impl Filter {
    /// Sets the bits of a key.
    pub fn insert(&self, key: u64) {
        self.0.insert(&key.to_le_bytes());
    }

    /// Whether the key may be there.
    pub fn may_contain(&self, key: u64) -> bool {
        self.0.may_contain(|_| Some(key))
    }
}
