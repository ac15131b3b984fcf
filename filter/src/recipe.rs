//! The recipe for the filter of one table, and the attempts to build it.

use crate::bloom::{TEXTBOOK_EXCESS, TEXTBOOK_FROM};
use crate::built::Built;
use crate::geometry::Geometry;
use crate::hash::HashFunction;
use crate::kind::FilterKind;

/// The number of salts tried before the geometry grows.
pub(crate) const SALTS: u64 = 6;
/// The filter of this attempt is always accepted.
pub(crate) const LAST_ATTEMPT: u64 = 23;

/// The kind, hash and size of a filter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recipe {
    /// The kind.
    pub kind: FilterKind,
    /// The hash.
    pub hash: HashFunction,
    /// The size.
    pub size: Size,
}

/// The size of a filter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Size {
    /// The fewest bits for this false-positive rate.
    Rate(f64),
    /// Bits per key.
    BitsPerKey(f64),
    /// This geometry, for any number of keys.
    Geometry(Geometry),
}

impl Recipe {
    /// # Errors
    /// The reason why no filter has this size.
    pub fn check(&self) -> Result<(), String> {
        let lowest = self.kind.lowest_rate();
        match self.size {
            Size::Rate(p) if lowest <= p && p < 1.0 => Ok(()),
            Size::Rate(p) => Err(format!(
                "the rate of a {} filter is at least {lowest:e} and less than 1; {p:?} is not",
                self.kind
            )),
            Size::BitsPerKey(b) if b > 0.0 && b <= 64.0 => Ok(()),
            Size::BitsPerKey(b) => {
                Err(format!("bits per key are more than 0 and at most 64; {b:?} is not"))
            }
            Size::Geometry(_) if self.kind != FilterKind::Bloom => {
                Err(format!("fixed m and k make a bloom filter, not a {} one", self.kind))
            }
            Size::Geometry(geometry) => self.kind.check(&geometry),
        }
    }

    /// The geometry of the filter for this number of distinct keys, at least one.
    pub fn geometry(&self, keys: u64) -> Geometry {
        match self.size {
            Size::Rate(rate) => self.kind.for_rate(keys, rate),
            Size::BitsPerKey(bits) => self.kind.for_bits(keys, bits),
            Size::Geometry(geometry) => geometry,
        }
    }

    /// The mean false-positive rate of filters of this number of distinct keys, at least one.
    pub fn expected_rate(&self, keys: u64) -> f64 {
        self.kind.expected_rate(keys, &self.geometry(keys))
    }

    /// Whether a finished filter has the requested rate. The rate of the textbook's Bloom filters may be
    /// higher by [`TEXTBOOK_EXCESS`]; by any factor if the hash takes no salt, which another attempt needs.
    fn accepts(&self, predicted_rate: f64, keys: u64) -> bool {
        let Size::Rate(requested) = self.size else { return true };
        let textbook = self.kind == FilterKind::Bloom && keys >= TEXTBOOK_FROM;
        match (textbook, self.hash) {
            (false, _) => predicted_rate <= requested,
            (true, HashFunction::SipHash13) => {
                predicted_rate <= requested * (1.0 + TEXTBOOK_EXCESS)
            }
            (true, HashFunction::MurmurHash2) => true,
        }
    }

    /// Builds the filter from the `hashes` of an attempt. Returns the number of the accepted attempt, the
    /// geometry and the filter. If a filter is rejected or above the requested rate, the next attempt has
    /// another salt; after [`SALTS`] attempts also a larger geometry.
    pub fn build(&self, keys: u64, hashes: impl Fn(u64) -> Vec<u64>) -> (u64, Geometry, Built) {
        let salts = if self.hash == HashFunction::SipHash13 { SALTS } else { 1 };
        let (mut geometry, mut attempt) = (self.geometry(keys), 0);
        loop {
            let built = self.kind.build(&geometry, hashes(attempt));
            let fits = !built.is_rejected && self.accepts(built.predicted_rate, keys);
            if fits || attempt == LAST_ATTEMPT {
                return (attempt, geometry, built);
            }
            attempt += 1;
            if attempt >= salts {
                geometry = self.kind.grow(&geometry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_more_than_0_bits_per_key() {
        let recipe = |bits| {
            let size = Size::BitsPerKey(bits);
            Recipe { kind: FilterKind::Bloom, hash: HashFunction::SipHash13, size }
        };
        assert!(recipe(0.0).check().is_err());
        assert_eq!(recipe(f64::MIN_POSITIVE).check(), Ok(()));
    }

    #[test]
    fn finished_filters_keep_the_requested_rate_except_for_the_textbooks() {
        let (small, large) = (TEXTBOOK_FROM - 1, TEXTBOOK_FROM);
        let excess = 1.0 + TEXTBOOK_EXCESS;
        for (kind, hash, keys, most) in [
            (FilterKind::Blocked, HashFunction::SipHash13, large, 0.01),
            (FilterKind::Ribbon, HashFunction::MurmurHash2, large, 0.01),
            (FilterKind::Bloom, HashFunction::SipHash13, small, 0.01),
            (FilterKind::Bloom, HashFunction::MurmurHash2, small, 0.01),
            (FilterKind::Bloom, HashFunction::SipHash13, large, 0.01 * excess),
            (FilterKind::Bloom, HashFunction::MurmurHash2, large, 1.0),
        ] {
            let of_rate = Recipe { kind, hash, size: Size::Rate(0.01) };
            assert!(of_rate.accepts(most, keys), "{kind} {hash} {keys}");
            assert_eq!(of_rate.accepts(most * 1.0001, keys), most >= 1.0, "{kind} {hash} {keys}");
            let of_bits = Recipe { size: Size::BitsPerKey(3.0), ..of_rate };
            assert!(of_bits.accepts(1.0, keys));
        }
    }
}
