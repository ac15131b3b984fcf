//! A table of a version.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::sync::Arc;

use crate::ledger::ProbeCounters;
use crate::sstable::{OpenTable, Table, TableFilter};

/// A table at its level, with its counters there.
#[derive(Debug, Clone)]
pub(crate) struct LiveTable {
    pub(crate) table: Arc<Table>,
    pub(crate) filter: Arc<TableFilter>,
    pub(crate) counters: Arc<ProbeCounters>,
}

impl LiveTable {
    pub(super) fn new(open: OpenTable, counters: Arc<ProbeCounters>) -> Self {
        let OpenTable { table, filter } = open;
        Self { table, filter, counters }
    }

    pub(crate) fn open(&self) -> OpenTable {
        OpenTable { table: Arc::clone(&self.table), filter: Arc::clone(&self.filter) }
    }

    pub(crate) fn without_filter(&self) -> Self {
        Self { filter: Arc::new(self.filter.not_resident()), ..self.clone() }
    }
}
