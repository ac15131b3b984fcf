//! Estimates of what other filters would cost and avoid for the present tables. No I/O.

use std::ops::Add;

use super::allocation::Share;
use super::levels::expected_load;
use super::load::Loads;
use crate::filter::{Allocation, FilterPolicy};
use crate::ledger::{LEVELS, Ledger};
use crate::sstable::FilterState;
use crate::sstable::{FilterHeader, block_bits};
use crate::version::{LiveTable, StoreSettings, Version, keys_within};
use criba_filter::FilterKind;

/// What the filters of a store cost and avoid, and what other filters would: see
/// [`Db::advise`](crate::Db::advise).
///
/// An *absent lookup* is a lookup of a key that no table holds, not even as a tombstone:
///
/// ```text
/// reads per absent lookup = Σ over tables of  load × rate
/// ```
///
/// The *load* of a table is its probes per absent lookup, estimated from the counts so far and from the share
/// of all keys that its range covers. The *rate* is the false-positive rate of its filter. For a resident
/// filter it is computed from the bits; for an estimated filter it is the mean; without a filter it is 1.
/// Filters of less than a hundred keys vary widely. Cache hits are not subtracted.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Advice {
    /// Live tables.
    pub tables: u64,
    /// The sum of the distinct keys of each table.
    pub keys: u64,
    /// The sum of the distinct prefixes of each table, as far as they are known: see
    /// [`Options::prefix`](crate::Options::prefix).
    pub prefixes: u64,
    /// Tables whose filter is degraded.
    pub degraded: u64,
    /// Absent probes counted so far. If 0, the loads come from key ranges alone.
    pub absent_probes: u64,
    /// Resident bytes of filters, headers included.
    pub filter_bytes: u64,
    /// Resident bits for each key and prefix in a filter, without headers and degraded filters, to two
    /// decimals. This is what a [policy](FilterPolicy::with_bits_per_key) sets.
    pub bits_per_key: f64,
    /// Resident bits of prefixes and headers, too, for each key.
    pub bits_per_key_with_headers: f64,
    /// Expected disk reads per absent lookup, with the present filters.
    pub reads_per_absent_lookup: f64,
    /// Expected disk reads per absent lookup, without filters.
    pub reads_without_filters: f64,
    /// Estimates for each kind and allocation, with the present bits per key, and with 1, 2 and 4 more and
    /// fewer.
    pub estimates: Vec<Estimate>,
    /// Allocation of the store's policy.
    allocation: Allocation,
}

/// What filters of one policy would cost and avoid for all present tables; see [`Advice`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// The bits per key, less those of the present filters.
    pub change: i32,
    /// The kind of the filters.
    pub kind: FilterKind,
    /// The allocation of the filters.
    pub allocation: Allocation,
    /// The average bits for each key and prefix, without headers.
    pub bits_per_key: f64,
    /// Bytes of all filters, headers included.
    pub filter_bytes: u64,
    /// Expected disk reads per absent lookup.
    pub reads_per_absent_lookup: f64,
}

const CHANGES: [i32; 7] = [-4, -2, -1, 0, 1, 2, 4];

/// Other filters of the same size are recommended if they save at least this part of the present reads, …
const WORTHWHILE: f64 = 0.1;
/// … and at least this many reads per absent lookup.
const NOTICEABLE: f64 = 1e-5;
/// With another allocation than the store's, they must save at least this part more.
const TIE: f64 = 0.02;
/// Filters of fewer keys are rounded up by so much that nothing follows from their bits per key.
const FEW_KEYS: u64 = 100;
/// Filters that are larger by at most this part have the same size.
const SAME_SIZE: f64 = 0.02;

struct TableLoad {
    share: Share,
    load: f64,
    keys: u64,
    /// Keys and prefixes in the present filter.
    in_filter: u64,
    /// Resident bytes of the filter.
    bytes: u64,
    rate: f64,
    degraded: bool,
}

impl Advice {
    pub(crate) fn of_nothing() -> Self {
        advise(&Version::default(), &Ledger::default(), StoreSettings::default())
    }
}

pub(crate) fn advise(version: &Version, ledger: &Ledger, settings: StoreSettings) -> Advice {
    let loads = Loads::of(ledger);
    let expected_load = expected_load(version);
    let table_load = |(level, live): (usize, &LiveTable)| {
        let counts = live.key_counts(settings.extractor);
        let (bytes, rate, in_filter) = match &live.filter.state {
            FilterState::Active(filter) => {
                let header = filter.header();
                (header.bytes() as u64, header.predicted_rate, header.counts())
            }
            _ => (0, 1.0, counts),
        };
        TableLoad {
            share: Share { hashed: counts.hashed(), load: expected_load(level, live) },
            load: loads.load(level, live, part_of_range(version, live)),
            keys: counts.keys,
            in_filter: in_filter.hashed(),
            bytes,
            rate,
            degraded: matches!(live.filter.state, FilterState::Degraded(_)),
        }
    };
    let tables: Vec<_> = version.tables().map(table_load).collect();

    let sound = || tables.iter().filter(|table| !table.degraded);
    let of_sound = |number: fn(&TableLoad) -> u64| sound().map(number).sum::<u64>();
    let bits = of_sound(|table| 8 * table.bytes.saturating_sub(FilterHeader::BYTES as u64));
    let in_filters = of_sound(|table| table.in_filter).max(1);
    let bits_per_key = to_hundredths(bits as f64 / in_filters as f64);
    let filter_bytes = tables.iter().map(|table| table.bytes).sum();
    // From 0: the sum of no floats is -0.
    let sum = |of: &dyn Fn(&TableLoad) -> f64| tables.iter().map(of).fold(0.0, Add::add);
    let mut advice = Advice {
        tables: tables.len() as u64,
        keys: tables.iter().map(|table| table.keys).sum(),
        prefixes: tables.iter().map(|table| table.share.hashed - table.keys).sum(),
        degraded: (tables.len() - sound().count()) as u64,
        absent_probes: loads.absent_probes(),
        filter_bytes,
        bits_per_key,
        bits_per_key_with_headers: 8.0 * filter_bytes as f64
            / of_sound(|table| table.keys).max(1) as f64,
        reads_per_absent_lookup: sum(&|table| table.load * table.rate),
        reads_without_filters: sum(&|table| table.load),
        estimates: Vec::new(),
        allocation: settings.policy.allocation(),
    };
    for change in CHANGES {
        let bits_per_key = to_hundredths(bits_per_key + f64::from(change));
        if tables.is_empty() || !(1.0..=64.0).contains(&bits_per_key) {
            continue;
        }
        let policy = settings.policy.with_bits_per_key(bits_per_key);
        for kind in FilterPolicy::KINDS {
            for allocation in [Allocation::Uniform, Allocation::Balanced] {
                let policy = policy.with_kind(kind).with_allocation(allocation);
                let (filter_bytes, reads_per_absent_lookup) = cost(&policy, &tables);
                advice.estimates.push(Estimate {
                    change,
                    kind,
                    allocation,
                    bits_per_key,
                    filter_bytes,
                    reads_per_absent_lookup,
                });
            }
        }
    }
    advice
}

/// The share of all keys that lie in a table's range. It is the load of the table if absent keys are
/// distributed as present ones.
fn part_of_range(version: &Version, live: &LiveTable) -> f64 {
    let meta = live.table.meta();
    let (smallest, largest) = (&meta.smallest, &meta.largest);
    let l0 = version.level(0).iter();
    let below = (1..LEVELS).flat_map(|level| version.overlapping(level, smallest, largest));
    let within = l0.chain(below).map(|other| keys_within(&other.table, smallest, largest));
    let all: u64 = version.tables().map(|(_, live)| live.table.meta().keys).sum();
    within.sum::<f64>() / all.max(1) as f64
}

fn cost(policy: &FilterPolicy, tables: &[TableLoad]) -> (u64, f64) {
    let shares: Vec<Share> = tables.iter().map(|table| table.share).collect();
    let (mut bytes, mut reads) = (0, 0.0);
    for (table, recipe) in tables.iter().zip(policy.recipes(&shares)) {
        let hashed = table.share.hashed;
        bytes += recipe.map_or(0, |recipe| block_bits(&recipe, hashed) / 8);
        reads += table.load * recipe.map_or(1.0, |recipe| recipe.expected_rate(hashed));
    }
    (bytes, reads)
}

impl Advice {
    /// The filters to change to. `None` if the present ones are right for their memory, if some are degraded (rebuild
    /// them first), or if the tables have too few keys.
    ///
    /// Filters of the present size must save a tenth of the reads. If no filter is in memory, the advice is
    /// the largest estimate.
    pub fn recommended(&self) -> Option<&Estimate> {
        if self.degraded > 0 || self.has_few_keys() {
            return None;
        }
        if self.filter_bytes == 0 {
            return self.best(CHANGES[CHANGES.len() - 1]);
        }
        self.best(0).filter(|best| self.is_better(best))
    }

    /// The estimate of the fewest reads with so many more bits per key than the present filters. If both
    /// allocations cost the same, within 2 %, it has the store's.
    pub fn best(&self, change: i32) -> Option<&Estimate> {
        self.estimates
            .iter()
            .filter(|estimate| estimate.change == change)
            .min_by(|a, b| self.cost(a).total_cmp(&self.cost(b)))
    }

    fn cost(&self, estimate: &Estimate) -> f64 {
        let other = estimate.allocation != self.allocation;
        estimate.reads_per_absent_lookup * if other { 1.0 + TIE } else { 1.0 }
    }

    /// Whether the tables have so few keys, fewer than a hundred on average, that estimates say little: filters
    /// are rounded up to whole words.
    pub fn has_few_keys(&self) -> bool {
        self.keys < FEW_KEYS * self.tables
    }

    fn is_better(&self, other: &Estimate) -> bool {
        let saved = self.reads_per_absent_lookup - other.reads_per_absent_lookup;
        other.filter_bytes as f64 <= (1.0 + SAME_SIZE) * self.filter_bytes as f64
            && saved >= WORTHWHILE * self.reads_per_absent_lookup
            && saved >= NOTICEABLE
    }
}

/// Rounds to two decimals, as a command has them, so that the estimate has the same bits per key.
fn to_hundredths(bits: f64) -> f64 {
    (bits * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::{Db, Options, Result};

    fn store(dir: &std::path::Path, keys: u64, filter: FilterPolicy) -> Result<Db> {
        let options = Options::new().seed(1).background_threads(0).filter(filter);
        let options = options.memtable_bytes(60_000).table_bytes(40_000).level_base_bytes(30_000);
        let db = options.cache_bytes(0).open(dir)?;
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for i in 0..keys {
            // A permutation of the keys, so that each memtable spans the whole range.
            db.put(key(2 * (i * 7_919 % keys)), [b'v'; 20])?;
            if rng.random_bool(0.02) {
                db.put(key(2 * rng.random_range(0..keys)), [b'w'; 20])?;
            }
        }
        db.flush()?; // no compaction, which would leave fewer levels
        Ok(db)
    }

    fn key(number: u64) -> String {
        format!("{number:010}")
    }

    #[test]
    fn rebuilt_filters_are_as_estimated() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let db = store(dir.path(), 20_000, FilterPolicy::default())?;
        let levels: std::collections::BTreeSet<_> = db.tables().iter().map(|t| t.level).collect();
        assert!(levels.len() >= 3, "{levels:?}");
        let advice = db.advise();
        assert_eq!((advice.estimates.len(), advice.absent_probes), (28, 0));
        let mut worst = 0.0_f64;
        for estimate in &advice.estimates {
            let policy = FilterPolicy::bits_per_key(estimate.bits_per_key);
            let policy = policy.with_kind(estimate.kind).with_allocation(estimate.allocation);
            // From none: `rebuild_filters` keeps a filter of the size that a retry would give.
            db.rebuild_filters(&FilterPolicy::none())?;
            db.rebuild_filters(&policy)?;
            let then = db.advise();
            let off = estimate.reads_per_absent_lookup / then.reads_per_absent_lookup - 1.0;
            worst = worst.max(off.abs());
            println!("{estimate:?}: {:.6}, {off:+.4}", then.reads_per_absent_lookup);
            let bytes = then.filter_bytes as f64 / estimate.filter_bytes as f64;
            // A retry may have made a filter larger.
            assert!((1.0..1.01).contains(&bytes), "{estimate:?} {}", then.filter_bytes);
            assert!(off.abs() < 0.1, "{estimate:?} {off}");
        }
        println!("28 policies, reads per absent lookup off by {worst:.4} at most");
        Ok(())
    }

    /// Four lookups in five are of present keys, and all are in one tenth of the range. The estimate is of
    /// the reads of absent lookups alone.
    #[test]
    fn lookups_of_present_keys_do_not_change_the_estimate() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let filter = FilterPolicy::bits_per_key(4.0).with_kind(FilterKind::Bloom);
        let filter = filter.with_allocation(Allocation::Uniform);
        let keys = 20_000;
        let db = store(dir.path(), keys, filter)?;
        let by_keys = db.advise();
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let mut look_up = |present: bool| {
            let number = 2 * rng.random_range(0..keys / 10) + u64::from(!present);
            db.explain(key(number)).map(|explained| {
                assert_eq!(explained.value.is_some(), present);
                explained.counts().disk_reads
            })
        };
        for i in 0..60_000 {
            look_up(i % 5 > 0)?;
        }
        let advice = db.advise();
        let (mut reads, lookups) = (0, 40_000);
        for _ in 0..lookups {
            reads += look_up(false)?;
        }
        let expected = advice.reads_per_absent_lookup * f64::from(lookups);
        println!(
            "{reads} reads of {lookups} absent lookups, {expected:.0} estimated from {} absent probes; \
             {:.0} from the key ranges alone",
            advice.absent_probes,
            by_keys.reads_per_absent_lookup * f64::from(lookups)
        );
        assert!(advice.absent_probes > 1000);
        // Only 2,000 distinct keys are absent; their number sets the standard deviation.
        let deviations = 3.3 / (advice.reads_per_absent_lookup * 2000.0).sqrt();
        let off = reads as f64 / expected - 1.0;
        assert!(off.abs() < deviations + 0.03, "{off}, {deviations}");
        Ok(())
    }

    #[test]
    fn recommendations() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let options = Options::new().background_threads(0).filter(FilterPolicy::bloom());
        let db = options.open(dir.path().join("empty"))?;
        let nothing = db.advise();
        assert_eq!((nothing.tables, nothing.estimates.len()), (0, 0));
        assert_eq!(nothing.recommended(), None);
        db.put("one", "key")?;
        db.flush()?;
        let one = db.advise();
        assert!(one.has_few_keys() && one.recommended().is_none(), "{one:?}");
        assert_eq!((one.tables, one.estimates.len()), (1, 16));

        let classic = FilterPolicy::classic().with_bits_per_key(10.0);
        let db = store(&dir.path().join("store"), 20_000, classic)?;
        let advice = db.advise();
        let best = advice.recommended().expect("fewer reads");
        assert_eq!((best.kind, best.change), (FilterKind::Ribbon, 0));
        assert_eq!(best.allocation, Allocation::Balanced);
        // After following the recommendation, nothing is recommended at this size.
        db.rebuild_filters(&FilterPolicy::ribbon().with_bits_per_key(best.bits_per_key))?;
        let advice = db.advise();
        assert_eq!(advice.recommended(), None);
        let more = advice.best(2).expect("larger filters");
        assert_eq!((more.kind, more.allocation), (FilterKind::Ribbon, Allocation::Balanced));

        db.rebuild_filters(&FilterPolicy::none())?;
        let none = db.advise();
        assert_eq!(none.recommended().map(|best| best.change), Some(4));
        let off = none.reads_per_absent_lookup - none.reads_without_filters;
        assert!(off.abs() < 1e-9 && none.filter_bytes == 0, "{none:?}");
        assert_eq!(none.estimates.len(), 12); // 1, 2 and 4 bits more
        Ok(())
    }
}
