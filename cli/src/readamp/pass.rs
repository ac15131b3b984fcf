//! The results of one pass.

use std::time::Duration;

use criba::{Counts, FilterInfo, Stats, TableInfo, Value};

/// The answer of a lookup, compared with the loaded value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The key is absent.
    Absent,
    /// The value that was loaded.
    AsLoaded,
    /// Another value, or a value for an absent key.
    Other(Vec<u8>),
}

impl Found {
    pub(super) fn new(value: Option<Value>, loaded: Option<&[u8]>) -> Self {
        match value {
            None => Self::Absent,
            Some(value) if Some(&*value) == loaded => Self::AsLoaded,
            Some(value) => Self::Other(value.to_vec()),
        }
    }
}

/// What the checks need of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// Data blocks searched: disk reads and cache hits.
    pub blocks: u64,
    /// Filters that said no.
    pub true_negatives: u64,
    /// The answer.
    pub found: Found,
}

/// The absent probes of one table's filter, and its promise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TableProbes {
    /// Probes with keys that the table does not hold.
    pub absent: u64,
    /// Those that the filter passed.
    pub false_positives: u64,
    /// The share that its header predicts.
    pub predicted_rate: f64,
}

/// One pass: all lookups of one kind, in a store opened for it.
#[derive(Debug, Clone)]
pub struct Pass {
    /// "absent", "present", "absent_unfiltered" or "present_unfiltered".
    pub name: &'static str,
    /// The lookups, in order.
    pub lookups: Vec<Lookup>,
    /// The sum of the lookups' explanations.
    pub explained: Counts,
    /// The engine's statistics, at the end.
    pub stats: Stats,
    /// The tables, at the end.
    pub tables: Vec<TableInfo>,
    /// The probes of the first lookup of each key. Repeated lookups have the same answer and prove nothing
    /// about a rate.
    pub first_probes: Vec<TableProbes>,
    /// Reads of tables in the file layer.
    pub file_reads: u64,
    /// Read system calls, or why they are unknown.
    pub kernel_reads: Result<u64, String>,
    /// When the first lookup began, since 1970.
    pub start: Duration,
    /// When the last one had ended.
    pub end: Duration,
}

impl Pass {}

/// The absent probes of each table with a filter in use.
pub(super) fn probes(tables: &[TableInfo]) -> Vec<TableProbes> {
    let probes = tables.iter().filter_map(|table| match table.filter {
        FilterInfo::Active { predicted_rate, .. } => Some(TableProbes {
            absent: table.counts.true_negatives + table.counts.false_positives,
            false_positives: table.counts.false_positives,
            predicted_rate,
        }),
        _ => None,
    });
    probes.collect()
}
