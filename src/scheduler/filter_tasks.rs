//! Filter tasks: residency of filters, and rebuilds.
//!
//! Residency is not in the manifest. A change replaces the version in the view by one that differs in that
//! filter; readers keep the version that they began with.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::db::inner::DbInner;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::filter::Recipe;
use crate::filters::{ResidencyChange, residency_changes};
use crate::ledger::Activity;
use crate::sstable::{FilterMeta, FilterState, OpenTable, TableFilter, resident_bytes};
use crate::sync::{Instant, sleep};
use crate::version::LiveTable;

/// The longest total wait for readers of replaced filters, so that the memory is free when the call returns.
/// Lookups are shorter, unless the disk is slow.
const PATIENCE: Duration = Duration::from_millis(200);

/// Sets the memory budget. Returns when resident filters are within it, but for filters that readers hold.
pub(crate) fn set_filter_memory(db: &DbInner, budget: Option<u64>) {
    let memory = &db.env.filter_memory;
    memory.set_budget(budget);
    let mut patience = PATIENCE;
    // Again, should another thread have brought a filter back between the plan and now. The budget in force
    // counts: another caller's may have taken the place of this one.
    while memory.budget().is_some_and(|budget| live_filter_bytes(db) > budget) {
        // A statement of its own: within the loop the view would be held, and with it the filters.
        let (less, _) = residency_changes(&db.views.load().version, &db.env);
        for change in less {
            change_residency(db, &change, &mut patience);
        }
    }
    db.filters.note_budget();
    db.scheduler.announce();
    if db.is_inline() {
        while fit_filters(db) {}
    }
}

/// Loads the filters that the budget has room for, if the tables were opened without them.
pub(crate) fn load_filters_within_budget(db: &DbInner) {
    if db.options.filter_memory.is_some() {
        db.filters.note_budget();
        fit_filters(db);
    }
}

fn live_filter_bytes(db: &DbInner) -> u64 {
    let view = db.views.load();
    let residencies = view.version.tables().filter_map(|(_, live)| live.filter.residency());
    residencies.map(|(stored, portion)| resident_bytes(stored, portion)).sum()
}

/// Releases and loads filters as the budget demands; false if nothing was due.
pub(super) fn fit_filters(db: &DbInner) -> bool {
    let _running = {
        let mut state = db.scheduler.state.lock();
        if state.stop || !db.filters.take_budget_due() {
            return false;
        }
        db.scheduler.begin_filter_check(&mut state)
    };
    let (less, more) = residency_changes(&db.views.load().version, &db.env);
    let mut patience = PATIENCE;
    for change in less.iter().chain(&more) {
        if db.scheduler.stops() {
            break;
        }
        change_residency(db, change, &mut patience);
    }
    true
}

/// Makes a change, unless the table is gone or its filter changed, or there is no room.
fn change_residency(db: &DbInner, change: &ResidencyChange, patience: &mut Duration) {
    // With no lock held.
    if let Some(degraded) = try_change(db, change, patience) {
        db.options.listener.notify(&degraded);
    }
}

/// As `change_residency`. Returns the event if the filter is damaged.
fn try_change(db: &DbInner, change: &ResidencyChange, patience: &mut Duration) -> Option<Event> {
    let memory = &db.env.filter_memory;
    let _taking = memory.taking();
    let live = db.views.load().version.table(change.table)?.clone();
    let (stored, now) = live.filter.residency()?;
    if now != change.from {
        return None;
    }
    let next = if change.to < now {
        live.filter.reduced_to(change.to)
    } else {
        let bytes = |portion| resident_bytes(stored, portion);
        if !memory.has_room(bytes(now), bytes(change.to)) {
            return None;
        }
        match (live.table.load_portion(&live.filter, stored, change.to), &live.filter.state) {
            (Ok(filter), _) => live.filter.in_state(FilterState::Active(filter)),
            (Err(reason), FilterState::Active(filter)) => {
                filter.stored_is_damaged(reason);
                return None;
            }
            (Err(reason), _) => live.filter.in_state(FilterState::Degraded(reason)),
        }
    };
    let degraded = match &next.state {
        FilterState::Degraded(reason) => {
            let (path, offset) = live.open().filter_place();
            let (table, reason) = (change.table, reason.clone());
            Some(Event::FilterDegraded { table, path, offset, reason })
        }
        _ => None,
    };
    if !replace_filter(db, change.table, &live.filter, next) {
        return None;
    }
    wait_for_readers(db, &live.filter, patience);
    degraded
}

/// Replaces a filter, if it is still the one of its table.
fn replace_filter(db: &DbInner, table: u64, old: &Arc<TableFilter>, new: TableFilter) -> bool {
    let new = HashMap::from([(table, Arc::new(new))]);
    let mut replaced = false;
    db.views.change(|view| {
        let live = view.version.table(table);
        replaced = live.is_some_and(|live| Arc::ptr_eq(&live.filter, old));
        if replaced {
            view.version = Arc::new(view.version.with_filters(&new));
        }
    });
    db.scheduler.announce();
    replaced
}

/// Waits until no reader holds a replaced filter, or the patience ends.
fn wait_for_readers(db: &DbInner, replaced: &Arc<TableFilter>, patience: &mut Duration) {
    let start = Instant::now();
    loop {
        db.views.drop_replaced();
        if Arc::strong_count(replaced) == 1 || start.elapsed() >= *patience {
            break;
        }
        sleep(Duration::from_micros(50));
    }
    *patience = patience.saturating_sub(start.elapsed());
}

/// Refits one table; false if none needs it.
pub(super) fn refit_once(db: &DbInner) -> Result<bool> {
    if !db.options.auto_compaction {
        return Ok(false);
    }
    // From before a table is taken from the queue: a thread that finds it empty waits for this one.
    let _running = db.scheduler.begin_filter_check(&mut db.scheduler.state.lock());
    let next = db.filters.next_refit(&db.views.load().version);
    let Some((live, recipe, policy)) = next else { return Ok(false) };
    let id = live.table.id();
    let table_is_busy = {
        let mut state = db.scheduler.state.lock();
        if state.stop || state.whole.is_some() {
            return Ok(false);
        }
        // A table that is busy is being rewritten. From here on, a change of the policy waits for this.
        if state.busy.contains(&id) || db.filters.policy() != policy {
            return Ok(true);
        }
        db.scheduler.begin_compaction(&mut state, [id])
    };
    let done = rebuild_filter(db, &live, recipe.as_ref());
    // The filter that was replaced is dropped before a thread sees that this is over.
    drop(live);
    drop(table_is_busy);
    done.map(|_| true).inspect_err(|error| {
        // A damaged table is no reason to leave others without theirs.
        db.filters.note_failed_refit(id, matches!(error, Error::Corrupt { .. }));
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rebuilt {
    New,
    AlreadyRight,
    Removed,
    Gone,
}

/// Gives a table the filter of a recipe, or none, unless it has that already. Reads the table without a lock.
/// The old filter stays in use until the new one is proven and recorded.
pub(crate) fn rebuild_filter(
    db: &DbInner,
    live: &LiveTable,
    recipe: Option<&Recipe>,
) -> Result<Rebuilt> {
    let running = db.scheduler.begin_rebuilding();
    db.check_writable()?;
    let id = live.table.id();
    // As it is now that no other thread can change it.
    let current = db.views.load().version.table(id).map(LiveTable::open);
    let Some(current) = current else { return Ok(Rebuilt::Gone) };
    let filter = match (current.filter.sound(), recipe) {
        (_, None) if current.filter.meta.bytes == 0 => return Ok(Rebuilt::AlreadyRight),
        (Some(stored), Some(recipe)) if stored.follows(recipe, db.options.prefix) => {
            return Ok(Rebuilt::AlreadyRight);
        }
        (_, None) => {
            let generation = current.filter.meta.generation + 1;
            let meta = FilterMeta { generation, ..FilterMeta::default() };
            Arc::new(TableFilter::new(&db.env, id, meta, FilterState::None))
        }
        (_, Some(recipe)) => new_filter(db, &current, recipe)?,
    };
    match db.install_filter(id, &filter) {
        Ok(true) => {}
        Ok(false) => {
            filter.make_obsolete();
            return Ok(Rebuilt::Gone);
        }
        // Whether the manifest names the new file is in doubt: it stays, and the next open decides.
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
    db.options.listener.notify(&Event::FilterRebuilt { table: id, filter: (&*filter).into() });
    Ok(rebuilt)
}

/// Builds a filter of all keys of a table, syncs it, reads it back and probes it with every key.
fn new_filter(db: &DbInner, open: &OpenTable, recipe: &Recipe) -> Result<Arc<TableFilter>> {
    let table = Arc::clone(&open.table);
    db.options.listener.notify(&Event::FilterRebuildStarted { table: table.id() });
    let hashes = table.key_hashes(recipe, db.options.prefix, &|| db.scheduler.stops())?;
    let meta = table.write_filter(recipe, &hashes, open.filter.meta.generation)?;
    let mut open = OpenTable { filter: Arc::new(table.load_filter(meta)), table };
    open.prove(&hashes).inspect_err(|_| open.filter.make_obsolete())?;
    open.fit_filter();
    Ok(open.filter)
}
