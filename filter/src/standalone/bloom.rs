//! The standard Bloom filter, with inserts.

use super::bits::Bits;
use super::format::{Flaw, Form, Head, Saved, encode};
use super::fullness::Fullness;
use super::hashing::Hashing;
use super::methods::{mapped, saved, with_inserts};
use super::part::Part;
use super::sizing;
use crate::error::Error;
use crate::geometry::Geometry;
use crate::kind::FilterKind;

/// The standard Bloom filter (Bloom, CACM 1970), for an approximate number of keys. Filters with the same
/// geometry and hash can be united.
///
/// ```
/// use criba_filter::{Bloom, Fullness};
///
/// let mut seen = Bloom::with_rate(1000, 0.01)?;
/// # seen = seen.with_hashing(criba_filter::Hashing::keyed([1; 16]))?;
/// assert!(seen.insert("https://example.org/"));
/// assert!(seen.contains("https://example.org/"));
/// assert!(!seen.contains("https://example.com/"));
///
/// for i in 0..999 {
///     seen.insert(format!("https://example.org/{i}"));
/// }
/// assert_eq!(seen.fullness(), Fullness::Within);
/// assert!((950.0..1050.0).contains(&seen.estimated_len())); // with σ = 8
/// # Ok::<(), criba_filter::Error>(())
/// ```
#[derive(Debug)]
pub struct Bloom {
    head: Head,
    bits: Bits,
}

impl Bloom {
    /// Makes an empty filter with a random hash key, and a false-positive rate of at most `rate` with
    /// `capacity` distinct keys. Takes about 1.44 · log2(1/rate) bits per key.
    ///
    /// # Errors
    /// If the capacity is 0, the rate below 1e-6 or not below 1, the filter would take more than 128 bits per
    /// key (at rates far below 1/capacity), or memory is short.
    pub fn with_rate(capacity: u64, rate: f64) -> crate::Result<Self> {
        sizing::check_capacity(capacity)?;
        sizing::check_rate(rate)?;
        Self::new(sizing::for_rate(capacity as f64, rate)?, capacity, rate)
    }

    /// Makes an empty filter of `m` bits and `k` probes, with a random hash key. Its capacity is m/k · ln 2
    /// keys; with these, half of the bits are set.
    ///
    /// # Errors
    /// If m is not 1 to 2^43, k not 1 to 64, or memory is short.
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

    /// Makes an empty filter of the same geometry and hash, for a later union.
    ///
    /// # Errors
    /// If memory is short.
    pub fn empty_like(&self) -> crate::Result<Self> {
        Ok(Self { head: self.head, bits: Bits::empty(self.geometry())? })
    }

    /// Inserts a key. `true`: it was new. `false`: the filter already answered "maybe" for it.
    pub fn insert(&mut self, key: impl AsRef<[u8]>) -> bool {
        self.bits.insert(self.head.hashing.of(key.as_ref()))
    }

    /// Whether the key may have been inserted. `false` is certain.
    #[inline]
    pub fn contains(&self, key: impl AsRef<[u8]>) -> bool {
        self.bits.may_contain(self.head.hashing.of(key.as_ref()))
    }

    /// Adds all keys of another filter, with the same result as if they were inserted.
    ///
    /// # Errors
    /// If the other filter has another geometry or hash. This filter is then unchanged.
    pub fn union(&mut self, other: &Self) -> crate::Result<()> {
        self.check_alike(other)?;
        self.bits.unite(&other.bits);
        Ok(())
    }

    /// The estimated number of keys that both filters have: the sum of their estimates less the estimate of
    /// their union. The errors of the three estimates add up, so do not use it for small intersections.
    /// Infinite if the union has all bits set.
    ///
    /// # Errors
    /// If the other filter has another geometry or hash.
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
            let text = |g: Geometry| format!("{} bits and {} probes", g.m, g.k);
            return mismatch("shape", text(mine), text(others));
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

    /// The number of keys that it is designed for.
    pub fn capacity(&self) -> u64 {
        self.head.capacity
    }

    /// The number of bits and probes.
    pub fn geometry(&self) -> Geometry {
        self.bits.geometry()
    }

    /// The number of bits set.
    pub fn bits_set(&self) -> u64 {
        self.bits.ones()
    }

    /// The fraction of bits set.
    pub fn occupancy(&self) -> f64 {
        self.bits.occupancy()
    }

    /// Whether it has more keys than its capacity.
    #[must_use]
    pub fn fullness(&self) -> Fullness {
        self.bits.fullness(self.head.capacity as f64)
    }

    /// The current false-positive rate: occupancy^k, plus the effect of double hashing in small filters and
    /// at rates below 1/capacity. With a few keys the error is up to a quarter.
    pub fn current_rate(&self) -> f64 {
        self.bits.rate()
    }

    /// The estimated number of distinct keys: −(m/k) · ln(1 − X/m) for X bits set (Swamidass and Baldi,
    /// 2007). Infinite if all bits are set.
    pub fn estimated_len(&self) -> f64 {
        self.bits.estimated_len()
    }

    /// The length of the array in bytes.
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
with_inserts!(Bloom);
mapped!(Bloom);
