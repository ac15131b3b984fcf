//! What a user asks of the filters, and what that means for one table.

use std::fmt;

use super::kind::{Built, FilterKind, Geometry};
use super::{KeyHash, bloom, section};

/// How many salts a filter is tried with before its shape is made larger.
pub(super) const SALTS: u64 = 6;
/// The filter of this attempt stands as it is.
pub(super) const LAST_ATTEMPT: u64 = 23;

/// Which filters tables get: of what kind, by which hash, how large, and where the bits go.
///
/// Every table gets a filter of its own, made from the exact number of distinct user keys in it,
/// tombstones included.
///
/// ```
/// use criba::{Allocation, FilterKind, FilterPolicy};
///
/// let fewer_reads = FilterPolicy::bits_per_key(12.5);
/// let textbook = FilterPolicy::classic();
/// let mine = FilterPolicy::rate(0.001).with_kind(FilterKind::Bloom);
/// let even = FilterPolicy::default().with_allocation(Allocation::Uniform);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FilterPolicy {
    pub(super) kind: FilterKind,
    pub(super) hash: KeyHash,
    pub(super) amount: Amount,
    pub(super) allocation: Allocation,
}

/// More bytes than this, a pebibyte, are a slip of the pen.
const MOST_TOTAL_BYTES: u64 = 1 << 50;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Amount {
    None,
    Rate(f64),
    BitsPerKey(f64),
    TotalBytes(u64),
    Geometry(Geometry),
}

/// Where the bits go that were asked for as bits per key or as bytes. A rate that was asked for is
/// every table's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Allocation {
    /// Each table has as many bits a key as any other.
    Uniform,
    /// Each table has a false-positive rate in proportion to keys / (absent probes × cost of a read),
    /// under the same total: bits go where they avoid the most reads. With equal loads this is Monkey
    /// (Dayan, Athanassoulis and Idreos, SIGMOD 2017).
    ///
    /// A flush or compaction decides for the tables that it writes. Tables whose share changes later,
    /// because they moved or others came, get another filter when they have stayed the same for a
    /// while, or in [`Db::wait_until_settled`](crate::Db::wait_until_settled). Absent probes are counted
    /// by table, fade as more come, and are inherited by key range through compactions. They are kept
    /// in memory: a store just opened takes each table's part of the key range for its load, and leaves
    /// the filters that it finds alone until lookups have told more.
    ///
    /// All filters together take what [`Uniform`](Self::Uniform) ones would, within 2 %.
    Balanced,
}

/// What a policy means for one table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Recipe {
    pub(crate) kind: FilterKind,
    pub(crate) hash: KeyHash,
    pub(crate) size: Size,
}

/// How large one filter is to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Size {
    Rate(f64),
    BitsPerKey(f64),
    Geometry(Geometry),
}

impl Recipe {
    /// The shape of the filter for a table of `keys` distinct keys, at least one.
    pub(crate) fn geometry(&self, keys: u64) -> Geometry {
        let kind = self.kind.kind();
        match self.size {
            Size::Rate(rate) => (kind.for_rate)(keys, rate),
            Size::BitsPerKey(bits) => (kind.for_bits)(keys, bits),
            Size::Geometry(geometry) => geometry,
        }
    }

    /// The false-positive rate to expect of the filter for a table of `keys` distinct keys, before it
    /// is built.
    pub(crate) fn expected_rate(&self, keys: u64) -> f64 {
        (self.kind.kind().expected_rate)(keys, &self.geometry(keys))
    }

    /// Whether a finished filter keeps what was asked for. The textbook's Bloom filters may miss a rate
    /// by [`bloom::TEXTBOOK_EXCESS`]; without a salt to try another draw, they stand as they are.
    pub(crate) fn accepts(&self, predicted_rate: f64, keys: u64) -> bool {
        let Size::Rate(asked) = self.size else { return true };
        let textbook = self.kind == FilterKind::Bloom && keys >= bloom::TEXTBOOK_FROM;
        match (textbook, self.hash) {
            (false, _) => predicted_rate <= asked,
            (true, KeyHash::SipHash13) => predicted_rate <= asked * (1.0 + bloom::TEXTBOOK_EXCESS),
            (true, KeyHash::MurmurHash2) => true,
        }
    }

    /// A filter, its shape, and which attempt it is; `hashes` are those of an attempt, under a salt of
    /// its own if the hash takes one.
    ///
    /// A filter whose hashes fell badly, or whose finished bits give a higher rate than was asked for,
    /// is built again: under other salts while there are any to try, then in larger shapes.
    pub(super) fn build(
        &self,
        keys: u64,
        hashes: impl Fn(u64) -> Vec<u64>,
    ) -> (u64, Geometry, Built) {
        let kind = self.kind.kind();
        let salts = if self.hash == KeyHash::SipHash13 { SALTS } else { 1 };
        let (mut geometry, mut attempt) = (self.geometry(keys), 0);
        loop {
            let built = (kind.build)(&geometry, hashes(attempt));
            let fits = !built.unlucky && self.accepts(built.predicted_rate, keys);
            if fits || attempt == LAST_ATTEMPT {
                return (attempt, geometry, built);
            }
            attempt += 1;
            if attempt >= salts {
                geometry = (kind.roomier)(&geometry);
            }
        }
    }

    /// The bits of the filter for a table of `keys` distinct keys, header included.
    pub(crate) fn filter_bits(&self, keys: u64) -> u64 {
        8 * section::length(self.kind, &self.geometry(keys)) as u64
    }
}

impl FilterPolicy {
    /// The filters of the literature: standard Bloom filters over MurmurHash2, of the same rate in
    /// every table, 1 %. See [`KeyHash::MurmurHash2`] for what it does not protect from.
    pub fn classic() -> Self {
        Self {
            kind: FilterKind::Bloom,
            hash: KeyHash::MurmurHash2,
            amount: Amount::Rate(0.01),
            allocation: Allocation::Uniform,
        }
    }

    /// The default with blocked filters: quicker to build, and at ten bits a key wrong five times as often.
    pub fn blocked() -> Self {
        Self::default().with_kind(FilterKind::Blocked)
    }

    /// No filters: every lookup that reaches a table reads a block.
    pub fn none() -> Self {
        Self { amount: Amount::None, ..Self::default() }
    }

    /// The default, but of this rate; see [`with_rate`](Self::with_rate).
    pub fn rate(rate: f64) -> Self {
        Self::default().with_rate(rate)
    }

    /// The default, but of so many bits; see [`with_bits_per_key`](Self::with_bits_per_key).
    pub fn bits_per_key(bits: f64) -> Self {
        Self::default().with_bits_per_key(bits)
    }

    /// Filters that pass an absent key with probability `rate` at most, in every table; between 0
    /// and 1.
    #[must_use]
    pub fn with_rate(self, rate: f64) -> Self {
        Self { amount: Amount::Rate(rate), ..self }
    }

    /// Filters of this many bits a key in the average of the store, fractions included, from 0 (no
    /// filters) to 64.
    #[must_use]
    pub fn with_bits_per_key(self, bits: f64) -> Self {
        let amount = if bits == 0.0 { Amount::None } else { Amount::BitsPerKey(bits) };
        Self { amount, ..self }
    }

    /// Filters of this many bytes for the whole store, headers included; 0 for none.
    #[must_use]
    pub fn with_total_bytes(self, bytes: u64) -> Self {
        let amount = if bytes == 0 { Amount::None } else { Amount::TotalBytes(bytes) };
        Self { amount, ..self }
    }

    /// Bloom filters of m bits and k probes in every table, whatever its number of keys.
    #[must_use]
    pub fn with_geometry(self, m: u64, k: u32) -> Self {
        let amount = Amount::Geometry(Geometry { m, k, wide: 0 });
        Self { kind: FilterKind::Bloom, amount, ..self }
    }

    /// Filters of this kind.
    #[must_use]
    pub fn with_kind(self, kind: FilterKind) -> Self {
        Self { kind, ..self }
    }

    /// Filters over this hash.
    #[must_use]
    pub fn with_hash(self, hash: KeyHash) -> Self {
        Self { hash, ..self }
    }

    /// Bits given out in this way.
    #[must_use]
    pub fn with_allocation(self, allocation: Allocation) -> Self {
        Self { allocation, ..self }
    }

    /// Says what is wrong with the numbers asked for.
    pub(crate) fn check(&self) -> Result<(), String> {
        let lowest = self.kind.kind().lowest_rate;
        match self.amount {
            Amount::None => Ok(()),
            Amount::TotalBytes(bytes) if bytes <= MOST_TOTAL_BYTES => Ok(()),
            Amount::TotalBytes(bytes) => {
                Err(format!("filters of {bytes} bytes in all are more than {MOST_TOTAL_BYTES}"))
            }
            Amount::Rate(p) if p.is_finite() && lowest <= p && p < 1.0 => Ok(()),
            Amount::Rate(p) => Err(format!(
                "the rate of a {} filter is at least {lowest:e} and less than 1; {p:?} is not",
                self.kind
            )),
            Amount::BitsPerKey(b) if b.is_finite() && b > 0.0 && b <= 64.0 => Ok(()),
            Amount::BitsPerKey(b) => {
                Err(format!("bits per key lie between 0 and 64; {b:?} does not"))
            }
            Amount::Geometry(_) if self.kind != FilterKind::Bloom => {
                Err(format!("m and k fixed make a bloom filter, not a {} one", self.kind))
            }
            Amount::Geometry(g) => (bloom::KIND.check)(&g),
        }
    }

    /// The hash that memtables' filters are made over, and tables' if they are to have any.
    pub(crate) fn key_hash(&self) -> KeyHash {
        self.hash
    }

    /// The hash of the filters; `None` if the policy wants none.
    pub(crate) fn hash(&self) -> Option<KeyHash> {
        (self.amount != Amount::None).then_some(self.hash)
    }

    /// Whether a filter of this kind and hash is one that the policy would make.
    pub(crate) fn makes(&self, kind: FilterKind, hash: KeyHash) -> bool {
        self.kind == kind && self.hash() == Some(hash)
    }

    /// What the policy means for a table of which nothing else is known; `None` if it wants no
    /// filters. In a store, [`plan`](Self::plan) says.
    pub(crate) fn recipe(&self) -> Option<Recipe> {
        let size = match self.amount {
            Amount::None => return None,
            Amount::Rate(rate) => Size::Rate(rate),
            Amount::BitsPerKey(bits) => Size::BitsPerKey(bits),
            Amount::TotalBytes(_) => Size::BitsPerKey(10.0),
            Amount::Geometry(geometry) => Size::Geometry(geometry),
        };
        Some(Recipe { kind: self.kind, hash: self.hash, size })
    }
}

impl Default for FilterPolicy {
    /// Ribbon filters over the keyed hash, 10 bits a key in the average of the store, balanced.
    fn default() -> Self {
        Self {
            kind: FilterKind::Ribbon,
            hash: KeyHash::SipHash13,
            amount: Amount::BitsPerKey(10.0),
            allocation: Allocation::Balanced,
        }
    }
}

impl fmt::Display for FilterPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, hash, amount, allocation } = self;
        let place = match allocation {
            Allocation::Uniform => "uniform",
            Allocation::Balanced => "balanced",
        };
        match amount {
            Amount::None => return f.write_str("no filters"),
            Amount::Rate(p) => write!(f, "{kind} filters at a rate of {p}")?,
            Amount::BitsPerKey(b) => write!(f, "{kind} filters of {b} bits a key, {place}")?,
            Amount::TotalBytes(b) => write!(f, "{kind} filters of {b} bytes in all, {place}")?,
            Amount::Geometry(g) => write!(f, "{kind} filters of {} bits and {} probes", g.m, g.k)?,
        }
        write!(f, ", {hash}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formulas_give_the_textbook_values() {
        // 500,000 keys at 1 %: the paper prints 4,799,259 bits; the formula gives 4,792,530.
        let of = |policy: FilterPolicy, n| {
            let geometry = policy.recipe().map(|recipe| recipe.geometry(n));
            geometry.map(|g| (g.m, g.k))
        };
        let classic = FilterPolicy::classic();
        assert_eq!(of(classic, 500_000), Some((4_792_530, 7)));
        assert_eq!(of(classic.with_rate(0.001), 1_000_000), Some((14_377_588, 10)));
        assert_eq!(of(classic.with_bits_per_key(10.0), 1000), Some((10_000, 7)));
        assert_eq!(of(classic.with_bits_per_key(0.5), 1000), Some((500, 1)));
        assert_eq!(of(classic.with_bits_per_key(0.0), 1000), None);
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
            FilterPolicy::default().with_total_bytes(u64::MAX),
            FilterPolicy::default().with_geometry(0, 3),
            FilterPolicy::default().with_geometry(100, 0),
            FilterPolicy::default().with_geometry(100, 65),
            FilterPolicy::default().with_geometry(100, 7).with_kind(FilterKind::Ribbon),
        ] {
            assert!(policy.check().is_err(), "{policy:?}");
        }
        for policy in [
            FilterPolicy::default(),
            FilterPolicy::classic(),
            FilterPolicy::blocked(),
            FilterPolicy::none(),
            FilterPolicy::bits_per_key(64.0),
        ] {
            assert_eq!(policy.check(), Ok(()), "{policy:?}");
        }
    }

    #[test]
    fn each_setting_changes_itself_alone() {
        let policy = FilterPolicy::default();
        assert_eq!(FilterPolicy::blocked(), policy.with_kind(FilterKind::Blocked));
        let classic = policy.with_hash(KeyHash::MurmurHash2).with_allocation(Allocation::Uniform);
        assert_eq!(classic.with_kind(FilterKind::Bloom).with_rate(0.01), FilterPolicy::classic());
        let geometry = policy.with_hash(KeyHash::MurmurHash2).with_geometry(1000, 7);
        assert_eq!(geometry.check(), Ok(()));
        assert!(geometry.makes(FilterKind::Bloom, KeyHash::MurmurHash2));
        assert_eq!(policy.with_total_bytes(1 << 40).check(), Ok(()));
        assert_eq!(policy.with_total_bytes(MOST_TOTAL_BYTES).check(), Ok(()));
        assert!(policy.with_total_bytes(MOST_TOTAL_BYTES + 1).check().is_err());
    }

    #[test]
    fn a_policy_says_what_it_is() {
        let policy = FilterPolicy::default();
        for (policy, told) in [
            (policy, "ribbon filters of 10 bits a key, balanced, SipHash-1-3, keyed"),
            (FilterPolicy::none(), "no filters"),
            (FilterPolicy::classic(), "bloom filters at a rate of 0.01, MurmurHash2"),
            (
                policy.with_total_bytes(99).with_allocation(Allocation::Uniform),
                "ribbon filters of 99 bytes in all, uniform, SipHash-1-3, keyed",
            ),
            (
                policy.with_geometry(1000, 7),
                "bloom filters of 1000 bits and 7 probes, SipHash-1-3, keyed",
            ),
        ] {
            assert_eq!(policy.to_string(), told);
        }
    }

    #[test]
    fn a_policy_makes_filters_of_its_kind_and_hash() {
        let policy = FilterPolicy::default();
        assert!(policy.makes(FilterKind::Ribbon, KeyHash::SipHash13));
        assert!(!policy.makes(FilterKind::Ribbon, KeyHash::MurmurHash2));
        assert!(!policy.makes(FilterKind::Blocked, KeyHash::SipHash13));
        let none = policy.with_bits_per_key(0.0);
        assert!(!none.makes(FilterKind::Ribbon, KeyHash::SipHash13));
        assert_eq!((policy.hash(), none.hash()), (Some(KeyHash::SipHash13), None));
    }

    #[test]
    fn finished_filters_keep_the_rate_asked_for_but_for_the_textbooks() {
        let (small, large) = (bloom::TEXTBOOK_FROM - 1, bloom::TEXTBOOK_FROM);
        let excess = 1.0 + bloom::TEXTBOOK_EXCESS;
        for (kind, hash, keys, most) in [
            (FilterKind::Blocked, KeyHash::SipHash13, large, 0.01),
            (FilterKind::Ribbon, KeyHash::MurmurHash2, large, 0.01),
            (FilterKind::Bloom, KeyHash::SipHash13, small, 0.01),
            (FilterKind::Bloom, KeyHash::MurmurHash2, small, 0.01),
            (FilterKind::Bloom, KeyHash::SipHash13, large, 0.01 * excess),
            (FilterKind::Bloom, KeyHash::MurmurHash2, large, 1.0),
        ] {
            let of_rate = Recipe { kind, hash, size: Size::Rate(0.01) };
            assert!(of_rate.accepts(most, keys), "{kind} {hash} {keys}");
            assert_eq!(of_rate.accepts(most * 1.0001, keys), most >= 1.0, "{kind} {hash} {keys}");
            let of_bits = Recipe { size: Size::BitsPerKey(3.0), ..of_rate };
            assert!(of_bits.accepts(1.0, keys));
        }
    }
}
