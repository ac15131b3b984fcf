//! Logs that take no writes any more, and whose end is not synced yet.

use std::collections::VecDeque;

use crate::error::Result;
use crate::key::Seq;
use crate::sync::{AtomicUsize, Mutex, Ordering};
use crate::wal::LogWriter;

/// A log that writers have left for the next.
#[derive(Debug)]
struct EarlierLog {
    log: LogWriter,
    /// The log in which writers went on.
    next: u64,
    next_seq: Seq,
}

#[derive(Debug, Default)]
pub(crate) struct EarlierLogs {
    /// Held while logs are being closed, so that a sync waits for a closing under way.
    closing: Mutex<()>,
    /// Oldest first. Held for moments only: a writer that seals its memtable waits for no sync.
    logs: Mutex<VecDeque<EarlierLog>>,
    count: AtomicUsize,
}

impl EarlierLogs {
    pub(crate) fn push(&self, log: LogWriter, next: u64, next_seq: Seq) {
        self.count.fetch_add(1, Ordering::Release);
        self.logs.lock().push_back(EarlierLog { log, next, next_seq });
    }

    /// Whether every earlier log is synced to its end.
    pub(crate) fn are_closed(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Writes and syncs the end record of each log, oldest first. From then on a sync of the log in use covers
    /// all that was written before. `close` does it for one log.
    pub(crate) fn close_all(
        &self,
        close: impl Fn(&mut LogWriter, u64, Seq) -> Result<()>,
    ) -> Result<()> {
        let _closing = self.closing.lock();
        let next = || self.logs.lock().pop_front();
        while let Some(mut earlier) = next() {
            let EarlierLog { log, next, next_seq } = &mut earlier;
            if let Err(error) = close(log, *next, *next_seq) {
                self.logs.lock().push_front(earlier);
                return Err(error);
            }
            self.count.fetch_sub(1, Ordering::Release);
        }
        Ok(())
    }
}
