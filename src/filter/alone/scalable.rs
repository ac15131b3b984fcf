//! A Bloom filter for nobody knows how many keys.

use super::bits::Bits;
use super::format::{Flaw, Form, Head, encode};
use super::fullness::Fullness;
use super::hashing::Hashing;
use super::part::Part;
use super::saved::{Saved, saved};
use super::sizing::{self, expected_fill};
use crate::filter::kind::FilterKind;

/// Each layer has so much of the rate of the one before. The paper recommends 0.8 to 0.9 for filters
/// that grow by orders of magnitude; a little less costs fewer bits in the first layers.
const TIGHTENING: f64 = 0.75;

/// A series of Bloom filters that grows with its keys (Almeida, Baquero, Preguiça and Hutchison,
/// *Scalable Bloom Filters*, 2007): when a layer is as full as it was made to be, one of twice the
/// capacity and three quarters of the rate takes the next keys, so that all of them together keep the
/// rate that was asked for.
///
/// To be used when the number of keys is unknown. It pays with memory (for twice the keys of the
/// first layer 1.85 times the bits of a filter made for them) and with time (an absent key is asked of
/// each layer); a [`Bloom`](super::Bloom) made for a good guess is better.
///
/// ```
/// # fn main() -> criba::Result<()> {
/// let mut seen = criba::filter::ScalableBloom::with_rate(1000, 0.01)?;
/// for i in 0..10_000_u32 {
///     seen.insert(i.to_le_bytes());
/// }
/// assert_eq!(seen.layers(), 4); // 1000 + 2000 + 4000 + 8000
/// assert!(seen.current_rate() <= 0.01);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ScalableBloom {
    head: Head,
    layers: Vec<Layer>,
    /// A further layer would be beyond what filters or memory can be.
    at_its_end: bool,
}

#[derive(Debug)]
struct Layer {
    bits: Bits,
    capacity: f64,
    /// The ones with which it is as full as it was made to be.
    limit: u64,
}

impl Layer {
    fn of(bits: Bits, capacity: f64) -> Self {
        let geometry = bits.geometry();
        let limit = (expected_fill(&geometry, capacity) * geometry.m as f64) as u64;
        Self { bits, capacity, limit }
    }

    /// The `i`-th layer of a filter.
    fn make(head: &Head, i: usize) -> crate::Result<Self> {
        let (capacity, rate) = (capacity_of(head, i), rate_of(head, i));
        sizing::check_rate(rate)?;
        Ok(Self::of(Bits::empty(sizing::for_rate(capacity, rate)?)?, capacity))
    }
}

/// Layers double.
fn capacity_of(head: &Head, i: usize) -> f64 {
    head.capacity as f64 * (i as f64).exp2()
}

/// The rates of all layers, however many, come to the rate asked for: (1 − r) · Σ rⁱ = 1.
fn rate_of(head: &Head, i: usize) -> f64 {
    head.rate * (1.0 - TIGHTENING) * TIGHTENING.powf(i as f64)
}

impl ScalableBloom {
    /// An empty filter whose first layer is for `capacity` distinct keys; no more than the part `rate`
    /// of all absent keys pass it, however many keys it is given.
    ///
    /// # Errors
    /// As [`Bloom::with_rate`](super::Bloom::with_rate).
    pub fn with_rate(capacity: u64, rate: f64) -> crate::Result<Self> {
        sizing::check_capacity(capacity)?;
        sizing::check_rate(rate)?;
        let head = Head { form: Form::Scalable, hashing: Hashing::random()?, capacity, rate };
        Ok(Self { head, layers: vec![Layer::make(&head, 0)?], at_its_end: false })
    }

    /// The same filter over another hash; to be chosen before the first insert.
    ///
    /// # Errors
    /// If the filter holds keys already: it would deny them all.
    pub fn hashed_by(mut self, hashing: Hashing) -> crate::Result<Self> {
        self.head = self.head.hashed_by(hashing, self.bits_set())?;
        Ok(self)
    }

    /// Inserts a key. Whether it was new for certain; one that would have passed before is not
    /// inserted again.
    ///
    /// A filter that cannot grow any further, for want of memory, goes on to fill its last layer:
    /// it loses no key, and [`fullness`](Self::fullness) tells.
    pub fn insert(&mut self, key: impl AsRef<[u8]>) -> bool {
        let hash = self.head.hashing.of(key.as_ref());
        if self.may_contain(hash) {
            return false;
        }
        if self.layers.last().is_none_or(|last| last.bits.ones() >= last.limit) && !self.at_its_end
        {
            match Layer::make(&self.head, self.layers.len()) {
                Ok(layer) => self.layers.push(layer),
                Err(_) => self.at_its_end = true,
            }
        }
        self.layers.last_mut().is_some_and(|last| last.bits.insert(hash))
    }

    /// Whether the key may have been inserted; "no" is certain.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> bool {
        self.may_contain(self.head.hashing.of(key.as_ref()))
    }

    /// The newest layer, which has the most keys, first.
    fn may_contain(&self, hash: u64) -> bool {
        self.layers.iter().rev().any(|layer| layer.bits.may_contain(hash))
    }

    /// How many filters the series has.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// The rate that it was made for.
    pub fn design_rate(&self) -> f64 {
        self.head.rate
    }

    /// The part of all absent keys that pass it now: 1 − Π(1 − rate of a layer).
    pub fn current_rate(&self) -> f64 {
        1.0 - self.layers.iter().map(|layer| 1.0 - layer.bits.rate()).product::<f64>()
    }

    /// About how many distinct keys were inserted: the sum over the layers, which have none in common.
    pub fn estimated_len(&self) -> f64 {
        self.layers.iter().map(|layer| layer.bits.estimated_len()).sum()
    }

    /// How many bits are set.
    pub fn bits_set(&self) -> u64 {
        self.layers.iter().map(|layer| layer.bits.ones()).sum()
    }

    /// The part of the newest layer's bits that are set; the others are as full as they get.
    pub fn occupancy(&self) -> f64 {
        self.layers.last().map_or(0.0, |layer| layer.bits.occupancy())
    }

    /// Whether the newest layer holds more than it was made for, because there could be no further.
    #[must_use]
    pub fn fullness(&self) -> Fullness {
        let last = self.layers.last();
        last.map_or(Fullness::Within, |layer| layer.bits.fullness(layer.capacity))
    }

    /// How it hashes.
    pub fn hashing(&self) -> Hashing {
        self.head.hashing
    }

    /// The bytes of all its bits.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(|layer| layer.bits.part.array.len()).sum()
    }
}

impl<K: AsRef<[u8]>> Extend<K> for ScalableBloom {
    fn extend<T: IntoIterator<Item = K>>(&mut self, keys: T) {
        for key in keys {
            self.insert(key);
        }
    }
}

impl Saved for ScalableBloom {
    const FORM: Form = Form::Scalable;

    fn encode(&self) -> Vec<u8> {
        let parts: Vec<&Part> = self.layers.iter().map(|layer| &layer.bits.part).collect();
        encode(&self.head, &parts)
    }

    fn assemble(head: Head, parts: Vec<Part>) -> Result<Self, Flaw> {
        sizing::check_rate(head.rate).map_err(|e| Flaw::rate(&e.to_string()))?;
        if parts.iter().any(|part| part.kind != FilterKind::Bloom) {
            return Err(Flaw::parts("parts of kind bloom"));
        }
        // A capacity that is no layer's own does no harm: in a layer that is too small for it, all
        // bits are set before it is full, so that every key is known and none makes it grow.
        let layers = parts.into_iter().enumerate();
        let layers =
            layers.map(|(i, part)| Layer::of(Bits::of(part), capacity_of(&head, i))).collect();
        Ok(Self { head, layers, at_its_end: false })
    }
}

saved!(ScalableBloom);
