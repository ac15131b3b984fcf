//! The write path: log, then memtable, then acknowledgement; writers that wait go together.

use std::sync::Arc;
use std::time::Duration;

use super::core::{Core, Job, UnclosedLog, View};
use super::queue::{Durability, Request, Turn, Writer};
use crate::batch::{Batch, for_each_change};
use crate::error::{Error, Result};
use crate::memtable::{Memtable, MemtableFilter};
use crate::names::FileName;
use crate::sync::{Ordering, sleep};
use crate::vfs::FileKind;
use crate::wal::{LogKind, LogWriter};

/// Writers wait when this many memtables wait to be flushed.
const MAX_SEALED: usize = 2;
/// How long each write waits when L0 has grown too far.
const SLOW_WRITE: Duration = Duration::from_millis(1);

impl Core {
    /// Writes a batch. The first of those that wait writes for them all, so they share one append and
    /// one sync.
    pub(crate) fn write(&self, batch: Batch, durability: Durability) -> Result<()> {
        self.check_writable()?;
        let (ops, changes) = batch.into_parts()?;
        if changes == 0 && durability == Durability::Buffered {
            return Ok(());
        }
        let group = match self.requests.wait_for_turn(Request::new(ops, changes, durability)) {
            Turn::Written(result) => return result,
            Turn::Write(group) => group,
        };
        let mut writer = self.writer.lock();
        let result = self.commit(&mut writer, &group);
        // What was too much for all of them need not be for each: on a full disk the small ones still
        // find room. The log ends where it did before.
        let one_by_one = group.len() > 1 && matches!(result, Err(Error::Io { .. }));
        for request in group.iter() {
            request.finish(if one_by_one {
                self.commit(&mut writer, std::slice::from_ref(request))
            } else {
                result.clone()
            });
        }
        group.result_of_first()
    }

    fn commit(&self, writer: &mut Writer, group: &[Arc<Request>]) -> Result<()> {
        self.check_writable()?;
        self.make_room(writer)?;
        let synced = group.iter().any(|request| request.durability == Durability::Synced);
        if synced {
            // Before anything is appended: an error here must leave the log as it was.
            self.close_earlier_logs()?;
        }
        if self.unclosed_count.load(Ordering::Acquire) == 0 {
            writer.log.earlier_logs_are_synced();
        }
        let mut seq = writer.next_seq;
        let records = group.iter().filter(|request| request.changes > 0).map(|request| {
            let first = seq;
            seq += request.changes;
            (first, request.ops.as_slice())
        });
        let bytes = writer.log.append(records).map_err(|error| self.judge(error))?;
        self.env.ledger.wal_writes.count(bytes);
        if synced {
            writer.log.sync().map_err(|error| self.judge(error))?;
        }
        let view = self.view.load();
        let mut seq = writer.next_seq;
        for request in group {
            // `Batch` made these bytes.
            for_each_change(&request.ops, seq, |entry| view.memtable.insert(entry));
            seq += request.changes;
        }
        writer.next_seq = seq;
        self.visible.store(seq - 1, Ordering::Release);
        Ok(())
    }

    /// Seals a full memtable, and waits where flushes or compactions have fallen behind.
    fn make_room(&self, writer: &mut Writer) -> Result<()> {
        let limits = &self.options;
        let full = self.view.load().memtable.bytes() >= limits.memtable_bytes;
        if self.is_inline() {
            if full {
                // What an earlier failure has left waiting goes first.
                self.flush_all_sealed().map_err(as_background)?;
                self.seal(writer)?;
                self.flush_all_sealed().map_err(as_background)?;
                self.compact_while_due().map_err(as_background)?;
            }
            return Ok(());
        }
        let l0 = |view: &View| {
            if limits.auto_compaction { view.version.level(0).len() } else { 0 }
        };
        if full {
            self.wait_while(Job::Flush, |view| view.sealed.len() >= MAX_SEALED)?;
            self.wait_while(Job::Compaction, |view| l0(view) >= limits.l0_hold)?;
            self.seal(writer)?;
        }
        if l0(&self.view.load()) >= limits.l0_slow {
            sleep(SLOW_WRITE);
        }
        Ok(())
    }

    /// Waits for background work to get ahead; its error, if it cannot, ends the waiting.
    pub(crate) fn wait_while(&self, job: Job, behind: impl Fn(&View) -> bool) -> Result<()> {
        let mut state = self.state.lock();
        while behind(&self.view.load()) {
            self.check_writable()?;
            if let Some(cause) = &state.failing[job as usize] {
                return Err(Error::Background { cause: Arc::clone(cause) });
            }
            state = self.changed.wait(state);
        }
        Ok(())
    }

    /// Makes the memtable one that waits to be flushed, and goes on in a new one with a new log.
    pub(crate) fn seal(&self, writer: &mut Writer) -> Result<()> {
        if self.view.load().memtable.is_empty() {
            return Ok(());
        }
        let env = &self.env;
        let number = self.new_number();
        let name = FileName::Log(number);
        let log = LogWriter::create(
            env.vfs.as_ref(),
            &name.path(&env.dir),
            LogKind::Wal,
            number,
            env.store,
            false,
        );
        let log = log.inspect_err(|_| self.remove(name, FileKind::Wal))?;
        let log = log.fill_ahead(self.options.log_fill());
        let old = std::mem::replace(&mut writer.log, log);
        self.unclosed_count.fetch_add(1, Ordering::Release);
        let unclosed = UnclosedLog { log: old, next: number, next_seq: writer.next_seq };
        self.unclosed.lock().push_back(unclosed);
        let _state = self.state.lock();
        let mut view = View::clone(&self.view.load());
        let filter = MemtableFilter::new(self.policy().key_hash(), env.secret);
        let fresh = Arc::new(Memtable::new(number, Some(filter)));
        let full = std::mem::replace(&mut view.memtable, fresh);
        view.sealed.insert(0, full);
        self.view.store(Arc::new(view));
        self.changed.notify_all();
        Ok(())
    }
}

/// The error of a flush or compaction, as a writer sees it who only came to make it due.
fn as_background(error: Error) -> Error {
    match error {
        Error::Poisoned { .. } | Error::Background { .. } | Error::Closed => error,
        cause => Error::Background { cause: Arc::new(cause) },
    }
}
