//! What all handles and threads of an open store share.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::last_plan::LastPlan;
use super::loads::Loads;
use super::queue::{Requests, Writer};
use super::refit::Refits;
use super::report::RecoveryReport;
use super::shares::Shares;
use crate::error::{Error, Result};
use crate::filter::FilterPolicy;
use crate::key::Seq;
use crate::ledger::Activity;
use crate::memtable::Memtable;
use crate::names::FileName;
use crate::options::Options;
use crate::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Condvar, JoinHandle, Mutex, OnceLock, Ordering, Swap,
};
use crate::table::{OpenTable, TableEnv, TableFilter, TableSettings};
use crate::version::{Edit, LiveTable, Manifest, Version};
use crate::vfs::{FileKind, FileLock};
use crate::wal::{LogError, LogWriter};

/// What a reader reads: replaced whole, never changed, but for the growing memtable.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// The memtable that takes writes.
    pub(crate) memtable: Arc<Memtable>,
    /// Memtables waiting to be flushed, newest first.
    pub(crate) sealed: Vec<Arc<Memtable>>,
    pub(crate) version: Arc<Version>,
}

/// A log in which nobody writes any more, but whose end record is not written and synced yet.
#[derive(Debug)]
pub(crate) struct UnclosedLog {
    pub(crate) log: LogWriter,
    /// The log in which writers went on.
    pub(crate) next: u64,
    pub(crate) next_seq: Seq,
}

/// Which background work is failing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Job {
    Flush,
    Compaction,
}

/// What is decided under one lock: who reads at what, and who compacts what.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The sequence numbers that snapshots read at, with how many do.
    pub(crate) snapshots: BTreeMap<Seq, usize>,
    /// The tables of compactions under way.
    pub(crate) busy: HashSet<u64>,
    /// Compactions under way, the one of `compact` included.
    pub(crate) running: usize,
    /// Whether `compact` has the tables to itself.
    pub(crate) exclusive: bool,
    /// Whether the budget for filters asks for another look at who has what.
    pub(crate) filters_due: bool,
    /// How many are having that look, or one at who is to get another filter, or flush: a store that is
    /// settled has nobody who might hold a filter that was replaced.
    pub(crate) at_work: usize,
    /// The error of the newest try, by [`Job`].
    pub(crate) failing: [Option<Arc<Error>>; 2],
    /// Whether background work is to end.
    pub(crate) stop: bool,
}

/// An open store.
///
/// Locks are taken in this order: `rebuilding`, `writer`, `flushing`, `closing`, `unclosed`, that of
/// the memory for filters, `manifest`, `state`, `refits`, `loads` or that of `last_plan`.
pub(crate) struct Core {
    pub(crate) options: Options,
    pub(crate) env: Arc<TableEnv>,
    /// The filters that tables are to have: the options', until `rebuild_filters` says otherwise.
    pub(crate) policy: Mutex<FilterPolicy>,
    pub(crate) report: RecoveryReport,
    /// The directory's lock, until the store is closed. Snapshots and scans hold it longer.
    pub(crate) lock: Mutex<Option<Arc<dyn FileLock>>>,
    pub(crate) view: Swap<View>,
    /// The newest sequence number that readers may see.
    pub(crate) visible: AtomicU64,
    pub(crate) next_file: AtomicU64,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) requests: Requests,
    /// Held by the one flush at a time.
    pub(crate) flushing: Mutex<()>,
    /// Held while a table gets another filter.
    pub(crate) rebuilding: Mutex<()>,
    /// Held while logs are being closed, so that a sync waits for a closing under way.
    pub(crate) closing: Mutex<()>,
    /// Oldest first.
    pub(crate) unclosed: Mutex<VecDeque<UnclosedLog>>,
    /// The number of logs whose end is not synced, to be looked at without a lock.
    pub(crate) unclosed_count: AtomicUsize,
    pub(crate) manifest: Mutex<Manifest>,
    pub(crate) state: Mutex<State>,
    /// The tables that are to get other filters.
    pub(crate) refits: Mutex<Refits>,
    /// What tables are asked for.
    pub(crate) loads: Mutex<Loads>,
    pub(crate) last_plan: LastPlan,
    /// Told whenever `state` or `view` changes.
    pub(crate) changed: Condvar,
    pub(crate) poison: OnceLock<Arc<Error>>,
    pub(crate) closed: AtomicBool,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Core {
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.check_poison()
    }

    /// Refuses all writes from now on, because of `cause`; gives the error to pass on.
    pub(crate) fn poison(&self, cause: Error) -> Error {
        let cause = self.poison.get_or_init(|| Arc::new(cause));
        let _state = self.state.lock();
        self.changed.notify_all();
        Error::Poisoned { cause: Arc::clone(cause) }
    }

    /// Passes a log's error on; one that leaves the log in doubt poisons the store.
    pub(crate) fn judge(&self, error: LogError) -> Error {
        match error {
            LogError::Refused(error) => error,
            LogError::Broken(error) => self.poison(error),
        }
    }

    /// The keys and loads of a version's tables, as of now.
    pub(crate) fn shares<'a>(&'a self, version: &'a Version) -> Shares<'a> {
        let histories = self.loads.lock().observe(&self.env.ledger);
        Shares::new(self.policy(), version, histories, &self.last_plan)
    }

    pub(crate) fn policy(&self) -> FilterPolicy {
        *self.policy.lock()
    }

    /// How tables are written from now on.
    pub(crate) fn table_settings(&self) -> TableSettings {
        self.options.table_settings(&self.policy())
    }

    /// A file number that was never given before.
    pub(crate) fn new_number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether flushes and compactions run on the calling thread.
    pub(crate) fn is_inline(&self) -> bool {
        self.options.background_threads == 0
    }

    /// Writes and syncs the end record of every log that is not in use any more, oldest first. From
    /// then on a sync of the log in use covers all that was written before.
    pub(crate) fn close_earlier_logs(&self) -> Result<()> {
        let _closing = self.closing.lock();
        // The queue's own lock is held for moments only: a writer that seals its memtable does not
        // wait for a sync.
        let next = || self.unclosed.lock().pop_front();
        while let Some(mut unclosed) = next() {
            // A sync that failed is not tried again.
            if let Err(poisoned) = self.check_poison() {
                self.unclosed.lock().push_front(unclosed);
                return Err(poisoned);
            }
            let UnclosedLog { log, next, next_seq } = &mut unclosed;
            if let Err(error) = log.finish(*next, *next_seq) {
                self.unclosed.lock().push_front(unclosed);
                return Err(self.judge(error));
            }
            self.unclosed_count.fetch_sub(1, Ordering::Release);
        }
        Ok(())
    }

    /// Installs the tables that a flush or compaction adds, in place of those that its edit removes;
    /// the files of those that are gone then go with their last reader. A flush says so, and its
    /// memtable, the oldest sealed one, goes in the same step.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub(crate) fn install(
        &self,
        mut edit: Edit,
        added: &[(usize, OpenTable)],
        flush: bool,
    ) -> Result<()> {
        let mut manifest = self.manifest.lock();
        // Tables come and go, and get other filters, under the manifest's lock only. The budget for
        // filters takes the state's: it changes how much of a filter is resident, and nothing that is
        // recorded.
        // A table that moves takes along the filter that it has now: it may have got it since the
        // compaction was picked.
        let added: Vec<(usize, OpenTable)> = {
            let view = self.view.load();
            let now = |open: &OpenTable| view.version.table(open.table.id()).map(LiveTable::open);
            let added = added.iter();
            added.map(|(level, open)| (*level, now(open).unwrap_or_else(|| open.clone()))).collect()
        };
        edit.added = added.iter().map(|(level, open)| (*level, open.record())).collect();
        let removed = edit.removed.clone();
        let mut gone = Vec::new();
        self.record(&mut manifest, edit, |view| {
            // As they are now: the budget for filters may have put some in another state meanwhile.
            let stays = |id| added.iter().any(|(_, open)| open.table.id() == id);
            let leaving = removed.iter().map(|&(_, id)| id).filter(|&id| !stays(id));
            gone = leaving.filter_map(|id| view.version.table(id).map(LiveTable::open)).collect();
            if flush {
                view.sealed.pop();
                // Before anybody who waits for the flush can look at the statistics.
                self.env.ledger.count(Activity { flushes: 1, ..Activity::default() });
            }
            view.version = Arc::new(view.version.with(&removed, &added, &self.env.ledger));
            self.loads.lock().follow(&removed, &added, &self.env.ledger);
        })?;
        for open in gone {
            open.table.make_obsolete();
            open.filter.make_obsolete();
        }
        Ok(())
    }

    /// Installs another filter for a table; false if the table is gone.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub(crate) fn install_filter(&self, id: u64, filter: &Arc<TableFilter>) -> Result<bool> {
        let mut manifest = self.manifest.lock();
        let version = Arc::clone(&self.view.load().version);
        let Some(live) = version.table(id) else { return Ok(false) };
        let edit = Edit { filters: vec![(id, filter.meta)], ..Edit::default() };
        let mut replaced = Arc::clone(&live.filter);
        self.record(&mut manifest, edit, |view| {
            // The budget for filters may have put the same one in another state meanwhile.
            if let Some(live) = view.version.table(id) {
                replaced = Arc::clone(&live.filter);
            }
            let filters = HashMap::from([(id, Arc::clone(filter))]);
            view.version = Arc::new(view.version.with_filters(&filters));
        })?;
        replaced.make_obsolete();
        Ok(true)
    }

    /// Records an edit and puts the view that it makes in place: durably, then visibly.
    ///
    /// # Errors
    /// After [`Error::Poisoned`] the manifest may or may not hold the edit, so what it names must
    /// stay; after any other error it does not.
    fn record(
        &self,
        manifest: &mut Manifest,
        mut edit: Edit,
        change: impl FnOnce(&mut View),
    ) -> Result<()> {
        self.check_poison()?;
        edit.next_file = Some(self.next_file.load(Ordering::Relaxed));
        manifest.record(&edit).map_err(|error| self.judge(error))?;
        {
            let mut state = self.state.lock();
            let mut view = View::clone(&self.view.load());
            change(&mut view);
            self.view.store(Arc::new(view));
            state.filters_due |= self.env.filter_memory.budget().is_some();
            self.changed.notify_all();
        }
        if manifest.wants_rewriting() {
            let env = &self.env;
            match manifest.rewrite(env.vfs.as_ref(), &env.dir, self.new_number()) {
                Ok(old) => self.remove(FileName::Manifest(old), FileKind::Manifest),
                Err(LogError::Refused(_)) => {} // this one serves on; the next edit tries again
                Err(LogError::Broken(error)) => {
                    self.poison(error);
                }
            }
        }
        Ok(())
    }

    fn check_poison(&self) -> Result<()> {
        match self.poison.get() {
            Some(cause) => Err(Error::Poisoned { cause: Arc::clone(cause) }),
            None => Ok(()),
        }
    }

    /// Removes a file that nothing refers to. If that fails, it goes at the next open.
    pub(crate) fn remove(&self, name: FileName, kind: FileKind) {
        let _ = self.env.vfs.remove(&name.path(&self.env.dir), kind);
    }

    /// Ends background work and closes the logs. Readers that hold snapshots or scans go on.
    pub(crate) fn close(&self) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Err(Error::Closed);
        }
        self.state.lock().stop = true;
        self.changed.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A panic in a thread has poisoned the store already.
            let _ = thread.join();
        }
        // What runs on the threads of callers sees `stop` too, and ends soon.
        drop(self.rebuilding.lock());
        drop(self.flushing.lock());
        let mut state = self.state.lock();
        while state.running > 0 || state.at_work > 0 {
            state = self.changed.wait(state);
        }
        drop(state);
        let mut writer = self.writer.lock();
        let ended = self.check_poison().and_then(|()| self.close_earlier_logs()).and_then(|()| {
            let Writer { log, next_seq } = &mut *writer;
            log.finish(0, *next_seq).map_err(|error| self.judge(error))
        });
        self.lock.lock().take();
        ended
    }

    /// The lock on the directory, to be held by what outlives the handles.
    pub(crate) fn hold_lock(&self) -> Result<Arc<dyn FileLock>> {
        self.lock.lock().clone().ok_or(Error::Closed)
    }
}
