//! Versions: the set of live tables, by level, and the manifest that records it.
//!
//! A version never changes; a flush or compaction makes a new one, records the difference in the
//! manifest, durably, and only then puts it in place. So does whoever gives a table another filter.
//! Invariants: L0 is ordered newest first; on every level below, tables are sorted and no two of them
//! have a key in common.

mod cursor;
mod edit;
mod manifest;
mod prefix;
mod ranks;

use std::collections::HashMap;
use std::sync::Arc;

pub(crate) use cursor::LevelCursor;
pub(crate) use edit::{Edit, TableSet};
pub(crate) use manifest::{Manifest, read_current, set_current};
pub(crate) use prefix::{KeyBounds, PrefixProbe, borrowed};
pub(crate) use ranks::{KeyRanks, keys_within};

use crate::ledger::{LEVELS, Ledger, ProbeCounters};
use crate::table::{OpenTable, Table, TableFilter};

/// A table at its level, with the counters for its probes there.
#[derive(Debug, Clone)]
pub(crate) struct LiveTable {
    pub(crate) table: Arc<Table>,
    pub(crate) filter: Arc<TableFilter>,
    pub(crate) counters: Arc<ProbeCounters>,
}

impl LiveTable {
    /// The table without its place.
    pub(crate) fn open(&self) -> OpenTable {
        OpenTable { table: Arc::clone(&self.table), filter: Arc::clone(&self.filter) }
    }

    /// The table with none of its filter resident.
    pub(crate) fn without_filter(&self) -> Self {
        Self { filter: Arc::new(self.filter.not_resident()), ..self.clone() }
    }
}

/// The live tables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Version {
    levels: [Vec<LiveTable>; LEVELS],
}

impl Version {
    /// The tables of a level: L0 newest first, others in key order.
    pub(crate) fn level(&self, level: usize) -> &[LiveTable] {
        self.levels.get(level).map_or(&[], Vec::as_slice)
    }

    /// Every table with its level, L0 first.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, &LiveTable)> {
        self.levels
            .iter()
            .enumerate()
            .flat_map(|(level, tables)| tables.iter().map(move |t| (level, t)))
    }

    /// The table of this id, if it lives.
    pub(crate) fn table(&self, id: u64) -> Option<&LiveTable> {
        self.levels.iter().flatten().find(|live| live.table.id() == id)
    }

    /// The bytes of a level's files.
    pub(crate) fn level_bytes(&self, level: usize) -> u64 {
        self.level(level).iter().map(|live| live.table.meta().size).sum()
    }

    /// The tables of a level below L0 that have a key in `smallest ..= largest`.
    pub(crate) fn overlapping(
        &self,
        level: usize,
        smallest: &[u8],
        largest: &[u8],
    ) -> &[LiveTable] {
        let tables = self.level(level);
        let first = tables.partition_point(|live| live.table.meta().largest.as_slice() < smallest);
        let after = tables.partition_point(|live| live.table.meta().smallest.as_slice() <= largest);
        tables.get(first..after).unwrap_or_default()
    }

    /// The one table of a level below L0 that a lookup considers: the first whose last key is not
    /// less than the key.
    pub(crate) fn candidate(&self, level: usize, key: &[u8]) -> Option<&LiveTable> {
        let tables = self.level(level);
        let number = tables.partition_point(|live| live.table.meta().largest.as_slice() < key);
        tables.get(number)
    }

    /// This version with other filters for some of its tables; ids that it does not have are passed
    /// over. The counters stay.
    pub(crate) fn with_filters(&self, filters: &HashMap<u64, Arc<TableFilter>>) -> Self {
        let mut next = self.clone();
        for live in next.levels.iter_mut().flatten() {
            if let Some(filter) = filters.get(&live.table.id()) {
                live.filter = Arc::clone(filter);
            }
        }
        next
    }

    /// This version with none of its filters resident, for who holds it long.
    pub(crate) fn without_filters(&self) -> Self {
        let mut next = self.clone();
        for live in next.levels.iter_mut().flatten() {
            *live = live.without_filter();
        }
        next
    }

    /// This version without some tables and with others. A table that is in both lists moves, and
    /// what is resident of its filter stays so.
    pub(crate) fn with(
        &self,
        removed: &[(usize, u64)],
        added: &[(usize, OpenTable)],
        ledger: &Ledger,
    ) -> Self {
        let mut next = self.clone();
        let mut moving = HashMap::new();
        for &(level, id) in removed {
            for live in next.levels[level].extract_if(.., |live| live.table.id() == id) {
                moving.insert(id, live.filter);
            }
        }
        for (level, OpenTable { table, filter }) in added {
            let counters = ledger.counters(table.id(), *level);
            // It may have been let go in part, or come back, since the move was decided.
            let now = moving.get(&table.id()).filter(|now| now.meta == filter.meta);
            let (table, filter) = (Arc::clone(table), Arc::clone(now.unwrap_or(filter)));
            next.levels[*level].push(LiveTable { table, filter, counters });
        }
        let [l0, sorted @ ..] = &mut next.levels;
        l0.sort_by_key(|live| std::cmp::Reverse(live.table.meta().max_seq));
        for level in sorted {
            level.sort_by(|a, b| a.table.meta().smallest.cmp(&b.table.meta().smallest));
        }
        next
    }
}
