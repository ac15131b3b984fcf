//! The ledger: what every lookup considered, asked and read, counted exactly.
//!
//! This room knows ids and numbers only. Its invariant: each probe ends in exactly one outcome, and
//! the statistics are the sum of what [`explain`](crate::Db::explain) tells of each lookup, because
//! both come from the same calls. Totals never fall: when a table goes, its counts stay with its
//! level.

mod counters;
mod explain;

use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub, SubAssign};

pub(crate) use counters::{Ledger, ProbeCounters};
pub use explain::{BlockFetch, Explanation, Outcome, Step, TableStep, Verdict};

/// The number of levels, L0 included.
pub const LEVELS: usize = 7;

macro_rules! counts {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        pub struct $name { $($(#[$field_doc])* pub $field: u64,)* }

        impl $name {
            pub(crate) const FIELDS: usize = [$(stringify!($field)),*].len();

            /// The fields, in the order of their declaration.
            fn cells(self) -> [u64; Self::FIELDS] {
                [$(self.$field),*]
            }

            fn from_cells(cells: [u64; Self::FIELDS]) -> Self {
                let [$($field),*] = cells;
                Self { $($field),* }
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
    /// What lookups met at tables: at one table, at one level, in one lookup or in all.
    Counts {
        /// Tables passed over because their key range does not cover the key. On L0 every table is
        /// considered, on each level below one at most: the first that does not end before the key.
        range_pruned,
        /// The filter said no: nothing was read.
        true_negatives,
        /// The filter said maybe, and the table holds the key (a tombstone is held too).
        true_positives,
        /// The filter said maybe, and the table does not hold the key.
        false_positives,
        /// The table has no usable filter, and holds the key. None was asked for, or it is degraded,
        /// or the budget for filters leaves none of it in memory.
        unfiltered_found,
        /// The table has no usable filter, and does not hold the key.
        unfiltered_not_found,
        /// The block could not be read, or is damaged, and the lookup ended with an error.
        failed,
        /// Of the probes: the table should have a filter, but it cannot be trusted.
        degraded,
        /// Data blocks found in the cache.
        cache_hits,
        /// Calls to the file layer that fetched bytes of a table for a lookup.
        disk_reads,
        /// The bytes of these calls.
        disk_read_bytes,
    }
}

impl Counts {
    /// Lookups that asked a table, whatever came of it.
    pub fn probes(&self) -> u64 {
        self.true_negatives
            + self.true_positives
            + self.false_positives
            + self.unfiltered()
            + self.failed
    }

    /// Blocks that would have been searched without filters: the true negatives.
    pub fn reads_avoided(&self) -> u64 {
        self.true_negatives
    }

    /// Probes for a key that the table does not hold.
    pub fn absent_probes(&self) -> u64 {
        self.true_negatives + self.false_positives + self.unfiltered_not_found
    }

    /// Probes of tables without a usable filter.
    pub fn unfiltered(&self) -> u64 {
        self.unfiltered_found + self.unfiltered_not_found
    }

    /// The false-positive rate: false positives / (false positives + true negatives). `None` before
    /// a filter was asked for an absent key.
    pub fn false_positive_rate(&self) -> Option<f64> {
        let absent = self.false_positives + self.true_negatives;
        (absent > 0).then(|| self.false_positives as f64 / absent as f64)
    }
}

counts! {
    /// Calls to the file layer, and the bytes that they moved.
    Io {
        /// Calls.
        calls,
        /// Bytes.
        bytes,
    }
}

counts! {
    /// What scans within one prefix met at tables whose keys reach into their bounds; see
    /// [`Options::prefix`](crate::Options::prefix). A scan asks a table when it comes to it, and
    /// again when it is asked for items from its other end.
    PrefixCounts {
        /// The table's filter was asked for the prefix. It was passed over or looked into.
        probes,
        /// The filter said no: the table was passed over, and nothing was read.
        skipped,
        /// The filter said maybe: the table was looked into.
        passed,
        /// Of the passed: the table held nothing within the scan's bounds, so what was read was read
        /// in vain. If these are all keys of the prefix, the filter was mistaken; so the
        /// false-positive rate of such scans is wasted / (skipped + wasted).
        wasted,
        /// The table was looked into without asking: its filter does not know the prefixes of this
        /// extractor, is none, is degraded, or is ignored.
        unfiltered,
    }
}

counts! {
    /// What the engine did beside lookups, and what lookups came to.
    Activity {
        /// Lookups of a key: `get`, `contains`, `explain` and their like.
        lookups,
        /// Lookups that found a value.
        hits,
        /// Lookups that found none.
        misses,
        /// Lookups that ended with an error.
        failed,
        /// Lookups that a memtable answered, by a value or a tombstone.
        memtable_answers,
        /// Memtables that lookups passed over because their filters said no.
        memtables_denied,
        /// Memtables that lookups searched. Each lookup denies or searches every memtable up to the
        /// one that answers.
        memtables_searched,
        /// Memtables written out as tables.
        flushes,
        /// Compactions that rewrote tables.
        compactions,
        /// Tables moved down a level without being rewritten; they keep their filters.
        tables_moved,
        /// Tables written by flushes and compactions.
        tables_written,
        /// Tombstones that compactions dropped on the word of filters: tables below cover their keys,
        /// and all of them deny that they hold any.
        tombstones_denied,
        /// Filters built, one for each table written that wants one.
        filters_built,
        /// Filters built anew for tables that stay as they are.
        filters_rebuilt,
    }
}

/// The counts of a store since it was opened. Subtract an earlier value to get what happened
/// between the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// What was done, and how often.
    pub activity: Activity,
    /// What lookups met, by level; L0 first.
    pub levels: [Counts; LEVELS],
    /// What scans within one prefix met.
    pub prefix: PrefixCounts,
    /// Reads of data blocks by scans.
    pub scan_reads: Io,
    /// Reads of data blocks by compactions.
    pub compaction_reads: Io,
    /// Reads of data blocks for new filters.
    pub rebuild_reads: Io,
    /// Reads of filters, indexes and footers when tables were opened or given new filters, and of
    /// filters that were brought back into memory within a budget.
    pub open_reads: Io,
    /// Writes of tables, by flushes and compactions.
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

impl Sub for Stats {
    type Output = Self;

    fn sub(mut self, earlier: Self) -> Self {
        self.activity -= earlier.activity;
        for (level, before) in self.levels.iter_mut().zip(earlier.levels) {
            *level -= before;
        }
        self.prefix -= earlier.prefix;
        self.scan_reads -= earlier.scan_reads;
        self.compaction_reads -= earlier.compaction_reads;
        self.rebuild_reads -= earlier.rebuild_reads;
        self.open_reads -= earlier.open_reads;
        self.table_writes -= earlier.table_writes;
        self.filter_writes -= earlier.filter_writes;
        self.wal_writes -= earlier.wal_writes;
        self
    }
}
