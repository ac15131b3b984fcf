//! Flushes and compactions, on threads of their own or inside the calls that make them due.

use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::budget::AtWork;
use super::core::{Core, Job, State};
use crate::compaction::{
    Compaction, JobContext, Pick, everything, pick, pick_idle, run, write_tables,
};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::filter::Recipe;
use crate::iter::Direction;
use crate::key::Seq;
use crate::ledger::Activity;
use crate::memtable::{Memtable, MemtableCursor};
use crate::names::FileName;
use crate::sync::{Instant, Ordering, spawn};
use crate::table::{OpenTable, Properties};
use crate::version::{Edit, Version};
use crate::vfs::FileKind;

/// How long failing work waits before it is tried again: this long at first, then twice as long
/// each time, up to the second value.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Filters are only replaced, and compactions made that are not due, once the tables have stayed the same
/// for so long: while they change, what each should have changes too.
const QUIET: Duration = Duration::from_secs(1);
/// And a merge that is not due waits longer the more it writes: a second for so many bytes. Where writing
/// them takes less, a store that is written to now and then spends less than half of its time on that.
const IDLE_BYTES_PER_SECOND: u64 = 64 << 20;

/// How long tables must have stayed the same before a merge of so many bytes that is not due.
fn quiet_before(bytes: u64) -> Duration {
    QUIET.max(Duration::from_secs(bytes / IDLE_BYTES_PER_SECOND))
}

/// Since when the tables have been the same.
#[derive(Default)]
struct Unchanged(Option<(Weak<Version>, Instant)>);

impl Unchanged {
    /// For how long, now that this is the version. The first look at one begins to count.
    fn lasts(&mut self, version: &Arc<Version>) -> Duration {
        match &self.0 {
            Some((same, since)) if std::ptr::eq(same.as_ptr(), Arc::as_ptr(version)) => {
                since.elapsed()
            }
            _ => {
                self.0 = Some((Arc::downgrade(version), Instant::now()));
                Duration::ZERO
            }
        }
    }
}

impl Core {
    /// Starts the threads that the options ask for.
    pub(crate) fn start_threads(self: &Arc<Self>) -> Result<()> {
        let mut threads = self.threads.lock();
        if self.is_inline() {
            return Ok(());
        }
        let flusher = ("criba-flush".to_owned(), Job::Flush);
        let compactors = (1..=self.options.background_threads)
            .map(|number| (format!("criba-compact-{number}"), Job::Compaction));
        for (name, job) in std::iter::once(flusher).chain(compactors) {
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
        let (mut unchanged, mut quiet) = (Unchanged::default(), false);
        loop {
            let done = catch_unwind(AssertUnwindSafe(|| match job {
                Job::Flush => self.flush_oldest(),
                Job::Compaction => {
                    let fitted = self.fit_filters_once();
                    self.compact_once(pick).and_then(|done| {
                        let idle = || Ok(self.compact_once(pick_idle)? || self.refit_once()?);
                        if done || fitted || !quiet { Ok(done || fitted) } else { idle() }
                    })
                }
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
                        Job::Compaction => {
                            self.picked(&state, pick).is_none() && !state.filters_due
                        }
                    };
                    let tried = std::mem::take(&mut quiet);
                    if idle && let Some(long_enough) = self.quiet_wanted(job, &state) {
                        let lasts = unchanged.lasts(&self.view.load().version);
                        quiet = !tried && lasts >= long_enough;
                        if !quiet {
                            let left = long_enough.saturating_sub(lasts).max(QUIET);
                            self.changed.wait_timeout(state, left);
                        }
                    } else if idle {
                        drop(self.changed.wait(state));
                    }
                }
                Err(error) => {
                    state.failing[job as usize] = Some(Arc::new(error));
                    self.changed.notify_all();
                    drop(state);
                    self.pause(patience);
                    patience = (patience * 2).min(RETRY.1);
                }
            }
        }
    }

    /// How long the tables are to stay the same before there is something to do that is not due, if there
    /// will be.
    fn quiet_wanted(&self, job: Job, state: &State) -> Option<Duration> {
        if job == Job::Flush {
            return None;
        }
        match self.picked(state, pick_idle) {
            Some((merge, _)) => Some(quiet_before(merge.bytes())),
            None => (!self.all_refitted()).then_some(QUIET),
        }
    }

    /// Waits, until the store is to be closed at most. No other change ends it: the next failure of
    /// one thread would have another one try again at once, and that one's the first.
    fn pause(&self, time: Duration) {
        let start = Instant::now();
        loop {
            let left = time.saturating_sub(start.elapsed());
            let state = self.state.lock();
            if state.stop || left.is_zero() {
                return;
            }
            self.changed.wait_timeout(state, left);
        }
    }

    /// Lets a job have what it needs of the store.
    pub(super) fn with_job_context<T>(
        &self,
        snapshots: Vec<Seq>,
        table_bytes: u64,
        filter_for: &dyn Fn(&Properties) -> Option<Recipe>,
        job: impl FnOnce(JobContext<'_>) -> Result<T>,
    ) -> Result<T> {
        job(JobContext {
            env: &self.env,
            settings: &self.table_settings(),
            filter_for,
            table_bytes,
            ignore_filters: self.options.ignore_filters,
            snapshots,
            new_number: &|| self.new_number(),
            cancelled: &|| self.state.lock().stop,
        })
    }

    /// Flushes the oldest sealed memtable to one L0 table; false if there is none.
    fn flush_oldest(&self) -> Result<bool> {
        let _flushing = self.flushing.lock();
        if self.state.lock().stop {
            return Err(Error::Closed);
        }
        let (memtable, next_log) = {
            // Not held any longer: it would keep every filter in memory that is let go meanwhile.
            let view = self.view.load();
            let Some(memtable) = view.sealed.last() else { return Ok(false) };
            let next = view.sealed.iter().rev().nth(1).unwrap_or(&view.memtable);
            (Arc::clone(memtable), next.log())
        };
        let _at_work = AtWork::begin(self, &mut self.state.lock());
        self.options.listener.tell(&Event::FlushStarted {});
        let flushed = self.flush_memtable(&memtable, next_log);
        let (tables, error) = outcome(&flushed);
        self.options.listener.tell(&Event::FlushEnded { tables, error });
        flushed.map(|_| true)
    }

    fn flush_memtable(&self, memtable: &Arc<Memtable>, next_log: u64) -> Result<Vec<u64>> {
        // Its log is not written to any more. Once its end is synced, a sync of a later log covers
        // everything before, and the log itself can go as soon as the table is there.
        self.close_earlier_logs()?;
        let snapshots = self.state.lock().snapshots.keys().copied().collect();
        let start = Bound::Unbounded;
        let mut cursor = MemtableCursor::new(Arc::clone(memtable), Direction::Forward, start);
        let tables = {
            // Let go, with its filters, before anybody hears that the flush is over.
            let version = self.without_pinned(Arc::clone(&self.view.load().version));
            let shares = self.shares(&version);
            let filter_for = |table: &Properties| shares.for_flushed(table);
            self.with_job_context(snapshots, u64::MAX, &filter_for, |context| {
                write_tables(&mut cursor, memtable.len(), |_| false, &context)
            })?
        };

        let edit = Edit {
            log: Some(next_log),
            flushed_seq: tables.iter().map(|open| open.table.meta().max_seq).max(),
            ..Edit::default()
        };
        let added: Vec<_> = tables.iter().map(|open| (0, open.clone())).collect();
        self.install(edit, &added, true).inspect_err(|error| discard(&tables, error))?;
        self.remove(FileName::Log(memtable.log()), FileKind::Wal);
        Ok(ids(&tables))
    }

    /// The compaction that `pick` picks, if any.
    fn picked(&self, state: &State, pick: Pick) -> Option<(Compaction, Arc<Version>)> {
        if !self.options.auto_compaction || state.exclusive || state.stop {
            return None;
        }
        let version = Arc::clone(&self.view.load().version);
        let compaction = pick(&version, &self.options.pick_settings(), &state.busy)?;
        Some((compaction, version))
    }

    /// Runs the compaction that `pick` picks; false if it picks none.
    fn compact_once(&self, pick: Pick) -> Result<bool> {
        let mut state = self.state.lock();
        let Some((compaction, version)) = self.picked(&state, pick) else { return Ok(false) };
        let snapshots = state.snapshots.keys().copied().collect();
        let _running = Running::begin(self, &mut state, compaction.ids(), false);
        drop(state);
        let (compaction, version) = self.without_pinned_filters(compaction, version);
        self.run_compaction(&compaction, &version, snapshots).map(|()| true)
    }

    fn run_compaction(
        &self,
        compaction: &Compaction,
        version: &Version,
        snapshots: Vec<Seq>,
    ) -> Result<()> {
        let (tables, output_level) = (compaction.ids().collect(), compaction.output_level);
        self.options.listener.tell(&Event::CompactionStarted { tables, output_level });
        let merged = self.merge_tables(compaction, version, snapshots);
        let (tables, error) = outcome(&merged);
        self.options.listener.tell(&Event::CompactionEnded { tables, output_level, error });
        merged.map(|_| ())
    }

    fn merge_tables(
        &self,
        compaction: &Compaction,
        version: &Version,
        snapshots: Vec<Seq>,
    ) -> Result<Vec<u64>> {
        let tables: Vec<_> = if compaction.moves {
            compaction.inputs.iter().map(|(_, live)| live.open()).collect()
        } else {
            let shares = self.shares(version);
            let filter_for = shares.for_outputs_of(&compaction.inputs);
            self.with_job_context(snapshots, self.options.table_bytes, &filter_for, |context| {
                run(compaction, version, &context)
            })?
        };
        let output = compaction.output_level;
        let edit = Edit {
            removed: compaction.inputs.iter().map(|(at, live)| (*at, live.table.id())).collect(),
            ..Edit::default()
        };
        let added: Vec<_> = tables.iter().map(|open| (output, open.clone())).collect();
        // Again, because lookups went on meanwhile.
        let shares = self.shares(version);
        let inherited = shares.inherited_by(&compaction.inputs, &tables);
        let installed = self.install(edit, &added, false);
        if compaction.moves {
            if installed.is_ok() {
                let tables_moved = tables.len() as u64;
                self.env.ledger.count(Activity { tables_moved, ..Activity::default() });
            }
            return installed.map(|()| ids(&tables));
        }
        installed.inspect_err(|error| discard(&tables, error))?;
        self.env.ledger.count(Activity { compactions: 1, ..Activity::default() });
        self.loads.lock().inherit(inherited);
        Ok(ids(&tables))
    }

    /// Flushes every sealed memtable on this thread.
    pub(crate) fn flush_all_sealed(&self) -> Result<()> {
        while self.flush_oldest()? {}
        Ok(())
    }

    /// Runs compactions on this thread until none is due, and what the budget for filters asks for.
    pub(crate) fn compact_while_due(&self) -> Result<()> {
        while self.compact_once(pick)? || self.fit_filters_once() {}
        Ok(())
    }

    /// Puts all that was written so far into tables.
    pub(crate) fn flush(&self) -> Result<()> {
        self.check_writable()?;
        {
            let mut writer = self.writer.lock();
            self.check_writable()?; // closing the store ends its log under the same lock
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

    /// Flushes, then waits until no compaction is due or under way and no filter is to be brought back
    /// into memory, and sees to what would else be done while nobody writes: compactions, and other filters.
    pub(crate) fn wait_until_settled(&self) -> Result<()> {
        self.flush()?;
        let mut state = self.state.lock();
        let mut all_fit = false;
        loop {
            self.check_writable()?;
            let due = self.picked(&state, pick).is_some() || state.filters_due;
            if !due && state.running == 0 && state.at_work == 0 {
                if self.picked(&state, pick_idle).is_some() {
                    drop(state);
                    self.compact_once(pick_idle)?;
                    all_fit = false;
                    state = self.state.lock();
                    continue;
                }
                // Nobody else had taken the last table that was to get another filter, then.
                if all_fit {
                    return Ok(());
                }
                drop(state);
                all_fit = !self.refit_once()?;
                state = self.state.lock();
                continue;
            }
            all_fit = false;
            if due && self.is_inline() {
                // Due only now, because another caller's compaction was in the way before.
                drop(state);
                self.compact_while_due()?;
                state = self.state.lock();
                continue;
            }
            if let Some(cause) = &state.failing[Job::Compaction as usize] {
                return Err(Error::Background { cause: Arc::clone(cause) });
            }
            state = self.changed.wait(state);
        }
    }

    /// Merges everything into one run, on this thread.
    pub(crate) fn compact(&self) -> Result<()> {
        self.flush()?;
        let mut state = self.state.lock();
        while state.running > 0 || state.exclusive {
            self.check_writable()?;
            state = self.changed.wait(state);
        }
        if state.stop {
            return Err(Error::Closed);
        }
        let version = Arc::clone(&self.view.load().version);
        let Some(compaction) = everything(&version) else { return Ok(()) };
        let snapshots = state.snapshots.keys().copied().collect();
        let _running = Running::begin(self, &mut state, compaction.ids(), true);
        drop(state);
        let (compaction, version) = self.without_pinned_filters(compaction, version);
        self.run_compaction(&compaction, &version, snapshots)
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

/// A compaction or refit under way; dropped, however it ended, it lets its tables go.
pub(super) struct Running<'a> {
    core: &'a Core,
    tables: Vec<u64>,
    exclusive: bool,
}

impl<'a> Running<'a> {
    pub(super) fn begin(
        core: &'a Core,
        state: &mut State,
        tables: impl IntoIterator<Item = u64>,
        exclusive: bool,
    ) -> Self {
        let tables: Vec<u64> = tables.into_iter().collect();
        state.busy.extend(&tables);
        state.running += 1;
        state.exclusive |= exclusive;
        Self { core, tables, exclusive }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.core.state.lock();
        state.running -= 1;
        for id in &self.tables {
            state.busy.remove(id);
        }
        if self.exclusive {
            state.exclusive = false;
        }
        self.core.changed.notify_all();
    }
}

fn ids(tables: &[OpenTable]) -> Vec<u64> {
    tables.iter().map(|open| open.table.id()).collect()
}

/// What a job came to, as events tell it.
fn outcome(tables: &Result<Vec<u64>>) -> (Vec<u64>, Option<String>) {
    match tables {
        Ok(tables) => (tables.clone(), None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    }
}

/// Lets tables go that could not be installed. Where it is in doubt whether the manifest names them,
/// they stay, and the next open decides.
pub(super) fn discard(tables: &[OpenTable], error: &Error) {
    if !matches!(error, Error::Poisoned { .. }) {
        for open in tables {
            open.table.make_obsolete();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_a_merge_writes_the_longer_it_waits() {
        let seconds = [0, 100 << 20, 1280 << 20].map(|bytes| quiet_before(bytes).as_secs());
        assert_eq!(seconds, [1, 1, 20]);
    }

    #[test]
    fn another_version_begins_a_new_quiet() {
        let [one, two] = [Arc::new(Version::default()), Arc::new(Version::default())];
        let mut unchanged = Unchanged::default();
        assert_eq!(unchanged.lasts(&one), Duration::ZERO);
        std::thread::sleep(Duration::from_millis(2));
        let lasted = unchanged.lasts(&one);
        assert!(lasted >= Duration::from_millis(2), "{lasted:?}");
        assert!(unchanged.lasts(&one) >= lasted);
        assert_eq!(unchanged.lasts(&two), Duration::ZERO);
        assert_eq!(unchanged.lasts(&one), Duration::ZERO, "it was left meanwhile");
    }
}
