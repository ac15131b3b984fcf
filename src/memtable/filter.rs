//! The filter of a memtable: lookups of absent keys need not search its leaves. It grows with the memtable,
//! and many threads use it at once.
//!
//! A chain of layers. Each is a Bloom filter in blocks of two words, with three bits in each word, and seven
//! times as large as the one before. A full layer gets a successor. An insertion sets bits in the last layer;
//! a key may be present if any layer has its bits. A key has the same bits in each layer, but in another
//! block, so a probe computes them once. A layer costs an absent key two loads of words and one branch;
//! 300,000 keys are in five layers.
//!
//! # Why no visible key is denied
//! Bits are only set, and layers only added. An insertion sets the bits of its key *before* it puts the entry
//! into a leaf and releases the leaf's lock. A reader that finds the entry acquires that lock, or reads the
//! sequence number that is published later. So the bits happen before the read, and relaxed operations are
//! enough. If another thread had set the bits, reading them orders later reads too.
//!
//! A thread that inserts into a layer has made or seen that layer and all before it. So a reader that sees
//! the key finds an unbroken chain up to its layer.

use crate::sync::{AtomicU64, AtomicUsize, OnceLock, Ordering};
use criba_filter::HashFunction;
use criba_filter::store::{GOLDEN, HashKey, fast_range};

const WORDS: usize = 2;
const BLOCK_BYTES: usize = 16;
/// About 13 bits per key: half a per cent of absent keys pass a full layer.
const KEYS_PER_BLOCK: usize = 10;
/// A memtable may be as small as 1024 bytes, so the first layer takes 256.
const FIRST_BLOCKS: usize = 16;
/// More would be fewer layers, but also more memory: a new layer has room for this many times its keys.
const GROWTH: usize = 7;
/// All of them full hold 10¹¹ keys.
const LAYERS: usize = 12;

/// The bits of a key in the words of its block.
type Bits = [u64; WORDS];

#[inline]
fn bits(hash: u64) -> Bits {
    let product = hash.wrapping_mul(GOLDEN) >> 28;
    let bit = |number: u32| 1 << (product >> (6 * number) & 63);
    [bit(0) | bit(1) | bit(2), bit(3) | bit(4) | bit(5)]
}

/// Within one cache line.
#[derive(Debug, Default)]
#[repr(align(16))]
struct Block([AtomicU64; WORDS]);

impl Block {
    #[inline]
    fn holds(&self, bits: Bits) -> bool {
        let [a, b] = [0, 1].map(|word: usize| !self.0[word].load(Ordering::Relaxed) & bits[word]);
        a | b == 0
    }

    fn set(&self, bits: Bits) {
        for (word, bits) in self.0.iter().zip(bits) {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }
}

#[inline]
fn block_of(layer: &[Block], hash: u64) -> &Block {
    &layer[fast_range(hash, layer.len() as u64) as usize]
}

fn blocks(layer: usize) -> usize {
    FIRST_BLOCKS * GROWTH.pow(layer as u32)
}

/// The layer of the key inserted after `earlier` others.
fn layer_of(mut earlier: usize) -> usize {
    for layer in 0..LAYERS - 1 {
        let capacity = blocks(layer) * KEYS_PER_BLOCK;
        if earlier < capacity {
            return layer;
        }
        earlier -= capacity;
    }
    LAYERS - 1
}

#[derive(Debug)]
pub(crate) struct MemtableFilter {
    pub(super) hash: HashFunction,
    hash_key: HashKey,
    layers: [OnceLock<Box<[Block]>>; LAYERS],
    /// Keys that have bits of their own.
    keys: AtomicUsize,
}

impl MemtableFilter {
    /// An empty filter; it takes no memory before the first key.
    pub(crate) fn new(hash: HashFunction, hash_key: HashKey) -> Self {
        let layers = std::array::from_fn(|_| OnceLock::new());
        Self { hash, hash_key, layers, keys: AtomicUsize::new(0) }
    }

    /// Sets the bits of a key. Returns the bytes that the filter grew by.
    pub(super) fn insert(&self, key: &[u8]) -> usize {
        self.insert_hash(self.hash.of(key, &self.hash_key))
    }

    fn insert_hash(&self, hash: u64) -> usize {
        // A key that is written again and again takes no more room.
        if self.may_contain_hash(hash) {
            return 0;
        }
        let layer = layer_of(self.keys.fetch_add(1, Ordering::Relaxed));
        let mut grown = 0;
        for (number, layer) in self.layers[..=layer].iter().enumerate() {
            layer.get_or_init(|| {
                grown += blocks(number) * BLOCK_BYTES;
                (0..blocks(number)).map(|_| Block::default()).collect()
            });
        }
        if let Some(layer) = self.layers[layer].get() {
            block_of(layer, hash).set(bits(hash));
        }
        grown
    }

    /// Whether the memtable may hold a key; "no" is certain for all entries that the lookup may see. Calls `hash`
    /// for the key's hash by a function, unless the memtable is empty.
    #[inline]
    pub(super) fn may_contain(&self, hash: impl FnOnce(HashFunction) -> u64) -> bool {
        self.layers[0].get().is_some() && self.may_contain_hash(hash(self.hash))
    }

    fn may_contain_hash(&self, hash: u64) -> bool {
        let bits = bits(hash);
        self.layers.iter().map_while(OnceLock::get).any(|layer| block_of(layer, hash).holds(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use criba_filter::store::mix;

    fn filter() -> MemtableFilter {
        MemtableFilter::new(HashFunction::SipHash13, HashKey::new([9; 16]))
    }

    #[test]
    fn layers_follow_one_another_without_a_gap() {
        let first = FIRST_BLOCKS * KEYS_PER_BLOCK;
        for (earlier, layer) in [
            (0, 0),
            (first - 1, 0),
            (first, 1),
            ((1 + GROWTH) * first - 1, 1),
            ((1 + GROWTH) * first, 2),
            (usize::MAX, LAYERS - 1),
        ] {
            assert_eq!(layer_of(earlier), layer, "{earlier}");
        }
    }

    /// At every size few absent keys pass, but some do; the memory is at most thirteen bytes per entry of about
    /// sixty.
    #[test]
    fn the_rate_and_the_memory_are_bounded_at_every_size() {
        let filter = filter();
        let (mut keys, mut bytes) = (0_u64, 0);
        for size in [1, 100, 1000, 10_000, 100_000, 300_000] {
            while keys < size {
                bytes += filter.insert_hash(mix(keys));
                keys += 1;
            }
            assert!((0..keys).all(|key| filter.may_contain_hash(mix(key))), "{size} keys");
            let probes = 200_000_u64;
            let passed = (1 << 40..(1 << 40) + probes).map(mix);
            let passed = passed.filter(|&hash| filter.may_contain_hash(hash)).count();
            let rate = passed as f64 / probes as f64;
            println!("{size} keys: {bytes} bytes, {:.3} % of absent keys pass", 100.0 * rate);
            assert!(rate < 0.05, "{rate}");
            assert!(size < 10_000 || rate > 0.001, "{rate}: fuller than it looks");
            assert!(size < 100 || bytes as u64 <= 13 * size, "{bytes}");
        }
    }

    #[test]
    fn a_key_written_again_takes_no_room() {
        let filter = filter();
        let first = filter.insert(b"key");
        assert_eq!(first, FIRST_BLOCKS * BLOCK_BYTES);
        for _ in 0..100_000 {
            assert_eq!(filter.insert(b"key"), 0);
        }
        assert_eq!(filter.keys.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_is_announced_is_never_denied() {
        const EACH: u64 = 60_000;
        const WRITERS: u64 = 3;
        for run in 0..5_u64 {
            let filter = filter();
            let announced: [AtomicU64; WRITERS as usize] =
                std::array::from_fn(|_| AtomicU64::new(0));
            let hash = |writer: u64, number: u64| mix(run << 50 | writer << 40 | number);
            let probes = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for (writer, announced) in (0..).zip(&announced) {
                    let filter = &filter;
                    scope.spawn(move || {
                        for number in 0..EACH {
                            filter.insert_hash(hash(writer, number));
                            announced.store(number + 1, Ordering::Release);
                        }
                    });
                }
                for _ in 0..2 {
                    scope.spawn(|| {
                        let mut done = false;
                        while !done {
                            done = true;
                            for (writer, announced) in (0..).zip(&announced) {
                                let there = announced.load(Ordering::Acquire);
                                done &= there == EACH;
                                // The newest ones, where a growth would be missed.
                                for number in there.saturating_sub(50)..there {
                                    assert!(filter.may_contain_hash(hash(writer, number)));
                                }
                                probes.fetch_add(there.min(50), Ordering::Relaxed);
                            }
                        }
                    });
                }
            });
            for writer in 0..WRITERS {
                assert!((0..EACH).all(|number| filter.may_contain_hash(hash(writer, number))));
            }
            println!("run {run}: {} probes meanwhile", probes.load(Ordering::Relaxed));
        }
    }
}
