//! The ledger of a store: the counters of its tables, and of all else.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::counters::{IoCounters, ProbeCounters, Sharded};
use super::negatives::{Candidates, Negatives};
use super::{Activity, Counts, LEVELS, PrefixCounts, Stats, Work, Writes};
use crate::sync::{Mutex, MutexGuard};

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    activity: Sharded<{ Activity::FIELDS }>,
    prefix: Sharded<{ PrefixCounts::FIELDS }>,
    writes: Sharded<{ Writes::FIELDS }>,
    flush_work: Sharded<{ Work::FIELDS }>,
    compaction_work: Sharded<{ Work::FIELDS }>,
    pub(crate) scan_reads: IoCounters,
    pub(crate) compaction_reads: IoCounters,
    pub(crate) rebuild_reads: IoCounters,
    pub(crate) check_reads: IoCounters,
    pub(crate) open_reads: IoCounters,
    pub(crate) table_writes: IoCounters,
    pub(crate) filter_writes: IoCounters,
    pub(crate) wal_writes: IoCounters,
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    /// Counters by table id, in an order that does not vary from run to run.
    live: BTreeMap<u64, LiveCounters>,
    /// Counts of tables that are gone, by level.
    retired: [Counts; LEVELS],
    /// Counters of the versions that lookups may use, with what was added to the other counters.
    negatives: Vec<(Arc<Negatives>, Vec<u64>)>,
}

#[derive(Debug)]
struct LiveCounters {
    /// Counters for each level where the table has been.
    levels: Vec<(usize, Arc<ProbeCounters>)>,
    /// The lookups of tables before it was installed.
    before: u64,
}

impl LiveCounters {
    fn sum(&self) -> Counts {
        self.levels.iter().map(|(_, counters)| counters.counts()).sum()
    }
}

impl Ledger {
    #[inline]
    pub(crate) fn count(&self, done: Activity) {
        self.activity.add(done);
    }

    pub(crate) fn count_prefix(&self, counts: PrefixCounts) {
        self.prefix.add(counts);
    }

    #[inline]
    pub(crate) fn count_writes(&self, writes: Writes) {
        self.writes.add(writes);
    }

    pub(crate) fn count_flush(&self, work: Work) {
        self.flush_work.add(work);
    }

    pub(crate) fn count_compaction(&self, work: Work) {
        self.compaction_work.add(work);
    }

    /// The counters of a table at a level, created if needed.
    pub(crate) fn counters(&self, table: u64, level: usize) -> Arc<ProbeCounters> {
        let mut tables = self.settled();
        let new = || LiveCounters { levels: Vec::new(), before: self.lookups_of_tables() };
        let of_table = tables.live.entry(table).or_insert_with(new);
        if let Some((_, counters)) = of_table.levels.iter().find(|(at, _)| *at == level) {
            return Arc::clone(counters);
        }
        let counters = Arc::default();
        of_table.levels.push((level, Arc::clone(&counters)));
        counters
    }

    /// Adds the counts of a table that can no longer be probed to its level.
    pub(crate) fn retire(&self, table: u64) {
        let mut tables = self.tables.lock(); // settled: the last version with the table is gone
        for (level, counters) in tables.live.remove(&table).into_iter().flat_map(|t| t.levels) {
            tables.retired[level] += counters.counts();
        }
    }

    /// The counters of a version's intervals of keys, until [`end_negatives`](Self::end_negatives).
    pub(crate) fn negatives(
        &self,
        tables: Vec<Arc<ProbeCounters>>,
        candidates: Arc<dyn Candidates>,
    ) -> Arc<Negatives> {
        let negatives = Arc::new(Negatives::new(tables, candidates));
        self.tables.lock().negatives.push((Arc::clone(&negatives), Vec::new()));
        negatives
    }

    /// No lookup counts there any more, and the counters of its tables are not retired yet.
    pub(crate) fn end_negatives(&self, ended: &Arc<Negatives>) {
        self.settled().negatives.retain(|(negatives, _)| !Arc::ptr_eq(negatives, ended));
    }

    /// The counters of tables and lookups, after all negatives were added to them.
    fn settled(&self) -> MutexGuard<'_, Tables> {
        let mut tables = self.tables.lock();
        for (negatives, settled) in &mut tables.negatives {
            self.activity.add(negatives.settle(settled));
        }
        tables
    }

    /// Counts by table id.
    pub(crate) fn table_counts(&self) -> HashMap<u64, Counts> {
        self.settled().live.iter().map(|(&id, live)| (id, live.sum())).collect()
    }

    /// Absent probes by table id, and the lookups of tables since it was installed.
    pub(crate) fn absent_probes(&self) -> HashMap<u64, (u64, u64)> {
        let tables = self.settled();
        let lookups = self.lookups_of_tables();
        let of = |t: &LiveCounters| (t.sum().absent_probes(), lookups.saturating_sub(t.before));
        tables.live.iter().map(|(&id, live)| (id, of(live))).collect()
    }

    /// The lookups that went on to tables.
    pub(crate) fn table_lookups(&self) -> u64 {
        let _settled = self.settled();
        self.lookups_of_tables()
    }

    fn lookups_of_tables(&self) -> u64 {
        let activity = Activity::from_cells(self.activity.sums());
        activity.lookups.saturating_sub(activity.memtable_answers)
    }

    pub(crate) fn stats(&self) -> Stats {
        let tables = self.settled();
        let mut levels = tables.retired;
        for (level, counters) in tables.live.values().flat_map(|table| &table.levels) {
            levels[*level] += counters.counts();
        }
        let activity = Activity::from_cells(self.activity.sums());
        drop(tables);
        Stats {
            activity,
            levels,
            writes: Writes::from_cells(self.writes.sums()),
            flush_work: Work::from_cells(self.flush_work.sums()),
            compaction_work: Work::from_cells(self.compaction_work.sums()),
            prefix: PrefixCounts::from_cells(self.prefix.sums()),
            scan_reads: self.scan_reads.io(),
            compaction_reads: self.compaction_reads.io(),
            rebuild_reads: self.rebuild_reads.io(),
            check_reads: self.check_reads.io(),
            open_reads: self.open_reads.io(),
            table_writes: self.table_writes.io(),
            filter_writes: self.filter_writes.io(),
            wal_writes: self.wal_writes.io(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::counters::threads;
    use super::super::{BlockFetch, Outcome, TableStep, Verdict};
    use super::*;
    use crate::sync::Ordering;

    fn probed(verdict: Verdict, outcome: Outcome, from_cache: Option<bool>) -> TableStep {
        let block = from_cache.map(|from_cache| BlockFetch {
            offset: 0,
            bytes: 100,
            from_cache,
            slow: false,
        });
        TableStep::Probed { verdict, block, outcome, found: None }
    }

    #[test]
    fn counters_agree_with_explanations_and_survive_their_table() {
        let ledger = Ledger::default();
        let steps = [
            TableStep::RangePruned,
            probed(Verdict::No, Outcome::TrueNegative, None),
            probed(Verdict::Maybe, Outcome::TruePositive, Some(false)),
            probed(Verdict::Maybe, Outcome::FalsePositive, Some(true)),
            probed(Verdict::Degraded, Outcome::UnfilteredFound, Some(false)),
            probed(Verdict::Unfiltered, Outcome::UnfilteredNotFound, Some(false)),
            probed(Verdict::Maybe, Outcome::Failed, Some(false)),
        ];
        let mut explained = Counts::default();
        for step in steps {
            ledger.counters(7, 2).count(step);
            explained += Counts::from(step);
        }
        ledger.counters(7, 3).count(TableStep::RangePruned);
        assert_eq!(ledger.stats().levels[2], explained);
        assert_eq!((explained.probes(), explained.reads_avoided()), (6, 1));
        assert_eq!(explained.disk_read_bytes, 400);
        let before = ledger.stats();
        assert_eq!(ledger.table_counts()[&7], before.total());
        ledger.retire(7);
        assert_eq!(ledger.stats(), before);
        assert!(ledger.table_counts().is_empty());
    }

    #[test]
    fn threads_lose_no_counts() {
        let ledger = Ledger::default();
        let counters = ledger.counters(1, 0);
        let at_once = threads() as u64 + 8;
        for _ in 0..3 {
            let begun = std::sync::Barrier::new(at_once as usize);
            std::thread::scope(|scope| {
                for _ in 0..at_once {
                    scope.spawn(|| {
                        ledger.count(Activity::default());
                        begun.wait();
                        for i in 0..10_000 {
                            counters.count(TableStep::RangePruned);
                            let done = Activity { lookups: 1, hits: i % 2, ..Activity::default() };
                            ledger.count(done);
                        }
                    });
                }
            });
        }
        let stats = ledger.stats();
        let all = 3 * at_once * 10_000;
        assert_eq!(stats.total().range_pruned, all);
        assert_eq!((stats.activity.hits, stats.activity.lookups), (all / 2, all));
        assert!(ledger.activity.shared.0.iter().any(|tally| tally.load(Ordering::Relaxed) > 0));
    }
}
