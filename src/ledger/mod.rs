//! The ledger: exact counts of all that lookups do.
//!
//! It knows ids and numbers only. Invariant: each probe has exactly one outcome, and the statistics are the
//! sum of [`explain`](crate::Db::explain) over all lookups, because both come from the same calls. Totals
//! never fall: the counts of a removed table stay with its level.

mod counters;
mod explain;
mod latencies;
mod negatives;
mod openmetrics;
mod totals;

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};

use crate::sync::{Counter, Ordering};

use counters::Amounts;
pub(crate) use counters::ProbeCounters;
pub use explain::{BlockFetch, Explanation, Outcome, Step, TableStep, Verdict};
pub(crate) use latencies::LatencyCounters;
pub use latencies::{Histogram, Latencies};
pub(crate) use negatives::{Candidates, Negatives};
pub(crate) use openmetrics::{Page, of_level};
pub(crate) use totals::Ledger;

/// The number of levels, L0 included.
pub const LEVELS: usize = 7;

macro_rules! counts {
    ($(#[$doc:meta])* $name:ident { $($(#[doc = $field_doc:literal])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct $name { $($(#[doc = $field_doc])* pub $field: u64,)* }

        impl $name {
            pub(crate) const FIELDS: usize = [$(stringify!($field)),*].len();

            /// Names and documentation of the fields.
            pub(crate) const DESCRIBED: [(&str, &str); Self::FIELDS] =
                [$((stringify!($field), concat!($($field_doc),*))),*];

            fn from_cells(cells: [u64; Self::FIELDS]) -> Self {
                let [$($field),*] = cells;
                Self { $($field),* }
            }
        }

        impl Amounts<{ $name::FIELDS }> for $name {
            /// The fields, in the order of their declaration.
            fn cells(self) -> [u64; Self::FIELDS] {
                [$(self.$field),*]
            }

            #[inline(always)]
            fn add_to(self, counters: &[Counter; Self::FIELDS]) {
                let [$($field),*] = counters;
                $(if self.$field > 0 {
                    let sum = $field.load(Ordering::Relaxed).wrapping_add(self.$field);
                    $field.store(sum, Ordering::Relaxed);
                })*
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }

        impl SubAssign for $name {
            fn sub_assign(&mut self, earlier: Self) {
                $(self.$field -= earlier.$field;)*
            }
        }

        impl Add for $name {
            type Output = Self;

            fn add(mut self, other: Self) -> Self {
                self += other;
                self
            }
        }

        impl Sub for $name {
            type Output = Self;

            fn sub(mut self, earlier: Self) -> Self {
                self -= earlier;
                self
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
                all.fold(Self::default(), Add::add)
            }
        }
    };
}

counts! {
    /// Counts of lookups at tables: at one table, at one level, in one lookup or in all.
    Counts {
        /// Candidates whose key range does not cover the key. All tables of L0 are candidates, and on each
        /// level below the first one that does not end before the key.
        range_pruned,
        /// The filter said no: nothing was read.
        true_negatives,
        /// The filter said maybe, and the table holds the key or its tombstone.
        true_positives,
        /// The filter said maybe, and the table does not hold the key.
        false_positives,
        /// Probes without a usable filter (none, degraded, or not resident) of tables that hold the key.
        unfiltered_found,
        /// Probes without a usable filter of tables that do not hold the key.
        unfiltered_not_found,
        /// Probes of tables that hold the key's entry, which has expired.
        expired,
        /// The block is unreadable or damaged, and the lookup failed.
        failed,
        /// Probes of a table whose filter cannot be trusted.
        degraded,
        /// Data blocks found in the cache.
        cache_hits,
        /// Calls to the file layer that read a table for a lookup.
        disk_reads,
        /// The bytes of these calls.
        disk_read_bytes,
    }
}

impl Counts {
    /// All probes, whatever their outcome.
    pub fn probes(&self) -> u64 {
        self.true_negatives
            + self.true_positives
            + self.false_positives
            + self.unfiltered()
            + self.expired
            + self.failed
    }

    /// Blocks that would have been searched without filters: the true negatives.
    pub fn reads_avoided(&self) -> u64 {
        self.true_negatives
    }

    /// Probes of tables that do not hold the key.
    pub fn absent_probes(&self) -> u64 {
        self.true_negatives + self.false_positives + self.unfiltered_not_found
    }

    /// Probes of tables without a usable filter.
    pub fn unfiltered(&self) -> u64 {
        self.unfiltered_found + self.unfiltered_not_found
    }

    /// False positives / (false positives + true negatives). `None` without absent probes.
    pub fn false_positive_rate(&self) -> Option<f64> {
        let absent = self.false_positives + self.true_negatives;
        (absent > 0).then(|| self.false_positives as f64 / absent as f64)
    }
}

counts! {
    /// Calls to the file layer, and their bytes.
    Io {
        /// Calls.
        calls,
        /// Bytes.
        bytes,
    }
}

counts! {
    /// Counts of scans within one prefix, at tables whose key range meets their bounds; see
    /// [`Options::prefix`](crate::Options::prefix). A scan from both ends probes a table once for each end.
    PrefixCounts {
        /// Probes of filters for the prefix.
        probes,
        /// The filter said no: nothing was read.
        skipped,
        /// The filter said maybe: the table was read.
        passed,
        /// Passed probes of tables that held nothing within the bounds. If the bounds contain all keys of the
        /// prefix, these are false positives, at a rate of wasted / (skipped + wasted).
        wasted,
        /// Tables read without a probe: the filter has no prefix of the scan, or is none, degraded or ignored.
        unfiltered,
    }
}

counts! {
    /// Counts of everything else, and of the lookups themselves.
    Activity {
        /// Lookups of a key: `get`, `contains`, `explain` and the like.
        lookups,
        /// Lookups that found a value.
        hits,
        /// Lookups that found none.
        misses,
        /// Lookups that ended with an error.
        failed,
        /// Lookups that a memtable answered, by a value or a tombstone.
        memtable_answers,
        /// Memtables whose filters said no.
        memtables_denied,
        /// Memtables searched. A lookup denies or searches each memtable up to the one that answers.
        memtables_searched,
        /// Memtables written out as tables.
        flushes,
        /// Compactions that rewrote tables.
        compactions,
        /// Expired entries that merges dropped: their keys left the filters.
        expired_dropped,
        /// Expired entries that merges replaced by tombstones, because older entries of their keys may exist.
        expired_to_tombstones,
        /// Tables removed without being read, because all of their entries had expired.
        tables_expired,
        /// Entries that had expired when they were written.
        expired_writes,
        /// Tables moved down a level without a rewrite, with their filters.
        tables_moved,
        /// Tables installed by [`Db::ingest`](crate::Db::ingest).
        tables_ingested,
        /// Tables written by flushes, compactions and ingests.
        tables_written,
        /// Tombstones dropped because of filters: tables below cover their keys, and all filters deny them.
        tombstones_denied,
        /// Filters built for new tables.
        filters_built,
        /// Filters rebuilt for existing tables.
        filters_rebuilt,
        /// Tables in which tasks met damage: see [`Event::TableDamaged`](crate::Event::TableDamaged).
        tables_damaged,
        /// Attempts at background work that failed: see
        /// [`Event::BackgroundFailed`](crate::Event::BackgroundFailed).
        tasks_failed,
        /// Entries that scans passed before their items and their ends: deleted, overwritten, or newer than a
        /// snapshot. Versions of a key that a seek skips do not count.
        hidden_passed,
        /// Blocks that batches of lookups announced to the operating system before they read them: see
        /// [`Db::get_many`](crate::Db::get_many).
        blocks_announced,
        /// Their bytes.
        bytes_announced,
        /// Announced blocks that the batch then did not read: wasted work of the disk.
        announced_unread,
    }
}

counts! {
    /// Counts of writes, and of what writers waited for.
    Writes {
        /// Values written.
        puts,
        /// Tombstones written.
        deletes,
        /// Groups of writes that were committed together: one append to the log each.
        groups,
        /// Conditional writes that were made; of `insert_many_if_absent` each key counts.
        conditions_met,
        /// Conditional writes that were not made, because a key had another value.
        conditions_failed,
        /// Transactions that met a conflict when they were to be committed; `transact` tries again.
        conflicts,
        /// Calls that write or sync and failed: a file failed (a full disk), work in the background did, or the store is
        /// poisoned. Each batch is one call. Failed conditions and conflicts are not among them.
        failed,
        /// Syncs of the log for synced writes and [`Db::sync`](crate::Db::sync).
        syncs,
        /// Their time, in nanoseconds.
        sync_nanos,
        /// Waits for a flush or for a compaction of L0, with a full memtable.
        stalls,
        /// Their time, in nanoseconds.
        stall_nanos,
        /// Waits because L0 has many tables: see
        /// [`Options::l0_slowdown_trigger`](crate::Options::l0_slowdown_trigger).
        slowdowns,
        /// Their time, in nanoseconds.
        slowdown_nanos,
    }
}

counts! {
    /// Counts of flushes that ended, or of compactions that merged tables.
    Work {
        /// Bytes of the tables that were read.
        input_bytes,
        /// Bytes of the tables that were written, filters in them included.
        output_bytes,
        /// Time, in nanoseconds.
        nanos,
    }
}

/// The counts of a store since it was opened. The difference of two values counts what happened between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// What was done, and how often.
    pub activity: Activity,
    /// What was written, and what writers waited for.
    pub writes: Writes,
    /// Flushes, whose number is [`Activity::flushes`].
    pub flush_work: Work,
    /// Merges, whose number is [`Activity::compactions`].
    pub compaction_work: Work,
    /// What lookups met, by level; L0 first.
    pub levels: [Counts; LEVELS],
    /// What scans within one prefix met; nothing without [`Options::prefix`](crate::Options::prefix).
    pub prefix: PrefixCounts,
    /// Reads of data blocks by scans.
    pub scan_reads: Io,
    /// Reads of data blocks by compactions.
    pub compaction_reads: Io,
    /// Reads of data blocks for new filters.
    pub rebuild_reads: Io,
    /// Reads that check a block of more than 16 MiB before memory is taken for it, and reads of samples
    /// ([`Db::estimate_compression`](crate::Db::estimate_compression)).
    pub check_reads: Io,
    /// Reads of filters, indexes and footers: when tables are opened or get new filters, and when filters are
    /// loaded within a budget.
    pub open_reads: Io,
    /// Writes of tables, by flushes, compactions and ingests.
    pub table_writes: Io,
    /// Writes of filters beside their tables.
    pub filter_writes: Io,
    /// Writes to write-ahead logs.
    pub wal_writes: Io,
}

impl Stats {
    /// What lookups met, all levels together.
    pub fn total(&self) -> Counts {
        self.levels.iter().copied().sum()
    }
}

impl fmt::Display for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.calls, self.bytes)
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { activity, prefix, .. } = self;
        let counts = self.total();
        writeln!(
            f,
            "lookups: {}, {} found, {} absent, {} failed; {} answered by memtables",
            activity.lookups,
            activity.hits,
            activity.misses,
            activity.failed,
            activity.memtable_answers,
        )?;
        writeln!(
            f,
            "at tables: {} reads avoided by filters, {} false positives, {} probes without a filter",
            counts.reads_avoided(),
            counts.false_positives,
            counts.unfiltered(),
        )?;
        writeln!(
            f,
            "blocks for lookups: {} disk reads of {} bytes, {} from the cache",
            counts.disk_reads, counts.disk_read_bytes, counts.cache_hits,
        )?;
        writeln!(
            f,
            "prefix scans: {} tables skipped, {} read, {} of them in vain",
            prefix.skipped,
            prefix.passed + prefix.unfiltered,
            prefix.wasted,
        )?;
        writeln!(
            f,
            "other reads: scans {}, compactions {}, filter rebuilds {}, opening {}; scans passed {} hidden \
             entries",
            self.scan_reads,
            self.compaction_reads,
            self.rebuild_reads,
            self.open_reads,
            activity.hidden_passed,
        )?;
        writeln!(
            f,
            "writes: tables {}, filters {}, logs {}",
            self.table_writes, self.filter_writes, self.wal_writes,
        )?;
        write!(
            f,
            "background: {} flushes, {} compactions, {} tables moved, {} filters rebuilt, {} tables found \
             damaged, {} attempts failed",
            activity.flushes,
            activity.compactions,
            activity.tables_moved,
            activity.filters_rebuilt,
            activity.tables_damaged,
            activity.tasks_failed,
        )?;
        let Writes { puts, deletes, conditions_met, conditions_failed, conflicts, .. } =
            self.writes;
        if puts + deletes + conditions_failed + conflicts > 0 {
            let seconds = |nanos: u64| nanos as f64 / 1e9;
            write!(
                f,
                "\nwritten: {puts} values, {deletes} tombstones; conditions: {conditions_met} met, \
                 {conditions_failed} failed, {conflicts} conflicts\n\
                 waits: {} syncs of {:.3} s, {} stalls of {:.3} s, {} slowdowns of {:.3} s; work: flushes \
                 {:.3} s, compactions {:.3} s",
                self.writes.syncs,
                seconds(self.writes.sync_nanos),
                self.writes.stalls,
                seconds(self.writes.stall_nanos),
                self.writes.slowdowns,
                seconds(self.writes.slowdown_nanos),
                seconds(self.flush_work.nanos),
                seconds(self.compaction_work.nanos),
            )?;
        }
        if self.writes.failed > 0 {
            write!(f, "\nfailed writes: {}", self.writes.failed)?;
        }
        let Activity { expired_dropped: dropped, expired_to_tombstones: replaced, .. } = activity;
        let Activity { tables_expired: tables, expired_writes: writes, .. } = activity;
        if counts.expired + dropped + replaced + tables + writes > 0 {
            write!(
                f,
                "\nexpired entries: {} met by lookups, {dropped} dropped by merges, {replaced} replaced by \
                 tombstones, {writes} expired when written; {tables} tables removed unread",
                counts.expired,
            )?;
        }
        Ok(())
    }
}

impl Sub for Stats {
    type Output = Self;

    fn sub(mut self, earlier: Self) -> Self {
        self.activity -= earlier.activity;
        for (level, before) in self.levels.iter_mut().zip(earlier.levels) {
            *level -= before;
        }
        self.writes -= earlier.writes;
        self.flush_work -= earlier.flush_work;
        self.compaction_work -= earlier.compaction_work;
        self.prefix -= earlier.prefix;
        self.scan_reads -= earlier.scan_reads;
        self.compaction_reads -= earlier.compaction_reads;
        self.rebuild_reads -= earlier.rebuild_reads;
        self.check_reads -= earlier.check_reads;
        self.open_reads -= earlier.open_reads;
        self.table_writes -= earlier.table_writes;
        self.filter_writes -= earlier.filter_writes;
        self.wal_writes -= earlier.wal_writes;
        self
    }
}
