//! The functions that each kind of filter provides.

use super::geometry::Geometry;
use super::simd::{Probe, Touched, Unchecked};

/// A finished array.
#[derive(Debug)]
pub struct Built {
    /// The bytes.
    pub array: Vec<u8>,
    /// The false-positive rate, computed from the finished bits.
    pub predicted_rate: f64,
    /// Whether the rate is far above the mean for this geometry: a filter of salted hashes may be better.
    pub(crate) unlucky: bool,
}

/// The functions of one kind. Hashes must be uniformly distributed, and numbers of keys at least 1.
pub(crate) struct Algorithm {
    pub(crate) id: u8,
    pub(crate) name: &'static str,
    pub(crate) for_rate: fn(u64, f64) -> Geometry,
    pub(crate) for_bits: fn(u64, f64) -> Geometry,
    pub(crate) lowest_rate: f64,
    /// Takes microseconds.
    pub(crate) expected_rate: fn(u64, &Geometry) -> f64,
    pub(crate) roomier: fn(&Geometry) -> Geometry,
    pub(crate) check: fn(&Geometry) -> Result<(), String>,
    /// For a checked geometry.
    pub(crate) array_bytes: fn(&Geometry) -> usize,
    pub(crate) build: fn(&Geometry, Vec<u64>) -> Built,
    pub(crate) probe: fn() -> Probe,
    pub(crate) touched: Touched,
    /// Selects code without checks for a geometry and an array of this length, or `None`.
    pub(crate) unchecked: fn(&Geometry, usize) -> Option<Unchecked>,
}

#[inline]
pub(crate) fn probe_each(hashes: &[u64], answers: &mut [bool], probe: impl Fn(u64) -> bool) {
    for (&hash, answer) in hashes.iter().zip(answers) {
        *answer = probe(hash);
    }
}

/// A target for the expected rate, so that the rate of the finished filter is rarely above `rate`. Rates of
/// finished filters scatter, more with fewer keys.
pub(crate) fn below(rate: f64, keys: u64) -> f64 {
    rate * (0.998 - 1.0 / (keys as f64 + 9.0).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_aim_is_below_the_rate_by_its_scatter() {
        for keys in (0..40).map(|i| 1_u64 << i) {
            let aim = below(0.01, keys) / 0.01;
            let scatter = 1.0 / (keys as f64).sqrt();
            assert!(aim > 0.6 && aim > 0.997 - scatter, "{keys} keys: {aim}");
            assert!(aim < 0.999 && (keys < 100 || aim < 1.0 - 0.9 * scatter), "{keys} keys: {aim}");
        }
    }
}
