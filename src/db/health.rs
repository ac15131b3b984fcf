//! Whether a store is open, and whether it takes writes.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::sync::{AtomicBool, Mutex, OnceLock, Ordering};
use crate::vfs::FileLock;

pub(crate) struct Health {
    closed: AtomicBool,
    /// Why no write is taken any more.
    poison: OnceLock<Arc<Error>>,
    /// The directory's lock, until the store is closed. Snapshots and scans hold it longer.
    lock: Mutex<Option<Arc<dyn FileLock>>>,
}

impl Health {
    pub(crate) fn new(lock: Arc<dyn FileLock>) -> Self {
        Self {
            closed: AtomicBool::new(false),
            poison: OnceLock::new(),
            lock: Mutex::new(Some(lock)),
        }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.check_poison()
    }

    pub(crate) fn check_poison(&self) -> Result<()> {
        match self.poison.get() {
            Some(cause) => Err(Error::Poisoned { cause: Arc::clone(cause) }),
            None => Ok(()),
        }
    }

    /// Refuses all writes from now on, because of the first `cause`; gives the error to pass on.
    pub(crate) fn poison(&self, cause: Error) -> Error {
        let cause = self.poison.get_or_init(|| Arc::new(cause));
        Error::Poisoned { cause: Arc::clone(cause) }
    }

    /// Refuses all calls from now on; an error if that was so before.
    pub(crate) fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Releases the directory, but for what holds its lock beside the store.
    pub(crate) fn unlock(&self) {
        self.lock.lock().take();
    }

    /// The lock on the directory, to be held by what outlives the handles.
    pub(crate) fn hold_lock(&self) -> Result<Arc<dyn FileLock>> {
        self.lock.lock().clone().ok_or(Error::Closed)
    }
}
