//! A filter on its own, from a set of hashes.

use bytes::Bytes;

use super::kind::{FilterKind, Geometry, ProbeMany};
use super::narrow::first_columns;
use super::ribbon;
use super::simd::Prober;

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
    /// Its array begins with a cache line.
    prober: Prober,
    predicted_rate: f64,
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
        let array = Bytes::from(memory).slice(start..start + array.len()); // where it was
        let prober = Prober::new(kind, geometry, array);
        Self { kind, keys, prober, predicted_rate: rate, probe_many: (kind.kind().probe_many)() }
    }

    /// Whether the hash may be one of the set; "no" is certain.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.prober.may_contain(hash)
    }

    /// The same for many hashes, without a call for each, which is a fifth of the time: answers are put
    /// in the places of their hashes, as far as both go.
    pub fn may_contain_many(&self, hashes: &[u64], answers: &mut [bool]) {
        (self.probe_many)(self.prober.geometry(), self.prober.array(), hashes, answers);
    }

    /// The same filter with its first columns only, which pass more: at least 1, at most those that it
    /// has. `None` of a kind without columns.
    #[must_use]
    pub fn narrowed(&self, columns: u32) -> Option<Self> {
        if self.kind != FilterKind::Ribbon {
            return None;
        }
        let (whole, array) = (self.prober.geometry(), self.prober.array());
        let (geometry, array) =
            (ribbon::narrowed(whole, columns), first_columns(whole, array, columns));
        let rate = ribbon::narrowed_rate(whole, self.predicted_rate, columns);
        Some(Self::of(self.kind, self.keys, geometry, &array, rate))
    }

    /// The probability that an absent hash passes, from the finished bits.
    pub fn predicted_rate(&self) -> f64 {
        self.predicted_rate
    }

    /// The length of the array in bits, for each hash.
    pub fn bits_per_key(&self) -> f64 {
        8.0 * self.prober.array().len() as f64 / self.keys.max(1) as f64
    }

    /// The shape.
    pub fn geometry(&self) -> Geometry {
        *self.prober.geometry()
    }

    /// The kind.
    pub fn kind(&self) -> FilterKind {
        self.kind
    }
}

impl std::fmt::Debug for HashFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, keys, prober, predicted_rate, .. } = self;
        let geometry = prober.geometry();
        write!(f, "HashFilter({kind}, {keys} keys, {geometry:?}, rate {predicted_rate:e})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::hash::mix;
    use crate::filter::simd::forced::{on_each_path, on_scalar};

    /// A finished filter, which is asked without checks where that is possible, against the plain code,
    /// which checks; with hashes of the first and last rows and blocks, and in shapes of few segments.
    #[test]
    fn a_finished_filter_answers_as_its_array_does() {
        let ends = (0..1000).flat_map(|i| [mix(i) >> 20, u64::MAX - (mix(i) >> 20)]);
        let absent: Vec<u64> = ends.chain((0..20_000).map(|i| mix(i ^ 1 << 41))).collect();
        let keys = |n: u64| (0..n).map(|i| mix(i ^ 1 << 40)).collect::<Vec<u64>>();
        let answers = |filter: &HashFilter| -> Vec<bool> {
            absent.iter().map(|&hash| filter.may_contain(hash)).collect()
        };
        let mut plain = Vec::new();
        on_scalar(|| {
            for kind in FilterKind::ALL {
                for half_bits in 1..=24 {
                    for n in [1, 40, 130, 300, 5000] {
                        let bits = 0.5 * f64::from(half_bits);
                        let filter = HashFilter::build(kind, bits, keys(n));
                        plain.push((answers(&filter), filter));
                    }
                }
            }
        });
        on_each_path(|path| {
            for (expected, plain) in &plain {
                let (geometry, array) = (plain.geometry(), plain.prober.array());
                let filter = HashFilter::of(plain.kind, plain.keys, geometry, array, 0.5);
                let mut keys = keys(plain.keys).into_iter();
                assert!(keys.all(|key| filter.may_contain(key)), "{path:?} {plain:?}");
                assert!(answers(&filter) == *expected, "{path:?} {plain:?}");
                let mut many: Vec<bool> = expected.iter().map(|answer| !answer).collect();
                filter.may_contain_many(&absent, &mut many);
                assert!(many == *expected, "{path:?} {plain:?}");
            }
        });
        println!("{} filters, {} answers compared", plain.len(), plain.len() * absent.len());
    }

    /// What is asked for beforehand is what is read: without all the rest the answer is the same. A
    /// standard filter may read more, but these bytes are enough for a "no"; a ribbon of more than eight
    /// columns reads more for one absent key in 256.
    #[test]
    fn a_probe_reads_what_it_would_prefetch() {
        let absent: Vec<u64> = (0..2000).map(|i| mix(i ^ 1 << 41)).collect();
        for kind in FilterKind::ALL {
            for (keys, bits) in [(100, 7.75), (5000, 7.75), (5000, 16.0)] {
                let filter = HashFilter::build(kind, bits, (0..keys).map(mix).collect());
                let (geometry, array) = (filter.geometry(), filter.prober.array());
                let ask = |array: Vec<u8>, hash| {
                    Prober::new(kind, geometry, array.into()).may_contain(hash)
                };
                let mut undecided = 0;
                for &hash in &absent {
                    let (mut with, mut without) = (vec![0; array.len()], array.to_vec());
                    for byte in filter.prober.touched(hash) {
                        // A last segment has none behind it.
                        let line = (byte - byte % CACHE_LINE).min(array.len());
                        let line = line..(line + CACHE_LINE).min(array.len());
                        with[line.clone()].copy_from_slice(&array[line.clone()]);
                        without[line].fill(0);
                    }
                    filter.prober.prefetch(hash);
                    match kind {
                        FilterKind::Bloom => assert!(!ask(without, hash), "{filter:?}"),
                        _ if ask(with, hash) => undecided += u32::from(!filter.may_contain(hash)),
                        _ => assert!(!filter.may_contain(hash), "{filter:?}"),
                    }
                }
                let most = if geometry.k > 8 && kind == FilterKind::Ribbon { 30 } else { 0 };
                assert!(undecided <= most, "{filter:?}: {undecided}");
            }
        }
    }

    /// An array that is not its shape's is asked with checks, and passes what it does not hold.
    #[test]
    fn an_array_that_is_too_short_is_not_read_beyond_its_end() {
        on_each_path(|path| {
            for kind in FilterKind::ALL {
                let hashes: Vec<u64> = (0..5000).map(mix).collect();
                let filter = HashFilter::build(kind, 7.75, hashes.clone());
                let array = filter.prober.array();
                for length in [0, 1, 64, array.len() / 2, array.len() - 8, array.len() - 1] {
                    let short = Prober::new(kind, filter.geometry(), array.slice(..length));
                    assert!(hashes.iter().all(|&hash| short.may_contain(hash)), "{path:?} {kind}");
                    assert!(short.may_contain(u64::MAX) || kind == FilterKind::Bloom);
                }
            }
        });
    }

    #[test]
    fn the_bits_of_the_array_are_shared_out_among_the_keys() {
        for (keys, bits) in [(1000_u64, 10.24), (1, 512.0), (0, 512.0)] {
            let hashes = (0..keys).map(mix).collect();
            let filter = HashFilter::build(FilterKind::Blocked, 10.0, hashes);
            assert!((filter.bits_per_key() - bits).abs() < 1e-9, "{filter:?}");
        }
    }
}
