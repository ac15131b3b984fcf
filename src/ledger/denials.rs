//! Counts of lookups that each filter denied: one addition for each lookup.

use super::counters::{ProbeCounters, threads};
use super::{Activity, Counts};
use crate::sync::{Arc, OnceLock, Ordering, Tally, sync_point, thread_number};

/// The candidates of the keys of an interval, by the numbers of their tables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Met {
    /// Their filters must deny the key, newest first.
    pub(crate) denied: Vec<u16>,
    /// Their key ranges do not cover the key.
    pub(crate) pruned: Vec<u16>,
}

/// One counter for each interval of keys of a version, and what a count stands for. Each thread has its own
/// counters, as in the other counters of the ledger.
#[derive(Debug)]
pub(crate) struct Denials {
    tables: Vec<Arc<ProbeCounters>>,
    /// Of all intervals, one after another.
    numbers: Vec<u16>,
    intervals: Vec<Place>,
    own: Box<[OnceLock<Box<[Tally]>>]>,
    shared: OnceLock<Box<[Tally]>>,
}

/// The tables of an interval in `numbers`: first those to be denied, then the others.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: u32,
    denied: u32,
    end: u32,
}

impl Place {
    /// A table without a usable filter covers the keys.
    const UNUSABLE: Self = Self { start: 1, denied: 0, end: 0 };
}

impl Denials {
    pub(super) fn new(
        tables: Vec<Arc<ProbeCounters>>,
        met: impl Iterator<Item = Option<Met>>,
    ) -> Self {
        let mut numbers = Vec::new();
        let intervals = met.map(|met| {
            let Some(Met { denied, pruned }) = met else { return Place::UNUSABLE };
            let start = numbers.len() as u32;
            numbers.extend(denied);
            let denied = numbers.len() as u32;
            numbers.extend(pruned);
            Place { start, denied, end: numbers.len() as u32 }
        });
        let intervals = intervals.collect();
        let own = (0..threads()).map(|_| OnceLock::new()).collect();
        Self { tables, numbers, intervals, own, shared: OnceLock::new() }
    }

    /// The tables whose filters must deny a key of the interval. `None` if one has no usable filter.
    #[inline]
    pub(crate) fn denied(&self, interval: usize) -> Option<&[u16]> {
        let Place { start, denied, .. } = self.intervals.get(interval)?;
        self.numbers.get(*start as usize..*denied as usize)
    }

    /// Counts a lookup: a memtable and each filter of the interval denied its key.
    #[inline]
    pub(crate) fn count(&self, interval: usize) {
        sync_point("before a denial is counted");
        let own = thread_number().and_then(|number| self.own.get(number));
        let counters = own.unwrap_or(&self.shared).get_or_init(|| self.zeros());
        let Some(counter) = counters.get(interval) else { return };
        if own.is_some() {
            // No other thread adds to it: the last thread with this number has ended.
            counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        } else {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[cold]
    fn zeros(&self) -> Box<[Tally]> {
        self.intervals.iter().map(|_| Tally::new(0)).collect()
    }

    /// Adds to the tables' counters what came since `settled`, and returns the activity.
    pub(super) fn settle(&self, settled: &mut Vec<u64>) -> Activity {
        settled.resize(self.intervals.len(), 0);
        let shards = self.own.iter().chain([&self.shared]).filter_map(OnceLock::get);
        let shards: Vec<_> = shards.collect();
        let mut lookups = 0;
        for (interval, (place, settled)) in self.intervals.iter().zip(settled).enumerate() {
            let sum: u64 = shards.iter().map(|shard| shard[interval].load(Ordering::Relaxed)).sum();
            let new = sum - std::mem::replace(settled, sum);
            if new == 0 {
                continue;
            }
            lookups += new;
            let numbers = |from: u32, to: u32| &self.numbers[from as usize..to as usize];
            for &table in numbers(place.start, place.denied) {
                let met = Counts { true_negatives: new, ..Counts::default() };
                self.tables[usize::from(table)].add(met);
            }
            for &table in numbers(place.denied, place.end) {
                let met = Counts { range_pruned: new, ..Counts::default() };
                self.tables[usize::from(table)].add(met);
            }
        }
        Activity { lookups, misses: lookups, memtables_denied: lookups, ..Activity::default() }
    }
}
