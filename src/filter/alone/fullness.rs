//! How full a filter that grows is, in a word.

use std::fmt;

/// From this occupancy on a filter is overfull.
const OVERFULL: f64 = 0.85;

/// How full a filter is, against what it was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fullness {
    /// Up to half of the bits are set: the filter has the rate that it was made for, or a lower one.
    Within,
    /// More than half of the bits are set. That is the design point, where a filter says most per
    /// bit, or as near to it as a whole number of probes can be; beyond it the rate climbs.
    PastDesign,
    /// More than 85 % of the bits are set: of seven probes all succeed for one absent key in three.
    Overfull,
}

impl Fullness {
    /// What an occupancy of m bits means for a filter whose occupancy at its capacity is `design`.
    ///
    /// A whole number of probes puts the design point a little beside one half. Of n keys the number
    /// of bits set has a standard deviation of about 0.28 √m; four of them are no news.
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
            Self::Within => "within its design: no more absent keys pass than were asked for",
            Self::PastDesign => {
                "past its design point, half full: more absent keys pass than were asked for"
            }
            Self::Overfull => "overfull, more than 85 % of its bits are set: it keeps little out",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit itself is not beyond it.
    #[test]
    fn more_than_half_is_past_the_design_and_more_than_85_in_100_too_much() {
        let half: f64 = 0.5 + 1.2 / 1024.0; // and the scatter of 2^20 bits
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
