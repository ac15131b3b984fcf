//! Merges tables into new ones.

use std::ops::Bound;
use std::sync::Arc;

use super::survive::{Expired, Survivors};
use super::{Compaction, MergeContext, Outputs};
use crate::error::{Error, Result};
use crate::filter::LookupKey;
use crate::iter::{Cursor, Direction, MergeCursor};
use crate::ledger::{Activity, LEVELS, Verdict};
use crate::memtable::{Memtable, MemtableCursor};
use crate::sstable::{OpenTable, ReadPlan, TableCursor};
use crate::version::{LevelCursor, LiveTable, Version};
use criba_filter::HashFunction;

/// Merges the inputs into new tables. They are synced, proven and open, but not in the manifest.
pub(crate) fn merge(
    compaction: &Compaction,
    version: &Version,
    context: &MergeContext<'_>,
) -> Result<Vec<OpenTable>> {
    let (direction, plan) = (Direction::Forward, ReadPlan::Compaction);
    let mut cursors: Vec<Box<dyn Cursor>> = Vec::new();
    for level in 0..LEVELS {
        let mut tables: Vec<LiveTable> = compaction
            .inputs
            .iter()
            .filter(|(at, _)| *at == level)
            .map(|(_, live)| live.clone())
            .collect();
        tables.sort_by(|a, b| a.table.meta().smallest.cmp(&b.table.meta().smallest));
        if level == 0 {
            for live in tables {
                let cursor = TableCursor::new(live.table, direction, Bound::Unbounded, plan)?;
                cursors.push(Box::new(cursor));
            }
        } else if !tables.is_empty() {
            let all = (Bound::Unbounded, Bound::Unbounded);
            cursors.push(Box::new(LevelCursor::new(&tables, direction, all, plan, None)?));
        }
    }
    // Entries older than the inputs are below the output level, because the inputs include all overlapping
    // tables of that level. The compaction was picked from this version. In a merge within L0, older entries may
    // also be in other L0 tables.
    let nothing_older = |key: &[u8]| {
        let below = version.covering(compaction.output_level + 1, key);
        compaction.output_level > 0 && none_has(below, key, context)
    };
    let expected: u64 = compaction.inputs.iter().map(|(_, live)| live.table.meta().entries).sum();
    let mut merged = MergeCursor::new(cursors, direction);
    write_tables(&mut merged, expected, nothing_older, context)
}

/// Whether no table has entries of the key, which all of them cover, so that a tombstone of it hides nothing:
/// filters deny it, which is certain.
pub(crate) fn none_has<'a>(
    tables: impl Iterator<Item = &'a LiveTable>,
    key: &[u8],
    context: &MergeContext<'_>,
) -> bool {
    let function = context.settings.filter_hash.unwrap_or(HashFunction::SipHash13);
    let lookup_key = LookupKey::new(key, &context.env.hash_key, function);
    let mut denied = false;
    for live in tables {
        if context.ignore_filters || live.filter.verdict(&lookup_key) != Verdict::No {
            return false;
        }
        denied = true;
    }
    let tombstones_denied = u64::from(denied);
    context.env.ledger.count(Activity { tombstones_denied, ..Activity::default() });
    true
}

/// Writes the surviving entries of a memtable to new tables. After an error no new table is left.
pub(crate) fn write_memtable(
    memtable: &Arc<Memtable>,
    nothing_older: impl Fn(&[u8]) -> bool,
    context: &MergeContext<'_>,
) -> Result<Vec<OpenTable>> {
    let memtable = Arc::clone(memtable);
    let entries = memtable.len();
    let mut cursor = MemtableCursor::new(memtable, Direction::Forward, Bound::Unbounded);
    write_tables(&mut cursor, entries, nothing_older, context)
}

/// Writes the surviving entries of a cursor to new tables. After an error no new table is left.
fn write_tables(
    cursor: &mut dyn Cursor,
    expected_entries: u64,
    nothing_older: impl Fn(&[u8]) -> bool,
    context: &MergeContext<'_>,
) -> Result<Vec<OpenTable>> {
    let mut outputs = Outputs::new(context);
    let mut survivors = Survivors::new(&context.snapshots, context.over);
    let mut entries = 0;
    while let Some(entry) = cursor.entry() {
        if entries % 1024 == 0 && (context.cancelled)() {
            return Err(Error::Closed);
        }
        entries += 1;
        if let Some(survivor) = survivors.survivor(entry, &nothing_older) {
            outputs.add(survivor)?;
        }
        cursor.advance()?;
    }
    if entries != expected_entries {
        let dir = context.env.dir.path();
        let expected = format!("{expected_entries} entries in the inputs of a merge");
        return Err(Error::corrupt(dir, 0, expected, entries.to_string()));
    }
    let tables = outputs.finish()?;
    let Expired { dropped, to_tombstones } = survivors.expired;
    context.env.ledger.count(Activity {
        expired_dropped: dropped,
        expired_to_tombstones: to_tombstones,
        ..Activity::default()
    });
    Ok(tables)
}
