//! Counts of lookups that each filter denied: one addition for each lookup.

use super::counters::{ProbeCounters, threads};
use super::{Activity, Counts};
use crate::sync::{Arc, Counter, OnceLock, Ordering, sync_point, thread_number};

/// The intervals of keys of a version: what a count of an interval stands for.
pub(crate) trait Candidates: Send + Sync {
    /// The number of intervals.
    fn intervals(&self) -> usize;

    /// Calls `each` for each candidate of an interval: with the number of its table, and whether the table covers
    /// the keys.
    fn for_each(&self, interval: usize, each: &mut dyn FnMut(usize, bool));
}

/// Counters that a thread gets at once: a page of memory.
const PAGE: usize = 512;

type Page = Box<[Counter; PAGE]>;

/// The pages of a thread, made when the thread first counts in one. Most stores have few tables: one page.
#[derive(Debug, Default)]
struct Pages {
    first: OnceLock<Page>,
    others: OnceLock<Box<[OnceLock<Page>]>>,
}

impl Pages {
    #[inline]
    fn counter(&self, interval: usize, candidates: &dyn Candidates) -> Option<&Counter> {
        if interval < PAGE {
            return self.first.get_or_init(zeros).get(interval);
        }
        let others = || (1..candidates.intervals().div_ceil(PAGE)).map(|_| OnceLock::new());
        let page = self.others.get_or_init(|| others().collect()).get(interval / PAGE - 1)?;
        page.get_or_init(zeros).get(interval % PAGE)
    }

    /// The page of this number, if the thread has it.
    fn page(&self, number: usize) -> Option<&Page> {
        match number.checked_sub(1) {
            None => self.first.get(),
            Some(other) => self.others.get()?.get(other)?.get(),
        }
    }
}

#[cold]
fn zeros() -> Page {
    Box::new([const { Counter::new(0) }; PAGE])
}

/// One counter for each interval of keys of a version. Each thread has its own, as in the other counters of the
/// ledger.
pub(crate) struct Negatives {
    /// Counters by the numbers of the tables.
    tables: Vec<Arc<ProbeCounters>>,
    candidates: Arc<dyn Candidates>,
    own: Box<[Pages]>,
    shared: Pages,
}

impl Negatives {
    pub(super) fn new(tables: Vec<Arc<ProbeCounters>>, candidates: Arc<dyn Candidates>) -> Self {
        let own = (0..threads()).map(|_| Pages::default()).collect();
        Self { tables, candidates, own, shared: Pages::default() }
    }

    /// Counts a lookup: a memtable and each filter of the interval denied its key.
    #[inline]
    pub(crate) fn count(&self, interval: usize) {
        sync_point("before a denial is counted");
        let own = thread_number().and_then(|number| self.own.get(number));
        let pages = own.unwrap_or(&self.shared);
        let Some(counter) = pages.counter(interval, &*self.candidates) else { return };
        if own.is_some() {
            // No other thread adds to it: the last thread with this number has ended.
            counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        } else {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds to the tables' counters what came since `settled`, and returns the activity.
    pub(super) fn settle(&self, settled: &mut Vec<u64>) -> Activity {
        let intervals = self.candidates.intervals();
        let mut lookups = 0;
        for number in 0..intervals.div_ceil(PAGE) {
            let threads = self.own.iter().chain([&self.shared]);
            let pages: Vec<&Page> = threads.filter_map(|pages| pages.page(number)).collect();
            if pages.is_empty() {
                continue;
            }
            let first = number * PAGE;
            let behind = intervals.min(first + PAGE);
            settled.resize(settled.len().max(behind), 0);
            for interval in first..behind {
                let count = |page: &&Page| page[interval - first].load(Ordering::Relaxed);
                let sum: u64 = pages.iter().map(count).sum();
                let new = sum - std::mem::replace(&mut settled[interval], sum);
                if new > 0 {
                    lookups += new;
                    self.candidates.for_each(interval, &mut |table, covers| {
                        let (denied, pruned) = if covers { (new, 0) } else { (0, new) };
                        let counts = Counts {
                            true_negatives: denied,
                            range_pruned: pruned,
                            ..Counts::default()
                        };
                        self.tables[table].add(counts);
                    });
                }
            }
        }
        Activity { lookups, misses: lookups, memtables_denied: lookups, ..Activity::default() }
    }
}

impl std::fmt::Debug for Negatives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Negatives").field("tables", &self.tables.len()).finish_non_exhaustive()
    }
}
