//! Merges tables into new ones.

use std::ops::Bound;
use std::sync::Arc;

use super::{Compaction, Survivors};
use crate::error::{Error, Result};
use crate::filter::{KeyCounts, LookupKey};
use crate::iter::{Cursor, Direction, MergeCursor};
use crate::key::Seq;
use crate::ledger::{Activity, LEVELS, Verdict};
use crate::memtable::{Memtable, MemtableCursor};
use crate::sstable::{
    FinishedTable, OpenTable, ReadPlan, Table, TableCursor, TableEnv, TableSettings, TableWriter,
};
use crate::version::{LevelCursor, LiveTable, Version};
use criba_filter::HashFunction;
use criba_filter::store::Recipe;

pub(crate) struct MergeContext<'a> {
    pub(crate) env: &'a Arc<TableEnv>,
    pub(crate) settings: &'a TableSettings,
    /// The recipe for a table with these keys; `None` for no filter.
    pub(crate) filter_for: &'a dyn Fn(KeyCounts) -> Option<Recipe>,
    /// The data bytes at which an output ends, at the next new user key.
    pub(crate) table_bytes: u64,
    /// Whether filters are ignored, as if each answered "maybe".
    pub(crate) ignore_filters: bool,
    /// Ascending.
    pub(crate) snapshots: Vec<Seq>,
    /// Whether to stop: the store is closing, or the merge is no longer wanted.
    pub(crate) cancelled: &'a dyn Fn() -> bool,
}

impl<'a> MergeContext<'a> {
    /// The context of a flush outside an open store: no snapshots, and it is never cancelled.
    pub(crate) fn of_flush(
        env: &'a Arc<TableEnv>,
        settings: &'a TableSettings,
        filter_for: &'a dyn Fn(KeyCounts) -> Option<Recipe>,
        ignore_filters: bool,
    ) -> Self {
        Self {
            env,
            settings,
            filter_for,
            table_bytes: u64::MAX,
            ignore_filters,
            snapshots: Vec::new(),
            cancelled: &|| false,
        }
    }
}

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
    let mut outputs = Outputs { context, tables: Vec::new() };
    let written = outputs.write(cursor, expected_entries, nothing_older);
    if written.is_err() {
        for open in &outputs.tables {
            open.table.make_obsolete();
        }
    }
    written.map(|()| outputs.tables)
}

struct Outputs<'a> {
    context: &'a MergeContext<'a>,
    tables: Vec<OpenTable>,
}

impl Outputs<'_> {
    fn write(
        &mut self,
        cursor: &mut dyn Cursor,
        expected_entries: u64,
        nothing_older: impl Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let context = self.context;
        let mut survivors = Survivors::new(&context.snapshots);
        let mut writer: Option<TableWriter> = None;
        let mut entries = 0;
        while let Some(entry) = cursor.entry() {
            if entries % 1024 == 0 && (context.cancelled)() {
                return Err(Error::Closed);
            }
            entries += 1;
            if survivors.keeps(entry, &nothing_older) {
                if let Some(full) = writer.take_if(|writer| {
                    writer.data_bytes() >= context.table_bytes && writer.last_key() != entry.key
                }) {
                    self.finish(full)?;
                }
                let writer = match &mut writer {
                    Some(writer) => writer,
                    none => none.insert(self.begin()?),
                };
                writer.add(entry)?;
            }
            cursor.advance()?;
        }
        if entries != expected_entries {
            let dir = context.env.dir.path();
            let expected = format!("{expected_entries} entries in the inputs of a merge");
            return Err(Error::corrupt(dir, 0, expected, entries.to_string()));
        }
        if let Some(last) = writer {
            self.finish(last)?;
        }
        context.env.dir.sync()
    }

    fn begin(&self) -> Result<TableWriter> {
        let id = self.context.env.new_file_number();
        TableWriter::create(self.context.env, id, self.context.settings)
    }

    /// Finishes a table, opens it as a reader does, and probes its filter with every key.
    fn finish(&mut self, writer: TableWriter) -> Result<()> {
        let recipe = (self.context.filter_for)(writer.key_counts());
        let FinishedTable { file, meta, hashes, io } = writer.finish(recipe)?;
        let with_filter = meta.filter.bytes > 0;
        let (env, id) = (self.context.env, meta.id);
        // A file without a name takes room on the disk for as long as it is open.
        let mut open = Table::open(env, meta).inspect_err(|_| env.files.forget(id))?;
        if let Some(hashes) = &hashes {
            open.verify_filter(hashes)?;
        }
        let ledger = &self.context.env.ledger;
        ledger.table_writes.add(io);
        ledger.count(Activity {
            tables_written: 1,
            filters_built: u64::from(with_filter),
            ..Activity::default()
        });
        open.reduce_to_budget();
        file.keep();
        self.tables.push(open);
        Ok(())
    }
}
