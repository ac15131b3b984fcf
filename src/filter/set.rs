//! A filter on its own, from a set of hashes.

use super::kind::{FilterKind, Geometry, Probe, ProbeMany};
use super::narrow::first_columns;
use super::ribbon;

/// A filter of any kind over hashes that the caller makes: without header, salt or store around it.
///
/// Hashes are 64 bits, evenly spread in all of them, and distinct.
///
/// ```
/// use criba::FilterKind;
/// use criba::filter::HashFilter;
///
/// let hashes: Vec<u64> = (1..=1000_u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
/// let filter = HashFilter::build(FilterKind::Ribbon, 7.75, hashes.clone());
/// assert!(hashes.into_iter().all(|hash| filter.may_contain(hash)));
/// assert!(filter.predicted_rate() < 0.01);
/// ```
#[derive(Clone)]
pub struct HashFilter {
    kind: FilterKind,
    keys: u64,
    geometry: Geometry,
    /// The array begins with a cache line, at `start`.
    memory: Vec<u8>,
    start: usize,
    predicted_rate: f64,
    probe: Probe,
    probe_many: ProbeMany,
}

const CACHE_LINE: usize = 64;

impl HashFilter {
    /// A filter of so many bits a key: more than 0, at most 64. Small filters are rounded up, blocked
    /// ones to 64 bytes and ribbons to 128 rows. No hashes at all count as one.
    pub fn build(kind: FilterKind, bits_per_key: f64, hashes: Vec<u64>) -> Self {
        let geometry = (kind.kind().for_bits)((hashes.len() as u64).max(1), bits_per_key);
        Self::with_geometry(kind, geometry, hashes)
    }

    /// A filter to pass an absent hash with probability `rate`, between the kind's lowest and 1; see
    /// [`predicted_rate`](Self::predicted_rate) for what it came to.
    pub fn build_with_rate(kind: FilterKind, rate: f64, hashes: Vec<u64>) -> Self {
        let geometry = (kind.kind().for_rate)((hashes.len() as u64).max(1), rate);
        Self::with_geometry(kind, geometry, hashes)
    }

    fn with_geometry(kind: FilterKind, geometry: Geometry, hashes: Vec<u64>) -> Self {
        let keys = hashes.len() as u64;
        let built = (kind.kind().build)(&geometry, hashes);
        Self::of(kind, keys, geometry, &built.array, built.predicted_rate)
    }

    fn of(kind: FilterKind, keys: u64, geometry: Geometry, array: &[u8], rate: f64) -> Self {
        let mut memory = vec![0; array.len() + CACHE_LINE];
        let start = memory.as_ptr().align_offset(CACHE_LINE).min(CACHE_LINE);
        memory[start..start + array.len()].copy_from_slice(array);
        memory.truncate(start + array.len());
        let probe = (kind.kind().probe)();
        let probe_many = (kind.kind().probe_many)();
        Self { kind, keys, geometry, memory, start, predicted_rate: rate, probe, probe_many }
    }

    /// Whether the hash may be one of the set; "no" is certain.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        (self.probe)(&self.geometry, &self.memory[self.start..], hash)
    }

    /// The same for many hashes, without a call for each, which is a fifth of the time: answers are put
    /// in the places of their hashes, as far as both go.
    pub fn may_contain_many(&self, hashes: &[u64], answers: &mut [bool]) {
        (self.probe_many)(&self.geometry, &self.memory[self.start..], hashes, answers);
    }

    /// The same filter with its first columns only, which pass more: at least 1, at most those that it
    /// has. `None` of a kind without columns.
    #[must_use]
    pub fn narrowed(&self, columns: u32) -> Option<Self> {
        if self.kind != FilterKind::Ribbon {
            return None;
        }
        let array = &self.memory[self.start..];
        let (geometry, array) = (
            ribbon::narrowed(&self.geometry, columns),
            first_columns(&self.geometry, array, columns),
        );
        let rate = ribbon::narrowed_rate(&self.geometry, self.predicted_rate, columns);
        Some(Self::of(self.kind, self.keys, geometry, &array, rate))
    }

    /// The probability that an absent hash passes, from the finished bits.
    pub fn predicted_rate(&self) -> f64 {
        self.predicted_rate
    }

    /// The length of the array in bits, for each hash.
    pub fn bits_per_key(&self) -> f64 {
        8.0 * (self.memory.len() - self.start) as f64 / self.keys.max(1) as f64
    }

    /// The shape.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The kind.
    pub fn kind(&self) -> FilterKind {
        self.kind
    }
}

impl std::fmt::Debug for HashFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, keys, geometry, predicted_rate, .. } = self;
        write!(f, "HashFilter({kind}, {keys} keys, {geometry:?}, rate {predicted_rate:e})")
    }
}
