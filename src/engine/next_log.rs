//! The log of the next memtable, made before it is needed: a log takes two syncs to make, and a writer that seals its
//! memtable waits for none.

use crate::error::Result;
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::wal::LogWriter;

#[derive(Debug, Default)]
pub(crate) struct NextLog {
    is_demanded: AtomicBool,
    /// Locked while a log is made, by a writer, too: logs are used in the order of their numbers. A crash leaves it
    /// empty, and the next opening removes it.
    log: Mutex<Option<LogWriter>>,
}

impl NextLog {
    /// Demands the log from the flush thread. Wake it.
    pub(crate) fn demand(&self) {
        self.is_demanded.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_demanded(&self) -> bool {
        self.is_demanded.load(Ordering::Relaxed)
    }

    /// Whether it was demanded. It is demanded no longer.
    pub(crate) fn take_demand(&self) -> bool {
        self.is_demanded.swap(false, Ordering::Relaxed)
    }

    /// Makes the log, unless it is there. After a failure, as on a full disk, the writer that needs it tries again.
    pub(crate) fn make_ahead(&self, make: impl FnOnce() -> Result<LogWriter>) {
        let mut log = self.log.lock();
        if log.is_none() {
            *log = make().ok();
        }
    }

    /// The log for a new memtable, made now if it is not there.
    pub(crate) fn take(&self, make: impl FnOnce() -> Result<LogWriter>) -> Result<LogWriter> {
        // Held meanwhile: otherwise a log made ahead at this moment would get a smaller number, and be used later.
        let mut log = self.log.lock();
        // Another program may have removed the file. (If it removed the directory, `make` has the error.)
        log.take().filter(|log| log.check().is_ok()).map_or_else(make, Ok)
    }

    /// Removes the log, which no memtable has. Its number is lost.
    pub(crate) fn remove(&self) {
        self.log.lock().take();
    }
}
