//! Whether a store is open, sound, and in the process that opened it.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::fork::forks;
use crate::poison::Poison;
use crate::sync::{AtomicU32, Mutex, Ordering};
use crate::vfs::FileLock;

pub(crate) struct Health {
    /// The [`forks`] at the opening; closed, the complement. So one comparison shows both.
    open: AtomicU32,
    poison: Poison,
    /// `None` after the store is closed. Snapshots and scans have their own references to the lock.
    directory_lock: Mutex<Option<Arc<dyn FileLock>>>,
}

impl Health {
    /// `poison` is that of the directory.
    pub(crate) fn new(directory_lock: Arc<dyn FileLock>, poison: Poison) -> Self {
        Self {
            open: AtomicU32::new(forks()),
            poison,
            directory_lock: Mutex::new(Some(directory_lock)),
        }
    }

    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        let (open, here) = (self.open.load(Ordering::Acquire), forks());
        if open == here {
            Ok(())
        } else {
            Err(if open == !here { Error::Closed } else { Error::Forked })
        }
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.check_poison()
    }

    pub(crate) fn check_poison(&self) -> Result<()> {
        self.poison.check()
    }

    /// Refuses all writes from now on. Returns [`Error::Poisoned`] with the first cause.
    pub(crate) fn poison(&self, cause: Error) -> Error {
        self.poison.set(cause)
    }

    /// Refuses all calls from now on.
    pub(crate) fn close(&self) -> Result<()> {
        let here = forks();
        if self.open.swap(!here, Ordering::AcqRel) == here { Ok(()) } else { Err(Error::Closed) }
    }

    /// Drops the directory lock. The directory stays locked until all snapshots and scans are dropped.
    pub(crate) fn unlock(&self) {
        self.directory_lock.lock().take();
    }

    /// For the last handle in a forked child, where the threads of the parent keep the rest. None of them holds
    /// this mutex.
    pub(crate) fn abandon_lock(&self) {
        drop(self.directory_lock.try_lock().and_then(|mut lock| lock.take()));
    }

    pub(crate) fn directory_lock(&self) -> Result<Arc<dyn FileLock>> {
        self.directory_lock.lock().clone().ok_or(Error::Closed)
    }
}
