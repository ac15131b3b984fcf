//! The measured load of each table: the share of lookups of absent keys that probe it.

use std::collections::HashMap;

use crate::ledger::{LEVELS, Ledger};
use crate::version::LiveTable;

/// The expected load weighs as much as this many counted absent probes, so that new tables have a load.
const PRIOR_PROBES: f64 = 16.0;

/// What the ledger has counted for each table.
pub(super) struct Loads {
    /// Absent probes by table id, and the lookups of tables since it was installed.
    counted: HashMap<u64, (u64, u64)>,
    /// Share of lookups that find nothing on a level or above it, by level.
    unanswered: [f64; LEVELS],
}

impl Loads {
    pub(super) fn of(ledger: &Ledger) -> Self {
        let lookups = ledger.table_lookups().max(1) as f64;
        let mut found = 0;
        let unanswered = ledger.stats().levels.map(|counts| {
            found += counts.true_positives + counts.unfiltered_found;
            (1.0 - found as f64 / lookups).max(0.0)
        });
        Self { counted: ledger.absent_probes(), unanswered }
    }

    /// The load of a table, with the load that its keys let expect.
    pub(super) fn load(&self, level: usize, live: &LiveTable, expected: f64) -> f64 {
        let (probes, lookups) = self.counted.get(&live.table.id()).copied().unwrap_or_default();
        let lookups = lookups as f64 * self.unanswered[level];
        (probes as f64 + PRIOR_PROBES) / (lookups + PRIOR_PROBES / expected)
    }

    pub(super) fn absent_probes(&self) -> u64 {
        self.counted.values().map(|(probes, _)| probes).sum()
    }
}
