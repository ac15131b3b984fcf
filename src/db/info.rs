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
    /// The number of the file.
    pub id: u64,
    /// The level.
    pub level: usize,
    /// The length of the file in bytes.
    pub file_bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Distinct user keys.
    pub keys: u64,
    /// The first user key.
    pub smallest: Value,
    /// The last user key.
    pub largest: Value,
    /// The state of the filter.
    pub filter: FilterInfo,
    /// The counts of the table since the store was opened.
    pub counts: Counts,
}

/// The memory of a store's filters, in bytes of whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FilterMemory {
    /// The limit of resident bytes; `None` for no budget.
    pub budget: Option<u64>,
    /// Resident bytes: filters of live tables, of tables being written, and replaced filters not yet freed.
    pub resident: u64,
    /// The bytes of all filters of live tables if each were resident whole. Without degraded filters.
    pub stored: u64,
}

pub(super) fn filter_memory(inner: &DbInner) -> FilterMemory {
    let memory = &inner.env.filter_memory;
    let view = inner.views.load();
    let residencies = view.version.tables().filter_map(|(_, live)| live.filter.residency());
    FilterMemory {
        budget: memory.budget(),
        resident: memory.resident(),
        stored: residencies.map(|(stored, _)| resident_bytes(stored, Portion::Whole)).sum(),
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
