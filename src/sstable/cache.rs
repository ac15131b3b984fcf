//! The block cache: verified data blocks, by table and number.

use foldhash::fast::FixedState;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use super::block::Block;

/// A fixed hash: two equal runs of one thread evict the same entries. Its input is the store's own numbers.
pub(crate) type FixedHasher = FixedState;

/// The number of parts of the cache, each with its own lock.
const SHARDS: usize = 16;

/// Table id and block number. A lookup knows the number before it knows the offset.
pub(crate) type BlockPlace = (u64, usize);

#[derive(Debug, Clone)]
struct BytesHeld;

impl Weighter<BlockPlace, Block> for BytesHeld {
    fn weight(&self, _: &BlockPlace, block: &Block) -> u64 {
        // 140 to 200 bytes more were measured: the block's fields, and the cache's own record of them.
        (block.bytes() + 3 * size_of::<Block>()) as u64
    }
}

#[derive(Debug)]
pub(crate) struct BlockCache(Cache<BlockPlace, Block, BytesHeld, FixedHasher>);

impl BlockCache {
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

    /// The memory of the cached blocks, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.weight()
    }

    pub(crate) fn get(&self, place: BlockPlace) -> Option<Block> {
        self.0.get(&place)
    }

    /// Whether it has the block. Does not count as a use.
    pub(crate) fn contains(&self, place: BlockPlace) -> bool {
        self.0.peek(&place).is_some()
    }

    pub(crate) fn insert(&self, place: BlockPlace, block: Block) {
        self.0.insert(place, block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{EntryKind, EntryRef};
    use crate::sstable::block::BlockBuilder;

    fn block(value_bytes: usize) -> Block {
        let mut builder = BlockBuilder::default();
        let value = vec![b'v'; value_bytes];
        builder.add(EntryRef { key: b"key", seq: 1, kind: EntryKind::Put, value: &value });
        Block::new(builder.finish().into(), None).expect("sound")
    }

    #[test]
    fn a_block_weighs_its_bytes_and_a_little_more() {
        for bytes in [1, 1000, 100_000] {
            let more = BytesHeld.weight(&(1, 0), &block(bytes)) - bytes as u64;
            let least = 3 * size_of::<Block>() as u64;
            assert!((least..200).contains(&more), "{more} bytes more than {bytes}");
        }
    }

    #[test]
    fn the_cache_holds_no_more_than_its_bytes() {
        let weight = BytesHeld.weight(&(1, 0), &block(1000));
        let cache = BlockCache::new(100 * weight, 1000).expect("not empty");
        for number in 0..1_000 {
            cache.insert((1, number), block(1000));
        }
        let held = (0..1_000).filter(|&number| cache.get((1, number)).is_some()).count();
        assert!((50..=100).contains(&held), "{held} blocks of 100 held");
        assert!(BlockCache::new(0, 100).is_none());
    }
}
