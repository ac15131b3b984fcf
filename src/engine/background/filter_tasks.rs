//! Filter tasks: residency of filters, and rebuilds.
//!
//! The manifest does not record residency. A change of it installs a version that differs in one filter;
//! readers keep the version that they began with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::inner::DbInner;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::filter_manager::{ResidencyChange, residency_changes};
use crate::ledger::Activity;
use crate::sstable::{FilterMeta, FilterState, OpenTable, TableFilter, resident_bytes};
use crate::sync::{Instant, sleep};
use crate::version::LiveTable;
use criba_filter::store::Recipe;

/// The longest total wait for readers that hold replaced filters. Most lookups are shorter, so the memory is
/// usually free when the call returns.
const WAIT_BUDGET: Duration = Duration::from_millis(200);

/// Sets the memory budget, and releases filters until the filters of the current version are within it.
pub(crate) fn set_filter_memory(db: &DbInner, budget: Option<u64>) {
    let memory = &db.env.filter_memory;
    memory.set_budget(budget);
    let mut wait_budget = WAIT_BUDGET;
    // Another thread may load a filter again meanwhile, or set another budget; the current budget counts.
    while memory.budget().is_some_and(|budget| live_filter_bytes(db) > budget) {
        // In the head of the `for` loop, the view would live during the loop, and keep the filters.
        let (less, _) = residency_changes(&db.views.load().version, &db.env);
        for change in less {
            change_residency(db, &change, &mut wait_budget);
        }
    }
    db.filters.note_budget();
    db.scheduler.wake_waiters();
    if db.is_inline() {
        while apply_filter_budget(db) {}
    }
}

/// With a budget, loads the filters that it has room for: an open left them on the disk.
pub(crate) fn load_filters_within_budget(db: &DbInner) {
    if db.options.filter_memory.is_some() {
        db.filters.note_budget();
        apply_filter_budget(db);
    }
}

fn live_filter_bytes(db: &DbInner) -> u64 {
    let view = db.views.load();
    let residencies = view.version.tables().filter_map(|(_, live)| live.filter.residency());
    residencies.map(|(stored, portion)| resident_bytes(stored, portion)).sum()
}

/// Releases and loads filters as the budget requires; false if the budget was not due.
pub(super) fn apply_filter_budget(db: &DbInner) -> bool {
    let _running = {
        let mut state = db.scheduler.state.lock();
        if state.stop || !db.filters.take_budget_due() {
            return false;
        }
        db.scheduler.begin_filter_task(&mut state)
    };
    let (less, more) = residency_changes(&db.views.load().version, &db.env);
    let mut wait_budget = WAIT_BUDGET;
    for change in less.iter().chain(&more) {
        if db.scheduler.stops() {
            break;
        }
        change_residency(db, change, &mut wait_budget);
    }
    true
}

/// Makes a change, unless the table is gone, its filter changed, or the budget has no room.
fn change_residency(db: &DbInner, change: &ResidencyChange, wait_budget: &mut Duration) {
    // `try_change` has released its locks.
    if let Some(degraded) = try_change(db, change, wait_budget) {
        db.options.listener.notify(&degraded);
    }
}

/// As `change_residency`. Returns an event if the stored filter is damaged.
fn try_change(db: &DbInner, change: &ResidencyChange, wait_budget: &mut Duration) -> Option<Event> {
    let memory = &db.env.filter_memory;
    let _budget = memory.lock_budget();
    let live = db.views.load().version.table(change.table)?.clone();
    let bytes = |portion| live.filter.residency().map_or(0, |of| resident_bytes(of.0, portion));
    if change.to > change.from && !memory.has_room(bytes(change.from), bytes(change.to)) {
        return None;
    }
    let next = change.apply(&live)?;
    let degraded = match &next.state {
        FilterState::Degraded(reason) => {
            let (path, offset) = live.open().filter_location();
            let (table, reason) = (change.table, reason.clone());
            Some(Event::FilterDegraded { table, path, offset, reason })
        }
        _ => None,
    };
    if !replace_filter(db, change.table, &live.filter, next) {
        return None;
    }
    wait_for_readers(db, &live.filter, wait_budget);
    degraded
}

/// Replaces `old` by `new`, if `old` is still the filter of the table.
fn replace_filter(db: &DbInner, table: u64, old: &Arc<TableFilter>, new: TableFilter) -> bool {
    let _installing = db.installing.lock();
    let version = {
        let view = db.views.load();
        let live = view.version.table(table);
        if !live.is_some_and(|live| Arc::ptr_eq(&live.filter, old)) {
            return false;
        }
        Arc::new(view.version.with_filters(&BTreeMap::from([(table, Arc::new(new))])))
    };
    db.views.change(|view| view.version = version);
    db.scheduler.wake_waiters();
    true
}

/// Waits until no reader holds a replaced filter, at most for `wait_budget`, and subtracts the wait from it.
fn wait_for_readers(db: &DbInner, replaced: &Arc<TableFilter>, wait_budget: &mut Duration) {
    let start = Instant::now();
    loop {
        db.views.drop_replaced();
        if Arc::strong_count(replaced) == 1 || start.elapsed() >= *wait_budget {
            break;
        }
        sleep(Duration::from_micros(50));
    }
    *wait_budget = wait_budget.saturating_sub(start.elapsed());
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rebuilt {
    New,
    AlreadyRight,
    Removed,
    Gone,
}

/// Replaces the filter of a table by one of this recipe, or by none; does nothing if the filter is right
/// already. The old filter stays in use until the new one is proven and in the manifest.
pub(crate) fn rebuild_filter(
    db: &DbInner,
    live: &LiveTable,
    recipe: Option<&Recipe>,
) -> Result<Rebuilt> {
    let start = Instant::now();
    let running = db.scheduler.begin_rebuilding();
    db.check_writable()?;
    let id = live.table.id();
    // Read now, when no other thread can replace its filter.
    let current = db.views.load().version.table(id).map(LiveTable::open);
    let Some(current) = current else { return Ok(Rebuilt::Gone) };
    let filter = match (current.filter.sound(), recipe) {
        (_, None) if current.filter.meta.bytes == 0 => return Ok(Rebuilt::AlreadyRight),
        (Some(stored), Some(recipe)) if stored.follows(recipe, db.filters.extractor()) => {
            return Ok(Rebuilt::AlreadyRight);
        }
        (_, None) => {
            let generation = current.filter.meta.generation + 1;
            let meta = FilterMeta { generation, ..FilterMeta::default() };
            Arc::new(TableFilter::new(&db.env, id, meta, FilterState::None))
        }
        (_, Some(recipe)) => {
            let was_sound = !current.table.is_damaged();
            new_filter(db, &current, recipe).inspect_err(|_| {
                db.report_damage(was_sound.then_some(&current.table));
            })?
        }
    };
    match db.install_filter(id, &filter) {
        Ok(true) => {}
        Ok(false) => {
            filter.make_obsolete();
            return Ok(Rebuilt::Gone);
        }
        // The manifest may name the new file: it stays, and the next open decides.
        Err(error @ Error::Poisoned { .. }) => return Err(error),
        Err(error) => {
            filter.make_obsolete();
            return Err(error);
        }
    }
    drop(running);
    let rebuilt = if recipe.is_some() { Rebuilt::New } else { Rebuilt::Removed };
    if rebuilt == Rebuilt::New {
        db.env.ledger.count(Activity { filters_rebuilt: 1, ..Activity::default() });
    }
    let (filter, duration) = ((&*filter).into(), start.elapsed());
    db.options.listener.notify(&Event::FilterRebuilt { table: id, filter, duration });
    Ok(rebuilt)
}

/// Builds a filter of all keys of a table, syncs it, reads it back, and probes it with every key.
fn new_filter(db: &DbInner, open: &OpenTable, recipe: &Recipe) -> Result<Arc<TableFilter>> {
    let table = Arc::clone(&open.table);
    db.options.listener.notify(&Event::FilterRebuildStarted { table: table.id() });
    let hashes = table.key_hashes(recipe, db.filters.extractor(), &|| db.scheduler.stops())?;
    let meta = table.write_filter(recipe, &hashes, open.filter.meta.generation)?;
    let mut open = OpenTable { filter: Arc::new(table.load_filter(meta)), table };
    open.verify_filter(&hashes).inspect_err(|_| open.filter.make_obsolete())?;
    open.reduce_to_budget();
    Ok(open.filter)
}
