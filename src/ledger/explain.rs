//! The steps of one lookup.

use std::fmt;

use super::Counts;
use crate::key::EntryKind;
use crate::value::Value;

/// What a filter answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Verdict {
    /// The key is not in the table. Certain.
    No,
    /// The key may be in the table.
    Maybe,
    /// The table has no filter, or filters are ignored.
    Unfiltered,
    /// The table should have a filter, but it cannot be trusted: maybe.
    Degraded,
    /// The table has a filter, but none of it is in memory because of the budget: maybe. Counted as
    /// unfiltered, not as degraded.
    NotResident,
}

/// How one probe ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Outcome {
    /// The filter said no: nothing was read.
    TrueNegative,
    /// The filter said maybe, and the table holds the key.
    TruePositive,
    /// The filter said maybe, and the table does not hold the key.
    FalsePositive,
    /// Without a usable filter; the table holds the key.
    UnfilteredFound,
    /// Without a usable filter; the table does not hold the key.
    UnfilteredNotFound,
    /// The table holds the key's entry, which has expired; whatever the filter said.
    Expired,
    /// The block is unreadable or damaged, and the lookup failed.
    Failed,
}

impl Outcome {
    /// The outcome of a probe without a "no".
    pub(crate) fn of_read(verdict: Verdict, holds_key: bool) -> Self {
        match (verdict, holds_key) {
            (Verdict::Maybe, true) => Self::TruePositive,
            (Verdict::Maybe, false) => Self::FalsePositive,
            (_, true) => Self::UnfilteredFound,
            (_, false) => Self::UnfilteredNotFound,
        }
    }
}

/// The data block that a probe searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BlockFetch {
    /// Where the block starts in its file.
    pub offset: u64,
    /// Its length in the file in bytes, trailer included.
    pub bytes: u64,
    /// Whether the cache held it; otherwise it took one disk read.
    pub from_cache: bool,
    /// Whether the disk read took longer than one from the page cache, if it was timed.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) slow: bool,
}

/// What a lookup did with one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum TableStep {
    /// The table's key range does not cover the key.
    RangePruned,
    /// The lookup probed the filter, and read a block unless the filter denied the key.
    Probed {
        /// What its filter answered.
        verdict: Verdict,
        /// The block searched, unless the filter said no.
        block: Option<BlockFetch>,
        /// How it ended.
        outcome: Outcome,
        /// The newest entry that this lookup may see. `None` also if all entries of the key are newer than
        /// the snapshot.
        found: Option<EntryKind>,
    },
}

/// One step of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Step {
    /// A memtable was considered.
    Memtable {
        /// Its age: 0 for the active one, 1 for the newest sealed one, and so on.
        age: usize,
        /// Its filter's answer. It was searched unless this is a no.
        filter: Verdict,
        /// What it held for the key.
        found: Option<EntryKind>,
    },
    /// A table was considered.
    Table {
        /// The table's id, the number in its file name.
        id: u64,
        /// Its level.
        level: usize,
        /// What was done with it.
        step: TableStep,
    },
}

/// The result of a lookup, with its steps.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Explanation {
    /// The value; `None` for an absent key.
    pub value: Option<Value>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Explanation {
    /// What this lookup added to the statistics.
    pub fn counts(&self) -> Counts {
        self.steps.iter().map(Counts::from).sum()
    }

    /// Whether the key is absent because its entry has expired.
    pub fn is_expired(&self) -> bool {
        let found = match self.steps.last() {
            Some(
                Step::Memtable { found, .. }
                | Step::Table { step: TableStep::Probed { found, .. }, .. },
            ) => *found,
            _ => None,
        };
        self.value.is_none() && found == Some(EntryKind::Expiring)
    }
}

impl From<&Step> for Counts {
    fn from(step: &Step) -> Self {
        match *step {
            Step::Memtable { .. } => Self::default(),
            Step::Table { step, .. } => step.into(),
        }
    }
}

impl From<TableStep> for Counts {
    #[inline]
    fn from(step: TableStep) -> Self {
        let mut counts = Self::default();
        let TableStep::Probed { verdict, block, outcome, .. } = step else {
            counts.range_pruned = 1;
            return counts;
        };
        let counter = match outcome {
            Outcome::TrueNegative => &mut counts.true_negatives,
            Outcome::TruePositive => &mut counts.true_positives,
            Outcome::FalsePositive => &mut counts.false_positives,
            Outcome::UnfilteredFound => &mut counts.unfiltered_found,
            Outcome::UnfilteredNotFound => &mut counts.unfiltered_not_found,
            Outcome::Expired => &mut counts.expired,
            Outcome::Failed => &mut counts.failed,
        };
        *counter = 1;
        counts.degraded = u64::from(verdict == Verdict::Degraded);
        if let Some(block) = block {
            if block.from_cache {
                counts.cache_hits = 1;
            } else {
                counts.disk_reads = 1;
                counts.disk_read_bytes = block.bytes;
            }
        }
        counts
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Memtable { age, filter, found } => {
                match age {
                    0 => write!(f, "memtable")?,
                    age => write!(f, "sealed memtable {age}")?,
                }
                f.write_str(match (filter, found) {
                    (Verdict::No, _) => ": the filter says no",
                    (_, None) => ": does not hold the key",
                    (_, Some(EntryKind::Put)) => ": holds the key",
                    (_, Some(EntryKind::Expiring)) => ": holds the key with an expiry",
                    (_, Some(EntryKind::Delete)) => ": holds a tombstone",
                })
            }
            Self::Table { id, level, step } => {
                write!(f, "L{level} table {id}: ")?;
                let TableStep::Probed { verdict, block, outcome, found } = step else {
                    return f.write_str("range-pruned, its keys do not reach this one");
                };
                f.write_str(match verdict {
                    Verdict::No => "the filter says no",
                    Verdict::Maybe => "the filter says maybe",
                    Verdict::Unfiltered => "no filter",
                    Verdict::Degraded => "a degraded filter",
                    Verdict::NotResident => "its filter is not in memory",
                })?;
                if let Some(block) = block {
                    let source = if block.from_cache { "from the cache" } else { "by a disk read" };
                    write!(f, ", block of {} bytes at {} {source}", block.bytes, block.offset)?;
                }
                let holds = match found {
                    Some(EntryKind::Put | EntryKind::Expiring) => "holds the key",
                    Some(EntryKind::Delete) => "holds a tombstone",
                    None => "holds newer versions only",
                };
                match outcome {
                    Outcome::TrueNegative => write!(f, ", nothing read (true negative)"),
                    Outcome::TruePositive => write!(f, ", {holds} (true positive)"),
                    Outcome::FalsePositive => {
                        write!(f, ", does not hold the key (false positive)")
                    }
                    Outcome::UnfilteredFound => write!(f, ", {holds}"),
                    Outcome::UnfilteredNotFound => write!(f, ", does not hold the key"),
                    Outcome::Expired => write!(f, ", {holds}, which has expired"),
                    Outcome::Failed => write!(f, ", which failed"),
                }
            }
        }
    }
}

impl fmt::Display for Explanation {
    /// A line a step, then the sum.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            writeln!(f, "{step}")?;
        }
        let counts = self.counts();
        let found = match &self.value {
            Some(value) if value.len() == 1 => "found, 1 byte".to_owned(),
            Some(value) => format!("found, {} bytes", value.len()),
            None if self.is_expired() => "absent, because it has expired".to_owned(),
            None => "absent".to_owned(),
        };
        write!(
            f,
            "{found}; disk reads: {}, blocks from the cache: {}, reads avoided: {}, range-pruned: {}",
            counts.disk_reads,
            counts.cache_hits,
            counts.reads_avoided(),
            counts.range_pruned
        )
    }
}
