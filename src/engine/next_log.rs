//! The log of the next memtable, made before it is needed: a log takes two syncs to make, and a writer that seals its
//! memtable waits for none.

use super::commit_queue::Writer;
use super::inner::DbInner;
use crate::error::Result;
use crate::sync::{AtomicBool, Mutex, Ordering};
use crate::wal::{FileHeader, LogKind, LogWriter};

#[derive(Debug, Default)]
pub(crate) struct NextLog {
    is_demanded: AtomicBool,
    /// Locked while a log is made, by a writer, too: logs are used in the order of their numbers. A crash leaves it
    /// empty, and the next opening removes it.
    log: Mutex<Option<LogWriter>>,
}

impl NextLog {
    pub(crate) fn is_demanded(&self) -> bool {
        self.is_demanded.load(Ordering::Relaxed)
    }

    /// Removes the log, which no memtable has. Its number is lost.
    pub(crate) fn remove(&self) {
        self.log.lock().take();
    }
}

impl DbInner {
    /// Demands the next log from the flush thread, once for each memtable.
    pub(crate) fn demand_next_log(&self, writer: &mut Writer) {
        if !std::mem::replace(&mut writer.has_demanded_log, true) {
            self.next_log.is_demanded.store(true, Ordering::Relaxed);
            self.scheduler.wake_waiters();
        }
    }

    /// Makes the next log if it is demanded.
    pub(crate) fn make_demanded_log(&self) {
        if self.next_log.is_demanded.swap(false, Ordering::Relaxed) {
            self.make_next_log();
        }
    }

    /// Makes the next log, without the writer's lock. After a failure, as on a full disk, the writer that needs it
    /// tries again. A store without background threads makes no log ahead: then its files depend on its calls alone.
    pub(crate) fn make_next_log(&self) {
        if self.is_inline() || self.check_writable().is_err() {
            return;
        }
        let mut log = self.next_log.log.lock();
        if log.is_none() {
            *log = self.make_log().ok();
        }
    }

    /// The log for a new memtable.
    pub(crate) fn take_next_log(&self) -> Result<LogWriter> {
        // Held while this makes one: otherwise a log made ahead meanwhile would get a smaller number, and be used later.
        let mut made = self.next_log.log.lock();
        // Another program may have removed the file, which no sync has checked so far.
        match made.take().filter(|log| log.check_named().is_ok()) {
            // As the creation of a log does.
            Some(log) => self.env.dir.check().map(|()| log),
            None => self.make_log(),
        }
    }

    fn make_log(&self) -> Result<LogWriter> {
        let (env, number) = (&self.env, self.env.new_file_number());
        let header = FileHeader::of_log(env.store, &env.hash_key, number);
        LogWriter::create(&env.dir, LogKind::Wal, number, header, false)
    }
}
