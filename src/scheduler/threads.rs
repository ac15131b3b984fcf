//! Background threads, which run due tasks until the store is closed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::compact::{Due, compact_once, picked};
use super::filter_tasks::{fit_filters, refit_once};
use super::flush::flush_oldest;
use super::{State, Task};
use crate::db::inner::DbInner;
use crate::error::{Error, Result};
use crate::sync::{Instant, spawn};
use crate::version::Version;

/// The wait before a failed task is tried again: the first value, doubled each time up to the second.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// The interval at which the background checks whether readers still hold replaced views.
const REPLACED: Duration = Duration::from_millis(100);

/// Idle work begins when the tables have not changed for this long: what a filter should be changes with
/// them.
const QUIET: Duration = Duration::from_secs(1);
/// An idle merge waits a second longer for this many bytes. So a store with few writes spends less than half
/// of its time on merges.
const IDLE_BYTES_PER_SECOND: u64 = 64 << 20;

/// The quiet time before an idle merge of this many bytes.
fn quiet_before(bytes: u64) -> Duration {
    QUIET.max(Duration::from_secs(bytes / IDLE_BYTES_PER_SECOND))
}

/// The version, and the start of its time as the current one.
#[derive(Default)]
struct Unchanged(Option<(Weak<Version>, Instant)>);

impl Unchanged {
    /// The time since this version was first passed here; zero for a new one.
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

/// Starts the threads of the options: one flushes, the others do everything else.
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
            path: db.env.dir.clone(),
            source: Arc::new(source),
        })?;
        threads.push(thread);
    }
    Ok(())
}

/// Runs one task. A panic in it poisons the store.
fn attempt(db: &DbInner, task: Task, run: impl FnOnce() -> Result<bool>) -> (Task, Result<bool>) {
    let done = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        // Half-done work is not installed, but what it held is in doubt.
        Err(db.poison(Error::corrupt(&db.env.dir, 0, "sound background work", "a panic")))
    });
    (task, done)
}

/// Records the result of a task, and waits after a failure. `None` once the store is closing.
fn note(db: &DbInner, (task, done): (Task, Result<bool>), patience: &mut Duration) -> Option<bool> {
    let mut state = db.scheduler.state.lock();
    if state.stop {
        return None;
    }
    let did = match done {
        Ok(did) => {
            state.failures[task as usize] = None;
            if did {
                *patience = RETRY.0;
                db.scheduler.changed.notify_all();
            }
            did
        }
        Err(error) => {
            state.failures[task as usize] = Some(Arc::new(error));
            db.scheduler.changed.notify_all();
            drop(state);
            pause(db, *patience);
            *patience = (*patience * 2).min(RETRY.1);
            true
        }
    };
    Some(did)
}

/// Waits, at most until the store closes. Other changes do not end it, or the failures of two threads would
/// wake each other.
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

/// Flushes sealed memtables, and drops replaced memtables that no reader holds.
fn flush_in_background(db: &DbInner) {
    let mut patience = RETRY.0;
    loop {
        let done = attempt(db, Task::Flush, || flush_oldest(db));
        let held = db.views.drop_memtables();
        let Some(did) = note(db, done, &mut patience) else { return };
        let state = db.scheduler.state.lock();
        if db.views.has_kept() {
            db.scheduler.changed.notify_all();
        }
        if did || state.stop || !db.views.load().sealed.is_empty() {
            continue;
        }
        if held {
            // The readers that hold them say nothing when they end.
            db.scheduler.changed.wait_timeout(state, REPLACED);
        } else {
            drop(db.scheduler.changed.wait(state));
        }
    }
}

/// Runs compactions and filter tasks that are due, and idle work in a quiet store.
fn compact_in_background(db: &DbInner) {
    let mut patience = RETRY.0;
    let (mut unchanged, mut quiet) = (Unchanged::default(), false);
    loop {
        let due = || Ok(fit_filters(db) | compact_once(db, Due::Now)?);
        let mut done = attempt(db, Task::Compaction, due);
        let did_due = matches!(done.1, Ok(true));
        if quiet && matches!(done.1, Ok(false)) {
            done = attempt(db, Task::Compaction, || compact_once(db, Due::Idle));
        }
        if quiet && matches!(done.1, Ok(false)) {
            // Compactions are as they should be, whatever comes of the filters.
            note(db, done, &mut patience);
            done = attempt(db, Task::Refit, || refit_once(db));
        }
        db.views.drop_replaced();
        let Some(did) = note(db, done, &mut patience) else { return };
        quiet &= !did_due;
        let state = db.scheduler.state.lock();
        let is_due = picked(db, &state, Due::Now).is_some() || db.filters.budget_is_due();
        if did || state.stop || is_due || db.views.has_kept() {
            continue;
        }
        let tried = std::mem::take(&mut quiet);
        match quiet_wanted(db, &state) {
            Some(long_enough) => {
                let lasts = unchanged.lasts(&db.views.load().version);
                quiet = !tried && lasts >= long_enough;
                if !quiet {
                    let left = long_enough.saturating_sub(lasts).max(QUIET);
                    db.scheduler.changed.wait_timeout(state, left);
                }
            }
            None => drop(db.scheduler.changed.wait(state)),
        }
    }
}

/// The quiet time before the next idle work, if there will be any.
fn quiet_wanted(db: &DbInner, state: &State) -> Option<Duration> {
    match picked(db, state, Due::Idle) {
        Some((merge, _)) => Some(quiet_before(merge.bytes())),
        None => (!db.all_refitted()).then_some(QUIET),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::vfs::{Fault, FaultRule, FaultVfs, FileKind, Operation, RealVfs, Vfs};
    use crate::{FilterPolicy, Options};

    /// Opens a store whose table has a filter of another size, and waits until its refit fails.
    fn fail_a_refit(damage: impl FnOnce(&Path), vfs: Arc<dyn Vfs>) -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let db = Options::new().filter(FilterPolicy::bits_per_key(4.0)).open(dir.path())?;
        for number in 0..5000 {
            db.put(format!("{number:06}"), "value")?;
        }
        db.compact()?;
        db.close()?;
        damage(dir.path());
        let policy = FilterPolicy::bits_per_key(10.0);
        let db = Options::new().filter(policy).background_threads(1).vfs(vfs).open(dir.path())?;
        let inner = db.inner()?;
        let start = Instant::now();
        let failed = |task| inner.scheduler.state.lock().check(task).is_err();
        while !failed(Task::Refit) {
            assert!(!failed(Task::Compaction));
            assert!(start.elapsed() < Duration::from_secs(30), "no refit failed");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!failed(Task::Compaction));
        Ok(())
    }

    #[test]
    fn a_failed_refit_is_no_failed_compaction() -> Result<()> {
        let vfs = FaultVfs::new(Arc::new(RealVfs));
        let full = FaultRule::new(Fault::NoSpace).kinds([FileKind::Filter]);
        vfs.add(full.operations([Operation::Create]).from_then_on());
        fail_a_refit(|_| (), Arc::new(vfs))
    }

    #[test]
    fn a_refit_of_a_damaged_table_fails() -> Result<()> {
        let flip = |dir: &Path| {
            let mut files =
                std::fs::read_dir(dir).expect("a directory").map(|e| e.expect("a file").path());
            let table = files.find(|path| path.extension().is_some_and(|e| e == "sst"));
            let table = table.expect("a table");
            let mut bytes = std::fs::read(&table).expect("readable");
            bytes[100] ^= 1;
            std::fs::write(&table, bytes).expect("writable");
        };
        fail_a_refit(flip, Arc::new(RealVfs))
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
