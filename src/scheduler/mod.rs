//! The scheduler: decides which background task may run, and keeps the result of the last one of each kind.
//!
//! It alone knows which tables are busy, what runs, what failed, and whether the store is closing. No task
//! runs under its lock. `threads` runs tasks in the background, `settle` inside the calls that wait for them.

mod compact;
mod filter_tasks;
mod flush;
mod settle;
mod threads;

use std::collections::HashSet;
use std::sync::Arc;

pub(crate) use self::compact::compact_while_due;
pub(crate) use self::filter_tasks::{
    Rebuilt, load_filters_within_budget, rebuild_filter, set_filter_memory,
};
pub(crate) use self::flush::flush_all_sealed;
pub(crate) use self::settle::{compact, flush, wait_until_settled, wait_while};
pub(crate) use self::threads::start_threads;
use crate::error::{Error, Result};
use crate::sync::{Condvar, JoinHandle, Mutex};

/// A kind of background task, with its own threads and its own failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    Flush,
    Compaction,
    /// Another filter for a table that exists.
    Refit,
}

/// How far a `compact` has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whole {
    /// It waits for running compactions, and no other begins before it.
    Waits,
    /// Its tables are busy.
    Merges,
}

#[derive(Debug, Default)]
struct State {
    busy: HashSet<u64>,
    compactions: usize,
    /// Running flushes and filter checks. A settled store has none: they might hold a replaced filter.
    others: usize,
    /// Flushes and filter replacements run one at a time.
    flushing: bool,
    rebuilding: bool,
    whole: Option<Whole>,
    /// The error of the newest attempt, by [`Task`].
    failures: [Option<Arc<Error>>; 3],
    /// Whether tasks must end because the store is closing.
    stop: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    state: Mutex<State>,
    /// Notified at each change of the state or the view.
    changed: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Scheduler {
    pub(crate) fn announce(&self) {
        let _state = self.state.lock();
        self.changed.notify_all();
    }

    pub(crate) fn stops(&self) -> bool {
        self.state.lock().stop
    }

    /// Has all tasks end.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    /// Waits until no task runs, after [`stop`](Self::stop).
    pub(crate) fn wait_for_end(&self) {
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A panic in a thread has poisoned the store already.
            let _ = thread.join();
        }
        // What runs on the threads of callers sees `stop` too, and ends soon.
        let mut state = self.state.lock();
        while state.compactions > 0 || state.others > 0 || state.rebuilding {
            state = self.changed.wait(state);
        }
    }

    /// Waits for the tasks that have tables now, not for later ones.
    pub(crate) fn wait_for_busy(&self, check: impl Fn() -> Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        let mut begun = state.busy.clone();
        loop {
            begun.retain(|table| state.busy.contains(table));
            if begun.is_empty() {
                return check();
            }
            state = self.changed.wait(state);
        }
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
        state.others += 1;
        Ok(Running { scheduler: self, what: What::Flush })
    }

    fn begin_filter_check(&self, state: &mut State) -> Running<'_> {
        state.others += 1;
        Running { scheduler: self, what: What::FilterCheck }
    }

    /// Begins to replace a filter; one at a time.
    fn begin_rebuilding(&self) -> Running<'_> {
        let mut state = self.state.lock();
        while state.rebuilding {
            state = self.changed.wait(state);
        }
        state.rebuilding = true;
        Running { scheduler: self, what: What::Rebuilding }
    }

    /// Begins a compaction or refit of these tables.
    fn begin_compaction(
        &self,
        state: &mut State,
        tables: impl IntoIterator<Item = u64>,
    ) -> Running<'_> {
        let tables: Vec<u64> = tables.into_iter().collect();
        state.busy.extend(&tables);
        state.compactions += 1;
        Running { scheduler: self, what: What::Compaction(tables) }
    }
}

impl State {
    /// Fails if the newest attempt at this kind of task failed.
    fn check(&self, task: Task) -> Result<()> {
        match &self.failures[task as usize] {
            Some(cause) => Err(Error::Background { cause: Arc::clone(cause) }),
            None => Ok(()),
        }
    }
}

/// Guard: a running task. Dropping it frees its tables and lets the next one begin.
struct Running<'a> {
    scheduler: &'a Scheduler,
    what: What,
}

enum What {
    Flush,
    FilterCheck,
    Rebuilding,
    Compaction(Vec<u64>),
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.scheduler.state.lock();
        match &self.what {
            What::Flush => {
                state.flushing = false;
                state.others -= 1;
            }
            What::FilterCheck => state.others -= 1,
            What::Rebuilding => state.rebuilding = false,
            What::Compaction(tables) => {
                state.compactions -= 1;
                for id in tables {
                    state.busy.remove(id);
                }
            }
        }
        self.scheduler.changed.notify_all();
    }
}
