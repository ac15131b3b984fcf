//! The write path: log, then memtable, then acknowledgement.

use std::sync::Arc;
use std::time::Duration;

use super::commit_queue::{Durability, Request, Writer};
use super::inner::DbInner;
use super::views::ReadView;
use crate::batch::{Batch, for_each_change};
use crate::error::{Error, Result};
use crate::memtable::{Memtable, MemtableFilter};
use crate::names::FileName;
use crate::scheduler::{Task, compact_while_due, flush_all_sealed, wait_while};
use crate::sync::sleep;
use crate::vfs::FileKind;
use crate::wal::{LogKind, LogWriter};

/// Writers wait when this many memtables wait to be flushed.
const MAX_SEALED: usize = 2;
/// Writers are held to so many bytes a second when L0 has grown too far.
const SLOW_BYTES_PER_SECOND: u64 = 16 << 20;
/// They wait for at least so long at once: less would mostly be spent on going to sleep.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

impl DbInner {
    /// Writes a batch.
    pub(crate) fn write(&self, batch: Batch, durability: Durability) -> Result<()> {
        self.check_writable()?;
        let (ops, changes) = batch.into_parts()?;
        if changes == 0 && durability == Durability::Buffered {
            return Ok(());
        }
        let request = Request::new(ops, changes, durability);
        self.commits.submit(request, |writer, group| self.commit(writer, group))
    }

    fn commit(&self, writer: &mut Writer, group: &[&Request]) -> Result<()> {
        self.check_writable()?;
        let bytes = group.iter().map(|request| request.ops.len() as u64).sum();
        self.make_room(writer, bytes)?;
        let synced = group.iter().any(|request| request.durability == Durability::Synced);
        if synced {
            // Before anything is appended: an error here must leave the log as it was.
            self.close_earlier_logs()?;
        }
        if self.earlier_logs.are_closed() {
            writer.log.earlier_logs_are_synced();
        }
        let mut seq = writer.next_seq;
        let records = group.iter().filter(|request| request.changes > 0).map(|request| {
            let first = seq;
            seq += request.changes;
            (first, request.ops.as_slice())
        });
        let bytes = writer.log.append(records).map_err(|error| self.poison_if_broken(error))?;
        self.env.ledger.wal_writes.count(bytes);
        if synced {
            writer.log.sync().map_err(|error| self.poison_if_broken(error))?;
        }
        let view = self.views.load();
        let mut seq = writer.next_seq;
        for request in group {
            // `Batch` made these bytes.
            for_each_change(&request.ops, seq, |entry| view.memtable.insert(entry));
            seq += request.changes;
        }
        writer.next_seq = seq;
        self.visibility.publish(seq - 1);
        Ok(())
    }

    /// Seals a full memtable, and waits where flushes or compactions have fallen behind.
    fn make_room(&self, writer: &mut Writer, bytes: u64) -> Result<()> {
        let limits = &self.options;
        let full = self.views.load().memtable.bytes() >= limits.memtable_bytes;
        if self.is_inline() {
            if full {
                // What an earlier failure has left waiting goes first.
                flush_all_sealed(self).map_err(as_background)?;
                self.seal(writer)?;
                flush_all_sealed(self).map_err(as_background)?;
                compact_while_due(self).map_err(as_background)?;
            }
            return Ok(());
        }
        let l0 = |view: &ReadView| {
            if limits.auto_compaction { view.version.level(0).len() } else { 0 }
        };
        if full {
            wait_while(self, Task::Flush, |view| view.sealed.len() >= MAX_SEALED)?;
            wait_while(self, Task::Compaction, |view| l0(view) >= limits.l0_stop_trigger)?;
            self.seal(writer)?;
        }
        if l0(&self.views.load()) >= limits.l0_slowdown_trigger {
            writer.owed += Duration::from_nanos(bytes * 1_000_000_000 / SLOW_BYTES_PER_SECOND);
            if writer.owed >= SHORTEST_SLEEP {
                sleep(std::mem::take(&mut writer.owed));
            }
        }
        Ok(())
    }

    /// Seals the memtable, if anything is in it.
    pub(crate) fn seal_memtable(&self) -> Result<()> {
        self.check_writable()?;
        let mut writer = self.commits.writer();
        self.check_writable()?; // closing the store ends its log under the same lock
        self.seal(&mut writer)
    }

    /// Makes the memtable one that waits to be flushed, and goes on in a new one with a new log.
    fn seal(&self, writer: &mut Writer) -> Result<()> {
        if self.views.load().memtable.is_empty() {
            return Ok(());
        }
        let env = &self.env;
        let number = self.env.new_file_number();
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
        self.earlier_logs.push(old, number, writer.next_seq);
        let filter = MemtableFilter::new(self.filters.policy().key_hash(), env.secret);
        let fresh = Arc::new(Memtable::new(number, Some(filter)));
        self.views.change(|view| {
            let full = std::mem::replace(&mut view.memtable, fresh);
            view.sealed.insert(0, full);
        });
        self.scheduler.announce();
        Ok(())
    }
}

/// The error of a flush or compaction, for a write that only made it due.
fn as_background(error: Error) -> Error {
    match error {
        Error::Poisoned { .. } | Error::Background { .. } | Error::Closed => error,
        cause => Error::Background { cause: Arc::new(cause) },
    }
}
