//! Background threads, which run due tasks until the store is closed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::compact::{Due, compact_once, picked};
use super::filter_tasks::apply_filter_budget;
use super::flush::flush_oldest;
use super::{State, Task};
use crate::engine::inner::DbInner;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::expiry::Millis;
use crate::ledger::Activity;
use crate::sync::{Instant, MutexGuard, spawn};
use crate::version::Version;

/// The wait before a failed task is tried again: the first value, doubled each time up to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// The interval of checks whether readers still hold replaced memtables.
const REPLACED: Duration = Duration::from_millis(100);

/// Idle work begins when the tables have not changed for this long. A change of tables may change the size
/// that a filter should have.
const QUIET: Duration = Duration::from_secs(1);
/// An idle merge waits at least a second per this many bytes that it writes. So a store with few writes
/// spends less than half of its time on merges.
const IDLE_BYTES_PER_SECOND: u64 = 64 << 20;

/// A thread that waits for expiries looks at the clock at least so often, because the clock may jump.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// The quiet time before an idle merge that writes this many bytes.
fn quiet_before(bytes: u64) -> Duration {
    QUIET.max(Duration::from_secs(bytes / IDLE_BYTES_PER_SECOND))
}

/// The current version, and since when it is current.
#[derive(Default)]
struct Unchanged(Option<(Weak<Version>, Instant)>);

impl Unchanged {
    /// The time since the first call with this version; zero if the previous call had another one.
    fn lasts(&mut self, version: &Arc<Version>) -> Duration {
        match &self.0 {
            Some((same, since)) if std::ptr::eq(same.as_ptr(), Arc::as_ptr(version)) => {
                since.elapsed()
            }
            _ => {
                self.0 = Some((Arc::downgrade(version), Instant::now()));
                Duration::ZERO
            }
        }
    }
}

/// Starts the background threads: one for flushes, the others for all other tasks.
pub(crate) fn start_threads(db: &Arc<DbInner>) -> Result<()> {
    let mut threads = db.scheduler.threads.lock();
    if db.is_inline() {
        return Ok(());
    }
    let flusher = ("criba-flush".to_owned(), flush_in_background as fn(&DbInner));
    let compactors = (1..=db.options.background_threads)
        .map(|number| (format!("criba-compact-{number}"), compact_in_background as fn(&DbInner)));
    for (name, body) in std::iter::once(flusher).chain(compactors) {
        let inner = Arc::clone(db);
        let thread = spawn(&name, move || body(&inner)).map_err(|source| Error::Io {
            action: format!("start the thread {name}"),
            path: db.env.dir.path().to_owned(),
            source: Arc::new(source),
        })?;
        threads.push(thread);
    }
    Ok(())
}

/// Runs one task. A panic in it poisons the store.
fn attempt(db: &DbInner, run: impl FnOnce() -> Result<bool>) -> Result<bool> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        // Its result is not installed, but the data that it changed may be inconsistent.
        Err(db.poison(Error::corrupt(db.env.dir.path(), 0, "sound background work", "a panic")))
    })
}

/// Notes the result of a task, and pauses after a failure. True if more may be due at once.
fn note_result(db: &DbInner, task: Task, done: Result<bool>, retry_delay: &mut Duration) -> bool {
    let mut state = db.scheduler.state.lock();
    if state.stop {
        return false;
    }
    match done {
        Ok(did) => {
            state.failures[task as usize] = None;
            // Where another thread tries again, this one finds nothing due.
            let recovers = did && std::mem::take(&mut state.reported[task as usize]);
            if did {
                *retry_delay = RETRY.0;
                db.scheduler.changed.notify_all();
            }
            drop(state);
            if recovers {
                db.options.listener.notify(&Event::BackgroundRecovered { work: task.name() });
            }
            did
        }
        Err(error) => {
            let is_news = !std::mem::replace(&mut state.reported[task as usize], true);
            drop(state);
            db.env.ledger.count(Activity { tasks_failed: 1, ..Activity::default() });
            // Before a call returns the error.
            if is_news {
                let (work, error) = (task.name(), error.to_string());
                db.options.listener.notify(&Event::BackgroundFailed { work, error });
            }
            db.scheduler.state.lock().failures[task as usize] = Some(Arc::new(error));
            db.scheduler.changed.notify_all();
            pause(db, *retry_delay);
            *retry_delay = (*retry_delay * 2).min(RETRY.1);
            true
        }
    }
}

/// Waits for this time, or until the store closes. Other notifications do not end the wait; otherwise the
/// failures of two threads would wake each other.
fn pause(db: &DbInner, time: Duration) {
    let start = Instant::now();
    loop {
        let left = time.saturating_sub(start.elapsed());
        let state = db.scheduler.state.lock();
        if state.stop || left.is_zero() {
            return;
        }
        db.scheduler.changed.wait_timeout(state, left);
    }
}

/// Flushes sealed memtables, makes logs and seals on demand, and drops replaced memtables that no reader holds.
fn flush_in_background(db: &DbInner) {
    let mut retry_delay = RETRY.0;
    loop {
        let done = attempt(db, || {
            // No flush failed if this does. A writer that seals gets the error.
            let _ = db.try_seal_on_demand();
            db.make_demanded_log();
            flush_oldest(db)
        });
        let held = db.views.drop_memtables();
        let did = note_result(db, Task::Flush, done, &mut retry_delay);
        let state = db.scheduler.state.lock();
        if state.stop {
            return;
        }
        if db.views.has_kept() {
            db.scheduler.changed.notify_all();
        }
        let is_due = db.scheduler.is_seal_demanded() || db.next_log.is_demanded();
        if did || is_due || !db.views.load().sealed.is_empty() {
            continue;
        }
        if held {
            // A reader that ends notifies no thread.
            db.scheduler.changed.wait_timeout(state, REPLACED);
        } else {
            drop(db.scheduler.changed.wait(state));
        }
    }
}

/// Runs compactions and filter tasks that are due, and idle work in a quiet store.
fn compact_in_background(db: &DbInner) {
    let mut retry_delay = RETRY.0;
    let (mut unchanged, mut quiet) = (Unchanged::default(), false);
    loop {
        let done = attempt(db, || {
            // Filters first: lookups need them while a compaction runs.
            if apply_filter_budget(db) | compact_once(db, Due::Now)? {
                quiet = false;
                return Ok(true);
            }
            Ok(quiet && compact_once(db, Due::Idle)?)
        });
        db.views.drop_replaced();
        let did = note_result(db, Task::Compaction, done, &mut retry_delay);
        let state = db.scheduler.state.lock();
        if state.stop {
            return;
        }
        // What expires after this time ends a wait.
        let time = db.env.time.for_merges();
        let is_due =
            picked(db, &db.views.load(), &state, Due::Now).is_some() || db.filters.budget_is_due();
        if !did && !is_due && !db.views.has_kept() {
            quiet = wait_for_work(db, state, &mut unchanged, quiet, time);
        }
    }
}

/// Waits until the state or the view changes, a table is due because entries expired after `time`, or idle work may
/// begin. True, without a wait, if it may begin now; it may not if it was just `tried`.
fn wait_for_work(
    db: &DbInner,
    state: MutexGuard<'_, State>,
    unchanged: &mut Unchanged,
    tried: bool,
    time: Millis,
) -> bool {
    let expiry = until_expiry(&db.views.load().version, time);
    let Some(long_enough) = quiet_wanted(db, &state) else {
        match expiry {
            Some(left) => db.scheduler.changed.wait_timeout(state, left),
            None => drop(db.scheduler.changed.wait(state)),
        }
        return false;
    };
    let lasts = unchanged.lasts(&db.views.load().version);
    let quiet = !tried && lasts >= long_enough;
    if !quiet {
        let left = long_enough.saturating_sub(lasts).max(QUIET);
        db.scheduler.changed.wait_timeout(state, expiry.map_or(left, |expiry| left.min(expiry)));
    }
    quiet
}

/// The time until another table is due because of its expired entries; `None` in a store without expiry, whose time
/// is 0. A table that was due at `time` waits for something else, which notifies: another compaction, or a snapshot.
fn until_expiry(version: &Version, time: Millis) -> Option<Duration> {
    if time == 0 {
        return None;
    }
    let tables = version.tables().filter_map(|(_, live)| live.table.meta().expiries);
    let next = tables.map(|expiries| expiries.quarter()).filter(|&due| due > time).min();
    let left = next.map_or(LONGEST_WAIT, |due| Duration::from_millis(due - time));
    Some(left.clamp(QUIET, LONGEST_WAIT))
}

/// The quiet time before the next idle work, if any is left.
fn quiet_wanted(db: &DbInner, state: &State) -> Option<Duration> {
    picked(db, &db.views.load(), state, Due::Idle).map(|merge| quiet_before(merge.bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    /// Otherwise the flush thread would try again and again.
    #[test]
    fn a_demand_that_cannot_be_met_ends() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let db = Options::new().background_threads(0).open(dir.path())?;
        db.put("key", "value")?;
        let inner = db.inner()?;
        db.clone().close()?;
        inner.scheduler.demand_seal(inner.views.load().memtable.log());
        assert!(inner.try_seal_on_demand().is_err());
        assert!(inner.scheduler.take_demand().is_none());
        Ok(())
    }

    #[test]
    fn the_more_a_merge_writes_the_longer_it_waits() {
        let seconds = [0, 100 << 20, 1280 << 20].map(|bytes| quiet_before(bytes).as_secs());
        assert_eq!(seconds, [1, 1, 20]);
    }

    #[test]
    fn another_version_begins_a_new_quiet() {
        let [one, two] = [Arc::new(Version::default()), Arc::new(Version::default())];
        let mut unchanged = Unchanged::default();
        assert_eq!(unchanged.lasts(&one), Duration::ZERO);
        std::thread::sleep(Duration::from_millis(2));
        let lasted = unchanged.lasts(&one);
        assert!(lasted >= Duration::from_millis(2), "{lasted:?}");
        assert!(unchanged.lasts(&one) >= lasted);
        assert_eq!(unchanged.lasts(&two), Duration::ZERO);
        assert_eq!(unchanged.lasts(&one), Duration::ZERO, "it was left meanwhile");
    }
}
