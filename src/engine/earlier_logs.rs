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
    /// The log that `close_all` closes, or could not close. A second call waits for the first.
    closing: Mutex<Option<EarlierLog>>,
    /// The logs after it, oldest first. Not locked during a sync, so that a writer can seal its memtable without
    /// waiting.
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
        let mut closing = self.closing.lock();
        loop {
            if closing.is_none() {
                *closing = self.logs.lock().pop_front();
            }
            let Some(EarlierLog { log, next, next_seq }) = &mut *closing else { return Ok(()) };
            close(log, *next, *next_seq)?;
            *closing = None;
            self.count.fetch_sub(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::store_dir::StoreDir;
    use crate::vfs::SimVfs;
    use criba_filter::store::HashKey;

    /// Otherwise a synced write would wait for ever for a log that no call closes.
    #[test]
    fn a_log_that_a_panic_left_open_is_closed_by_the_next_call() -> Result<()> {
        let (dir, hash_key) = (StoreDir::of(SimVfs::new(), "/"), HashKey::new([3; HashKey::BYTES]));
        let logs = EarlierLogs::default();
        for number in [4, 5] {
            let log = LogWriter::create_wal(&dir, (77, &hash_key), number, true)?;
            logs.push(log, number + 1, 1);
        }
        let panics = AssertUnwindSafe(|| logs.close_all(|_, _, _| panic!("a file layer")));
        assert!(catch_unwind(panics).is_err());
        assert!(!logs.are_closed());
        let closed = Mutex::new(Vec::new());
        logs.close_all(|_, next, _| {
            closed.lock().push(next);
            Ok(())
        })?;
        assert_eq!(*closed.lock(), [5, 6]);
        assert!(logs.are_closed());
        Ok(())
    }
}
