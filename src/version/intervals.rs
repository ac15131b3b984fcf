//! The keys in elementary intervals: between two ends of tables, all keys have the same candidates.
//!
//! A lookup finds its interval by one search over the ends of all tables. If each filter of the interval denies the
//! key, the lookup adds one to the interval's counter and is done. The ledger knows what each count of an interval
//! stands for.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::ops::Range;
use std::sync::Arc;

use super::live_table::LiveTable;
use crate::fences::Fences;
use crate::filter::{HashedKey, Slots};
use crate::ledger::{Denials, Ledger, Met, Verdict};
use crate::sstable::{FilterState, Table};
use criba_filter::HashFunction;

/// With more intervals the memory of the counters, one set for each thread, would matter.
const MOST: usize = 4096;
/// With more candidates of all intervals together their memory, two bytes each, would matter.
const MOST_CANDIDATES: usize = 1 << 18;

/// Where tables begin or end: at a key, or right behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Bound<'a> {
    key: &'a [u8],
    behind: bool,
}

/// The end of a table at which an interval begins.
#[derive(Debug)]
struct End {
    table: Arc<Table>,
    /// Right behind its largest key, or at its smallest.
    behind: bool,
}

impl End {
    fn bound(&self) -> Bound<'_> {
        let meta = self.table.meta();
        let key = if self.behind { &meta.largest } else { &meta.smallest };
        Bound { key, behind: self.behind }
    }
}

/// The intervals of a version. They hold the filters that the version holds.
#[derive(Debug)]
pub(crate) struct Intervals {
    /// In the order of their bounds. Interval `n` begins at `ends[n - 1]`; interval 0 is before all tables.
    ends: Vec<End>,
    heads: Fences,
    slots: Slots,
    denials: Arc<Denials>,
    ledger: Arc<Ledger>,
}

/// The interval of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interval<'a> {
    number: usize,
    /// The tables that cover the key, newest first.
    tables: &'a [u16],
}

/// The filters that were probed, of the first tables that cover a key: some deny it, then one may have it. The
/// walk does not probe them again.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Probed {
    denied: usize,
    maybe: bool,
}

impl Probed {
    pub(crate) fn is_empty(self) -> bool {
        !self.maybe
    }

    /// The verdict of the next table that covers the key; `None` if its filter was not probed.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Verdict> {
        if let Some(rest) = self.denied.checked_sub(1) {
            self.denied = rest;
            return Some(Verdict::No);
        }
        std::mem::take(&mut self.maybe).then_some(Verdict::Maybe)
    }
}

impl Intervals {
    /// Those of the tables of L0, newest first, and of the sorted levels below. `None` for too many intervals or
    /// tables, whose numbers have 16 bits, and for filters of several kinds or hash functions.
    pub(super) fn of<'a>(
        l0: &'a [LiveTable],
        below: impl Iterator<Item = &'a [LiveTable]>,
    ) -> Option<Self> {
        let mut runs: Vec<&[LiveTable]> = l0.chunks(1).collect();
        runs.extend(below);
        let tables = runs.concat();
        let ledger = Arc::clone(&tables.first()?.table.env().ledger);
        let mut ends: Vec<End> = tables
            .iter()
            .flat_map(|live| {
                [false, true].map(|behind| End { table: Arc::clone(&live.table), behind })
            })
            .collect();
        ends.sort_unstable_by(|a, b| a.bound().cmp(&b.bound()));
        ends.dedup_by(|a, b| a.bound() == b.bound());
        let candidates = runs.len() * (ends.len() + 1);
        if ends.len() >= MOST || candidates > MOST_CANDIDATES || tables.len() > MOST {
            return None;
        }
        let filters = tables.iter().map(|live| match &live.filter.state {
            FilterState::Active(filter) => Some(filter),
            _ => None,
        });
        let slots = Slots::of(filters.clone())?;
        let has_filter: Vec<bool> = filters.map(|filter| filter.is_some()).collect();
        let covered: Vec<_> = tables.iter().map(|live| covered(&ends, &live.table)).collect();
        let met = (0..=ends.len()).map(|interval| {
            let mut met = Met::default();
            let mut behind = 0;
            for run in &runs {
                let start = behind;
                behind += run.len();
                // The only table of a run of L0. Below, the first that does not end before the interval.
                let of_run = covered.get(start..behind).unwrap_or_default();
                let ended = |covered: &Range<usize>| covered.end <= interval;
                let at = if start < l0.len() { 0 } else { of_run.partition_point(ended) };
                let Some(covered) = of_run.get(at) else { continue };
                let table = start + at;
                if !covered.contains(&interval) {
                    met.pruned.push(table as u16);
                } else if has_filter.get(table) == Some(&true) {
                    met.denied.push(table as u16);
                } else {
                    return None;
                }
            }
            Some(met)
        });
        let counters = tables.iter().map(|live| Arc::clone(&live.counters)).collect();
        let denials = ledger.denials(counters, met);
        let heads = Fences::new(ends.iter().map(|end| end.bound().key));
        Some(Self { ends, heads, slots, denials, ledger })
    }

    /// `None` if a table without a usable filter covers the key.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Option<Interval<'_>> {
        let key = Bound { key, behind: false };
        let begins_by = |n: usize| self.ends.get(n).is_some_and(|end| end.bound() <= key);
        let number = self.heads.below(key.key, begins_by);
        Some(Interval { number, tables: self.denials.denied(number)? })
    }

    /// Whether each filter denies the key, which is in this interval; counts the lookup if so. Otherwise the
    /// verdicts of the filters that were probed.
    #[inline]
    pub(crate) fn deny(&self, interval: Interval<'_>, key: HashedKey<'_>) -> Result<(), Probed> {
        match self.slots.first_maybe(interval.tables, key) {
            Some(denied) => Err(Probed { denied, maybe: true }),
            None => {
                self.denials.count(interval.number);
                Ok(())
            }
        }
    }

    /// The hash function of all filters.
    pub(crate) fn hash(&self) -> HashFunction {
        self.slots.hash()
    }

    /// Prefetches what [`deny`](Self::deny) reads.
    #[inline]
    pub(crate) fn prefetch(&self, interval: Interval<'_>, key: HashedKey<'_>) {
        self.slots.prefetch(interval.tables, key);
    }
}

/// The intervals whose keys a table covers.
fn covered(ends: &[End], table: &Table) -> Range<usize> {
    let meta = table.meta();
    let at = |key, behind| ends.partition_point(|end| end.bound() < Bound { key, behind }) + 1;
    at(&meta.smallest, false)..at(&meta.largest, true)
}

impl Drop for Intervals {
    /// No lookup counts any more.
    fn drop(&mut self) {
        if self.ends.first().is_some_and(|end| end.table.env().birth.is_this_process()) {
            self.ledger.end_denials(&self.denials);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::filter::LookupKey;
    use crate::{Db, FilterPolicy, Options, Result};

    fn key(rng: &mut ChaCha8Rng) -> Vec<u8> {
        let prefix = [&b""[..], b"common prefix"][rng.random_range(0..2)];
        [prefix, &vec![rng.random_range(b'a'..b'h'); rng.random_range(0..3)]].concat()
    }

    /// Compares the interval of a key with the candidates of a walk. Returns the number of tables that cover the
    /// key, and that of the filters up to the first "maybe", 0 if all deny it; `None` if one has no filter.
    fn check(db: &Db, key: &[u8]) -> Result<(usize, Option<usize>)> {
        let inner = db.inner()?;
        let (version, hash_key) = (Arc::clone(&inner.views.load().version), inner.env.hash_key);
        let Some(intervals) = version.intervals() else { return Ok((0, None)) };
        let hashed = HashedKey::new(key, intervals.hash(), &hash_key);
        let key = LookupKey::new(key, &hash_key);
        let tables: Vec<_> = version.tables().map(|(_, live)| live.table.id()).collect();
        let (covering, others): (Vec<_>, Vec<_>) =
            version.candidates(key.bytes()).partition(|candidate| candidate.covers);
        let verdicts = covering.iter().map(|candidate| candidate.live.filter.verdict(&key));
        let verdicts: Vec<_> = verdicts.collect();
        let before = db.stats();
        let Some(interval) = intervals.find(key.bytes()) else {
            assert!(verdicts.contains(&Verdict::NotResident), "{verdicts:?}");
            return Ok((covering.len(), None));
        };
        let found: Vec<_> = interval.tables.iter().map(|&n| tables[usize::from(n)]).collect();
        let expected: Vec<_> = covering.iter().map(|candidate| candidate.live.table.id()).collect();
        assert_eq!(found, expected, "{:?}", key.bytes());
        let answer = intervals.deny(interval, hashed);
        let denied = answer.is_ok();
        assert_eq!(denied, verdicts.iter().all(|&verdict| verdict == Verdict::No));
        let mut probed = answer.err().unwrap_or_default();
        let probed: Vec<_> = std::iter::from_fn(|| probed.next()).collect();
        assert!(verdicts.starts_with(&probed) && denied == probed.is_empty(), "{probed:?}");
        let counted = (db.stats() - before).total();
        let times = u64::from(denied);
        assert_eq!(counted.true_negatives, times * covering.len() as u64);
        assert_eq!(counted.range_pruned, times * others.len() as u64);
        Ok((covering.len(), Some(probed.len())))
    }

    #[test]
    fn an_interval_has_the_candidates_and_the_answer_of_a_walk() -> Result<()> {
        let mut rng = ChaCha8Rng::seed_from_u64(27);
        let (mut denied, mut deepest, mut latest, mut unusable) = (0, 0, 0, 0);
        for round in 0..60 {
            let dir = crate::tempdir::tempdir();
            let policy = [FilterPolicy::default(), FilterPolicy::ribbon(), FilterPolicy::classic()];
            let options = Options::new().background_threads(0).filter(policy[round % 3]);
            let options = options.memtable_bytes(1024).table_bytes(1024).level_base_bytes(1024);
            // Without compactions, more tables cover a key than are probed at once.
            let many = round % 5 == 4;
            let db = options.auto_compaction(!many).block_bytes(128).open(dir.path())?;
            for _ in 0..rng.random_range(0..200) {
                let key = key(&mut rng);
                if rng.random_bool(0.9) {
                    db.put(key, "value")?;
                } else {
                    db.delete(key)?;
                }
                if rng.random_bool(if many { 0.3 } else { 0.02 }) {
                    db.flush()?;
                }
            }
            db.flush()?;
            if round % 4 == 3 {
                db.set_filter_memory(Some(4096))?; // some filters are not resident
            }
            for _ in 0..200 {
                let (covering, probed) = check(&db, &key(&mut rng))?;
                denied += u64::from(covering > 0 && probed == Some(0));
                unusable += u64::from(covering > 0 && probed.is_none());
                deepest = deepest.max(covering);
                latest = latest.max(probed.unwrap_or_default());
            }
        }
        println!(
            "{denied} keys denied, at most {deepest} tables, the first maybe by filter {latest} at the latest, \
             {unusable} with a filter missing"
        );
        assert!(denied > 1000 && deepest > 32 && latest > 16 && unusable > 50);
        Ok(())
    }
}
