//! Writes: to the log, then into the memtable, then visible.

use std::sync::Arc;
use std::time::Duration;

use super::background::{Task, compact_while_due, flush_all_sealed, wait_while};
use super::commit_queue::{Commit, Durability, Request, Writer};
use super::group_writes::{GroupWrites, State};
use super::inner::DbInner;
use crate::batch::{Batch, Encoded, entries, for_each_entry};
use crate::error::{Error, Result};
use crate::expiry::is_over;
use crate::key::{EntryKind, Seq};
use crate::ledger::{Activity, Writes};
use crate::memtable::{Memtable, MemtableFilter};
use crate::sync::{Instant, sleep};
use crate::view::ReadView;
use crate::wal::LogWriter;

/// With this many sealed memtables, a writer with a full memtable waits for a flush.
pub(crate) const MAX_SEALED: usize = 2;
/// The rate of writes while L0 has too many tables.
const SLOW_BYTES_PER_SECOND: u64 = 16 << 20;
/// Shorter waits are added up to this before a sleep: a shorter sleep is mostly overhead.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

impl DbInner {
    pub(crate) fn write(&self, mut batch: Batch, durability: Durability) -> Result<()> {
        self.begin_write()?;
        self.set_expiries(&mut batch)?;
        let batch = batch.into_encoded()?;
        if !batch.requirements.is_empty() {
            let failed = self.write_if(batch, durability)?;
            return failed.map_or(Ok(()), |key| Err(Error::ConditionFailed { key }));
        }
        let Encoded { ops, entries, .. } = batch;
        if entries == 0 && durability == Durability::Buffered {
            return Ok(());
        }
        let request = Request::new(ops, entries, durability);
        self.submit(request)
    }

    /// Fails if a write cannot begin.
    #[inline]
    pub(super) fn begin_write(&self) -> Result<()> {
        self.count_failed(self.check_writable())
    }

    /// Counts a write that failed. One to a store that is closed is an error of the caller.
    #[inline]
    fn count_failed(&self, result: Result<()>) -> Result<()> {
        if result.as_ref().is_err_and(|error| !matches!(error, Error::Closed | Error::Forked)) {
            self.env.ledger.count_writes(Writes { failed: 1, ..Writes::default() });
        }
        result
    }

    /// Gives the entries of a batch the expiries with which they are written.
    #[inline]
    pub(crate) fn set_expiries(&self, batch: &mut Batch) -> Result<()> {
        let time = &self.env.time;
        if batch.has_expiries() || time.default.is_some() {
            batch.check()?;
            if batch.set_expiries(time.now(), time.default) {
                self.count_failed(self.begin_expiry())?;
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn submit(&self, request: Request) -> Result<()> {
        let synced = request.durability == Durability::Synced;
        let result = match &self.latencies {
            Some(latencies) => latencies.writes.of(|| self.commits.submit(request, self)),
            None => self.commits.submit(request, self),
        };
        self.count_failed(result)?;
        if synced {
            self.report_move();
        }
        Ok(())
    }

    fn commit_group(&self, writer: &mut Writer, group: &[&Request]) -> Result<()> {
        self.check_writable()?;
        let bytes = group.iter().map(|request| request.ops.len() as u64).sum();
        self.make_room(writer, bytes)?;
        if self.earlier_logs.are_closed() {
            writer.log.earlier_logs_are_synced();
        }
        let view = self.views.load();
        let mut seq = writer.next_seq;
        let (hash_key, recent) = (&self.env.hash_key, &writer.recent);
        let time = &self.env.time;
        let state = State { view: &view, hash_key, recent, newest: seq - 1, time };
        let writes = GroupWrites::decide(group, state);
        let records = writes.iter().filter(|(_, entries)| *entries > 0).map(|(ops, entries)| {
            let first = seq;
            seq += entries;
            (first, ops)
        });
        let bytes = writer.log.append(records).map_err(|error| self.poison_if_broken(error))?;
        if bytes > 0 {
            self.env.ledger.wal_writes.count(bytes);
        }
        let first = writer.next_seq;
        let (mut seq, mut deletes) = (first, 0);
        for (ops, entries) in writes.iter() {
            // `None` is impossible: `Batch` encoded these bytes.
            for_each_entry(ops, seq, |entry| {
                deletes += u64::from(entry.kind == EntryKind::Delete);
                view.memtable.insert(entry);
            });
            seq += entries;
        }
        let puts = seq - first - deletes;
        let groups = u64::from(bytes > 0);
        self.env.ledger.count_writes(Writes { puts, deletes, groups, ..Writes::default() });
        writer.next_seq = seq;
        if self.env.time.is_used() {
            self.count_expired(&writes);
        }
        self.sequences.publish(seq - 1);
        if self.commits.validations() > writes.validated {
            writer.recent.push(first, writes.iter().map(|(ops, _)| ops));
        } else if !writer.recent.is_empty() {
            writer.recent.clear();
        }
        Ok(())
    }

    /// Counts the entries that have expired when they are written.
    #[inline(never)]
    fn count_expired(&self, writes: &GroupWrites<'_>) {
        let time = self.env.time.now();
        let written = writes.iter().flat_map(|(ops, _)| entries(ops));
        let expired_writes = written.filter(|entry| is_over(entry.expiry(), time)).count() as u64;
        self.env.ledger.count(Activity { expired_writes, ..Activity::default() });
    }

    /// Makes all entries that were appended before the call durable. The writer's lock is held only to begin.
    fn sync_log(&self) -> Result<()> {
        loop {
            // A log that was sealed since has entries that this call must sync.
            self.close_earlier_logs(|| self.check_writable()).map_err(|error| match error {
                Error::Closed | Error::Forked => error,
                // Readers see the entries already.
                error => self.poison(error),
            })?;
            let writer = self.commits.writer();
            self.health.check_poison()?;
            if !self.earlier_logs.are_closed() {
                continue;
            }
            writer.log.earlier_logs_are_synced();
            let (sync, newest) = (writer.log.begin_sync(), writer.next_seq - 1);
            drop(writer);
            let start = Instant::now();
            sync.run().map_err(|error| self.poison_if_broken(error))?;
            let time = start.elapsed();
            if let Some(latencies) = &self.latencies {
                latencies.syncs.count(time);
            }
            let sync_nanos = time.as_nanos() as u64;
            self.env.ledger.count_writes(Writes { syncs: 1, sync_nanos, ..Writes::default() });
            self.sequences.note_synced(newest);
            return Ok(());
        }
    }

    /// Seals a full memtable. Waits first if there are too many sealed memtables or L0 tables.
    fn make_room(&self, writer: &mut Writer, bytes: u64) -> Result<()> {
        let limits = &self.options;
        let memtable_bytes = self.views.load().memtable.bytes();
        let full = memtable_bytes >= limits.memtable_bytes;
        if self.is_inline() {
            if full {
                // First the memtables whose flush failed before.
                flush_all_sealed(self).map_err(as_background)?;
                self.seal(writer)?;
            } else {
                let Some(log) = self.scheduler.take_demand() else { return Ok(()) };
                if !self.seal_on_demand(writer, log)? {
                    return Ok(());
                }
            }
            flush_all_sealed(self).map_err(as_background)?;
            return compact_while_due(self).map_err(as_background);
        }
        // Damaged tables are counted out last: mostly there are few tables.
        let l0_has = |view: &ReadView, tables: usize| {
            self.compacts_by_itself()
                && view.version.level(0).len() >= tables
                && view.version.sound_l0() >= tables
        };
        if full {
            let start = Instant::now();
            let stalled = wait_while(self, Task::Flush, |view| view.sealed.len() >= MAX_SEALED)?
                | wait_while(self, Task::Compaction, |view| l0_has(view, limits.l0_stop_trigger))?;
            if stalled {
                let stall_nanos = start.elapsed().as_nanos() as u64;
                self.env.ledger.count_writes(Writes {
                    stalls: 1,
                    stall_nanos,
                    ..Writes::default()
                });
            }
            self.seal(writer)?;
        }
        // A memtable that fills fast is likely to be followed by another: its log may be made during the flush.
        if memtable_bytes >= limits.memtable_bytes / 2 {
            self.demand_next_log(writer);
        }
        if l0_has(&self.views.load(), limits.l0_slowdown_trigger) {
            writer.throttle_debt +=
                Duration::from_nanos(bytes * 1_000_000_000 / SLOW_BYTES_PER_SECOND);
            if writer.throttle_debt >= SHORTEST_SLEEP {
                let wait = std::mem::take(&mut writer.throttle_debt);
                sleep(wait);
                let slowdown_nanos = wait.as_nanos() as u64;
                let waited = Writes { slowdowns: 1, slowdown_nanos, ..Writes::default() };
                self.env.ledger.count_writes(waited);
            }
        }
        Ok(())
    }

    pub(crate) fn seal_memtable(&self) -> Result<()> {
        self.check_writable()?;
        if !self.views.load().memtable.is_empty() {
            self.make_next_log();
        }
        let mut writer = self.commits.writer();
        self.check_writable()?; // again: `close` may have ended the log before this thread had the lock
        self.seal(&mut writer)
    }

    /// Seals the memtable, unless it is empty.
    fn seal(&self, writer: &mut Writer) -> Result<()> {
        if self.views.load().memtable.is_empty() { Ok(()) } else { self.begin_memtable(writer) }
    }

    /// Seals the memtable; begins a new one with a new log.
    pub(super) fn begin_memtable(&self, writer: &mut Writer) -> Result<()> {
        self.env.birth.check_process()?;
        let log =
            self.next_log.take(|| self.make_log())?.keep().fill_ahead(self.options.log_fill());
        log.watch();
        writer.has_demanded_log = false;
        let number = log.id().number;
        let old = std::mem::replace(&mut writer.log, log);
        self.views.load().memtable.set_log_end(old.length());
        self.earlier_logs.push(old, number, writer.next_seq);
        let fresh = self.new_memtable(number, writer.next_seq);
        self.views.change(|view| {
            let full = std::mem::replace(&mut view.memtable, fresh);
            view.sealed.insert(0, full);
        });
        self.scheduler.note_seal();
        Ok(())
    }

    /// An empty memtable with this log, whose first entry will have at least the number `first`.
    pub(super) fn new_memtable(&self, log: u64, first: Seq) -> Arc<Memtable> {
        let filter = MemtableFilter::new(self.filters.policy().hash_function(), self.env.hash_key);
        Arc::new(Memtable::new(log, first, Some(filter)))
    }

    /// Demands the next log, once for each memtable.
    fn demand_next_log(&self, writer: &mut Writer) {
        if !std::mem::replace(&mut writer.has_demanded_log, true) {
            self.next_log.demand();
            self.scheduler.wake_waiters();
        }
    }

    pub(crate) fn make_demanded_log(&self) {
        if self.next_log.take_demand() {
            self.make_next_log();
        }
    }

    /// Makes the next log, without the writer's lock. A store without background threads makes none ahead: then its
    /// files depend on its calls alone.
    pub(super) fn make_next_log(&self) {
        if !self.is_inline() {
            // Checked under the lock of the log: `close` removes the log after it refused writes.
            self.next_log.make_ahead(|| self.check_writable().and_then(|()| self.make_log()));
        }
    }

    fn make_log(&self) -> Result<LogWriter> {
        let (env, number) = (&self.env, self.env.new_file_number());
        LogWriter::create_wal(&env.dir, (env.store, &env.hash_key), number, false)
    }

    /// Seals the memtable of this log, which a scan demanded, if the flush will drop the entries that the scan passed:
    /// no snapshot needs them. Not if a memtable is sealed already, since writers wait for that one. Returns whether it
    /// sealed.
    fn seal_on_demand(&self, writer: &mut Writer, log: u64) -> Result<bool> {
        let is_wanted = {
            let view = self.views.load();
            view.memtable.log() == log && view.sealed.is_empty()
        };
        let newest = self.sequences.newest();
        let is_kept = self.sequences.oldest_snapshot().is_some_and(|oldest| oldest.seq < newest);
        let seals = is_wanted && !is_kept;
        if seals {
            self.seal(writer)?;
        }
        Ok(seals)
    }

    /// Meets the demand of a scan, unless a thread writes: then a later scan demands it again.
    pub(crate) fn try_seal_on_demand(&self) -> Result<()> {
        let Some(log) = self.scheduler.take_demand() else { return Ok(()) };
        self.make_next_log();
        let Some(mut writer) = self.commits.try_writer() else { return Ok(()) };
        self.check_writable()?; // as in `seal_memtable`
        self.seal_on_demand(&mut writer, log).map(|_| ())
    }
}

impl Commit for DbInner {
    fn before_sync(&self) -> Result<()> {
        self.check_writable()?;
        self.close_earlier_logs(|| self.check_writable())
    }

    fn commit(&self, writer: &mut Writer, group: &[&Request]) -> Result<()> {
        self.commit_group(writer, group)
    }

    fn sync(&self) -> Result<()> {
        self.sync_log()
    }
}

/// The error of a write in which a flush or compaction failed.
fn as_background(error: Error) -> Error {
    match error {
        Error::Poisoned { .. } | Error::Background { .. } | Error::Closed | Error::Forked => error,
        cause => Error::Background { cause: Arc::new(cause) },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::*;
    use crate::Options;
    use crate::vfs::{Fault, FaultRule, FaultVfs, FileKind, Operation, SimVfs};

    /// The directory is no longer locked then, and another process may have opened the store.
    #[test]
    fn a_write_that_is_still_to_be_synced_changes_no_file_after_close() -> Result<()> {
        let sim = SimVfs::new();
        let faults = FaultVfs::new(Arc::new(sim.clone()));
        let options = Options::new().background_threads(0).vfs(Arc::new(faults.clone()));
        let db = options.open("/store")?;
        db.put("key", "value")?;
        let inner = Arc::clone(db.inner()?);
        inner.seal_memtable()?;
        let full = FaultRule::new(Fault::NoSpace).kinds([FileKind::Wal]).from_then_on();
        faults.add(full.operations([Operation::Append, Operation::Write]));
        assert!(matches!(db.clone().close(), Err(Error::Io { .. })));
        faults.clear();
        let files = || {
            let disk = sim.disk();
            let files = disk.files().map(|(path, bytes)| (path.to_owned(), bytes.to_vec()));
            files.collect::<BTreeMap<PathBuf, Vec<u8>>>()
        };
        let before = files();
        assert!(matches!(inner.sync(), Err(Error::Closed)));
        assert!(matches!(inner.before_sync(), Err(Error::Closed)));
        assert!(files() == before);
        Ok(())
    }
}
