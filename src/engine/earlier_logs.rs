//! Logs that get no more writes, and whose end frame is not synced yet.

use std::collections::VecDeque;

use crate::error::Result;
use crate::key::Seq;
use crate::sync::{AtomicUsize, Mutex, Ordering};
use crate::wal::LogWriter;

#[derive(Debug)]
struct EarlierLog {
    log: LogWriter,
    /// The number of the next log.
    next: u64,
    next_seq: Seq,
}

#[derive(Debug, Default)]
pub(crate) struct EarlierLogs {
    /// Locked by `close_all`: a second call waits for the first.
    closing: Mutex<()>,
    /// Oldest first. Not locked during a sync, so that a writer can seal its memtable without waiting.
    logs: Mutex<VecDeque<EarlierLog>>,
    count: AtomicUsize,
}

impl EarlierLogs {
    pub(crate) fn push(&self, log: LogWriter, next: u64, next_seq: Seq) {
        self.count.fetch_add(1, Ordering::Release);
        self.logs.lock().push_back(EarlierLog { log, next, next_seq });
    }

    pub(crate) fn are_closed(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Calls `close` for each log, oldest first, to write and sync its end frame. After that, a sync of the
    /// log in use makes all earlier writes durable.
    pub(crate) fn close_all(
        &self,
        close: impl Fn(&mut LogWriter, u64, Seq) -> Result<()>,
    ) -> Result<()> {
        let _closing = self.closing.lock();
        let oldest = || self.logs.lock().pop_front();
        while let Some(mut earlier) = oldest() {
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
