//! A table of a version.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::sync::Arc;

use crate::filter::{KeyCounts, PrefixExtractor};
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

    /// The number of distinct prefixes by this extractor, if the filter or the manifest has it.
    pub(crate) fn prefixes(&self, extractor: Option<PrefixExtractor>) -> Option<u64> {
        if extractor.is_none() {
            return Some(0);
        }
        let in_filter = self.filter.sound().filter(|header| header.has_prefixes_of(extractor));
        in_filter.map(|header| header.prefixes).or(self.table.meta().prefixes)
    }

    /// The keys and prefixes by this extractor. A number of prefixes that is not known counts as 0.
    pub(crate) fn key_counts(&self, extractor: Option<PrefixExtractor>) -> KeyCounts {
        let prefixes = self.prefixes(extractor).unwrap_or(0);
        KeyCounts { keys: self.table.meta().keys, prefixes }
    }

    pub(crate) fn without_filter(&self) -> Self {
        Self { filter: Arc::new(self.filter.not_resident()), ..self.clone() }
    }
}
