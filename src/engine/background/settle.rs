//! Calls that wait for background tasks. Some run tasks on their own thread.

use super::Task;
use super::compact::{Due, compact_everything, compact_once, compact_while_due, picked, rewrite};
use super::flush::flush_all_sealed;
use crate::engine::inner::DbInner;
use crate::error::Result;
use crate::view::ReadView;

/// Waits while the current view is `behind`. Fails if the newest task of this kind failed.
pub(crate) fn wait_while(
    db: &DbInner,
    task: Task,
    behind: impl Fn(&ReadView) -> bool,
) -> Result<bool> {
    let mut waited = false;
    let mut state = db.scheduler.state.lock();
    while behind(&db.views.load()) {
        db.check_writable()?;
        state.check(task)?;
        waited = true;
        state = db.scheduler.changed.wait(state);
    }
    Ok(waited)
}

pub(crate) fn flush(db: &DbInner) -> Result<()> {
    db.env.birth.check_process()?;
    db.seal_memtable()?;
    if db.is_inline() {
        flush_all_sealed(db)?;
        return compact_while_due(db);
    }
    let newest = db.views.load().sealed.first().map(|memtable| memtable.log());
    let Some(newest) = newest else { return Ok(()) };
    wait_while(db, Task::Flush, |view| view.sealed.iter().any(|m| m.log() <= newest)).map(|_| ())
}

/// Flushes; then merges all tables into one run, on this thread.
pub(crate) fn compact(db: &DbInner) -> Result<()> {
    db.env.birth.check_process()?;
    let done = flush(db).and_then(|()| compact_everything(db));
    db.views.drop_replaced();
    done
}

/// Flushes; then writes the tables with ids below `before` anew, on this thread.
pub(crate) fn compact_rewriting(db: &DbInner, before: u64) -> Result<u64> {
    db.env.birth.check_process()?;
    let done = flush(db).and_then(|()| rewrite(db, before));
    db.views.drop_replaced();
    done
}

/// Flushes; waits until no task is due or running; then does idle compactions on this thread.
pub(crate) fn wait_until_settled(db: &DbInner) -> Result<()> {
    flush(db)?;
    while !is_settled(db)? {
        compact_once(db, Due::Idle)?;
    }
    db.views.drop_replaced();
    Ok(())
}

/// Waits until no task is due or running. True if no idle work is left.
fn is_settled(db: &DbInner) -> Result<bool> {
    let scheduler = &db.scheduler;
    let mut state = scheduler.state.lock();
    // Time may have passed since a thread looked for work. Once: two waiters must not wake each other for ever.
    scheduler.changed.notify_all();
    loop {
        db.check_writable()?;
        let due =
            picked(db, &db.views.load(), &state, Due::Now).is_some() || db.filters.budget_is_due();
        if !due && !state.has_compactions() && !state.is_held() && state.other_tasks == 0 {
            return Ok(picked(db, &db.views.load(), &state, Due::Idle).is_none());
        }
        if due && db.is_inline() {
            // A compaction of another caller had these tables before.
            drop(state);
            compact_while_due(db)?;
            state = scheduler.state.lock();
            continue;
        }
        state.check(Task::Compaction)?;
        state = scheduler.changed.wait(state);
    }
}
