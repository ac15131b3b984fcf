use std::sync::Arc;

use crate::error::{Error, Result};
use crate::poison::Poison;
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::vfs::FileLock;

pub(crate) struct Health {
    closed: AtomicBool,
    poison: Poison,
    /// `None` after the store is closed. Snapshots and scans have their own references to the lock.
    directory_lock: Mutex<Option<Arc<dyn FileLock>>>,
}

impl Health {
    /// `poison` is that of the directory.
    pub(crate) fn new(directory_lock: Arc<dyn FileLock>, poison: Poison) -> Self {
        Self {
            closed: AtomicBool::new(false),
            poison,
            directory_lock: Mutex::new(Some(directory_lock)),
        }
    }

    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
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
        if self.closed.swap(true, Ordering::AcqRel) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Drops the directory lock. The directory stays locked until all snapshots and scans are dropped.
    pub(crate) fn unlock(&self) {
        self.directory_lock.lock().take();
    }

    pub(crate) fn directory_lock(&self) -> Result<Arc<dyn FileLock>> {
        self.directory_lock.lock().clone().ok_or(Error::Closed)
    }
}
