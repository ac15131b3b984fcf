//! The standard Bloom filter, growing by inserts.

use super::bits::Bits;
use super::format::{Flaw, Form, Head, encode};
use super::fullness::Fullness;
use super::hashing::Hashing;
use super::part::Part;
use super::saved::{Saved, mapped, saved};
use super::sizing;
use crate::error::Error;
use crate::filter::kind::{FilterKind, Geometry};

/// The standard Bloom filter (Bloom, CACM 1970): keys are inserted one by one, and filters of one
/// shape and hash can be united.
///
/// To be used when the number of keys is known beforehand, more or less, and the keys come one by
/// one. For an unknown number there is [`ScalableBloom`](super::ScalableBloom), for several threads
/// [`ShardedBloom`](super::ShardedBloom), for keys that are all there [`StaticFilter`](super::StaticFilter),
/// which is smaller or faster.
///
/// ```
/// # fn main() -> criba::Result<()> {
/// use criba::filter::{Bloom, Fullness};
///
/// let mut seen = Bloom::with_rate(1000, 0.01)?;
/// assert!(seen.insert("https://example.org/"));
/// assert!(seen.contains("https://example.org/")); // never forgotten
/// assert!(!seen.contains("https://example.com/")); // one absent key in a hundred would pass
///
/// for i in 0..999 {
///     seen.insert(format!("https://example.org/{i}"));
/// }
/// assert_eq!(seen.fullness(), Fullness::Within);
/// assert!((950.0..1050.0).contains(&seen.estimated_len())); // with σ = 8
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Bloom {
    head: Head,
    bits: Bits,
}

impl Bloom {
    /// An empty filter for `capacity` distinct keys. When it holds so many, no more than the part
    /// `rate` of all absent keys pass. Takes about 1.44 · log2(1/rate) bits a key, under a random key.
    ///
    /// # Errors
    /// If the capacity is 0, the rate not between 1e-15 and 1, the two together take more than 128
    /// bits a key (a rate far below 1/capacity), or there is no memory for them.
    pub fn with_rate(capacity: u64, rate: f64) -> crate::Result<Self> {
        sizing::check_capacity(capacity)?;
        sizing::check_rate(rate)?;
        Self::new(sizing::for_rate(capacity as f64, rate)?, capacity, rate)
    }

    /// An empty filter of `m` bits that sets `k` of them for each key, under a random key. Its
    /// capacity is what sets half of its bits, m/k · ln 2 keys.
    ///
    /// # Errors
    /// If there are no such filters (m from 1 to 2^43, k from 1 to 64), or no memory.
    pub fn with_geometry(m: u64, k: u32) -> crate::Result<Self> {
        let geometry = Geometry { m, k, wide: 0 };
        sizing::check_geometry(&geometry)?;
        let capacity = (m as f64 / f64::from(k) * std::f64::consts::LN_2) as u64;
        Self::new(geometry, capacity.max(1), sizing::rate_at(&geometry, m / 2))
    }

    fn new(geometry: Geometry, capacity: u64, rate: f64) -> crate::Result<Self> {
        let hashing = Hashing::random()?;
        let head = Head { form: Form::Bloom, hashing, capacity, rate };
        Ok(Self { head, bits: Bits::empty(geometry)? })
    }

    /// The same filter over another hash; to be chosen before the first insert.
    ///
    /// # Errors
    /// If the filter holds keys already: it would deny them all.
    pub fn hashed_by(mut self, hashing: Hashing) -> crate::Result<Self> {
        self.head = self.head.hashed_by(hashing, self.bits.ones())?;
        Ok(self)
    }

    /// An empty filter of the same shape and hash, to be united with this one later.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn empty_like(&self) -> crate::Result<Self> {
        Ok(Self { head: self.head, bits: Bits::empty(self.geometry())? })
    }

    /// Inserts a key. Whether it was new for certain: `false` means that the filter would have
    /// passed it before.
    pub fn insert(&mut self, key: impl AsRef<[u8]>) -> bool {
        self.bits.insert(self.head.hashing.of(key.as_ref()))
    }

    /// Whether the key may have been inserted; "no" is certain.
    #[inline]
    pub fn contains(&self, key: impl AsRef<[u8]>) -> bool {
        self.bits.may_contain(self.head.hashing.of(key.as_ref()))
    }

    /// Adds all the keys of another filter. The result is bit by bit the filter into which both sets
    /// were inserted.
    ///
    /// # Errors
    /// If the other has another shape or another hash; nothing is changed then.
    pub fn union(&mut self, other: &Self) -> crate::Result<()> {
        self.check_alike(other)?;
        self.bits.unite(&other.bits);
        Ok(())
    }

    /// About how many keys both filters hold, by inclusion and exclusion of estimates: what each
    /// holds, together, less what their union holds. Its error is that of the larger filters, so a
    /// small intersection of large sets is not told from none. Infinite if the union has no bit left
    /// unset.
    ///
    /// # Errors
    /// If the other has another shape or another hash.
    pub fn intersection_len(&self, other: &Self) -> crate::Result<f64> {
        self.check_alike(other)?;
        let united = sizing::estimated_len(&self.geometry(), self.bits.ones_united(&other.bits));
        if united.is_infinite() {
            return Ok(f64::INFINITY);
        }
        Ok((self.estimated_len() + other.estimated_len() - united).max(0.0))
    }

    fn check_alike(&self, other: &Self) -> crate::Result<()> {
        let mismatch = |what, this: String, other| Err(Error::Mismatch { what, this, other });
        let (mine, others) = (self.geometry(), other.geometry());
        if mine != others {
            let told = |g: Geometry| format!("{} bits and {} probes", g.m, g.k);
            return mismatch("shape", told(mine), told(others));
        }
        let (mine, others) = (self.head.hashing, other.head.hashing);
        if mine.hash() != others.hash() {
            return mismatch("hash", mine.hash().to_string(), others.hash().to_string());
        }
        if mine != others {
            return mismatch("hash key", format!("{:?}", mine.key), format!("{:?}", others.key));
        }
        Ok(())
    }

    /// The number of keys that it was made for.
    pub fn capacity(&self) -> u64 {
        self.head.capacity
    }

    /// The rate that it was made for: that at its capacity.
    pub fn design_rate(&self) -> f64 {
        self.head.rate
    }

    /// How many bits and probes it has.
    pub fn geometry(&self) -> Geometry {
        self.bits.geometry()
    }

    /// How it hashes.
    pub fn hashing(&self) -> Hashing {
        self.head.hashing
    }

    /// How many bits are set.
    pub fn bits_set(&self) -> u64 {
        self.bits.ones()
    }

    /// The part of the bits that are set.
    pub fn occupancy(&self) -> f64 {
        self.bits.occupancy()
    }

    /// Whether it holds more than it was made for.
    #[must_use]
    pub fn fullness(&self) -> Fullness {
        self.bits.fullness(self.head.capacity as f64)
    }

    /// The part of all absent keys that pass it now: occupancy^k, and what double hashing adds to
    /// that, which is nothing to speak of but in small filters and at rates below 1/capacity. In
    /// filters of a few keys the figure is off by up to a quarter.
    pub fn current_rate(&self) -> f64 {
        self.bits.rate()
    }

    /// About how many distinct keys were inserted: −(m/k) · ln(1 − X/m) for X bits set (Swamidass and
    /// Baldi, 2007). Infinite if all are.
    pub fn estimated_len(&self) -> f64 {
        self.bits.estimated_len()
    }

    /// The bytes of its bits.
    pub fn bytes(&self) -> usize {
        self.bits.part.array.len()
    }
}

impl Clone for Bloom {
    fn clone(&self) -> Self {
        Self { head: self.head, bits: self.bits.copied() }
    }
}

impl<K: AsRef<[u8]>> Extend<K> for Bloom {
    fn extend<T: IntoIterator<Item = K>>(&mut self, keys: T) {
        for key in keys {
            self.insert(key);
        }
    }
}

impl Saved for Bloom {
    const FORM: Form = Form::Bloom;

    fn encode(&self) -> Vec<u8> {
        encode(&self.head, &[&self.bits.part])
    }

    fn assemble(head: Head, mut parts: Vec<Part>) -> Result<Self, Flaw> {
        let one = parts.pop().filter(|part| parts.is_empty() && part.kind == FilterKind::Bloom);
        let part = one.ok_or_else(|| Flaw::parts("one part, of kind bloom"))?;
        Ok(Self { head, bits: Bits::of(part) })
    }
}

saved!(Bloom);
mapped!(Bloom);
