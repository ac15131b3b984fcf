//! How full a filter with inserts is.

use std::fmt;

const OVERFULL: f64 = 0.85;

/// How full a filter is, compared to its design.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fullness {
    /// At most half of the bits are set: the rate is at most the design rate.
    Within,
    /// More than half of the bits are set: the rate is above the design rate.
    PastDesign,
    /// More than 85 % of the bits are set: with seven probes, one absent key in three passes.
    Overfull,
}

impl Fullness {
    /// The fullness of a filter with m bits, whose occupancy at the capacity is `design`.
    ///
    /// `design` differs from one half, because the number of probes is rounded. The standard deviation of the
    /// number of ones is about 0.28 √m; the limit is four of them above.
    pub(super) fn of(occupancy: f64, design: f64, m: u64) -> Self {
        let half = design.max(0.5) + 1.2 / (m as f64).sqrt();
        if occupancy > OVERFULL {
            Self::Overfull
        } else if occupancy > half.min(OVERFULL) {
            Self::PastDesign
        } else {
            Self::Within
        }
    }
}

impl fmt::Display for Fullness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Within => "within its design: absent keys pass at the design rate or less often",
            Self::PastDesign => {
                "past its design point, half full: absent keys pass more often than at the design rate"
            }
            Self::Overfull => "overfull, more than 85 % of its bits are set: most absent keys pass",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fullness_changes_just_above_its_limits() {
        let half: f64 = 0.5 + 1.2 / 1024.0; // the limit for 2^20 bits
        for (occupancy, fullness) in [
            (half, Fullness::Within),
            (half.next_up(), Fullness::PastDesign),
            (OVERFULL, Fullness::PastDesign),
            (OVERFULL.next_up(), Fullness::Overfull),
        ] {
            assert_eq!(Fullness::of(occupancy, 0.4, 1 << 20), fullness, "{occupancy}");
        }
    }
}
