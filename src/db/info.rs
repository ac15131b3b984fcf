//! What a store tells of its tables.

use super::core::Core;
use crate::inspect::FilterInfo;
use crate::ledger::Counts;
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
    /// How many absent keys the table is asked for, for each lookup that goes to tables: what
    /// [`Allocation::Balanced`](crate::Allocation::Balanced) gives bits by. Without history the table's
    /// part of the key range; then what was counted, fading, and inherited through compactions.
    pub load: f64,
}

pub(super) fn tables(core: &Core) -> Vec<TableInfo> {
    let view = core.view.load_full();
    let shares = core.shares(&view.version);
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
                counts: core.env.ledger.table_counts(meta.id),
                load: shares.load(live),
            }
        })
        .collect()
}
