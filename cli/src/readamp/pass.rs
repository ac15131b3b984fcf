//! The results of one pass.

use std::collections::HashMap;
use std::time::Duration;

use criba::{Counts, FilterInfo, Outcome, Stats, TableInfo, Value};

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

/// The absent probes of each table with a filter in use.
pub(super) fn probes(tables: &[TableInfo]) -> Vec<TableProbes> {
    let of_table = |table: &TableInfo| {
        let FilterInfo::Active { predicted_rate, .. } = table.filter else { return None };
        let Counts { true_negatives, false_positives, .. } = table.counts;
        let absent = true_negatives + false_positives;
        Some(TableProbes { absent, false_positives, predicted_rate })
    };
    tables.iter().filter_map(of_table).collect()
}

/// The same of single probes: a table's id, and the outcome.
pub(super) fn probes_among(tables: &[TableInfo], outcomes: &[(u64, Outcome)]) -> Vec<TableProbes> {
    let mut counts: HashMap<u64, Counts> = HashMap::new();
    for (table, outcome) in outcomes {
        let counts = counts.entry(*table).or_default();
        match outcome {
            Outcome::TrueNegative => counts.true_negatives += 1,
            Outcome::FalsePositive => counts.false_positives += 1,
            _ => {}
        }
    }
    let mut tables = tables.to_vec();
    for table in &mut tables {
        table.counts = counts.get(&table.id).copied().unwrap_or_default();
    }
    probes(&tables)
}
