//! Flushes: the oldest sealed memtable becomes a table on L0.

use std::ops::Bound;
use std::sync::Arc;

use crate::compaction::write_tables;
use crate::db::inner::DbInner;
use crate::error::Result;
use crate::event::Event;
use crate::iter::Direction;
use crate::memtable::{Memtable, MemtableCursor};
use crate::names::FileName;
use crate::sstable::Properties;
use crate::version::Edit;

use super::compact::{discard, ids, tables_and_error, with_merge_context};

/// Flushes every sealed memtable on this thread.
pub(crate) fn flush_all_sealed(db: &DbInner) -> Result<()> {
    while flush_oldest(db)? {}
    Ok(())
}

/// Flushes the oldest sealed memtable to an L0 table; false if there is none.
pub(super) fn flush_oldest(db: &DbInner) -> Result<bool> {
    if db.views.load().sealed.is_empty() {
        return Ok(false);
    }
    let _running = db.scheduler.begin_flush()?;
    let (memtable, next_log) = {
        // Not held any longer: it would keep every filter in memory that is dropped meanwhile.
        let view = db.views.load();
        let Some(memtable) = view.sealed.last() else { return Ok(false) };
        let next = view.sealed.iter().rev().nth(1).unwrap_or(&view.memtable);
        (Arc::clone(memtable), next.log())
    };
    db.options.listener.notify(&Event::FlushStarted {});
    let flushed = flush_memtable(db, &memtable, next_log);
    let (tables, error) = tables_and_error(&flushed);
    db.options.listener.notify(&Event::FlushEnded { tables, error });
    flushed.map(|_| true)
}

fn flush_memtable(db: &DbInner, memtable: &Arc<Memtable>, next_log: u64) -> Result<Vec<u64>> {
    // Its log is not written to any more. Once its end is synced, a sync of a later log covers
    // everything before, and the log itself can go as soon as the table is there.
    db.close_earlier_logs()?;
    let snapshots = db.visibility.snapshots();
    let start = Bound::Unbounded;
    let mut cursor = MemtableCursor::new(Arc::clone(memtable), Direction::Forward, start);
    // Loads the view when it is called: a version held until the end could be the last with some table.
    let filter_for =
        |table: &Properties| db.filters.recipe_for_flush(&db.views.load().version, table);
    let stops = || db.scheduler.stops();
    let tables = with_merge_context(db, snapshots, u64::MAX, &filter_for, &stops, |context| {
        write_tables(&mut cursor, memtable.len(), |_| false, &context)
    })?;

    let edit = Edit {
        log: Some(next_log),
        flushed_seq: tables.iter().map(|open| open.table.meta().max_seq).max(),
        ..Edit::default()
    };
    let added: Vec<_> = tables.iter().map(|open| (0, open.clone())).collect();
    db.install(edit, &added).inspect_err(|error| discard(&tables, error))?;
    db.remove(FileName::Log(memtable.log()));
    Ok(ids(&tables))
}
