//! The figures of an open store in the text format of OpenMetrics.

use super::info::{MemoryUse, TableInfo};
use crate::inspect::FilterInfo;
use crate::ledger::{LEVELS, Latencies, Page, Stats, of_level};

/// A page of what files and memory hold: tables, filters and memory.
pub(super) fn of_files(tables: &[TableInfo], memory: &MemoryUse) -> Page {
    let mut page = Page::default();
    let by_level = |of: fn(&TableInfo) -> u64| -> Vec<(String, u64)> {
        let sum = |level| tables.iter().filter(|it| it.level == level).map(of).sum();
        (0..LEVELS).map(|level| (of_level(level), sum(level))).collect()
    };
    page.gauges("criba_tables", "Tables.", &by_level(|_| 1));
    page.gauges("criba_table_bytes", "Bytes of tables.", &by_level(|table| table.file_bytes));
    page.gauges("criba_table_entries", "Entries of tables.", &by_level(|table| table.entries));
    let tombstones = by_level(|table| table.tombstones);
    page.gauges("criba_table_tombstones", "Tombstones of tables.", &tombstones);
    let filters = by_level(|table| table.filter.bytes() as u64);
    page.gauges("criba_filter_bytes", "Bytes of filters in memory.", &filters);
    let degraded =
        tables.iter().filter(|table| matches!(table.filter, FilterInfo::Degraded { .. })).count();
    let help = "Tables whose filter is damaged: each lookup of their keys reads a block.";
    page.gauges("criba_filters_degraded", help, &[(String::new(), degraded as u64)]);
    let kinds = [
        ("memtables", memory.memtables),
        ("filters", memory.filters.resident),
        ("indexes", memory.indexes),
        ("cache", memory.cache),
    ];
    let kinds = kinds.map(|(kind, bytes)| (format!("kind=\"{kind}\""), bytes));
    page.gauges("criba_memory_bytes", "Bytes of memory.", &kinds);
    page
}

/// A page with what the tasks and calls of a handle met, too.
pub(super) fn of_handle(
    stats: &Stats,
    tables: &[TableInfo],
    memory: &MemoryUse,
    latencies: Option<&Latencies>,
) -> Page {
    let mut page = of_files(tables, memory);
    let damaged = tables.iter().filter(|table| table.damage.is_some()).count();
    let help = "Tables in which a task met a damaged block.";
    page.gauges("criba_tables_damaged", help, &[(String::new(), damaged as u64)]);
    if let Some(Latencies { reads, writes, syncs }) = latencies {
        page.times("criba_read_seconds", "Calls that look keys up.", reads);
        page.times("criba_write_seconds", "Commits of writes.", writes);
        page.times("criba_sync_seconds", "Syncs of the log.", syncs);
    }
    page.stats(stats);
    page
}
