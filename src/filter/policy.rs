//! What a user asks of the filters, and what that means for a table of n keys.

use super::bloom::{self, Geometry};

/// How large each table's filter is made.
///
/// Every table gets a filter of its own, sized from the exact number of distinct user keys in it,
/// tombstones included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FilterPolicy(Sizing);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Sizing {
    None,
    Rate(f64),
    BitsPerKey(f64),
    Geometry(Geometry),
}

impl FilterPolicy {
    /// Filters that pass an absent key with probability `rate`, between 0 and 1:
    /// m = ⌈−n ln p / (ln 2)²⌉ bits and k = max(1, round(m/n · ln 2)) probes for n keys (Bloom 1970;
    /// 9.585 bits a key at 0.01).
    pub fn rate(rate: f64) -> Self {
        Self(Sizing::Rate(rate))
    }

    /// Filters of this many bits a key, fractions included, from 0 (no filter) to 64, with
    /// k = max(1, round(m/n · ln 2)) probes.
    pub fn bits_per_key(bits: f64) -> Self {
        Self(if bits == 0.0 { Sizing::None } else { Sizing::BitsPerKey(bits) })
    }

    /// The same m and k for every table, whatever its number of keys.
    pub fn geometry(geometry: Geometry) -> Self {
        Self(Sizing::Geometry(geometry))
    }

    /// No filters: every lookup that reaches a table reads a block.
    pub fn none() -> Self {
        Self(Sizing::None)
    }

    /// Says what is wrong with the numbers asked for.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.0 {
            Sizing::None => Ok(()),
            // 2^-64 is where the number of probes would pass what the format holds.
            Sizing::Rate(p) if p.is_finite() && 2_f64.powi(-64) <= p && p < 1.0 => Ok(()),
            Sizing::Rate(p) => Err(format!(
                "a false-positive rate is at least 2^-64 and less than 1; {p:e} is not"
            )),
            Sizing::BitsPerKey(b) if b.is_finite() && b > 0.0 && b <= 64.0 => Ok(()),
            Sizing::BitsPerKey(b) => {
                Err(format!("bits per key lie between 0 and 64; {b} does not"))
            }
            Sizing::Geometry(g) => g.check(),
        }
    }

    /// The filter for a table of `keys` distinct keys, at least one; `None` if none is wanted.
    pub(crate) fn geometry_for(&self, keys: u64) -> Option<Geometry> {
        match self.0 {
            Sizing::None => None,
            Sizing::Rate(p) => Some(bloom::geometry_for_rate(keys, p)),
            Sizing::BitsPerKey(b) => Some(bloom::geometry_for_bits(keys, b)),
            Sizing::Geometry(g) => Some(g),
        }
    }
}

impl Default for FilterPolicy {
    /// A false-positive rate of 1 %.
    fn default() -> Self {
        Self::rate(0.01)
    }
}

impl std::fmt::Display for FilterPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Sizing::None => f.write_str("no filters"),
            Sizing::Rate(p) => write!(f, "bloom filters at a rate of {p}"),
            Sizing::BitsPerKey(b) => write!(f, "bloom filters of {b} bits a key"),
            Sizing::Geometry(g) => write!(f, "bloom filters of {} bits and {} probes", g.m, g.k),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formulas_give_the_textbook_values() {
        // 500,000 keys at 1 %: the paper prints 4,799,259 bits; the formula gives 4,792,530.
        let of = |policy: FilterPolicy, n| policy.geometry_for(n).map(|g| (g.m, g.k));
        assert_eq!(of(FilterPolicy::rate(0.01), 500_000), Some((4_792_530, 7)));
        assert_eq!(of(FilterPolicy::rate(0.001), 1_000_000), Some((14_377_588, 10)));
        assert_eq!(of(FilterPolicy::bits_per_key(10.0), 1000), Some((10_000, 7)));
        assert_eq!(of(FilterPolicy::bits_per_key(0.5), 1000), Some((500, 1)));
        assert_eq!(of(FilterPolicy::bits_per_key(9.5), 3), Some((29, 7)));
        assert_eq!(of(FilterPolicy::bits_per_key(0.0), 1000), None);
        assert_eq!(of(FilterPolicy::none(), 1000), None);
    }

    #[test]
    fn nonsense_is_refused() {
        for policy in [
            FilterPolicy::rate(0.0),
            FilterPolicy::rate(1.0),
            FilterPolicy::rate(-0.1),
            FilterPolicy::rate(f64::NAN),
            FilterPolicy::rate(1e-30),
            FilterPolicy::bits_per_key(-1.0),
            FilterPolicy::bits_per_key(64.5),
            FilterPolicy::bits_per_key(f64::INFINITY),
            FilterPolicy::geometry(Geometry { m: 0, k: 3 }),
            FilterPolicy::geometry(Geometry { m: 100, k: 0 }),
            FilterPolicy::geometry(Geometry { m: 100, k: 65 }),
        ] {
            assert!(policy.check().is_err(), "{policy:?}");
        }
        for policy in
            [FilterPolicy::default(), FilterPolicy::none(), FilterPolicy::bits_per_key(64.0)]
        {
            assert_eq!(policy.check(), Ok(()), "{policy:?}");
        }
    }
}
