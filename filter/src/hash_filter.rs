//! A filter of hashes.

use bytes::Bytes;

use crate::geometry::Geometry;
use crate::kind::FilterKind;
use crate::prober::Prober;
use crate::ribbon::{first_columns, narrowed, narrowed_rate};

/// A filter of any kind over hashes that the caller computes, without header or salt.
///
/// Hashes are 64 bits, uniformly distributed, and distinct.
///
/// ```
/// use criba_filter::FilterKind;
/// use criba_filter::HashFilter;
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
    prober: Prober,
    predicted_rate: f64,
}

const CACHE_LINE: usize = 64;

impl HashFilter {
    /// Builds a filter with more than 0 and at most 64 bits per key, rounded up to 64 bytes (blocked) or 128
    /// rows (ribbon).
    pub fn build(kind: FilterKind, bits_per_key: f64, hashes: Vec<u64>) -> Self {
        let keys = hashes.len() as u64;
        let geometry = kind.for_bits(keys.max(1), bits_per_key);
        let built = kind.build(&geometry, hashes);
        Self::of(kind, keys, geometry, &built.array, built.predicted_rate)
    }

    fn of(kind: FilterKind, keys: u64, geometry: Geometry, array: &[u8], rate: f64) -> Self {
        let mut memory = vec![0; array.len() + CACHE_LINE];
        let start = memory.as_ptr().align_offset(CACHE_LINE).min(CACHE_LINE);
        memory[start..start + array.len()].copy_from_slice(array);
        let array = Bytes::from(memory).slice(start..start + array.len()); // not moved
        let prober = Prober::new(kind, geometry, array);
        Self { kind, keys, prober, predicted_rate: rate }
    }

    /// Whether the filter may have the hash. `false` is certain.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.prober.may_contain(hash)
    }

    /// [`may_contain`](Self::may_contain) for many hashes, in a fifth less time. `answers[i]` becomes the
    /// answer for `hashes[i]`, up to the length of the shorter slice.
    pub fn may_contain_many(&self, hashes: &[u64], answers: &mut [bool]) {
        self.prober.may_contain_many(hashes, answers);
    }

    /// The filter with only the first columns of this ribbon, and a higher rate. `None` for other kinds.
    #[must_use]
    pub fn narrowed(&self, columns: u32) -> Option<Self> {
        if self.kind != FilterKind::Ribbon {
            return None;
        }
        let whole = self.prober.geometry();
        let array = first_columns(whole, self.prober.array(), columns);
        let rate = narrowed_rate(whole, self.predicted_rate, columns);
        Some(Self::of(self.kind, self.keys, narrowed(whole, columns), &array, rate))
    }

    /// The false-positive rate, computed from the finished bits.
    pub fn predicted_rate(&self) -> f64 {
        self.predicted_rate
    }

    /// The bits of the array per hash.
    pub fn bits_per_key(&self) -> f64 {
        8.0 * self.prober.array().len() as f64 / self.keys.max(1) as f64
    }

    /// The geometry.
    pub fn geometry(&self) -> Geometry {
        *self.prober.geometry()
    }
}

impl std::fmt::Debug for HashFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, keys, prober, predicted_rate } = self;
        let geometry = prober.geometry();
        write!(f, "HashFilter({kind}, {keys} keys, {geometry:?}, rate {predicted_rate:e})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;
    use crate::instructions::forced::{on_each, on_scalar};

    #[test]
    fn probes_without_checks_answer_as_scalar_probes() {
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
        on_each(|instructions| {
            for (expected, plain) in &plain {
                let (geometry, array) = (plain.geometry(), plain.prober.array());
                let filter = HashFilter::of(plain.kind, plain.keys, geometry, array, 0.5);
                let mut keys = keys(plain.keys).into_iter();
                assert!(keys.all(|key| filter.may_contain(key)), "{instructions:?} {plain:?}");
                assert!(answers(&filter) == *expected, "{instructions:?} {plain:?}");
                let mut many: Vec<bool> = expected.iter().map(|answer| !answer).collect();
                filter.may_contain_many(&absent, &mut many);
                assert!(many == *expected, "{instructions:?} {plain:?}");
            }
        });
        println!("{} filters, {} answers compared", plain.len(), plain.len() * absent.len());
    }

    /// The prefetched bytes decide the answer. Exceptions: keys that pass a Bloom filter, and one absent key
    /// in 256 in a ribbon of more than eight columns.
    #[test]
    fn a_probe_reads_the_bytes_that_it_prefetches() {
        let absent: Vec<u64> = (0..2000).map(|i| mix(i ^ 1 << 41)).collect();
        for kind in FilterKind::ALL {
            for (keys, bits) in [(100, 7.75), (5000, 7.75), (5000, 16.0)] {
                let filter = HashFilter::build(kind, bits, (0..keys).map(mix).collect());
                let (geometry, array) = (filter.geometry(), filter.prober.array());
                // The bits of the buckets of a ribbon are so few that they are not prefetched.
                let matrix = geometry.m / 64 * u64::from(geometry.k) + geometry.wide;
                let kept =
                    if kind == FilterKind::Ribbon { 8 * matrix as usize } else { array.len() };
                let probe = |array: Vec<u8>, hash| {
                    Prober::new(kind, geometry, array.into()).may_contain(hash)
                };
                let mut undecided = 0;
                for &hash in &absent {
                    let (mut with, mut without) = (vec![0; array.len()], array.to_vec());
                    with[kept..].copy_from_slice(&array[kept..]);
                    for byte in filter.prober.prefetch_offsets(hash) {
                        // The last segment has no next one.
                        let line = (byte - byte % CACHE_LINE).min(array.len());
                        let line = line..(line + CACHE_LINE).min(array.len());
                        with[line.clone()].copy_from_slice(&array[line.clone()]);
                        without[line].fill(0);
                    }
                    filter.prober.prefetch(hash);
                    match kind {
                        FilterKind::Bloom => assert!(!probe(without, hash), "{filter:?}"),
                        _ if probe(with, hash) => undecided += u32::from(!filter.may_contain(hash)),
                        _ => assert!(!filter.may_contain(hash), "{filter:?}"),
                    }
                }
                let most = if geometry.k > 8 && kind == FilterKind::Ribbon { 30 } else { 0 };
                assert!(undecided <= most, "{filter:?}: {undecided}");
            }
        }
    }

    #[test]
    fn a_short_array_is_not_read_behind_its_end_and_passes_keys_there() {
        on_each(|instructions| {
            for kind in FilterKind::ALL {
                let hashes: Vec<u64> = (0..5000).map(mix).collect();
                let filter = HashFilter::build(kind, 7.75, hashes.clone());
                let array = filter.prober.array();
                for length in [0, 1, 64, array.len() / 2, array.len() - 8, array.len() - 1] {
                    let short = Prober::new(kind, filter.geometry(), array.slice(..length));
                    assert!(
                        hashes.iter().all(|&hash| short.may_contain(hash)),
                        "{instructions:?} {kind}"
                    );
                    let cuts_a_block = length + 8 <= array.len();
                    assert!(
                        !cuts_a_block || short.may_contain(u64::MAX) || kind == FilterKind::Bloom
                    );
                }
            }
        });
    }

    #[test]
    fn bits_per_key_are_the_bits_of_the_array_by_keys() {
        for (keys, bits) in [(1000_u64, 10.24), (1, 512.0), (0, 512.0)] {
            let hashes = (0..keys).map(mix).collect();
            let filter = HashFilter::build(FilterKind::Blocked, 10.0, hashes);
            assert!((filter.bits_per_key() - bits).abs() < 1e-9, "{filter:?}");
        }
    }
}
