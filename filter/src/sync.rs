//! The lock of shards. In `tests/schedules` (`criba_shuttle`) it is that of shuttle, which schedules the threads.

#[cfg(criba_shuttle)]
use shuttle::sync;
#[cfg(not(criba_shuttle))]
use std::sync;

use std::sync::PoisonError;

pub(crate) use sync::MutexGuard;

/// A lock that ignores poisoning by a panic.
#[derive(Debug)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
