//! A table of a version.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::sync::Arc;

use crate::key::head;
use crate::ledger::ProbeCounters;
use crate::sstable::{OpenTable, Table, TableFilter};

/// A table at its level, with its counters there.
#[derive(Debug, Clone)]
pub(crate) struct LiveTable {
    pub(crate) table: Arc<Table>,
    pub(crate) filter: Arc<TableFilter>,
    pub(crate) counters: Arc<ProbeCounters>,
    /// The first eight bytes of its smallest and largest key. They mostly decide whether it covers a key,
    /// without another cache miss.
    heads: [u64; 2],
}

impl LiveTable {
    pub(super) fn new(open: OpenTable, counters: Arc<ProbeCounters>) -> Self {
        let OpenTable { table, filter } = open;
        let heads = [head(&table.meta().smallest), head(&table.meta().largest)];
        Self { table, filter, counters, heads }
    }

    /// Whether its first key is at or before `key`, which has this head.
    pub(super) fn begins_by(&self, key: &[u8], head: u64) -> bool {
        self.heads[0] < head || (self.heads[0] == head && *self.table.meta().smallest <= *key)
    }

    /// Whether its last key is at or after `key`.
    pub(super) fn ends_from(&self, key: &[u8], head: u64) -> bool {
        self.heads[1] > head || (self.heads[1] == head && *self.table.meta().largest >= *key)
    }

    pub(super) fn largest(&self) -> &[u8] {
        &self.table.meta().largest
    }

    pub(crate) fn open(&self) -> OpenTable {
        OpenTable { table: Arc::clone(&self.table), filter: Arc::clone(&self.filter) }
    }

    pub(crate) fn without_filter(&self) -> Self {
        Self { filter: Arc::new(self.filter.not_resident()), ..self.clone() }
    }
}
