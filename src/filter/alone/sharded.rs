//! A Bloom filter for several threads.

use super::bits::Bits;
use super::format::{Flaw, Form, Head, encode};
use super::fullness::Fullness;
use super::hashing::Hashing;
use super::part::Part;
use super::saved::{Saved, saved};
use super::sizing::{self, expected_fill, invalid};
use crate::filter::hash::{GOLDEN, fast_range, mix};
use crate::filter::kind::FilterKind;
use crate::sync::{Mutex, MutexGuard};

const MOST_SHARDS: usize = 1 << 16;

/// A Bloom filter in shards, each behind a lock of its own, into which several threads insert at the
/// same time. It has the rate of one filter of the same capacity, to a hundredth of it.
///
/// To be used when threads share what they have seen. A few times as many shards as threads keep them
/// out of each other's way; a shard should get a thousand keys or more.
///
/// ```
/// # fn main() -> criba::Result<()> {
/// let seen = criba::filter::ShardedBloom::with_rate(16, 100_000, 0.01)?;
/// let firsts = std::sync::atomic::AtomicU64::new(0);
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| {
///             if seen.insert("the same key") {
///                 firsts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
///             }
///         });
///     }
/// });
/// assert_eq!(firsts.into_inner(), 1); // of several threads with one key, one is told that it is new
/// assert!(seen.contains("the same key"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ShardedBloom {
    head: Head,
    shards: Vec<Shard>,
}

/// On cache lines of its own, so that threads at neighbouring shards do not disturb each other.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(Mutex<Bits>);

impl ShardedBloom {
    /// An empty filter of so many shards for `capacity` distinct keys in all, of which no more than
    /// the part `rate` of all absent keys pass.
    ///
    /// # Errors
    /// If there are no shards or more than 65,536, or as [`Bloom::with_rate`](super::Bloom::with_rate).
    pub fn with_rate(shards: usize, capacity: u64, rate: f64) -> crate::Result<Self> {
        if !(1..=MOST_SHARDS).contains(&shards) {
            let reason = format!("there are 1 to {MOST_SHARDS} of them, not {shards}");
            return Err(invalid("shards", reason));
        }
        sizing::check_capacity(capacity)?;
        sizing::check_rate(rate)?;
        let geometry = sizing::for_rate(keys_of_shard(shards, capacity, rate), rate)?;
        let head = Head { form: Form::Sharded, hashing: Hashing::random()?, capacity, rate };
        let shards: crate::Result<Vec<_>> =
            (0..shards).map(|_| Ok(Shard(Mutex::new(Bits::empty(geometry)?)))).collect();
        Ok(Self { head, shards: shards? })
    }

    /// The same filter over another hash; to be chosen before the first insert.
    ///
    /// # Errors
    /// If the filter holds keys already: it would deny them all.
    pub fn hashed_by(mut self, hashing: Hashing) -> crate::Result<Self> {
        self.head = self.head.hashed_by(hashing, self.bits_set())?;
        Ok(self)
    }

    /// Inserts a key, under the lock of its shard. Whether it was new for certain: of several threads
    /// that insert one key at the same time, only one is told so.
    pub fn insert(&self, key: impl AsRef<[u8]>) -> bool {
        let hash = self.head.hashing.of(key.as_ref());
        self.shard(hash).insert(hash)
    }

    /// Whether the key may have been inserted; "no" is certain for a key whose insert had returned.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> bool {
        let hash = self.head.hashing.of(key.as_ref());
        self.shard(hash).may_contain(hash)
    }

    /// The shard of a key, by the third output of SplitMix64: the first two are its position and step
    /// within the shard, and have to be as good as random among the keys of one shard.
    fn shard(&self, hash: u64) -> MutexGuard<'_, Bits> {
        let place = mix(hash.wrapping_add(GOLDEN.wrapping_mul(2)));
        self.shards[fast_range(place, self.shards.len() as u64) as usize].0.lock()
    }

    fn sum(&self, of: impl Fn(&Bits) -> f64) -> f64 {
        self.shards.iter().map(|shard| of(&shard.0.lock())).sum()
    }

    /// How many shards it has.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The number of keys that it was made for.
    pub fn capacity(&self) -> u64 {
        self.head.capacity
    }

    /// The rate that it was made for: that at its capacity.
    pub fn design_rate(&self) -> f64 {
        self.head.rate
    }

    /// The part of all absent keys that pass it now: the mean over the shards.
    pub fn current_rate(&self) -> f64 {
        self.sum(Bits::rate) / self.shards.len() as f64
    }

    /// About how many distinct keys were inserted: the sum over the shards.
    pub fn estimated_len(&self) -> f64 {
        self.sum(Bits::estimated_len)
    }

    /// How many bits are set.
    pub fn bits_set(&self) -> u64 {
        self.shards.iter().map(|shard| shard.0.lock().ones()).sum()
    }

    /// The part of the bits that are set.
    pub fn occupancy(&self) -> f64 {
        self.sum(Bits::occupancy) / self.shards.len() as f64
    }

    /// Whether it holds more than it was made for.
    #[must_use]
    pub fn fullness(&self) -> Fullness {
        let geometry = self.shards[0].0.lock().geometry();
        let shards = self.shards.len();
        let keys = keys_of_shard(shards, self.head.capacity, self.head.rate);
        let all_bits = geometry.m.saturating_mul(shards as u64);
        Fullness::of(self.occupancy(), expected_fill(&geometry, keys), all_bits)
    }

    /// How it hashes.
    pub fn hashing(&self) -> Hashing {
        self.head.hashing
    }

    /// The bytes of all its bits.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().part.array.len()).sum()
    }
}

/// What each shard is made for: its part of the keys, and ½ ln(1/p) more, which make up for the
/// shards that get more than their part. (The keys of a shard are Poisson-distributed around λ, and
/// at the load (1 + x) λ ln p is about −ln(1/p) · (1 − x), so that the mean of p grows by
/// exp(ln²(1/p) / 2λ).)
fn keys_of_shard(shards: usize, capacity: u64, rate: f64) -> f64 {
    capacity as f64 / shards as f64 - rate.ln() / 2.0
}

impl Saved for ShardedBloom {
    const FORM: Form = Form::Sharded;

    /// All shards are held meanwhile, so that the bytes are the filter of one moment.
    fn encode(&self) -> Vec<u8> {
        let shards: Vec<_> = self.shards.iter().map(|shard| shard.0.lock()).collect();
        let parts: Vec<&Part> = shards.iter().map(|bits| &bits.part).collect();
        encode(&self.head, &parts)
    }

    fn assemble(head: Head, parts: Vec<Part>) -> Result<Self, Flaw> {
        let first = parts.first().map(|part| part.geometry);
        let like_the_first =
            |part: &Part| part.kind == FilterKind::Bloom && Some(part.geometry) == first;
        if parts.is_empty() || !parts.iter().all(like_the_first) {
            return Err(Flaw::parts("parts of kind bloom and of one shape"));
        }
        let shards = parts.into_iter().map(|part| Shard(Mutex::new(Bits::of(part)))).collect();
        Ok(Self { head, shards })
    }
}

saved!(ShardedBloom);
