//! The block cache: verified data blocks, by table and number, up to a number of bytes.

use foldhash::fast::FixedState;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

/// A fixed hash, so that two equal runs of one thread keep and evict the same entries. What it hashes is
/// the store's own numbers.
pub(crate) type FixedHasher = FixedState;

/// Entries are spread over this many parts, each with a lock of its own.
const SHARDS: usize = 16;

/// A block's place: its table's id and its number. Not its offset, for which a lookup would wait.
pub(crate) type BlockPlace = (u64, usize);

#[derive(Debug, Clone)]
struct BytesHeld;

impl<B: Cached> Weighter<BlockPlace, B> for BytesHeld {
    fn weight(&self, _: &BlockPlace, block: &B) -> u64 {
        block.bytes_held()
    }
}

/// What can be kept in a cache.
pub(crate) trait Cached: Clone {
    /// The memory that it holds, in bytes.
    fn bytes_held(&self) -> u64;
}

/// A bounded cache of blocks.
#[derive(Debug)]
pub(crate) struct BlockCache<B: Cached>(Cache<BlockPlace, B, BytesHeld, FixedHasher>);

impl<B: Cached> BlockCache<B> {
    /// A cache of at most `bytes`, for blocks of about `block_bytes`; `None` for 0 bytes.
    pub(crate) fn new(bytes: u64, block_bytes: usize) -> Option<Self> {
        if bytes == 0 {
            return None;
        }
        let blocks = (bytes / block_bytes as u64).max(1) as usize;
        // A shard too small for a few blocks would keep none of them.
        let shards = SHARDS.min((blocks / 8).max(1));
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity(blocks)
            .weight_capacity(bytes)
            .build()
            .ok()?;
        let lifecycle = DefaultLifecycle::default();
        Some(Self(Cache::with_options(options, BytesHeld, FixedHasher::default(), lifecycle)))
    }

    pub(crate) fn get(&self, place: BlockPlace) -> Option<B> {
        self.0.get(&place)
    }

    pub(crate) fn insert(&self, place: BlockPlace, block: B) {
        self.0.insert(place, block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Cached for u64 {
        fn bytes_held(&self) -> u64 {
            *self
        }
    }

    #[test]
    fn holds_no_more_than_its_bytes() {
        let cache = BlockCache::new(10_000, 100).expect("not empty");
        for offset in 0..1_000 {
            cache.insert((1, offset), 100_u64);
        }
        let held = (0..1_000).filter(|&offset| cache.get((1, offset)).is_some()).count();
        assert!((1..=100).contains(&held), "{held} blocks of 100 bytes held");
        assert!(BlockCache::<u64>::new(0, 100).is_none());
    }
}
