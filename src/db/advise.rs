//! What other filters would do for the tables that there are: reckoned, with nothing read.

use super::inner::DbInner;
use crate::filter::{Allocation, FilterHeader, FilterKind, FilterPolicy, Share};
use crate::filters::expected_load;
use crate::ledger::LEVELS;
use crate::sstable::FilterState;
use crate::version::{LiveTable, Version, keys_within};

/// What the filters of a store cost and avoid as they are, and what others would: see
/// [`Db::advise`](crate::Db::advise).
///
/// An *absent lookup* is here the lookup of a key that no table holds, not even as a tombstone. What
/// it reads is read in vain:
///
/// ```text
/// reads per absent lookup = Σ over tables of  load × rate
/// ```
///
/// A table's *load* is how many absent lookups ask it, for each of them: what the ledger counted since
/// the store was opened or the table was written, mixed with the part of all keys that lies in the table's range, which is
/// all there is to go by at first ([`absent_probes`](Self::absent_probes) says how much was counted).
/// Its *rate* is the false-positive rate of its filter: the predicted one of a filter that is in
/// memory, 1 for a table without one, and for a filter that is not there yet what its shape gives in
/// the mean (filters of less than a hundred keys scatter widely about it). A false positive is one disk
/// read if the block cache does not hold the block and the memo of false positives does not hold the
/// key.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Advice {
    /// Live tables.
    pub tables: u64,
    /// Their distinct keys; a key counts in each table that holds it.
    pub keys: u64,
    /// Tables whose filter is degraded.
    pub degraded: u64,
    /// How many absent probes the loads are based on; 0 if on the key ranges alone.
    pub absent_probes: u64,
    /// Bytes of filters in memory, headers included.
    pub filter_bytes: u64,
    /// The same in bits for each key, without the headers, as
    /// [`FilterPolicy::bits_per_key`](crate::FilterPolicy::bits_per_key) counts; tables with a degraded
    /// filter left out. To two decimals.
    pub bits_per_key: f64,
    /// The same with the headers.
    pub bits_per_key_with_headers: f64,
    /// Expected disk reads per absent lookup, with the filters as they are.
    pub reads_per_absent_lookup: f64,
    /// The same without any filter: how many tables lie in the way of an absent lookup.
    pub reads_without_filters: f64,
    /// Other filters: today's bits per key and 1, 2 and 4 more and fewer, as far as that leaves 1 to
    /// 64; each kind, uniform and balanced.
    pub estimates: Vec<Estimate>,
    /// What to do, in one sentence, with the command for it. The command changes the tables that there
    /// are; what is written later follows [`Options::filter`](crate::Options::filter).
    pub recommendation: String,
}

/// What filters of one kind and size would cost and avoid, were they made for all tables as they are
/// ([`Db::rebuild_filters`](crate::Db::rebuild_filters)); see [`Advice`] for what is reckoned.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// Bits per key more than today.
    pub change: i32,
    /// The kind.
    pub kind: FilterKind,
    /// Where the bits go.
    pub allocation: Allocation,
    /// Bits per key to ask for: the average of the store, headers not included.
    pub bits_per_key: f64,
    /// Bytes of all filters, headers included.
    pub filter_bytes: u64,
    /// Expected disk reads per absent lookup.
    pub reads_per_absent_lookup: f64,
}

/// How many bits a key more than today's are looked at.
const CHANGES: [i32; 7] = [-4, -2, -1, 0, 1, 2, 4];
const ALLOCATIONS: [Allocation; 2] = [Allocation::Uniform, Allocation::Balanced];

/// Other filters of the same size are worth their building from this part of today's reads saved, …
const WORTHWHILE: f64 = 0.1;
/// … and so many reads per absent lookup.
const NOTICEABLE: f64 = 1e-5;
/// Filters that take this part more are of the same size.
const SAME_SIZE: f64 = 0.02;

/// Without history a table's load is taken to be the part of all keys that lies in its range; that counts like so
/// many absent probes that were met.
const PRIOR_PROBES: f64 = 16.0;

/// A table as far as filters concern it.
struct Standing {
    share: Share,
    /// Absent probes per absent lookup.
    load: f64,
    /// Keys and prefixes.
    hashes: u64,
    /// Of what is resident of its filter.
    bytes: u64,
    rate: f64,
    degraded: bool,
}

impl Standing {
    /// `met` are the absent probes of the table, and the lookups that it lived through and that found nothing
    /// at its level or above.
    fn new(
        inner: &DbInner,
        version: &Version,
        (level, live): (usize, &LiveTable),
        met: (f64, f64),
    ) -> Self {
        let expected = expected_load(version, level, live);
        let share = Share { keys: live.table.meta().keys, load: expected };
        let in_range = part_of_range(version, live);
        let (bytes, rate, prefixes) = match &live.filter.state {
            FilterState::Active(filter) => {
                let header = filter.header();
                (header.bytes() as u64, header.predicted_rate, header.prefixes)
            }
            _ => (0, 1.0, 0),
        };
        Self {
            share,
            load: (met.0 + PRIOR_PROBES) / (met.1 + PRIOR_PROBES / in_range),
            hashes: share.keys + if inner.options.prefix.is_some() { prefixes } else { 0 },
            bytes,
            rate,
            degraded: matches!(live.filter.state, FilterState::Degraded(_)),
        }
    }

    /// The bits of the array.
    fn bits(&self) -> u64 {
        8 * self.bytes.saturating_sub(FilterHeader::BYTES as u64)
    }
}

pub(super) fn advise(inner: &DbInner) -> Advice {
    let view = inner.views.load_full();
    let version = &view.version;
    let passing = passing(inner);
    let met = inner.env.ledger.absent_probes();
    let standing = |(level, live): (usize, &LiveTable)| {
        let (absent, lookups) = met.get(&live.table.id()).copied().unwrap_or_default();
        let met = (absent as f64, lookups as f64 * passing[level]);
        Standing::new(inner, version, (level, live), met)
    };
    let tables: Vec<_> = version.tables().map(standing).collect();

    let proper = || tables.iter().filter(|table| !table.degraded);
    let proper_keys = proper().map(|table| table.share.keys).sum::<u64>().max(1) as f64;
    let bits = proper().map(Standing::bits).sum::<u64>() as f64 / proper_keys;
    let filter_bytes = tables.iter().map(|table| table.bytes).sum();
    let mut advice = Advice {
        tables: tables.len() as u64,
        keys: tables.iter().map(|table| table.share.keys).sum(),
        degraded: tables.iter().filter(|table| table.degraded).count() as u64,
        absent_probes: met.values().map(|(absent, _)| absent).sum(),
        filter_bytes,
        bits_per_key: to_hundredths(bits),
        bits_per_key_with_headers: 8.0 * filter_bytes as f64 / proper_keys,
        reads_per_absent_lookup: tables.iter().map(|table| table.load * table.rate).sum(),
        reads_without_filters: tables.iter().map(|table| table.load).sum(),
        estimates: Vec::new(),
        recommendation: String::new(),
    };
    for change in CHANGES {
        let bits = to_hundredths(advice.bits_per_key + f64::from(change));
        for kind in FilterKind::ALL {
            for allocation in ALLOCATIONS {
                let policy = inner.filters.policy().with_kind(kind).with_allocation(allocation);
                if (1.0..=64.0).contains(&bits) && !tables.is_empty() {
                    let policy = policy.with_bits_per_key(bits);
                    let (filter_bytes, reads_per_absent_lookup) = outcome(&policy, &tables);
                    advice.estimates.push(Estimate {
                        change,
                        kind,
                        allocation,
                        bits_per_key: bits,
                        filter_bytes,
                        reads_per_absent_lookup,
                    });
                }
            }
        }
    }
    advice.recommendation = advice.recommend();
    advice
}

/// The part of all keys that lies in a table's range: an absent key that is drawn like the present ones meets the
/// table so often.
fn part_of_range(version: &Version, live: &LiveTable) -> f64 {
    let meta = live.table.meta();
    let (smallest, largest) = (&meta.smallest, &meta.largest);
    let l0 = version.level(0).iter();
    let below = (1..LEVELS).flat_map(|level| version.overlapping(level, smallest, largest));
    let within = l0.chain(below).map(|other| keys_within(&other.table, smallest, largest));
    let all: u64 = version.tables().map(|(_, live)| live.table.meta().keys).sum();
    within.sum::<f64>() / all.max(1) as f64
}

/// For each level, the part of all lookups that find nothing there or above. Present keys ask the tables
/// above the one that has them, in vain, as absent keys do; below it they ask none.
fn passing(inner: &DbInner) -> [f64; LEVELS] {
    let lookups = inner.env.ledger.table_lookups().max(1) as f64;
    let mut found = 0;
    inner.env.ledger.stats().levels.map(|counts| {
        found += counts.true_positives + counts.unfiltered_found;
        (1.0 - found as f64 / lookups).max(0.0)
    })
}

/// The bytes of the filters that a policy means for tables, and the reads per absent lookup.
fn outcome(policy: &FilterPolicy, tables: &[Standing]) -> (u64, f64) {
    let shares: Vec<Share> = tables.iter().map(|table| table.share).collect();
    let (mut bytes, mut reads) = (0, 0.0);
    for (table, recipe) in tables.iter().zip(policy.recipes(&shares)) {
        bytes += recipe.map_or(0, |recipe| recipe.filter_bits(table.hashes) / 8);
        reads += table.load * recipe.map_or(1.0, |recipe| recipe.expected_rate(table.hashes));
    }
    (bytes, reads)
}

impl Advice {
    fn recommend(&self) -> String {
        if self.tables == 0 {
            return "There are no tables yet, and so nothing to advise.".into();
        }
        if self.estimates.is_empty() {
            return "These filters have more bits a key than can be asked for, as those of few keys do, \
                    and there is nothing to advise."
                .into();
        }
        let now = significant(self.reads_per_absent_lookup);
        if self.filter_bytes == 0
            && let Some(best) = self.fewest_reads(CHANGES[CHANGES.len() - 1])
        {
            return format!(
                "No filter is in memory, and an absent lookup wastes {now} reads; {} of {} bits a \
                 key would waste {} in {} bytes: {}.",
                best.name(),
                best.bits_per_key,
                significant(best.reads_per_absent_lookup),
                thousands(best.filter_bytes),
                best.command(),
            );
        }
        if let Some(best) = self.fewest_reads(0).filter(|best| self.is_better(best)) {
            let bytes = thousands(self.filter_bytes);
            return format!(
                "{} would waste {} reads per absent lookup instead of {now}, in {} bytes instead of \
                 {bytes}: {}.",
                capitalized(&best.name()),
                significant(best.reads_per_absent_lookup),
                thousands(best.filter_bytes),
                best.command(),
            );
        }
        let bytes = thousands(self.filter_bytes);
        let right = format!(
            "These filters are right for their memory: they waste {now} reads per absent lookup in \
             {bytes} bytes"
        );
        match self.fewest_reads(2) {
            Some(more) => format!(
                "{right}; 2 bits a key more, {} would bring {} in {} bytes: {}.",
                more.name(),
                significant(more.reads_per_absent_lookup),
                thousands(more.filter_bytes),
                more.command(),
            ),
            None => right + ".",
        }
    }

    fn fewest_reads(&self, change: i32) -> Option<&Estimate> {
        self.estimates
            .iter()
            .filter(|estimate| estimate.change == change)
            .min_by(|a, b| a.reads_per_absent_lookup.total_cmp(&b.reads_per_absent_lookup))
    }

    /// Whether filters of today's bits would save enough, in no more memory. Where some are degraded,
    /// today's memory is what the others take for each key.
    fn is_better(&self, other: &Estimate) -> bool {
        let bytes = self.bits_per_key_with_headers * self.keys as f64 / 8.0;
        let saved = self.reads_per_absent_lookup - other.reads_per_absent_lookup;
        other.filter_bytes as f64 <= (1.0 + SAME_SIZE) * bytes
            && saved >= WORTHWHILE * self.reads_per_absent_lookup
            && saved >= NOTICEABLE
    }
}

impl Estimate {
    fn allocation_name(&self) -> &'static str {
        match self.allocation {
            Allocation::Uniform => "uniform",
            Allocation::Balanced => "balanced",
        }
    }

    /// "ribbon filters, balanced,".
    fn name(&self) -> String {
        format!("{} filters, {},", self.kind, self.allocation_name())
    }

    /// What makes these filters.
    fn command(&self) -> String {
        format!(
            "criba rebuild-filters DIR --filter {} --allocation {} --bits-per-key {}",
            self.kind,
            self.allocation_name(),
            self.bits_per_key,
        )
    }
}

fn capitalized(text: &str) -> String {
    let (first, rest) = text.split_at(1);
    first.to_ascii_uppercase() + rest
}

/// As it is printed, so that what is asked for is what was reckoned with.
fn to_hundredths(bits: f64) -> f64 {
    (bits * 100.0).round() / 100.0
}

/// Three significant digits, at most eight decimals.
fn significant(number: f64) -> String {
    let decimals = if number > 0.0 { (2.0 - number.log10().floor()).clamp(0.0, 8.0) } else { 0.0 };
    format!("{number:.0$}", decimals as usize)
}

/// With a comma between thousands.
fn thousands(number: u64) -> String {
    match number / 1000 {
        0 => number.to_string(),
        more => format!("{},{:03}", thousands(more), number % 1000),
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::{Db, Options, Result};

    /// A store of several levels; even numbers are present, odd ones absent, in no order.
    fn store(dir: &std::path::Path, keys: u64, filter: FilterPolicy) -> Result<Db> {
        let options = Options::new().seed(1).background_threads(0).filter(filter);
        let options = options.memtable_bytes(60_000).table_bytes(40_000).level_base_bytes(30_000);
        let db = options.false_positive_memo(0).cache_bytes(0).open(dir)?;
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for i in 0..keys {
            // A permutation of the keys, so that each memtable has some of everywhere.
            db.put(key(2 * (i * 7_919 % keys)), [b'v'; 20])?;
            if rng.random_bool(0.02) {
                db.put(key(2 * rng.random_range(0..keys)), [b'w'; 20])?;
            }
        }
        db.flush()?; // and no more, which would leave fewer levels
        Ok(db)
    }

    fn key(number: u64) -> String {
        format!("{number:010}")
    }

    /// Every estimate, against the filters that are then built for the same tables.
    #[test]
    fn rebuilt_filters_are_as_estimated() -> Result<()> {
        let dir = tempfile::tempdir().expect("a directory");
        let db = store(dir.path(), 20_000, FilterPolicy::default())?;
        let levels: std::collections::BTreeSet<_> = db.tables().iter().map(|t| t.level).collect();
        assert!(levels.len() >= 3, "{levels:?}");
        let advice = db.advise();
        assert_eq!((advice.estimates.len(), advice.absent_probes), (42, 0));
        let mut worst = 0.0_f64;
        for estimate in &advice.estimates {
            let policy = FilterPolicy::bits_per_key(estimate.bits_per_key);
            let policy = policy.with_kind(estimate.kind).with_allocation(estimate.allocation);
            // From nothing: a filter like what an unlucky one would be enlarged to is left alone.
            db.rebuild_filters(&FilterPolicy::none())?;
            db.rebuild_filters(&policy)?;
            let then = db.advise();
            let off = estimate.reads_per_absent_lookup / then.reads_per_absent_lookup - 1.0;
            worst = worst.max(off.abs());
            println!("{estimate:?}: {:.6}, {off:+.4}", then.reads_per_absent_lookup);
            let bytes = then.filter_bytes as f64 / estimate.filter_bytes as f64;
            // An unlucky filter may have been made larger.
            assert!((1.0..1.01).contains(&bytes), "{estimate:?} {}", then.filter_bytes);
            assert!(off.abs() < 0.1, "{estimate:?} {off}");
        }
        println!("42 policies, reads per absent lookup off by {worst:.4} at most");
        Ok(())
    }

    /// Four lookups in five are of present keys, which end where they find them; all are in one tenth of
    /// the range. What is reckoned is what absent lookups alone then read.
    #[test]
    fn present_lookups_are_told_from_absent_ones() -> Result<()> {
        let dir = tempfile::tempdir().expect("a directory");
        let filter = FilterPolicy::bits_per_key(4.0).with_kind(FilterKind::Bloom);
        let filter = filter.with_allocation(Allocation::Uniform);
        let keys = 20_000;
        let db = store(dir.path(), keys, filter)?;
        let by_keys = db.advise();
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let mut ask = |present: bool| {
            let number = 2 * rng.random_range(0..keys / 10) + u64::from(!present);
            db.explain(key(number)).map(|explained| {
                assert_eq!(explained.value.is_some(), present);
                explained.counts().disk_reads
            })
        };
        for i in 0..60_000 {
            ask(i % 5 > 0)?;
        }
        let advice = db.advise();
        let (mut reads, lookups) = (0, 40_000);
        for _ in 0..lookups {
            reads += ask(false)?;
        }
        let expected = advice.reads_per_absent_lookup * f64::from(lookups);
        println!(
            "{reads} reads of {lookups} absent lookups, {expected:.0} advised from {} absent probes; \
             {:.0} from the key ranges alone",
            advice.absent_probes,
            by_keys.reads_per_absent_lookup * f64::from(lookups)
        );
        assert!(advice.absent_probes > 1000);
        // There are 2,000 absent keys, asked for again and again: their number bounds the chance.
        let chance = 3.3 / (advice.reads_per_absent_lookup * 2000.0).sqrt();
        let off = reads as f64 / expected - 1.0;
        assert!(off.abs() < chance + 0.03, "{off}, {chance}");
        Ok(())
    }

    #[test]
    fn recommendations() -> Result<()> {
        let dir = tempfile::tempdir().expect("a directory");
        let db = Options::new().background_threads(0).open(dir.path().join("empty"))?;
        let nothing = db.advise();
        assert_eq!(nothing.recommendation, "There are no tables yet, and so nothing to advise.");
        assert_eq!((nothing.tables, nothing.estimates.len()), (0, 0));
        db.put("one", "key")?; // takes a cache line
        db.flush()?;
        let one = db.advise();
        assert!(one.recommendation.contains("as those of few keys do"), "{one:?}");
        assert_eq!((one.tables, one.estimates.len()), (1, 0));

        let classic = FilterPolicy::classic().with_bits_per_key(10.0);
        let db = store(&dir.path().join("store"), 20_000, classic)?;
        let said = db.advise().recommendation;
        assert!(said.starts_with("Ribbon filters, balanced, would waste 0.0"), "{said}");
        assert!(said.contains("--filter ribbon --allocation balanced --bits-per-key 10"), "{said}");
        // Who follows the advice is told that it is well, whatever else there is.
        let bits = db.advise().bits_per_key;
        db.rebuild_filters(&FilterPolicy::bits_per_key(bits))?;
        let said = db.advise().recommendation;
        assert!(said.starts_with("These filters are right for their memory: they waste"), "{said}");
        assert!(said.contains("; 2 bits a key more, ribbon filters, balanced, would"), "{said}");

        db.rebuild_filters(&FilterPolicy::none())?;
        let none = db.advise();
        assert!(none.recommendation.starts_with("No filter is in memory, and an"), "{none:?}");
        let off = none.reads_per_absent_lookup - none.reads_without_filters;
        assert!(off.abs() < 1e-9 && none.filter_bytes == 0, "{none:?}");
        assert_eq!(none.estimates.len(), 18); // 1, 2 and 4 bits more
        Ok(())
    }

    #[test]
    fn numbers_are_short() {
        let shown = [0.0, 0.0413, 4.567, 1.0e-5, 12_345.6, 1e-12].map(significant);
        assert_eq!(shown, ["0", "0.0413", "4.57", "0.0000100", "12346", "0.00000000"]);
        assert_eq!([0, 999, 1_000_007].map(thousands), ["0", "999", "1,000,007"]);
    }
}
