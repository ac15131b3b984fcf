//! Bulk ingest: sorted pairs become tables without the log and the memtable, all at one moment.
//!
//! The tables are written and proven without a lock. The moment is under the writer's lock: the memtables are
//! empty, so all older entries are in tables, and the new tables are above each table that overlaps them. A new log
//! begins, because the number of the ingest is in no log. A new memtable comes with the tables: a reader of an
//! older view sees no later write, and each condition that was checked in one is checked again. The number becomes
//! visible last.

use std::cell::Cell;
use std::{mem, result};

use super::background::{Places, discard, fit_ingested, flush, flush_all_sealed, make_way};
use super::inner::DbInner;
use crate::compaction::{Busy, MergeContext, Occupied, Outputs};
use crate::error::{Error, Result};
use crate::expiry::{Expiry, stored, written_at};
use crate::key::{EntryKind, EntryRef, check_lengths};
use crate::ledger::Activity;
use crate::sstable::{OpenTable, TableSettings, TableWriter};
use crate::value::Value;
use crate::version::Edit;
use criba_filter::store::Recipe;

/// The most bytes that are flushed while writers wait, about 5 ms of writing.
const MOST_FLUSHED: usize = 1 << 20;
/// After so many attempts writers wait as long as necessary.
const PATIENCE: usize = 4;
/// The pairs between two looks at the process, which takes a system call.
const PAIRS: u64 = 1024;

/// Tables that are not installed. Dropped, they are removed.
struct NewTables(Vec<OpenTable>);

impl Drop for NewTables {
    fn drop(&mut self) {
        for open in &self.0 {
            open.table.make_obsolete();
        }
    }
}

impl NewTables {
    /// The smallest and the largest key.
    fn range(&self) -> Option<(&[u8], &[u8])> {
        let (first, last) = self.0.first().zip(self.0.last())?;
        Some((&first.table.meta().smallest, &last.table.meta().largest))
    }
}

impl DbInner {
    /// Returns the number of pairs. Those without an expiry take the default.
    pub(crate) fn ingest<K, V, E>(
        &self,
        pairs: impl IntoIterator<Item = result::Result<(K, V, Option<Expiry>), E>>,
    ) -> result::Result<u64, E>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
        E: From<Error>,
    {
        self.check_writable()?;
        // Held to the end: a close does not wait for this call, and another opening would remove the new tables.
        let _store = self.health.directory_lock()?;
        let pairs = pairs.into_iter();
        let expected = pairs.size_hint().0 as u64;
        let written = Cell::new(0);
        let filter_for = |table: &TableWriter| self.recipe_for_ingest(table, &written, expected);
        let ingested_after = Some(self.sequences.newest());
        let settings = TableSettings { ingested_after, ..self.table_settings() };
        let context = MergeContext {
            table_bytes: self.options.table_bytes,
            ..MergeContext::of_flush(&self.env, &settings, &filter_for, self.options.ignore_filters)
        };
        let mut outputs = Outputs::new(&context);
        let (mut count, mut has_expiries, mut expired_writes) = (0, false, 0);
        for pair in pairs {
            let (key, value, expiry) = pair?;
            // The iterator may have closed the store, or forked.
            self.check_writable()?;
            if count % PAIRS == 0 {
                self.env.birth.check_process()?;
            }
            count += 1;
            let (key, value) = (key.as_ref(), value.as_ref());
            check(&outputs, key, value)?;
            let time = &self.env.time;
            let expiry = expiry.map(Expiry::in_batch).or(time.default);
            match expiry.and_then(|expiry| written_at(time.now(), expiry)) {
                None => {
                    outputs.add(EntryRef { key, seq: 0, kind: EntryKind::Put, value })?;
                }
                Some(expiry) => {
                    expired_writes += u64::from(expiry <= time.now());
                    let (kind, value) = (EntryKind::Expiring, &stored(expiry, value));
                    outputs.add(EntryRef { key, seq: 0, kind, value })?;
                    has_expiries = true;
                }
            }
        }
        if has_expiries {
            self.begin_expiry()?;
        }
        let tables = NewTables(outputs.finish()?);
        self.install_ingested(tables)?;
        self.env.ledger.count(Activity { expired_writes, ..Activity::default() });
        Ok(count)
    }

    /// The recipe for the filter of a table, on the level where it would go now.
    fn recipe_for_ingest(
        &self,
        table: &TableWriter,
        written: &Cell<u64>,
        expected: u64,
    ) -> Option<Recipe> {
        let view = self.views.load();
        let level = Occupied::of(&view.version, &Busy::default())
            .lowest_free(table.first_key(), table.last_key());
        written.set(written.get() + table.key_counts().keys);
        let all = expected.max(written.get());
        self.filters.recipe_for_ingest(&view.version, level.max(1), table.key_counts(), all)
    }

    fn install_ingested(&self, mut tables: NewTables) -> Result<()> {
        let mut attempts = 0;
        let ids = loop {
            let Some(range) = tables.range() else { return Ok(()) };
            flush(self)?;
            // One level for these tables. If that did not suffice, one more for what is written meanwhile.
            make_way(self, if attempts == 0 { 1 } else { 2 }, range)?;
            self.make_next_log();
            attempts += 1;
            if let Some(ids) = self.try_install(&mut tables, attempts > PATIENCE)? {
                break ids;
            }
        };
        // A compaction that is due now is left to threads, or to the next flush: it could fail, and this call has
        // succeeded.
        fit_ingested(self, &ids);
        Ok(())
    }

    /// Installs the tables at one moment, and returns the ids of tables with another level. `None` if too much is to
    /// be flushed while writers wait, or if a table is in the way.
    fn try_install(&self, tables: &mut NewTables, is_last: bool) -> Result<Option<Vec<u64>>> {
        let mut writer = self.commits.writer();
        self.check_writable()?;
        let waiting: usize = self.views.load().memtables().map(|memtable| memtable.bytes()).sum();
        if waiting > MOST_FLUSHED && !is_last {
            return Ok(None);
        }
        self.begin_memtable(&mut writer)?;
        flush_all_sealed(self)?;
        if is_last && let Some(range) = tables.range() {
            make_way(self, 1, range)?;
        }
        let _held = self.scheduler.hold_compactions();
        let Some(Places { moves, levels }) = Places::find(self, &tables.0) else {
            return Ok(None);
        };
        let number = writer.next_seq;
        let mut edit = Edit { flushed_seq: Some(number), ..Edit::default() };
        let mut added = Vec::new();
        for (live, level) in moves {
            edit.removed.push((0, live.table.id()));
            added.push((level, live.open()));
        }
        for (open, level) in mem::take(&mut tables.0).into_iter().zip(levels) {
            added.push((level, open.with_number(number)));
        }
        let moved = edit.removed.len();
        let ids: Vec<u64> = added.iter().map(|(_, open)| open.table.id()).collect();
        let fresh = self.new_memtable(writer.log.id().number, number + 1);
        let installed = self.install(edit, &mut added, Some(fresh));
        installed.inspect_err(|error| discard(&added[moved..], error))?;
        writer.next_seq = number + 1;
        // Validations under way look into the tables again.
        writer.recent.clear();
        self.sequences.publish(number);
        self.sequences.note_synced(number);
        let tables_ingested = (ids.len() - moved) as u64;
        let tables_moved = moved as u64;
        self.env.ledger.count(Activity { tables_moved, tables_ingested, ..Activity::default() });
        Ok(Some(ids))
    }
}

fn check(outputs: &Outputs<'_>, key: &[u8], value: &[u8]) -> Result<()> {
    check_lengths(key.len(), value.len())?;
    if let Some(before) = outputs.last_key().filter(|&before| key <= before) {
        return Err(Error::Unsorted { key: Value::copied(key), before: Value::copied(before) });
    }
    Ok(())
}
