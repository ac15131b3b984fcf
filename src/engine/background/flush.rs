//! Flushes: each turns the oldest sealed memtable into an L0 table, without the entries that no reader needs.

use std::sync::Arc;

use crate::compaction::{MergeContext, none_has, write_memtable};
use crate::engine::inner::DbInner;
use crate::error::Result;
use crate::event::Event;
use crate::ledger::Work;
use crate::memtable::Memtable;
use crate::names::FileName;
use crate::sstable::TableWriter;
use crate::sync::Instant;
use crate::version::Edit;

use super::compact::{Written, discard, written_and_error};

pub(crate) fn flush_all_sealed(db: &DbInner) -> Result<()> {
    while flush_oldest(db)? {}
    Ok(())
}

/// Flushes the oldest sealed memtable to an L0 table; false if there is none.
pub(super) fn flush_oldest(db: &DbInner) -> Result<bool> {
    db.env.birth.check_process()?;
    if db.views.load().sealed.is_empty() {
        return Ok(false);
    }
    // Its table could not be installed, and each attempt would leave one.
    db.health.check_poison()?;
    let _running = db.scheduler.begin_flush()?;
    let (memtable, next_log) = {
        // Dropped at once: a view keeps filters in memory that the budget releases later.
        let view = db.views.load();
        let Some(memtable) = view.sealed.last() else { return Ok(false) };
        let next = view.sealed.iter().rev().nth(1).unwrap_or(&view.memtable);
        (Arc::clone(memtable), next.log())
    };
    db.report_move();
    db.options.listener.notify(&Event::FlushStarted {});
    let start = Instant::now();
    let flushed = flush_memtable(db, &memtable, next_log);
    let duration = start.elapsed();
    let (Written { tables, bytes }, error) = written_and_error(&flushed);
    db.options.listener.notify(&Event::FlushEnded { tables, bytes, duration, error });
    if flushed.is_ok() {
        let (output_bytes, nanos) = (bytes, duration.as_nanos() as u64);
        db.env.ledger.count_flush(Work { input_bytes: 0, output_bytes, nanos });
    }
    flushed.map(|_| true)
}

fn flush_memtable(db: &DbInner, memtable: &Arc<Memtable>, next_log: u64) -> Result<Written> {
    // Logs before the current one are complete. Once they are synced, a sync of a later log makes all
    // earlier entries durable, and the log of this memtable can go when its table is installed.
    db.close_earlier_logs(|| db.health.check_poison())?;
    // Loads the view when it is called: a version held until the end could be the last with some table.
    let filter_for = |table: &TableWriter| {
        db.filters.recipe_for_flush(&db.views.load().version, table.key_counts())
    };
    let stops = || db.scheduler.stops();
    let (over, snapshots) = db.reclaimable();
    let context = MergeContext {
        env: &db.env,
        settings: &db.table_settings(),
        filter_for: &filter_for,
        table_bytes: u64::MAX,
        ignore_filters: db.options.ignore_filters,
        snapshots,
        over,
        cancelled: &stops,
    };
    // Older entries are in tables alone: this memtable is the oldest one. Later versions have no keys that this
    // one has not.
    let nothing_older = |key: &[u8]| {
        let view = db.views.load();
        none_has(view.version.covering(0, key), key, &context)
    };
    let tables = write_memtable(memtable, nothing_older, &context)?;

    let edit = Edit {
        log: Some(next_log),
        // Entries that were dropped count, too.
        flushed_seq: Some(memtable.newest()).filter(|_| !memtable.is_empty()),
        ..Edit::default()
    };
    let written = Written::of(&tables);
    let mut added: Vec<_> = tables.into_iter().map(|open| (0, open)).collect();
    // The edit ends the wait of writers, whose next memtable needs a log soon.
    db.make_demanded_log();
    db.install(edit, &mut added, None).inspect_err(|error| discard(&added, error))?;
    db.remove(FileName::Log(memtable.log()));
    Ok(written)
}
