//! The tables that a task writes: each is synced, opened as a reader does, and its filter is proven.

use super::MergeContext;
use crate::error::Result;
use crate::key::EntryRef;
use crate::ledger::Activity;
use crate::sstable::{FinishedTable, OpenTable, Table, TableWriter};

/// New tables, which are not in the manifest. Dropped before they are finished, they are removed.
pub(crate) struct Outputs<'a> {
    context: &'a MergeContext<'a>,
    writer: Option<TableWriter>,
    tables: Vec<OpenTable>,
}

impl<'a> Outputs<'a> {
    pub(crate) fn new(context: &'a MergeContext<'a>) -> Self {
        Self { context, writer: None, tables: Vec::new() }
    }

    /// Adds the next entry, in internal-key order. A table ends before a new key.
    pub(crate) fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        let table_bytes = self.context.table_bytes;
        let is_full = |writer: &mut TableWriter| {
            writer.data_bytes() >= table_bytes && writer.last_key() != entry.key
        };
        if let Some(full) = self.writer.take_if(is_full) {
            self.prove(full)?;
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let id = self.context.env.new_file_number();
                none.insert(TableWriter::create(self.context.env, id, self.context.settings)?)
            }
        };
        writer.add(entry)
    }

    /// The key of the last entry.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        self.writer.as_ref().map(TableWriter::last_key)
    }

    /// The tables, all synced.
    pub(crate) fn finish(mut self) -> Result<Vec<OpenTable>> {
        if let Some(last) = self.writer.take() {
            self.prove(last)?;
        }
        if !self.tables.is_empty() {
            self.context.env.dir.sync()?;
        }
        Ok(std::mem::take(&mut self.tables))
    }

    /// Finishes a table, opens it as a reader does, and probes its filter with every key.
    fn prove(&mut self, writer: TableWriter) -> Result<()> {
        let recipe = (self.context.filter_for)(&writer);
        let FinishedTable { file, meta, hashes, io } = writer.finish(recipe)?;
        let with_filter = meta.filter.bytes > 0;
        let (env, id) = (self.context.env, meta.id);
        // A file without a name takes room on the disk for as long as it is open.
        let mut open = Table::open(env, meta).inspect_err(|_| env.files.forget(id))?;
        if let Some(hashes) = &hashes {
            open.verify_filter(hashes)?;
        }
        env.ledger.table_writes.add(io);
        env.ledger.count(Activity {
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

impl Drop for Outputs<'_> {
    fn drop(&mut self) {
        for open in &self.tables {
            open.table.make_obsolete();
        }
    }
}
