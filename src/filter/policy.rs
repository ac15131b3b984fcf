//! The policy for the filters of a store.

use std::fmt;

use crate::codec::{Fields, PutFields};
use criba_filter::store::{Recipe, Size};
use criba_filter::{FilterKind, Geometry, HashFunction};

/// The policy for a store's filters: kind, hash, size and allocation. Sizes are for the exact number of
/// distinct user keys in a table, tombstones included, and of their distinct
/// [prefixes](crate::Options::prefix).
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
    pub(crate) kind: FilterKind,
    pub(crate) hash: HashFunction,
    pub(crate) amount: Amount,
    pub(crate) allocation: Allocation,
}

/// One pebibyte: more is a typing error.
const MOST_TOTAL_BYTES: u64 = 1 << 50;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Amount {
    None,
    Rate(f64),
    BitsPerKey(f64),
    TotalBytes(u64),
    Geometry(Geometry),
}

/// How bits per key or total bytes are distributed among tables. (A rate applies to every table.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Allocation {
    /// All tables have the same bits per key.
    Uniform,
    /// The false-positive rate of a level is proportional to its keys, that of an L0 table to its own keys:
    /// bits go where they avoid the most reads (Monkey: Dayan, Athanassoulis and Idreos, SIGMOD 2017). The
    /// total is that of [`Uniform`](Self::Uniform), within 5 %.
    ///
    /// A flush or compaction sizes the filters that it writes, and replaces those of tables that it moves if they
    /// are too large for their new level. Other filters keep their sizes until
    /// [`Db::rebuild_filters`](crate::Db::rebuild_filters).
    Balanced,
}

impl FilterPolicy {
    /// The kinds of the filters of stores. With equal bytes, blocked filters waste more reads.
    pub(crate) const KINDS: [FilterKind; 2] = [FilterKind::Bloom, FilterKind::Ribbon];

    /// The filters of the literature: standard Bloom filters with a rate of 1 % in every table. Their hash
    /// does not protect from crafted keys: see [`HashFunction::MurmurHash2`].
    pub fn classic() -> Self {
        Self {
            kind: FilterKind::Bloom,
            hash: HashFunction::MurmurHash2,
            amount: Amount::Rate(0.01),
            allocation: Allocation::Uniform,
        }
    }

    /// The default: standard Bloom filters over SipHash-1-3, 10 bits per key on average, balanced.
    pub fn bloom() -> Self {
        Self {
            kind: FilterKind::Bloom,
            hash: HashFunction::SipHash13,
            amount: Amount::BitsPerKey(10.0),
            allocation: Allocation::Balanced,
        }
    }

    /// The default policy with ribbon filters: a sixth of the false positives, slower to build.
    pub fn ribbon() -> Self {
        Self::default().with_kind(FilterKind::Ribbon)
    }

    /// No filters: every lookup that reaches a table reads a block.
    pub fn none() -> Self {
        Self { amount: Amount::None, ..Self::default() }
    }

    /// The default policy with this [rate](Self::with_rate).
    pub fn rate(rate: f64) -> Self {
        Self::default().with_rate(rate)
    }

    /// The default policy with this [average of bits per key](Self::with_bits_per_key).
    pub fn bits_per_key(bits: f64) -> Self {
        Self::default().with_bits_per_key(bits)
    }

    /// Sets the false-positive rate of every table: above 0 and below 1.
    #[must_use]
    pub fn with_rate(self, rate: f64) -> Self {
        Self { amount: Amount::Rate(rate), ..self }
    }

    /// Sets the average of bits per key in the store: from 0 (no filters) to 64, also a fraction. A prefix takes
    /// as many.
    #[must_use]
    pub fn with_bits_per_key(self, bits: f64) -> Self {
        let amount = if bits == 0.0 { Amount::None } else { Amount::BitsPerKey(bits) };
        Self { amount, ..self }
    }

    /// Sets the bytes of all filters together, headers included; 0 for no filters. A settled store keeps to them within
    /// a tenth. Until the next compaction of L0, filters of L0 tables can add as many bytes again: nothing rebuilds
    /// the filters below for them. With prefixes the filters may take fewer bytes, until they are rebuilt.
    #[must_use]
    pub fn with_total_bytes(self, bytes: u64) -> Self {
        let amount = if bytes == 0 { Amount::None } else { Amount::TotalBytes(bytes) };
        Self { amount, ..self }
    }

    /// Sets Bloom filters of m bits and k probes for every table, however many keys it has.
    #[must_use]
    pub fn with_geometry(self, m: u64, k: u32) -> Self {
        let amount = Amount::Geometry(Geometry { m, k, wide: 0 });
        Self { kind: FilterKind::Bloom, amount, ..self }
    }

    /// Sets the kind: Bloom or ribbon. Blocked filters are for use without a store: with equal bytes, they would
    /// waste more reads than Bloom filters.
    #[must_use]
    pub fn with_kind(self, kind: FilterKind) -> Self {
        Self { kind, ..self }
    }

    /// Sets the hash.
    #[must_use]
    pub fn with_hash(self, hash: HashFunction) -> Self {
        Self { hash, ..self }
    }

    /// Sets the allocation of bits.
    #[must_use]
    pub fn with_allocation(self, allocation: Allocation) -> Self {
        Self { allocation, ..self }
    }

    /// Encodes the policy for the manifest; see format.md, "Manifest".
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let Self { kind, hash, amount, allocation } = *self;
        bytes.put_u8(kind.id());
        bytes.put_u8(hash.id());
        bytes.put_u8(u8::from(allocation == Allocation::Balanced));
        let (tag, first, second) = match amount {
            Amount::None => (0, 0, 0),
            Amount::Rate(rate) => (1, rate.to_bits(), 0),
            Amount::BitsPerKey(bits) => (2, bits.to_bits(), 0),
            Amount::TotalBytes(total) => (3, total, 0),
            Amount::Geometry(Geometry { m, k, .. }) => (4, m, u64::from(k)),
        };
        bytes.put_u8(tag);
        bytes.put_u64(first);
        bytes.put_u64(second);
    }

    /// `None` if the bytes are too few, or a value is one that no options could ever give.
    pub(crate) fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let kind = match fields.u8()? {
            FilterKind::OLD_RIBBON => FilterKind::Ribbon,
            id => FilterKind::with_id(id)?,
        };
        let hash = HashFunction::with_id(fields.u8()?)?;
        let allocation = match fields.u8()? {
            0 => Allocation::Uniform,
            1 => Allocation::Balanced,
            _ => return None,
        };
        let amount = match (fields.u8()?, fields.u64()?, fields.u64()?) {
            (0, 0, 0) => Amount::None,
            (1, rate, 0) => Amount::Rate(f64::from_bits(rate)),
            (2, bits, 0) => Amount::BitsPerKey(f64::from_bits(bits)),
            (3, total, 0) => Amount::TotalBytes(total),
            (4, m, k) => Amount::Geometry(Geometry { m, k: u32::try_from(k).ok()?, wide: 0 }),
            _ => return None,
        };
        let policy = Self { kind, hash, amount, allocation };
        policy.check_amount().is_ok().then_some(policy)
    }

    /// Fails with the fault of an invalid number, or of a kind that is not for stores.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.kind == FilterKind::Blocked {
            return Err("stores have no blocked filters; ribbon filters waste fewer reads".into());
        }
        self.check_amount()
    }

    fn check_amount(&self) -> Result<(), String> {
        match self.amount {
            Amount::TotalBytes(bytes) if bytes > MOST_TOTAL_BYTES => {
                Err(format!("filters of {bytes} bytes in all are more than {MOST_TOTAL_BYTES}"))
            }
            _ => self.recipe().map_or(Ok(()), |recipe| recipe.check()),
        }
    }

    /// The policy of the same bits for a store whose stored policy is this one: Bloom filters instead of blocked
    /// filters, which older stores may have.
    pub(crate) fn without_blocked(self) -> Self {
        if self.kind == FilterKind::Blocked { self.with_kind(FilterKind::Bloom) } else { self }
    }

    /// Refuses a shape of filters that takes more than an eighth of the machine's memory for one SSTable.
    pub(crate) fn check_memory(&self) -> Result<(), String> {
        let Amount::Geometry(Geometry { m, k, .. }) = self.amount else { return Ok(()) };
        let columns = if self.kind == FilterKind::Ribbon { u64::from(k) } else { 1 };
        let (bytes, most) = (m.saturating_mul(columns) / 8, machine_memory() / 8);
        if bytes <= most {
            return Ok(());
        }
        Err(format!("filters of {bytes} bytes each; an eighth of this machine's memory is {most}"))
    }

    pub(crate) fn allocation(&self) -> Allocation {
        self.allocation
    }

    /// The hash of the filters of memtables and tables.
    pub(crate) fn hash_function(&self) -> HashFunction {
        self.hash
    }

    /// The hash of the filters of tables; `None` without filters.
    pub(crate) fn hash(&self) -> Option<HashFunction> {
        (self.amount != Amount::None).then_some(self.hash)
    }

    /// The recipe for a table outside a store; `None` without filters. In a store, see
    /// [`plan`](Self::plan).
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
    /// [`FilterPolicy::bloom`].
    fn default() -> Self {
        Self::bloom()
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

/// The bytes of memory; without limit on a system that does not say.
pub(crate) fn machine_memory() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let about = rustix::system::sysinfo();
        u64::try_from(u128::from(about.totalram) * u128::from(about.mem_unit)).unwrap_or(u64::MAX)
    }
    #[cfg(not(target_os = "linux"))]
    u64::MAX
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
    fn sizes_beyond_the_limits_are_errors() {
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
            FilterPolicy::default().with_kind(FilterKind::Blocked),
            FilterPolicy::none().with_kind(FilterKind::Blocked),
        ] {
            assert!(policy.check().is_err(), "{policy:?}");
        }
        for policy in [
            FilterPolicy::default(),
            FilterPolicy::classic(),
            FilterPolicy::ribbon(),
            FilterPolicy::none(),
            FilterPolicy::bits_per_key(64.0),
        ] {
            assert_eq!(policy.check(), Ok(()), "{policy:?}");
        }
    }

    #[test]
    fn a_setting_leaves_the_others_unchanged() {
        let policy = FilterPolicy::default();
        assert_eq!(FilterPolicy::ribbon(), policy.with_kind(FilterKind::Ribbon));
        let classic =
            policy.with_hash(HashFunction::MurmurHash2).with_allocation(Allocation::Uniform);
        assert_eq!(classic.with_kind(FilterKind::Bloom).with_rate(0.01), FilterPolicy::classic());
        let geometry = policy.with_hash(HashFunction::MurmurHash2).with_geometry(1000, 7);
        assert_eq!(geometry.check(), Ok(()));
        assert_eq!((geometry.kind, geometry.hash), (FilterKind::Bloom, HashFunction::MurmurHash2));
        assert_eq!(policy.with_total_bytes(1 << 40).check(), Ok(()));
        assert_eq!(policy.with_total_bytes(MOST_TOTAL_BYTES).check(), Ok(()));
        assert!(policy.with_total_bytes(MOST_TOTAL_BYTES + 1).check().is_err());
    }

    #[test]
    fn a_policy_prints_its_settings() {
        let policy = FilterPolicy::default();
        for (policy, printed) in [
            (policy, "bloom filters of 10 bits a key, balanced, SipHash-1-3, keyed"),
            (FilterPolicy::none(), "no filters"),
            (FilterPolicy::classic(), "bloom filters at a rate of 0.01, MurmurHash2"),
            (
                policy.with_total_bytes(99).with_allocation(Allocation::Uniform),
                "bloom filters of 99 bytes in all, uniform, SipHash-1-3, keyed",
            ),
            (
                policy.with_geometry(1000, 7),
                "bloom filters of 1000 bits and 7 probes, SipHash-1-3, keyed",
            ),
        ] {
            assert_eq!(policy.to_string(), printed);
        }
    }
}
