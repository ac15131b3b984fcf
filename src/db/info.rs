//! What a store tells of its tables.

use super::inner::DbInner;
use crate::filter::Portion;
use crate::inspect::FilterInfo;
use crate::ledger::Counts;
use crate::sstable::resident_bytes;
use crate::value::Value;

/// A live table.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TableInfo {
    /// The number in its file's name.
    pub id: u64,
    /// Its level.
    pub level: usize,
    /// Its file's length in bytes.
    pub file_bytes: u64,
    /// Changes held, tombstones included.
    pub entries: u64,
    /// Tombstones held.
    pub tombstones: u64,
    /// Distinct user keys held.
    pub keys: u64,
    /// The first user key.
    pub smallest: Value,
    /// The last user key.
    pub largest: Value,
    /// The table's filter.
    pub filter: FilterInfo,
    /// What lookups met at this table since the store was opened.
    pub counts: Counts,
}

/// The memory of the filters of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterMemory {
    /// What resident filters may take, in bytes; `None` for no budget.
    pub budget: Option<u64>,
    /// What they take, in bytes, in whole pages of memory: filters of live tables, of tables that
    /// are being written, and those that a reader still holds.
    pub resident: u64,
    /// What the filters of all live tables would take if they were resident as a whole, degraded
    /// ones aside.
    pub stored: u64,
}

pub(super) fn filter_memory(inner: &DbInner) -> FilterMemory {
    let memory = &inner.env.filter_memory;
    let view = inner.views.load();
    let residences = view.version.tables().filter_map(|(_, live)| live.filter.residence());
    FilterMemory {
        budget: memory.budget(),
        resident: memory.resident(),
        stored: residences.map(|(stored, _)| resident_bytes(stored, Portion::Whole)).sum(),
    }
}

pub(super) fn tables(inner: &DbInner) -> Vec<TableInfo> {
    let view = inner.views.load_full();
    view.version
        .tables()
        .map(|(level, live)| {
            let meta = live.table.meta();
            TableInfo {
                id: meta.id,
                level,
                file_bytes: meta.size,
                entries: meta.entries,
                tombstones: meta.tombstones,
                keys: meta.keys,
                smallest: Value::copied(&meta.smallest),
                largest: Value::copied(&meta.largest),
                filter: live.filter.as_ref().into(),
                counts: inner.env.ledger.table_counts(meta.id),
            }
        })
        .collect()
}
