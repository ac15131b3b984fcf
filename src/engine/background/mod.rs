//! The scheduler: decides which background task may run, and keeps the newest error of each kind of task.
//!
//! It knows the busy tables, the running tasks, and whether the store is closing. No task runs under its
//! lock. `threads` runs tasks in the background; `settle` runs them in calls that wait for them.

mod compact;
mod filter_tasks;
mod flush;
mod make_way;
mod settle;
mod threads;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::compact::{compact_while_due, discard, set_auto_compaction};
pub(crate) use self::filter_tasks::{
    Rebuilt, load_filters_within_budget, rebuild_filter, set_filter_memory,
};
pub(crate) use self::flush::flush_all_sealed;
pub(crate) use self::make_way::{Places, fit_ingested, make_way};
pub(crate) use self::settle::{compact, compact_rewriting, flush, wait_until_settled, wait_while};
pub(crate) use self::threads::start_threads;
use crate::compaction::{Busy, Compaction};
use crate::error::{Error, Result};
use crate::sync::{AtomicU64, Condvar, Instant, JoinHandle, Mutex, Ordering};

/// A kind of background task. The scheduler keeps one failure per kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    Flush,
    Compaction,
}

impl Task {
    /// The name in events.
    fn name(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::Compaction => "compaction",
        }
    }
}

/// The stage of a call of `compact`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ManualCompaction {
    /// It waits for running compactions. Background compactions do not begin.
    Waits,
    /// It merges, and its tables are busy.
    Merges,
}

#[derive(Debug, Default)]
struct State {
    busy: Busy,
    /// The number of running flushes and filter tasks. A settled store has none: they might hold a replaced
    /// filter.
    other_tasks: usize,
    flushing: bool,
    rebuilding: bool,
    manual: Option<ManualCompaction>,
    /// The number of ingests that find places for their tables: no compaction begins.
    holds: usize,
    /// The error of the newest attempt of each [`Task`], if it failed.
    failures: [Option<Arc<Error>>; 2],
    /// Whether the last event of this kind of work said that it fails.
    reported: [bool; 2],
    /// Whether the store is closing, so that tasks must end.
    stop: bool,
    /// When a memtable was sealed last, or when that was demanded last.
    sealed: Option<Instant>,
}

#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    state: Mutex<State>,
    /// Notified when the state or the view changes.
    changed: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The log of a memtable that a scan wants to be sealed; 0 for none.
    seal_demanded: AtomicU64,
}

/// The least time between a seal and the next one on demand. A reader in a loop must not fill L0.
const BETWEEN_SEALS: Duration = Duration::from_secs(1);

impl Scheduler {
    /// Demands that the memtable of this log is sealed, because a scan passed many hidden entries in it. The flush
    /// thread does this; in a store without threads, the next write.
    pub(crate) fn demand_seal(&self, log: u64) {
        let mut state = self.state.lock();
        if state.sealed.as_ref().is_none_or(|sealed| sealed.elapsed() >= BETWEEN_SEALS) {
            state.sealed = Some(Instant::now());
            self.seal_demanded.store(log, Ordering::Relaxed);
            self.changed.notify_all();
        }
    }

    pub(crate) fn is_seal_demanded(&self) -> bool {
        self.seal_demanded.load(Ordering::Relaxed) != 0
    }

    /// The log of the memtable whose seal was demanded. It is demanded no longer.
    pub(crate) fn take_demand(&self) -> Option<u64> {
        if !self.is_seal_demanded() {
            return None;
        }
        Some(self.seal_demanded.swap(0, Ordering::Relaxed)).filter(|&log| log != 0)
    }

    pub(crate) fn note_seal(&self) {
        self.state.lock().sealed = Some(Instant::now());
        self.changed.notify_all();
    }

    pub(crate) fn wake_waiters(&self) {
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    pub(crate) fn stops(&self) -> bool {
        self.state.lock().stop
    }

    /// Makes all tasks end early.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    /// Waits until all running tasks have ended. Call [`stop`](Self::stop) first.
    pub(crate) fn wait_for_end(&self) {
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A panic in a thread has poisoned the store already.
            let _ = thread.join();
        }
        // Tasks on the threads of callers see `stop` too, and end soon.
        let mut state = self.state.lock();
        while state.has_compactions() || state.other_tasks > 0 || state.rebuilding {
            state = self.changed.wait(state);
        }
    }

    /// Waits until the tables that are busy now are free.
    pub(crate) fn wait_for_busy(&self) {
        let mut state = self.state.lock();
        let mut begun = state.busy.tables().clone();
        loop {
            begun.retain(|table| state.busy.contains(*table));
            if begun.is_empty() {
                return;
            }
            state = self.changed.wait(state);
        }
    }

    /// Waits until the flush that runs now has ended.
    pub(crate) fn wait_for_flush(&self) -> Result<()> {
        self.begin_flush().map(drop)
    }

    /// No compaction begins until the result is dropped.
    pub(crate) fn hold_compactions(&self) -> Held<'_> {
        self.state.lock().holds += 1;
        Held(self)
    }

    fn begin_flush(&self) -> Result<Running<'_>> {
        let mut state = self.state.lock();
        while state.flushing {
            state = self.changed.wait(state);
        }
        if state.stop {
            return Err(Error::Closed);
        }
        state.flushing = true;
        state.other_tasks += 1;
        Ok(Running { scheduler: self, what: What::Flush })
    }

    fn begin_filter_task(&self, state: &mut State) -> Running<'_> {
        state.other_tasks += 1;
        Running { scheduler: self, what: What::FilterTask }
    }

    /// Waits until no rebuild of a filter runs, then begins one.
    fn begin_rebuilding(&self) -> Running<'_> {
        let mut state = self.state.lock();
        while state.rebuilding {
            state = self.changed.wait(state);
        }
        state.rebuilding = true;
        Running { scheduler: self, what: What::Rebuilding }
    }

    /// Makes the tables of a compaction busy.
    fn begin_compaction(&self, state: &mut State, compaction: &Compaction) -> Running<'_> {
        let tables: Vec<u64> = compaction.ids().collect();
        state.busy.begin(&tables, compaction.output());
        Running { scheduler: self, what: What::Compaction(tables) }
    }
}

impl State {
    fn is_held(&self) -> bool {
        self.holds > 0
    }

    fn has_compactions(&self) -> bool {
        !self.busy.is_empty()
    }

    /// Fails if the newest attempt at a task of this kind failed.
    fn check(&self, task: Task) -> Result<()> {
        match &self.failures[task as usize] {
            Some(cause) => Err(Error::Background { cause: Arc::clone(cause) }),
            None => Ok(()),
        }
    }
}

/// Guard: no compaction begins.
pub(crate) struct Held<'a>(&'a Scheduler);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.state.lock().holds -= 1;
        self.0.changed.notify_all();
    }
}

/// Guard: a running task. When it is dropped, the tables of the task are free.
struct Running<'a> {
    scheduler: &'a Scheduler,
    what: What,
}

enum What {
    Flush,
    FilterTask,
    Rebuilding,
    Compaction(Vec<u64>),
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.scheduler.state.lock();
        match &self.what {
            What::Flush => {
                state.flushing = false;
                state.other_tasks -= 1;
            }
            What::FilterTask => state.other_tasks -= 1,
            What::Rebuilding => state.rebuilding = false,
            What::Compaction(tables) => {
                state.busy.end(tables);
            }
        }
        self.scheduler.changed.notify_all();
    }
}
