//! What lookups of absent keys cost in one state of the store.

use std::path::Path;

use criba::FilterPolicy;
use serde::Serialize;

use super::bench::Bench;
use super::changes::Changes;
use super::checks::{Check, Checks, FalsePositives};
use super::pass::{Pass, PassReport, predicted, probes};
use super::table_files;
use super::work::Work;
use crate::failure::Result;

/// The counts of one state: of the lookups of absent keys with filters, unless the name says otherwise.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct State {
    /// Tables.
    pub tables: u64,
    /// Distinct keys of each table, summed.
    pub keys: u64,
    /// The keys of which filters were built, by the filters' headers in the files.
    pub filter_keys: u64,
    /// Bytes of all filters in the files, headers included.
    pub filter_bytes: u64,
    /// Lookups.
    pub absent: u64,
    /// Disk reads.
    pub disk_reads: u64,
    /// Disk reads of the same lookups with every filter answering "maybe".
    pub disk_reads_unfiltered: u64,
    /// The difference.
    pub reads_avoided: i64,
    /// Data blocks searched for the keys that were deleted or have expired.
    pub deleted_blocks: u64,
    /// Probes that ended in a table with an entry of the key: tombstones, expired entries, and what they hide.
    pub found_in_tables: u64,
    /// False positives as a share of the absent probes.
    pub fpr_measured: Option<f64>,
    /// The same share as the filters' headers predict.
    pub fpr_predicted: Option<f64>,
    /// As [`Report::first_probes`](super::report::Report::first_probes), of absent and present keys.
    pub first_probes: FalsePositives,
    /// The four passes.
    pub passes: Vec<PassReport>,
    /// The checks: true, false, or null.
    pub checks: Checks,
    /// Why a check is false or null, by its name.
    pub check_reasons: serde_json::Map<String, serde_json::Value>,
}

impl State {
    /// Measures the store as it is.
    pub(super) fn measure(
        bench: &Bench,
        filter: FilterPolicy,
        work: &[Work; 2],
        changes: &Changes,
    ) -> Result<Self> {
        let passes = bench.passes(filter, work)?;
        let [absent, present, absent_unfiltered, _] = &passes;
        let counts = absent.stats.total();
        let first_probes = FalsePositives::of([absent, present]);
        let (disk_reads, unfiltered) =
            (counts.disk_reads, absent_unfiltered.stats.total().disk_reads);
        let checks = Checks::new(&passes, &first_probes);
        let lookups = work[0].0.iter().zip(&absent.lookups);
        Ok(Self {
            tables: absent.tables.len() as u64,
            keys: absent.tables.iter().map(|table| table.keys).sum(),
            filter_keys: keys_in_filters(bench.dir)?,
            filter_bytes: filter_bytes(absent),
            absent: absent.lookups.len() as u64,
            disk_reads,
            disk_reads_unfiltered: unfiltered,
            reads_avoided: unfiltered as i64 - disk_reads as i64,
            deleted_blocks: lookups
                .filter(|(wanted, _)| changes.gone.contains(wanted.key))
                .map(|(_, lookup)| lookup.blocks)
                .sum(),
            found_in_tables: counts.true_positives + counts.unfiltered_found + counts.expired,
            fpr_measured: counts.false_positive_rate(),
            fpr_predicted: predicted(&probes(&absent.tables)),
            check_reasons: checks.reasons(),
            checks,
            first_probes,
            passes: passes.iter().map(PassReport::from).collect(),
        })
    }

    pub(super) fn add_check(&mut self, name: &'static str, check: Check) {
        self.checks.0.push((name, check));
        self.check_reasons = self.checks.reasons();
    }
}

fn filter_bytes(pass: &Pass) -> u64 {
    pass.tables.iter().map(|table| table.filter.stored_bytes() as u64).sum()
}

fn keys_in_filters(dir: &Path) -> Result<u64> {
    let keys = |(id, generation)| table_files::keys_in_filter(dir, id, generation);
    let keys = table_files::list(dir)?.into_iter().map(keys);
    keys.map(|keys| Ok(keys?.unwrap_or(0))).sum()
}
