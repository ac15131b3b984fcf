//! A Bloom filter for an unknown number of keys.

use super::bits::Bits;
use super::format::{Flaw, Form, Head, Saved, encode};
use super::fullness::Fullness;
use super::hashing::Hashing;
use super::methods::{saved, with_inserts};
use super::part::Part;
use super::sizing;
use crate::bloom::expected_fill;
use crate::kind::FilterKind;

/// The rate of a layer divided by the rate of the layer before. The paper recommends 0.8 to 0.9 for growth by
/// orders of magnitude; a lower value saves bits in the first layers.
const TIGHTENING: f64 = 0.75;

/// A series of Bloom filters, its layers, that grows with its keys (Almeida, Baquero, Preguiça and Hutchison,
/// *Scalable Bloom Filters*, 2007). When a layer is full, it adds one with twice the capacity and three
/// quarters of the rate, so that all layers together keep the design rate.
///
/// It costs memory: for twice the keys of the first layer, 1.85 times the bits of one filter. It costs time:
/// a lookup of an absent key probes each layer. A [`Bloom`](super::Bloom) of about the right size is better.
///
/// ```
/// let mut seen = criba_filter::ScalableBloom::with_rate(1000, 0.01)?;
/// for i in 0..10_000_u32 {
///     seen.insert(i.to_le_bytes());
/// }
/// assert_eq!(seen.layers(), 4); // 1000 + 2000 + 4000 + 8000
/// assert!(seen.current_rate() <= 0.01);
/// # Ok::<(), criba_filter::Error>(())
/// ```
#[derive(Debug)]
pub struct ScalableBloom {
    head: Head,
    layers: Vec<Layer>,
    at_its_end: bool,
}

#[derive(Debug)]
struct Layer {
    bits: Bits,
    capacity: f64,
    /// The number of ones at which the layer is full.
    limit: u64,
}

impl Layer {
    fn of(bits: Bits, capacity: f64) -> Self {
        let geometry = bits.geometry();
        let limit = (expected_fill(&geometry, capacity) * geometry.m as f64) as u64;
        Self { bits, capacity, limit }
    }

    fn make(head: &Head, i: usize) -> crate::Result<Self> {
        let (capacity, rate) = (capacity_of(head, i), rate_of(head, i));
        sizing::check_rate(rate)?;
        Ok(Self::of(Bits::empty(sizing::for_rate(capacity, rate)?)?, capacity))
    }
}

fn capacity_of(head: &Head, i: usize) -> f64 {
    head.capacity as f64 * (i as f64).exp2()
}

/// Infinitely many layers would have the design rate in sum, because (1 − r) · Σ rⁱ = 1.
fn rate_of(head: &Head, i: usize) -> f64 {
    head.rate * (1.0 - TIGHTENING) * TIGHTENING.powf(i as f64)
}

impl ScalableBloom {
    /// Makes an empty filter with a first layer for `capacity` distinct keys. Its false-positive rate is at
    /// most `rate` with any number of keys.
    ///
    /// # Errors
    /// As [`Bloom::with_rate`](super::Bloom::with_rate).
    pub fn with_rate(capacity: u64, rate: f64) -> crate::Result<Self> {
        sizing::check_capacity(capacity)?;
        sizing::check_rate(rate)?;
        let head = Head { form: Form::Scalable, hashing: Hashing::random()?, capacity, rate };
        Ok(Self { head, layers: vec![Layer::make(&head, 0)?], at_its_end: false })
    }

    /// Inserts a key. `true`: it was new. `false`: the filter already answered "maybe" for it.
    ///
    /// If a further layer is impossible, the last one takes the key, and [`fullness`](Self::fullness) rises.
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

    /// Whether the key may have been inserted. `false` is certain.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> bool {
        self.may_contain(self.head.hashing.of(key.as_ref()))
    }

    /// Probes the newest layer first: it has the most keys.
    fn may_contain(&self, hash: u64) -> bool {
        self.layers.iter().rev().any(|layer| layer.bits.may_contain(hash))
    }

    /// The number of layers.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// The current false-positive rate: 1 − Π(1 − rate of a layer).
    pub fn current_rate(&self) -> f64 {
        1.0 - self.layers.iter().map(|layer| 1.0 - layer.bits.rate()).product::<f64>()
    }

    /// The estimated number of distinct keys: the sum over the layers, which have different keys.
    pub fn estimated_len(&self) -> f64 {
        self.layers.iter().map(|layer| layer.bits.estimated_len()).sum()
    }

    /// The number of bits set.
    pub fn bits_set(&self) -> u64 {
        self.layers.iter().map(|layer| layer.bits.ones()).sum()
    }

    /// The fraction of bits set in the newest layer; the older layers are full.
    pub fn occupancy(&self) -> f64 {
        self.layers.last().map_or(0.0, |layer| layer.bits.occupancy())
    }

    /// Whether the newest layer has more keys than its capacity.
    #[must_use]
    pub fn fullness(&self) -> Fullness {
        let last = self.layers.last();
        last.map_or(Fullness::Within, |layer| layer.bits.fullness(layer.capacity))
    }

    /// The length of all arrays in bytes.
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
        // A forged capacity is harmless: in a layer too small for it, all bits are set before the layer is
        // full. Then every key passes, and no key adds a layer.
        let layers = parts.into_iter().enumerate();
        let layers =
            layers.map(|(i, part)| Layer::of(Bits::of(part), capacity_of(&head, i))).collect();
        Ok(Self { head, layers, at_its_end: false })
    }
}

saved!(ScalableBloom);
with_inserts!(ScalableBloom);
