//! Counters that many threads add to at once without getting in each other's way.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Activity, Counts, Io, LEVELS, Outcome, Stats, TableStep, Verdict};
use crate::sync::{AtomicU64, Mutex, OnceLock, Ordering, available_parallelism, thread_number};

/// `N` counters, kept once for each of a few groups of threads, each group on cache lines of its
/// own, and added up when they are read.
#[derive(Debug)]
struct Sharded<const N: usize>(Box<[Shard<N>]>);

#[derive(Debug)]
#[repr(align(128))] // two cache lines: neighbours are prefetched in pairs
struct Shard<const N: usize>([AtomicU64; N]);

fn shards() -> usize {
    static SHARDS: OnceLock<usize> = OnceLock::new();
    *SHARDS
        .get_or_init(|| available_parallelism().map_or(4, usize::from).next_power_of_two().min(16))
}

impl<const N: usize> Default for Sharded<N> {
    fn default() -> Self {
        Self((0..shards()).map(|_| Shard(std::array::from_fn(|_| AtomicU64::new(0)))).collect())
    }
}

impl<const N: usize> Sharded<N> {
    fn add(&self, counter: usize, amount: u64) {
        let shard = &self.0[thread_number() & (self.0.len() - 1)];
        shard.0[counter].fetch_add(amount, Ordering::Relaxed);
    }

    fn sum(&self) -> [u64; N] {
        let mut sums = [0; N];
        for shard in &self.0 {
            for (sum, counter) in sums.iter_mut().zip(&shard.0) {
                *sum += counter.load(Ordering::Relaxed);
            }
        }
        sums
    }
}

/// The counters of one table at one level.
#[derive(Debug, Default)]
pub(crate) struct ProbeCounters(Sharded<11>);

impl ProbeCounters {
    /// Counts one step of one lookup.
    pub(crate) fn count(&self, step: TableStep) {
        let TableStep::Probed { verdict, block, outcome } = step else {
            return self.0.add(0, 1);
        };
        self.0.add(
            match outcome {
                Outcome::TrueNegative => 1,
                Outcome::TruePositive => 2,
                Outcome::FalsePositive => 3,
                Outcome::UnfilteredFound => 4,
                Outcome::UnfilteredNotFound => 5,
                Outcome::Failed => 10,
            },
            1,
        );
        if verdict == Verdict::Degraded {
            self.0.add(6, 1);
        }
        match block {
            Some(block) if block.from_cache => self.0.add(7, 1),
            Some(block) => {
                self.0.add(8, 1);
                self.0.add(9, block.bytes);
            }
            None => {}
        }
    }

    fn counts(&self) -> Counts {
        let [
            range_pruned,
            true_negatives,
            true_positives,
            false_positives,
            unfiltered_found,
            unfiltered_not_found,
            degraded,
            cache_hits,
            disk_reads,
            disk_read_bytes,
            failed,
        ] = self.0.sum();
        Counts {
            range_pruned,
            true_negatives,
            true_positives,
            false_positives,
            unfiltered_found,
            unfiltered_not_found,
            failed,
            degraded,
            cache_hits,
            disk_reads,
            disk_read_bytes,
        }
    }
}

/// Something that happened beside the probing of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A lookup ended.
    Lookup(LookupEnd),
    /// A memtable answered the lookup that has ended.
    MemtableAnswer,
    Flush,
    Compaction,
    TablesMoved(u64),
    TableWritten {
        with_filter: bool,
        io: Io,
    },
    ScanRead {
        bytes: u64,
    },
    CompactionRead {
        bytes: u64,
    },
    OpenRead {
        bytes: u64,
    },
    WalWrite {
        bytes: u64,
    },
}

/// How a lookup ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LookupEnd {
    Miss = 0,
    Hit = 1,
    Failed = 2,
}

/// The counters of a store.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    lookups: Sharded<4>,
    reads: Sharded<6>,
    writes: Sharded<9>,
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    /// By table id: its counters at each level where it has been.
    live: HashMap<u64, Vec<(usize, Arc<ProbeCounters>)>>,
    /// By level: what tables that are gone had counted.
    retired: [Counts; LEVELS],
}

impl Ledger {
    pub(crate) fn note(&self, event: Event) {
        match event {
            Event::Lookup(end) => self.lookups.add(end as usize, 1),
            Event::MemtableAnswer => self.lookups.add(3, 1),
            Event::ScanRead { bytes } => self.note_read(0, bytes),
            Event::CompactionRead { bytes } => self.note_read(2, bytes),
            Event::OpenRead { bytes } => self.note_read(4, bytes),
            Event::WalWrite { bytes } => {
                self.writes.add(0, 1);
                self.writes.add(1, bytes);
            }
            Event::Flush => self.writes.add(2, 1),
            Event::Compaction => self.writes.add(3, 1),
            Event::TablesMoved(tables) => self.writes.add(4, tables),
            Event::TableWritten { with_filter, io } => {
                self.writes.add(5, 1);
                self.writes.add(6, u64::from(with_filter));
                self.writes.add(7, io.calls);
                self.writes.add(8, io.bytes);
            }
        }
    }

    fn note_read(&self, counter: usize, bytes: u64) {
        self.reads.add(counter, 1);
        self.reads.add(counter + 1, bytes);
    }

    /// The counters of a table at a level, new ones if it was not there before.
    pub(crate) fn counters(&self, table: u64, level: usize) -> Arc<ProbeCounters> {
        let mut tables = self.tables.lock();
        let of_table = tables.live.entry(table).or_default();
        if let Some((_, counters)) = of_table.iter().find(|(at, _)| *at == level) {
            return Arc::clone(counters);
        }
        let counters = Arc::default();
        of_table.push((level, Arc::clone(&counters)));
        counters
    }

    /// Takes over the counts of a table that nobody can probe any more.
    pub(crate) fn retire(&self, table: u64) {
        let mut tables = self.tables.lock();
        for (level, counters) in tables.live.remove(&table).unwrap_or_default() {
            tables.retired[level] += counters.counts();
        }
    }

    /// What lookups met at one live table, at whatever level it was.
    pub(crate) fn table_counts(&self, table: u64) -> Counts {
        let tables = self.tables.lock();
        let counters = tables.live.get(&table).into_iter().flatten();
        counters.map(|(_, counters)| counters.counts()).sum()
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut levels = {
            let tables = self.tables.lock();
            let mut levels = tables.retired;
            for (level, counters) in tables.live.values().flatten() {
                levels[*level] += counters.counts();
            }
            levels
        };
        let [misses, hits, failed, memtable_answers] = self.lookups.sum();
        let [scans, scan_bytes, compactions_read, compaction_bytes, opens, open_bytes] =
            self.reads.sum();
        let [
            wal,
            wal_bytes,
            flushes,
            compactions,
            tables_moved,
            tables_written,
            filters_built,
            table_calls,
            table_bytes,
        ] = self.writes.sum();
        Stats {
            activity: Activity {
                lookups: hits + misses + failed,
                hits,
                misses,
                failed,
                memtable_answers,
                flushes,
                compactions,
                tables_moved,
                tables_written,
                filters_built,
            },
            levels: std::mem::take(&mut levels),
            scan_reads: Io { calls: scans, bytes: scan_bytes },
            compaction_reads: Io { calls: compactions_read, bytes: compaction_bytes },
            open_reads: Io { calls: opens, bytes: open_bytes },
            table_writes: Io { calls: table_calls, bytes: table_bytes },
            wal_writes: Io { calls: wal, bytes: wal_bytes },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BlockFetch, Step};
    use super::*;

    fn probed(verdict: Verdict, outcome: Outcome, from_cache: Option<bool>) -> TableStep {
        let block = from_cache.map(|from_cache| BlockFetch { offset: 0, bytes: 100, from_cache });
        TableStep::Probed { verdict, block, outcome }
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
            explained += Counts::from(&Step::Table { id: 7, level: 2, step });
        }
        ledger.counters(7, 3).count(TableStep::RangePruned);
        assert_eq!(ledger.stats().levels[2], explained);
        assert_eq!(explained.probes(), 6);
        assert_eq!(explained.disk_read_bytes, 400);
        let before = ledger.stats();
        assert_eq!(ledger.table_counts(7), before.total());
        ledger.retire(7);
        assert_eq!(ledger.stats(), before);
        assert_eq!(ledger.table_counts(7), Counts::default());
    }

    #[test]
    fn threads_lose_no_counts() {
        let ledger = Ledger::default();
        let counters = ledger.counters(1, 0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for i in 0..10_000 {
                        counters.count(TableStep::RangePruned);
                        let end = if i % 2 == 0 { LookupEnd::Hit } else { LookupEnd::Miss };
                        ledger.note(Event::Lookup(end));
                    }
                });
            }
        });
        let stats = ledger.stats();
        assert_eq!(stats.total().range_pruned, 80_000);
        assert_eq!((stats.activity.hits, stats.activity.lookups), (40_000, 80_000));
    }
}
