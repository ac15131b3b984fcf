//! A finished filter, and the margin for its rate.

/// A finished array.
#[derive(Debug)]
pub struct Built {
    /// The bytes.
    pub array: Vec<u8>,
    /// The false-positive rate, computed from the finished bits.
    pub predicted_rate: f64,
    /// Whether the rate is far above the mean for this geometry: a filter with another salt may be better.
    pub(crate) is_rejected: bool,
}

/// A target for the expected rate, so that the rate of the finished filter is rarely above `rate`. Rates of
/// finished filters scatter, more with fewer keys.
pub(crate) fn rate_aim(rate: f64, keys: u64) -> f64 {
    rate * (0.998 - 1.0 / (keys as f64 + 9.0).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_aim_is_below_the_rate_by_its_scatter() {
        for keys in (0..40).map(|i| 1_u64 << i) {
            let aim = rate_aim(0.01, keys) / 0.01;
            let scatter = 1.0 / (keys as f64).sqrt();
            assert!(aim > 0.6 && aim > 0.997 - scatter, "{keys} keys: {aim}");
            assert!(aim < 0.999 && (keys < 100 || aim < 1.0 - 0.9 * scatter), "{keys} keys: {aim}");
        }
    }
}
