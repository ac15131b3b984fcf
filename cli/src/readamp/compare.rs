//! `readamp --compare`: the same keys and lookups under several policies with equal bytes of filters.

use std::io::Write;

use criba::{Allocation, FilterKind, FilterPolicy};
use serde::Serialize;

use super::report::{Level, Report};
use crate::Answer;
use crate::failure::Result;
use crate::text::{counted, ratio, thousands};

/// The largest relative difference of equal sizes.
const SAME_SIZE: f64 = 0.02;
/// In 80 columns.
const LEVELS_A_LINE: usize = 4;

/// The compared policies at these bits per key: the literature's first, then each kind, uniform and balanced,
/// then the requested one if it is another.
pub(super) fn policies(bits_per_key: f64, asked: FilterPolicy) -> Vec<(String, FilterPolicy)> {
    let classic = FilterPolicy::classic().with_bits_per_key(bits_per_key);
    let mut policies = vec![("classic".to_owned(), classic)];
    for (kind, allocation, named) in [
        (FilterKind::Bloom, Allocation::Balanced, " (default)"),
        (FilterKind::Ribbon, Allocation::Uniform, ""),
        (FilterKind::Ribbon, Allocation::Balanced, ""),
    ] {
        let policy = FilterPolicy::bits_per_key(bits_per_key).with_kind(kind);
        let place = if allocation == Allocation::Uniform { "uniform" } else { "balanced" };
        policies.push((format!("{kind} {place}{named}"), policy.with_allocation(allocation)));
    }
    if policies.iter().all(|(_, policy)| *policy != asked) {
        policies.push(("asked".to_owned(), asked));
    }
    policies
}

/// What came of each policy.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Comparison {
    /// The policies, the classic one first.
    pub rows: Vec<Row>,
    /// Whether all filters take as many bytes as the classic ones, within 2 %.
    pub same_size: bool,
    /// Whether every check of every run holds or is unknown.
    pub checks_hold: bool,
}

/// What came of one policy.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// A short name.
    pub name: String,
    /// The policy.
    pub filter: String,
    /// Levels that hold tables.
    pub levels: u64,
    /// Tables.
    pub tables: u64,
    /// Sorted runs: each table of L0, and each level below with tables.
    pub sorted_runs: u64,
    /// Bytes of all filters, headers included.
    pub filter_bytes: u64,
    /// The same in bits per key of each table.
    pub bits_per_key: Option<f64>,
    /// Lookups of absent keys.
    pub absent: u64,
    /// Disk reads of these lookups, all wasted.
    pub wasted_reads: u64,
    /// Disk reads and cache hits per lookup; `None` without lookups.
    pub wasted_per_lookup: Option<f64>,
    /// The classic policy's wasted reads as a multiple of these; `None` if these are none, without lookups, and in a
    /// sweep.
    pub times_fewer: Option<f64>,
    /// Bits per key on each level with tables, as (level, bits).
    pub level_bits: Vec<(usize, Option<f64>)>,
    /// The checks that do not hold.
    pub failed_checks: Vec<&'static str>,
}

impl Comparison {
    pub(super) fn new(reports: &[(String, Report)]) -> Self {
        let mut rows: Vec<_> =
            reports.iter().map(|(name, report)| Row::new(name, report)).collect();
        let classic = rows.first().map(|row| (row.filter_bytes, row.wasted_per_lookup));
        let (bytes, wasted) = classic.unwrap_or_default();
        for row in &mut rows {
            row.times_fewer = match (wasted, row.wasted_per_lookup) {
                (Some(classic), Some(own)) if own > 0.0 => Some(classic / own),
                _ => None,
            };
        }
        Self {
            same_size: rows.iter().all(|row| same_size(bytes, row.filter_bytes)),
            checks_hold: rows.iter().all(|row| row.failed_checks.is_empty()),
            rows,
        }
    }

    pub(super) fn answer(&self) -> Answer {
        if self.same_size && self.checks_hold { Answer::Yes } else { Answer::No }
    }

    pub(super) fn print(&self, out: &mut dyn Write) -> Result<()> {
        writeln!(
            out,
            "{:<24}  {:>11}  {:>8}  {:>12}  {:>9}  {:>6}",
            "", "bytes of", "bits per", "wasted reads", "for each", "times"
        )?;
        writeln!(
            out,
            "{:<24}  {:>11}  {:>8}  {:>12}  {:>9}  {:>6}",
            "policy", "filters", "key", "in all", "lookup", "fewer"
        )?;
        for row in &self.rows {
            let or_dash = |number: Option<f64>, decimals| {
                number.map_or("–".to_owned(), |number| format!("{number:.decimals$}"))
            };
            writeln!(
                out,
                "{:<24}  {:>11}  {:>8}  {:>12}  {:>9}  {:>6}",
                row.name,
                thousands(row.filter_bytes),
                or_dash(row.bits_per_key, 2),
                thousands(row.wasted_reads),
                or_dash(row.wasted_per_lookup, 5),
                or_dash(row.times_fewer, 2),
            )?;
        }
        if let Some(row) = self.rows.first() {
            writeln!(
                out,
                "\n{} lookups of absent keys a policy, on {}. Each read is wasted.",
                thousands(row.absent),
                counted(row.levels, "level")
            )?;
        }
        writeln!(out, "\nbits per key by level, headers included")?;
        for row in &self.rows {
            for (line, levels) in row.level_bits.chunks(LEVELS_A_LINE).enumerate() {
                write!(out, "  {:<24}", if line == 0 { &row.name } else { "" })?;
                for (level, bits) in levels {
                    let bits = bits.map_or("–".to_owned(), |bits| format!("{bits:.2}"));
                    write!(out, "  L{level} {bits:>6}")?;
                }
                writeln!(out)?;
            }
        }
        let holds = |holds| if holds { "holds" } else { "FAILS" };
        writeln!(
            out,
            "\n  {:<7}  all filters take the same bytes, within 2 %",
            holds(self.same_size)
        )?;
        writeln!(out, "  {:<7}  every check of every run", holds(self.checks_hold))?;
        for row in self.rows.iter().filter(|row| !row.failed_checks.is_empty()) {
            writeln!(out, "           {}: {}", row.name, row.failed_checks.join(", "))?;
        }
        Ok(())
    }
}

/// Whether two policies' filters take the same bytes.
fn same_size(bytes: u64, other: u64) -> bool {
    bytes.abs_diff(other) as f64 <= SAME_SIZE * bytes as f64
}

impl Row {
    pub(super) fn new(name: &str, report: &Report) -> Self {
        let absent = &report.passes[0];
        Self {
            name: name.to_owned(),
            filter: report.setup.filter.clone(),
            levels: report.levels.len() as u64,
            tables: report.tables,
            sorted_runs: report.levels.iter().map(Level::sorted_runs).sum(),
            filter_bytes: report.filter_bytes,
            bits_per_key: report.bits_per_key,
            absent: report.absent,
            wasted_reads: absent.disk_reads,
            wasted_per_lookup: ratio((absent.disk_reads + absent.cache_hits) as f64, report.absent),
            times_fewer: None,
            level_bits: report
                .levels
                .iter()
                .map(|Level { level, bits_per_key, .. }| (*level, *bits_per_key))
                .collect(),
            failed_checks: report.checks.failed().map(|(name, _)| *name).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seven_levels_fit_in_80_columns() {
        let row = Row {
            name: "bloom balanced (default)".to_owned(),
            filter: String::new(),
            levels: 7,
            tables: 70,
            sorted_runs: 16,
            filter_bytes: 1 << 27,
            bits_per_key: Some(10.5),
            absent: 100_000_000,
            wasted_reads: 100_000_000,
            wasted_per_lookup: Some(1.0),
            times_fewer: Some(100.5),
            level_bits: (0..7).map(|level| (level, Some(25.5))).collect(),
            failed_checks: vec![],
        };
        let comparison = Comparison { rows: vec![row], same_size: true, checks_hold: true };
        let mut out = Vec::new();
        comparison.print(&mut out).expect("a vector takes everything");
        let text = String::from_utf8(out).expect("text");
        assert!(text.contains("  L3  25.50\n") && text.contains("  L6  25.50\n"), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn sizes_are_the_same_within_a_share() {
        assert!(same_size(100_000, 102_000) && same_size(100_000, 98_000));
        assert!(!same_size(100_000, 102_001) && !same_size(100_000, 97_999));
    }
}
