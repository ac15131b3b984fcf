//! The tables that the bucket does not have yet. Their bytes have a limit: then writers wait.
//!
//! A new table waits for room, and with it the flush that makes it; so writers are slowed in the store's own way,
//! and nothing is lost. A publication itself flushes: while it does, there is room.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Backlog {
    limit: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The bytes of each table.
    tables: HashMap<OsString, u64>,
    /// How many publications are flushing.
    flushing: usize,
    /// Nothing is published any more.
    is_closed: bool,
}

impl State {
    fn bytes(&self) -> u64 {
        self.tables.values().sum()
    }
}

impl Backlog {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a table, once there is room.
    pub(crate) fn add(&self, table: &OsStr) {
        let mut state = self.lock();
        while state.bytes() >= self.limit && state.flushing == 0 && !state.is_closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.tables.insert(table.to_owned(), 0);
    }

    pub(crate) fn grow(&self, table: &OsStr, bytes: u64) {
        let mut state = self.lock();
        if let Some(sum) = state.tables.get_mut(table) {
            *sum += bytes;
        }
        if state.bytes() >= self.limit / 2 {
            self.changed.notify_all(); // the publisher
        }
    }

    /// A table was published, or removed.
    pub(crate) fn remove<'a>(&self, tables: impl IntoIterator<Item = &'a OsStr>) {
        let mut state = self.lock();
        for table in tables {
            state.tables.remove(table);
        }
        self.changed.notify_all();
    }

    /// Makes room during a flush.
    pub(crate) fn while_flushing<T>(&self, flush: impl FnOnce() -> T) -> T {
        self.lock().flushing += 1;
        self.changed.notify_all();
        let flushed = flush();
        self.lock().flushing -= 1;
        flushed
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.lock().bytes()
    }

    /// Waits until the time has come to publish: after `interval`, or unless `only_then` when half the room is taken.
    /// Returns false when nothing is to be published any more.
    pub(crate) fn wait(&self, interval: Option<Duration>, only_then: bool) -> bool {
        let began = Instant::now();
        let mut state = self.lock();
        while !state.is_closed && (only_then || state.bytes() < self.limit / 2) {
            let left = match interval.map(|interval| interval.saturating_sub(began.elapsed())) {
                Some(Duration::ZERO) => return true,
                Some(left) => left,
                None => Duration::MAX,
            };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        !state.is_closed
    }

    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }
}
