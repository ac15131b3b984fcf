//! Flushes and compactions, on threads of their own or inside the calls that make them due.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::core::{Core, Job};
use crate::compaction::{Compaction, JobContext, everything, pick, run, write_tables};
use crate::error::{Error, Result};
use crate::iter::Direction;
use crate::key::Seq;
use crate::ledger::Event;
use crate::memtable::MemtableCursor;
use crate::names::FileName;
use crate::sync::{Ordering, spawn};
use crate::table::Table;
use crate::version::{Edit, Version};
use crate::vfs::FileKind;

/// How long failing work waits before it is tried again: this long at first, then twice as long
/// each time, up to the second value.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

impl Core {
    /// Starts the threads that the options ask for.
    pub(crate) fn start_threads(self: &Arc<Self>) -> Result<()> {
        let mut threads = self.threads.lock();
        if self.is_inline() {
            return Ok(());
        }
        let flusher = (0, "criba-flush".to_owned(), Job::Flush);
        let compactors = (1..=self.options.background_threads)
            .map(|number| (number, format!("criba-compact-{number}"), Job::Compaction));
        for (_, name, job) in std::iter::once(flusher).chain(compactors) {
            let core = Arc::clone(self);
            let thread = spawn(&name, move || core.work(job)).map_err(|source| Error::Io {
                action: format!("start the thread {name}"),
                path: self.env.dir.clone(),
                source: Arc::new(source),
            })?;
            threads.push(thread);
        }
        Ok(())
    }

    /// Does one kind of work whenever it is due, until the store is closed.
    fn work(&self, job: Job) {
        let mut patience = RETRY.0;
        loop {
            let done = catch_unwind(AssertUnwindSafe(|| match job {
                Job::Flush => self.flush_oldest(),
                Job::Compaction => self.compact_once(),
            }));
            let done = done.unwrap_or_else(|_| {
                // Half-done work is not installed, but what it held is in doubt.
                Err(self.poison(Error::corrupt(
                    &self.env.dir,
                    0,
                    "sound background work",
                    "a panic",
                )))
            });
            let mut state = self.state.lock();
            if state.stop {
                return;
            }
            match done {
                Ok(true) => {
                    patience = RETRY.0;
                    state.failing[job as usize] = None;
                    self.changed.notify_all();
                }
                Ok(false) => {
                    state.failing[job as usize] = None;
                    let idle = match job {
                        Job::Flush => self.view.load().sealed.is_empty(),
                        Job::Compaction => self.due(&state).is_none(),
                    };
                    if idle {
                        drop(self.changed.wait(state));
                    }
                }
                Err(error) => {
                    state.failing[job as usize] = Some(Arc::new(error));
                    self.changed.notify_all();
                    drop(self.changed.wait_timeout(state, patience));
                    patience = (patience * 2).min(RETRY.1);
                }
            }
        }
    }

    fn job_context<'a>(
        &'a self,
        snapshots: Vec<Seq>,
        numbers: &'a dyn Fn() -> u64,
        cancelled: &'a dyn Fn() -> bool,
        settings: &'a crate::table::TableSettings,
    ) -> JobContext<'a> {
        JobContext {
            env: &self.env,
            settings,
            table_bytes: self.options.table_bytes,
            snapshots,
            new_number: numbers,
            cancelled,
        }
    }

    /// Flushes the oldest sealed memtable to one L0 table; false if there is none.
    fn flush_oldest(&self) -> Result<bool> {
        // Without threads, several callers may come here at once.
        let _one_at_a_time = self.flushing.lock();
        let view = self.view.load_full();
        let Some(memtable) = view.sealed.last() else { return Ok(false) };
        // Its log is not written to any more. Once its end is synced, a sync of a later log covers
        // everything before, and the log itself can go as soon as the table is there.
        self.close_earlier_logs()?;
        let snapshots = self.state.lock().snapshots.keys().copied().collect();
        let settings = self.options.table_settings();
        let (numbers, cancelled) = (|| self.new_number(), || self.state.lock().stop);
        let mut context = self.job_context(snapshots, &numbers, &cancelled, &settings);
        context.table_bytes = u64::MAX;
        let mut cursor = MemtableCursor::new(
            Arc::clone(memtable),
            Direction::Forward,
            std::ops::Bound::Unbounded,
        );
        let tables = write_tables(&mut cursor, memtable.len(), |_| false, context)?;

        let next = view.sealed.iter().rev().nth(1).unwrap_or(&view.memtable);
        let edit = Edit {
            added: tables.iter().map(|table| (0, table.meta().clone())).collect(),
            log: Some(next.log()),
            flushed_seq: tables.iter().map(|table| table.meta().max_seq).max(),
            ..Edit::default()
        };
        let added: Vec<_> = tables.iter().map(|table| (0, Arc::clone(table))).collect();
        self.install(edit, &added, true).inspect_err(|error| take_back(&tables, error))?;
        self.remove(FileName::Log(memtable.log()), FileKind::Wal);
        Ok(true)
    }

    /// The compaction that is due, if any is.
    fn due(&self, state: &super::core::State) -> Option<(Compaction, Arc<Version>)> {
        if !self.options.auto_compaction || state.exclusive || state.stop {
            return None;
        }
        let version = Arc::clone(&self.view.load().version);
        Some((pick(&version, &self.options.pick_settings(), &state.busy)?, version))
    }

    /// Runs the compaction that is due; false if none is.
    fn compact_once(&self) -> Result<bool> {
        let mut state = self.state.lock();
        let Some((compaction, version)) = self.due(&state) else { return Ok(false) };
        let inputs: Vec<u64> = compaction.inputs.iter().map(|(_, live)| live.table.id()).collect();
        state.busy.extend(&inputs);
        state.running += 1;
        let snapshots = state.snapshots.keys().copied().collect();
        drop(state);
        let done = self.run_compaction(&compaction, &version, snapshots);
        let mut state = self.state.lock();
        state.running -= 1;
        for id in inputs {
            state.busy.remove(&id);
        }
        self.changed.notify_all();
        done.map(|()| true)
    }

    fn run_compaction(
        &self,
        compaction: &Compaction,
        version: &Version,
        snapshots: Vec<Seq>,
    ) -> Result<()> {
        let tables: Vec<_> = if compaction.moves {
            compaction.inputs.iter().map(|(_, live)| Arc::clone(&live.table)).collect()
        } else {
            let settings = self.options.table_settings();
            let (numbers, cancelled) = (|| self.new_number(), || self.state.lock().stop);
            let context = self.job_context(snapshots, &numbers, &cancelled, &settings);
            run(compaction, version, context)?
        };
        let output = compaction.output_level;
        let edit = Edit {
            added: tables.iter().map(|table| (output, table.meta().clone())).collect(),
            removed: compaction.inputs.iter().map(|(at, live)| (*at, live.table.id())).collect(),
            ..Edit::default()
        };
        let added: Vec<_> = tables.iter().map(|table| (output, Arc::clone(table))).collect();
        let installed = self.install(edit, &added, false);
        if compaction.moves {
            if installed.is_ok() {
                self.env.ledger.note(Event::TablesMoved(tables.len() as u64));
            }
            return installed;
        }
        installed.inspect_err(|error| take_back(&tables, error))?;
        self.env.ledger.note(Event::Compaction);
        for (_, live) in &compaction.inputs {
            live.table.make_obsolete();
        }
        Ok(())
    }

    /// Flushes every sealed memtable on this thread.
    pub(crate) fn flush_all_sealed(&self) -> Result<()> {
        while self.flush_oldest()? {}
        Ok(())
    }

    /// Runs compactions on this thread until none is due.
    pub(crate) fn compact_while_due(&self) -> Result<()> {
        while self.compact_once()? {}
        Ok(())
    }

    /// Puts all that was written so far into tables.
    pub(crate) fn flush(&self) -> Result<()> {
        self.check_writable()?;
        // Whoever closes the store meanwhile does not let anybody else in before this ends.
        let _lock = self.hold_lock()?;
        {
            let mut writer = self.writer.lock();
            self.check_writable()?; // closing ends the log under the same lock
            self.seal(&mut writer)?;
        }
        if self.is_inline() {
            self.flush_all_sealed()?;
            return self.compact_while_due();
        }
        let newest = self.view.load().sealed.first().map(|memtable| memtable.log());
        let Some(newest) = newest else { return Ok(()) };
        self.wait_while(Job::Flush, |view| view.sealed.iter().any(|m| m.log() <= newest))
    }

    /// Flushes, then waits until no compaction is due or under way.
    pub(crate) fn wait_until_settled(&self) -> Result<()> {
        self.check_writable()?;
        let _lock = self.hold_lock()?;
        self.flush()?;
        let mut state = self.state.lock();
        loop {
            self.check_writable()?;
            if self.is_inline() && self.due(&state).is_some() {
                // Due only now, because another caller's compaction was in the way before.
                drop(state);
                self.compact_while_due()?;
                state = self.state.lock();
                continue;
            }
            if state.running == 0 && !state.exclusive && self.due(&state).is_none() {
                return Ok(());
            }
            if let Some(cause) = &state.failing[Job::Compaction as usize] {
                return Err(Error::Background { cause: Arc::clone(cause) });
            }
            state = self.changed.wait(state);
        }
    }

    /// Merges everything into one run, on this thread.
    pub(crate) fn compact(&self) -> Result<()> {
        self.check_writable()?;
        let _lock = self.hold_lock()?;
        self.flush()?;
        let mut state = self.state.lock();
        while state.running > 0 || state.exclusive {
            self.check_writable()?;
            state = self.changed.wait(state);
        }
        state.exclusive = true;
        let version = Arc::clone(&self.view.load().version);
        let snapshots = state.snapshots.keys().copied().collect();
        drop(state);
        let done = match everything(&version) {
            Some(compaction) => self.run_compaction(&compaction, &version, snapshots),
            None => Ok(()),
        };
        self.state.lock().exclusive = false;
        self.changed.notify_all();
        done
    }

    /// Takes a snapshot's sequence number and keeps compactions from dropping what it sees.
    pub(crate) fn register_snapshot(&self) -> Seq {
        let mut state = self.state.lock();
        let seq = self.visible.load(Ordering::Acquire);
        *state.snapshots.entry(seq).or_insert(0) += 1;
        seq
    }

    pub(crate) fn release_snapshot(&self, seq: Seq) {
        let mut state = self.state.lock();
        if let Some(count) = state.snapshots.get_mut(&seq) {
            *count -= 1;
            if *count == 0 {
                state.snapshots.remove(&seq);
            }
        }
    }
}

/// Removes tables that could not be installed, unless the manifest is in doubt: it may name them.
/// What it does not name goes at the next open.
fn take_back(tables: &[Arc<Table>], error: &Error) {
    if !matches!(error, Error::Poisoned { .. }) {
        for table in tables {
            table.make_obsolete();
        }
    }
}
