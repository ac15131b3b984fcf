use crate::error::Result;
use crate::inspect::{FilterInfo, TableExpiries};
use crate::ledger::Counts;
use crate::sstable::Portion;
use crate::sstable::{BlockCache, TableEnv, estimate_compression as estimate, resident_bytes};
use crate::value::Value;
use crate::view::ReadView;

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
    /// Bytes of the data blocks, as the file has them.
    pub data_bytes: u64,
    /// Bytes of the data blocks, decompressed: more than [`data_bytes`](Self::data_bytes) only if the table has
    /// [compressed](crate::Options::compression) blocks.
    pub contents_bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// When the entries expire; `None` if none of them does.
    pub expiries: Option<TableExpiries>,
    /// The share of its bytes that has expired, rounded down to eighths.
    pub expired: f64,
    /// Distinct user keys.
    pub keys: u64,
    /// The first user key.
    pub smallest: Value,
    /// The last user key.
    pub largest: Value,
    /// The state of the filter.
    pub filter: FilterInfo,
    /// The damage that a task met in the table: see [`Event::TableDamaged`](crate::Event::TableDamaged).
    pub damage: Option<String>,
    /// The counts of the table since the store was opened.
    pub counts: Counts,
}

/// The memory that an open store keeps, in bytes, by kind. Not counted: memtables that only a running scan
/// holds; what flushes and compactions take while they run, 8 bytes for each key and prefix of a table and twice its
/// filter; blocks that scans and values hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct MemoryUse {
    /// [`Options::memory_limit`](crate::Options::memory_limit).
    pub limit: Option<u64>,
    /// Memtables.
    pub memtables: u64,
    /// Filters.
    pub filters: FilterMemory,
    /// The indexes of all tables that are open, also for a scan.
    pub indexes: u64,
    /// Cached blocks.
    pub cache: u64,
}

impl MemoryUse {
    /// The sum of all kinds.
    pub fn total(&self) -> u64 {
        self.memtables + self.filters.resident + self.indexes + self.cache
    }
}

/// The memory of a store's filters, in bytes of whole pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FilterMemory {
    /// The limit of resident bytes; `None` for no budget.
    pub budget: Option<u64>,
    /// Resident bytes: filters of live tables, of tables being written, and replaced filters not yet freed.
    pub resident: u64,
    /// The bytes of all filters of live tables if each were resident whole. Without degraded filters.
    pub stored: u64,
}

pub(super) fn memory(view: &ReadView, env: &TableEnv, limit: Option<u64>) -> MemoryUse {
    let residencies = view.version.tables().filter_map(|(_, live)| live.filter.residency());
    let filters = FilterMemory {
        budget: env.filter_memory.budget(),
        resident: env.filter_memory.resident(),
        stored: residencies.map(|(stored, _)| resident_bytes(stored, Portion::Whole)).sum(),
    };
    MemoryUse {
        limit,
        memtables: view.memtables().map(|memtable| memtable.bytes() as u64).sum(),
        filters,
        indexes: env.index_memory.bytes(),
        cache: env.cache.as_ref().map_or(0, BlockCache::bytes),
    }
}

pub(super) fn estimate_compression(view: &ReadView, block_bytes: usize) -> Result<Option<f64>> {
    let tables: Vec<_> = view.version.tables().map(|(_, live)| &*live.table).collect();
    estimate(&tables, block_bytes)
}

pub(super) fn tables(view: &ReadView, env: &TableEnv) -> Vec<TableInfo> {
    let (counts, time) = (env.ledger.table_counts(), env.time.of_readers());
    view.version
        .tables()
        .map(|(level, live)| {
            let meta = live.table.meta();
            let (data_bytes, contents_bytes) = live.table.data_bytes();
            TableInfo {
                id: meta.id,
                level,
                file_bytes: meta.size,
                data_bytes,
                contents_bytes,
                entries: meta.entries,
                tombstones: meta.tombstones,
                expiries: meta.expiries.map(TableExpiries::from),
                expired: meta.expiries.map_or(0.0, |expiries| expiries.share_over(time)),
                damage: live.table.damage().map(ToString::to_string),
                keys: meta.keys,
                smallest: Value::copied(&meta.smallest),
                largest: Value::copied(&meta.largest),
                filter: live.filter.as_ref().into(),
                counts: counts.get(&meta.id).copied().unwrap_or_default(),
            }
        })
        .collect()
}
