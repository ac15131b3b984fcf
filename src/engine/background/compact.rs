//! Runs compactions: those that are due, those of a quiet store, and `compact`.

use std::sync::Arc;

use super::filter_tasks::{apply_filter_budget, rebuild_filter};
use super::{ManualCompaction, State};
use crate::compaction::{
    Compaction, How, MergeContext, everything, merge, pick, pick_idle, pick_within_l0,
};
use crate::engine::inner::DbInner;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::ledger::{Activity, Work};
use crate::sstable::{OpenTable, TableWriter, block_bits};
use crate::sync::{Instant, Ordering};
use crate::version::{Edit, Version};
use crate::view::ReadView;

/// The filter of a moved table is replaced if it has so many times the bits of the plan.
const TOO_LARGE: f64 = 1.1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Now,
    /// Worth doing when the store is quiet.
    Idle,
}

/// The next compaction of the current version. Callers keep the view: dropping the last reference to a
/// version removes files, for which writers would wait under the scheduler's lock.
pub(super) fn picked(db: &DbInner, view: &ReadView, state: &State, due: Due) -> Option<Compaction> {
    let is_held = state.is_held() || state.manual == Some(ManualCompaction::Waits);
    if !db.compacts_by_itself() || is_held || state.stop {
        return None;
    }
    let (over, snapshots) = db.reclaimable();
    let settings = db.options.pick_settings(snapshots, over);
    match due {
        Due::Now => pick(&view.version, &settings, &state.busy),
        Due::Idle => pick_idle(&view.version, &settings, &state.busy),
    }
}

pub(crate) fn set_auto_compaction(db: &DbInner, on: bool) -> Result<()> {
    db.auto_compaction.store(on, Ordering::Relaxed);
    // Threads find what is due, and writers that wait for L0 go on.
    db.scheduler.wake_waiters();
    if db.is_inline() { compact_while_due(db) } else { Ok(()) }
}

/// Runs due compactions and filter tasks on this thread until none is left.
pub(crate) fn compact_while_due(db: &DbInner) -> Result<()> {
    // The budget last, because each compaction replaces filters.
    while compact_once(db, Due::Now)? || apply_filter_budget(db) {}
    Ok(())
}

pub(super) fn compact_once(db: &DbInner, due: Due) -> Result<bool> {
    let mut state = db.scheduler.state.lock();
    let view = db.views.load();
    let Some(compaction) = picked(db, &view, &state, due) else { return Ok(false) };
    let version = Arc::clone(&view.version);
    drop(view);
    db.health.check_poison()?; // as for a flush
    let _running = db.scheduler.begin_compaction(&mut state, &compaction);
    drop(state);
    let l0 = |version: &Version| version.sound_l0();
    let limit = l0(&version) + db.options.l0_compaction_trigger;
    let limit = limit.min(db.options.l0_stop_trigger);
    // Writers have filled L0 again, and would wait for this merge.
    let unwanted = || due == Due::Idle && l0(&db.views.load().version) >= limit;
    // However it ended, another may be due: after damage, one without the damaged table.
    run_compaction(db, compaction, version, &unwanted).map(|_| true)
}

/// Merges all tables into one run, on this thread.
pub(super) fn compact_everything(db: &DbInner) -> Result<()> {
    let compact = OneCompact::begin(db)?;
    let mut state = db.scheduler.state.lock();
    while state.has_compactions() || state.is_held() {
        db.check_writable()?;
        // Other threads begin no merge while this one waits, so L0 could fill up.
        let version = Arc::clone(&db.views.load().version);
        let settings = db.options.pick_settings(Vec::new(), 0);
        let within = pick_within_l0(&version, &settings, &state.busy);
        let Some(compaction) = within.filter(|_| !state.is_held()) else {
            state = db.scheduler.changed.wait(state);
            continue;
        };
        let running = db.scheduler.begin_compaction(&mut state, &compaction);
        drop(state);
        run_compaction(db, compaction, version, &|| false)?;
        drop(running);
        state = db.scheduler.state.lock();
    }
    db.check_writable()?;
    let version = Arc::clone(&db.views.load().version);
    let Some(compaction) = everything(&version, db.env.time.for_merges()) else { return Ok(()) };
    let _running = db.scheduler.begin_compaction(&mut state, &compaction);
    drop(state);
    compact.has_begun();
    match run_compaction(db, compaction, version, &|| false)? {
        Ended::Damaged(error) => Err(error),
        Ended::Done | Ended::GaveWay => Ok(()),
    }
}

/// Writes each table with an id below `before` anew, on its level, on this thread. Returns their number. Goes on
/// after a damaged table, and fails at the end.
pub(super) fn rewrite(db: &DbInner, before: u64) -> Result<u64> {
    let tables = db.views.load().version.tables().map(|(_, live)| live.table.id()).collect();
    let (mut rewritten, mut damage): (u64, Option<Error>) = (0, None);
    let mut ids: Vec<u64> = tables;
    ids.retain(|&id| id < before);
    ids.sort_unstable();
    for id in ids {
        let mut state = db.scheduler.state.lock();
        while state.busy.contains(id) || state.manual.is_some() || state.is_held() {
            db.check_writable()?;
            state = db.scheduler.changed.wait(state);
        }
        db.check_writable()?;
        let version = Arc::clone(&db.views.load().version);
        let input = version.tables().find(|(_, live)| live.table.id() == id);
        // Otherwise another compaction has rewritten it.
        let Some((level, live)) = input.map(|(level, live)| (level, live.clone())) else {
            continue;
        };
        let inputs = vec![(level, live)];
        let compaction = Compaction { inputs, output_level: level, how: How::Merge };
        let _running = db.scheduler.begin_compaction(&mut state, &compaction);
        drop(state);
        match run_compaction(db, compaction, version, &|| false)? {
            Ended::Damaged(error) => drop(damage.get_or_insert(error)),
            Ended::Done | Ended::GaveWay => rewritten += 1,
        }
    }
    damage.map_or(Ok(rewritten), Err)
}

/// Guard: the only `compact` that runs. Until its tables are busy, no background compaction begins.
struct OneCompact<'a>(&'a DbInner);

impl<'a> OneCompact<'a> {
    fn begin(db: &'a DbInner) -> Result<Self> {
        let mut state = db.scheduler.state.lock();
        while state.manual.is_some() {
            db.check_writable()?;
            state = db.scheduler.changed.wait(state);
        }
        state.manual = Some(ManualCompaction::Waits);
        Ok(Self(db))
    }

    /// Call this once its tables are busy: background compactions of later L0 tables may begin.
    fn has_begun(&self) {
        self.0.scheduler.state.lock().manual = Some(ManualCompaction::Merges);
        self.0.scheduler.changed.notify_all();
    }
}

impl Drop for OneCompact<'_> {
    fn drop(&mut self) {
        self.0.scheduler.state.lock().manual = None;
        self.0.scheduler.changed.notify_all();
    }
}

/// How a compaction ended that did not fail otherwise.
pub(super) enum Ended {
    Done,
    /// It was not wanted any more.
    GaveWay,
    /// It met a damaged table.
    Damaged(Error),
}

/// Runs a compaction and notifies the listener.
pub(super) fn run_compaction(
    db: &DbInner,
    mut compaction: Compaction,
    mut version: Arc<Version>,
    unwanted: &dyn Fn() -> bool,
) -> Result<Ended> {
    if db.env.filter_memory.budget().is_some() {
        // The compaction would keep filters in memory that are dropped meanwhile.
        version = Arc::new(version.without_filters());
        compaction.inputs.iter_mut().for_each(|(_, live)| *live = live.without_filter());
    }
    let (tables, output_level) = (compaction.ids().collect(), compaction.output_level);
    let sound = compaction.inputs.iter().map(|(_, live)| &live.table);
    let sound: Vec<_> = sound.filter(|table| !table.is_damaged()).map(Arc::clone).collect();
    db.report_move();
    db.options.listener.notify(&Event::CompactionStarted { tables, output_level });
    let start = Instant::now();
    let merged = compact_and_install(db, &compaction, &version, unwanted);
    let duration = start.elapsed();
    let (Written { tables, bytes }, mut error) = written_and_error(&merged);
    let gave_way = matches!(merged, Err(Error::Closed)) && !db.scheduler.stops();
    if gave_way {
        error = Some("it gave way to writers".into());
    }
    let ended = Event::CompactionEnded { tables, output_level, bytes, duration, error };
    db.options.listener.notify(&ended);
    match merged {
        Ok(_) => {
            let (input_bytes, nanos) = (compaction.bytes(), duration.as_nanos() as u64);
            if compaction.how == How::Merge {
                db.env.ledger.count_compaction(Work { input_bytes, output_bytes: bytes, nanos });
            }
            Ok(Ended::Done)
        }
        Err(_) if gave_way => Ok(Ended::GaveWay),
        Err(error) if db.report_damage(&sound) => Ok(Ended::Damaged(error)),
        Err(error) => Err(error),
    }
}

fn compact_and_install(
    db: &DbInner,
    compaction: &Compaction,
    version: &Version,
    unwanted: &dyn Fn() -> bool,
) -> Result<Written> {
    let output_level = compaction.output_level;
    let tables: Vec<_> = match compaction.how {
        How::Move => compaction.inputs.iter().map(|(_, live)| live.open()).collect(),
        How::Remove => Vec::new(),
        How::Merge => {
            let (over, snapshots) = db.reclaimable();
            let recipe_for =
                db.filters.recipes_for_outputs(version, &compaction.inputs, output_level);
            let filter_for = |table: &TableWriter| recipe_for(table.key_counts());
            // Ranges of sequence numbers of L0 tables do not overlap, so a merge within L0 has one output.
            let table_bytes = if output_level == 0 { u64::MAX } else { db.options.table_bytes };
            let cancelled = || db.scheduler.stops() || unwanted();
            let context = MergeContext {
                env: &db.env,
                settings: &db.table_settings(),
                filter_for: &filter_for,
                table_bytes,
                ignore_filters: db.options.ignore_filters,
                snapshots,
                over,
                cancelled: &cancelled,
            };
            merge(compaction, version, &context)?
        }
    };
    let edit = Edit {
        removed: compaction.inputs.iter().map(|(at, live)| (*at, live.table.id())).collect(),
        ..Edit::default()
    };
    let mut written = Written::of(&tables);
    let mut added: Vec<_> = tables.into_iter().map(|open| (output_level, open)).collect();
    let installed = db.install(edit, &mut added, None);
    match compaction.how {
        How::Move => {
            installed?;
            written.bytes = 0;
            let tables_moved = written.tables.len() as u64;
            db.env.ledger.count(Activity { tables_moved, ..Activity::default() });
            fit_filters(db, compaction, version);
        }
        How::Remove => {
            installed?;
            let tables_expired = compaction.inputs.len() as u64;
            db.env.ledger.count(Activity { tables_expired, ..Activity::default() });
        }
        How::Merge => {
            installed.inspect_err(|error| discard(&added, error))?;
            db.env.ledger.count(Activity { compactions: 1, ..Activity::default() });
        }
    }
    Ok(written)
}

/// Gives tables that moved down a level the filters of that level. A table of L0 has more bits per key than a table of
/// the last level, and keys in ascending order move all tables there.
pub(super) fn fit_filters(db: &DbInner, moved: &Compaction, version: &Version) {
    let recipe_for = db.filters.recipes_for_outputs(version, &moved.inputs, moved.output_level);
    for (_, live) in &moved.inputs {
        let Some(stored) = live.filter.sound() else { continue };
        let Some(recipe) = recipe_for(live.key_counts(db.filters.extractor())) else { continue };
        let planned = block_bits(&recipe, stored.counts().hashed()) as f64;
        let is_of_policy = (stored.kind, stored.hash) == (recipe.kind, recipe.hash);
        if is_of_policy && 8.0 * live.filter.meta.bytes as f64 > TOO_LARGE * planned {
            // After an error the table keeps its filter, which is right, and the move has succeeded. Damage was
            // reported.
            let _ = rebuild_filter(db, live, Some(&recipe));
        }
    }
}

/// What a task wrote.
#[derive(Clone, Default)]
pub(super) struct Written {
    /// Ids.
    pub(super) tables: Vec<u64>,
    pub(super) bytes: u64,
}

impl Written {
    pub(super) fn of(tables: &[OpenTable]) -> Self {
        Self {
            tables: tables.iter().map(|open| open.table.id()).collect(),
            bytes: tables.iter().map(|open| open.table.meta().size).sum(),
        }
    }
}

/// What a task wrote, and the text of its error, for an event.
pub(super) fn written_and_error(written: &Result<Written>) -> (Written, Option<String>) {
    match written {
        Ok(written) => (written.clone(), None),
        Err(error) => (Written::default(), Some(error.to_string())),
    }
}

/// Removes tables whose installation failed. After [`Error::Poisoned`] they stay, because the manifest may
/// name them; the next open decides.
pub(crate) fn discard(tables: &[(usize, OpenTable)], error: &Error) {
    if !matches!(error, Error::Poisoned { .. }) {
        for (_, open) in tables {
            open.table.make_obsolete();
        }
    }
}
