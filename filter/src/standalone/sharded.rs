//! A Bloom filter for several threads.

use super::bits::Bits;
use super::format::{Flaw, Form, Head, Saved, encode};
use super::fullness::Fullness;
use super::hashing::Hashing;
use super::methods::{saved, with_inserts};
use super::part::Part;
use super::sizing::{self, invalid};
use crate::bloom::expected_fill;
use crate::hash::{GOLDEN, fast_range, mix};
use crate::kind::FilterKind;
use crate::sync::{Mutex, MutexGuard};

const MOST_SHARDS: usize = 1 << 16;

/// A Bloom filter in shards, each behind its own lock, for concurrent inserts. Its rate is within 1 % of the
/// rate of one filter with the same capacity.
///
/// A few shards per thread avoid contention; a shard should have a thousand keys or more.
///
/// ```
/// let seen = criba_filter::ShardedBloom::with_rate(16, 100_000, 0.01)?;
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
/// assert_eq!(firsts.into_inner(), 1); // the key is new for one of the threads
/// assert!(seen.contains("the same key"));
/// # Ok::<(), criba_filter::Error>(())
/// ```
#[derive(Debug)]
pub struct ShardedBloom {
    head: Head,
    shards: Vec<Shard>,
}

/// Aligned, so that two shards never share a cache line.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(Mutex<Bits>);

impl ShardedBloom {
    /// Makes an empty filter with a false-positive rate of at most `rate` with `capacity` distinct keys in
    /// all shards together.
    ///
    /// # Errors
    /// If the shards are not 1 to 65,536; else as [`Bloom::with_rate`](super::Bloom::with_rate).
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

    /// Inserts a key under the lock of its shard. `true`: it was new; of threads that insert one key at the
    /// same time, only one gets `true`. `false`: the filter already answered "maybe" for it.
    pub fn insert(&self, key: impl AsRef<[u8]>) -> bool {
        let hash = self.head.hashing.of(key.as_ref());
        self.shard(hash).insert(hash)
    }

    /// Whether the key may have been inserted. `false` is certain, except for inserts that have not returned.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> bool {
        let hash = self.head.hashing.of(key.as_ref());
        self.shard(hash).may_contain(hash)
    }

    /// Selects a shard by a third hash, independent of the position and step within the shard.
    fn shard(&self, hash: u64) -> MutexGuard<'_, Bits> {
        let place = mix(hash.wrapping_add(GOLDEN.wrapping_mul(2)));
        self.shards[fast_range(place, self.shards.len() as u64) as usize].0.lock()
    }

    fn sum(&self, of: impl Fn(&Bits) -> f64) -> f64 {
        self.shards.iter().map(|shard| of(&shard.0.lock())).sum()
    }

    /// The number of shards.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// The number of keys that it is designed for.
    pub fn capacity(&self) -> u64 {
        self.head.capacity
    }

    /// The current false-positive rate: the mean over the shards.
    pub fn current_rate(&self) -> f64 {
        self.sum(Bits::rate) / self.shards.len() as f64
    }

    /// The estimated number of distinct keys: the sum over the shards.
    pub fn estimated_len(&self) -> f64 {
        self.sum(Bits::estimated_len)
    }

    /// The number of bits set.
    pub fn bits_set(&self) -> u64 {
        self.shards.iter().map(|shard| shard.0.lock().ones()).sum()
    }

    /// The fraction of bits set.
    pub fn occupancy(&self) -> f64 {
        self.sum(Bits::occupancy) / self.shards.len() as f64
    }

    /// Whether it has more keys than its capacity.
    #[must_use]
    pub fn fullness(&self) -> Fullness {
        let geometry = self.shards[0].0.lock().geometry();
        let shards = self.shards.len();
        let keys = keys_of_shard(shards, self.head.capacity, self.head.rate);
        let all_bits = geometry.m.saturating_mul(shards as u64);
        Fullness::of(self.occupancy(), expected_fill(&geometry, keys), all_bits)
    }

    /// The length of all arrays in bytes.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.0.lock().part.array.len()).sum()
    }
}

/// The capacity of a shard: its part λ of the keys, and ½ ln(1/p) more. The number of keys in a shard is
/// Poisson-distributed with mean λ. With (1 + x) λ keys, ln p is about −ln(1/p) · (1 − x), so the mean of p
/// is larger by the factor exp(ln²(1/p) / 2λ).
fn keys_of_shard(shards: usize, capacity: u64, rate: f64) -> f64 {
    capacity as f64 / shards as f64 - rate.ln() / 2.0
}

impl Saved for ShardedBloom {
    const FORM: Form = Form::Sharded;

    /// Locks all shards together, so that the bytes show the filter at one moment.
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
with_inserts!(ShardedBloom);
