//! The functions that each kind of filter provides.

use super::geometry::Geometry;
use super::simd::{Probe, Touched, Unchecked};

#[derive(Debug)]
pub(super) struct Built {
    pub(super) array: Vec<u8>,
    pub(super) predicted_rate: f64,
    /// Whether the rate is far above the mean for this geometry: a filter of salted hashes may be better.
    pub(super) unlucky: bool,
}

/// The functions of one kind. Hashes must be uniformly distributed, and numbers of keys at least 1.
pub(super) struct Algorithm {
    pub(super) id: u8,
    pub(super) name: &'static str,
    pub(super) for_rate: fn(u64, f64) -> Geometry,
    pub(super) for_bits: fn(u64, f64) -> Geometry,
    pub(super) lowest_rate: f64,
    /// Takes microseconds.
    pub(super) expected_rate: fn(u64, &Geometry) -> f64,
    pub(super) roomier: fn(&Geometry) -> Geometry,
    pub(super) check: fn(&Geometry) -> Result<(), String>,
    /// For a checked geometry.
    pub(super) array_bytes: fn(&Geometry) -> usize,
    pub(super) build: fn(&Geometry, Vec<u64>) -> Built,
    pub(super) probe: fn() -> Probe,
    pub(super) touched: Touched,
    /// Selects code without checks for a geometry and an array of this length, or `None`.
    pub(super) unchecked: fn(&Geometry, usize) -> Option<Unchecked>,
}

#[inline]
pub(super) fn probe_each(hashes: &[u64], answers: &mut [bool], probe: impl Fn(u64) -> bool) {
    for (&hash, answer) in hashes.iter().zip(answers) {
        *answer = probe(hash);
    }
}

/// A target for the expected rate, so that the rate of the finished filter is rarely above `rate`. Rates of
/// finished filters scatter, more with fewer keys.
pub(super) fn below(rate: f64, keys: u64) -> f64 {
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
