//! The state that all handles and threads of an open store share.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::background::Scheduler;
use super::commit_queue::{CommitQueue, Writer};
use super::earlier_logs::EarlierLogs;
use super::health::Health;
use super::next_log::NextLog;
use super::sequences::Sequences;
use crate::error::{Error, Result};
use crate::event::{Event, in_callback};
use crate::filter::FilterPolicy;
use crate::filter_manager::FilterManager;
use crate::ledger::{Activity, LatencyCounters};
use crate::memtable::Memtable;
use crate::names::FileName;
use crate::options::Options;
use crate::sstable::{OpenTable, Table, TableEnv, TableFilter, TableSettings};
use crate::sync::{AtomicBool, Mutex, Ordering, spawn};
use crate::version::{Edit, LiveTable, Manifest, StoreSettings, TableSet};
use crate::view::{ReadView, Views};
use crate::wal::LogError;

/// An open store. ARCHITECTURE.md has its lock order.
pub(crate) struct DbInner {
    pub(crate) options: Options,
    pub(crate) env: Arc<TableEnv>,
    /// Dropped before the lock of the directory.
    pub(crate) next_log: NextLog,
    pub(crate) health: Health,
    pub(crate) views: Views,
    pub(crate) sequences: Sequences,
    pub(crate) commits: CommitQueue,
    pub(crate) earlier_logs: EarlierLogs,
    pub(crate) manifest: Mutex<Manifest>,
    /// Held while a version is made and installed: no lookup and no writer waits until it is made.
    pub(crate) installing: Mutex<()>,
    pub(crate) scheduler: Arc<Scheduler>,
    /// See [`Options::auto_compaction`].
    pub(crate) auto_compaction: AtomicBool,
    pub(crate) filters: FilterManager,
    /// See [`Options::latencies`].
    pub(crate) latencies: Option<LatencyCounters>,
}

impl DbInner {
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.health.check_writable()
    }

    pub(crate) fn poison(&self, cause: Error) -> Error {
        let error = self.health.poison(cause);
        self.scheduler.wake_waiters();
        error
    }

    pub(crate) fn poison_if_broken(&self, error: LogError) -> Error {
        match error {
            LogError::Refused(error) => error,
            LogError::Broken(error) => self.poison(error),
        }
    }

    pub(crate) fn table_settings(&self) -> TableSettings {
        self.options.table_settings(&self.filters.settings())
    }

    pub(crate) fn compacts_by_itself(&self) -> bool {
        self.auto_compaction.load(Ordering::Relaxed)
    }

    pub(crate) fn is_inline(&self) -> bool {
        self.options.background_threads == 0
    }

    /// Closes the earlier logs, each if `check` holds. A sync that failed is not tried again, so it fails in a poisoned
    /// store. A call that `close` does not wait for fails in a closed one, whose directory is no longer locked.
    pub(crate) fn close_earlier_logs(&self, check: impl Fn() -> Result<()>) -> Result<()> {
        self.earlier_logs.close_all(|log, next, next_seq| {
            check()?;
            log.finish(next, next_seq).map_err(|error| self.poison_if_broken(error))
        })
    }

    /// Installs the result of a flush or compaction. A flush, which sets the edit's log, also drops the
    /// oldest sealed memtable. The file of a removed table goes with the last view that has the table. Errors
    /// as [`record`](Self::record).
    ///
    /// An ingest replaces the memtable, which is empty, at the same moment: readers of an older view see no later write.
    ///
    /// Empties `added`, before a compaction can replace these tables: a flush that still had one would be the
    /// last to drop it, and remove its file while writers wait for flushes.
    pub(crate) fn install(
        &self,
        mut edit: Edit,
        added: &mut Vec<(usize, OpenTable)>,
        fresh: Option<Arc<Memtable>>,
    ) -> Result<()> {
        let _installing = self.installing.lock();
        let (version, obsolete) = {
            let old = Arc::clone(&self.views.load().version);
            let version = Arc::new(old.with(&edit.removed, added, &self.env.ledger));
            let removed = edit.removed.iter().map(|(_, id)| *id).collect();
            let mut leaving = old.with_ids(&removed);
            // A table that moves keeps its filter, which may be newer than when the move was planned.
            let moved = version.with_ids(&removed);
            leaving.retain(|id, _| !moved.contains_key(id));
            let leaving: Vec<OpenTable> = leaving.into_values().map(LiveTable::open).collect();
            edit.added.clear();
            for (level, open) in added.iter() {
                let live = moved.get(&open.table.id());
                let record = live.map_or_else(|| open.record(), |live| live.open().record());
                edit.added.push((*level, record));
            }
            (version, leaving)
        };
        let flush = edit.log.is_some();
        self.record(&mut self.manifest.lock(), edit, |view| {
            if flush {
                view.sealed.pop();
                // Counted before a thread that waits for the flush sees the new view.
                self.env.ledger.count(Activity { flushes: 1, ..Activity::default() });
            }
            view.version = version;
            if let Some(fresh) = fresh {
                view.memtable = fresh;
            }
        })?;
        for open in obsolete {
            open.table.make_obsolete();
            open.filter.make_obsolete();
        }
        added.clear();
        Ok(())
    }

    /// Returns false if the table is not live. Errors as [`record`](Self::record).
    pub(crate) fn install_filter(&self, id: u64, filter: &Arc<TableFilter>) -> Result<bool> {
        let _installing = self.installing.lock();
        let (version, replaced) = {
            let old = Arc::clone(&self.views.load().version);
            let Some(live) = old.table(id) else { return Ok(false) };
            let filters = BTreeMap::from([(id, Arc::clone(filter))]);
            (Arc::new(old.with_filters(&filters)), Arc::clone(&live.filter))
        };
        let edit = Edit { filters: vec![(id, filter.meta)], ..Edit::default() };
        self.record(&mut self.manifest.lock(), edit, |view| view.version = version)?;
        replaced.make_obsolete();
        Ok(true)
    }

    /// Sets the policy for all later filters, durably.
    pub(crate) fn set_policy(&self, policy: FilterPolicy) -> Result<()> {
        if let Err(reason) = policy.check() {
            return Err(Error::InvalidOption { option: "filter", reason });
        }
        self.check_writable()?;
        // Held meanwhile: a close does not wait for this call, and another opening would write its own manifest.
        let _store = self.health.directory_lock()?;
        let mut manifest = self.manifest.lock();
        let settings = StoreSettings { policy, ..self.filters.settings() };
        if manifest.set().settings != settings {
            let set = TableSet { settings, ..manifest.set().clone() };
            if manifest.allows(&set) {
                let edit = Edit { settings: Some(settings), ..Edit::default() };
                self.record(&mut manifest, edit, |_| ())?;
            } else {
                self.health.check_poison()?;
                let rewritten = self.rewrite_manifest(&mut manifest, set);
                rewritten.map_err(|error| self.poison_if_broken(error))?;
            }
        }
        self.filters.set_policy(policy);
        Ok(())
    }

    /// Makes the manifest say that the store has expiring entries, before the first one is written.
    pub(crate) fn begin_expiry(&self) -> Result<()> {
        let time = &self.env.time;
        if time.is_used() {
            return Ok(());
        }
        // Held meanwhile, as for another policy.
        let _store = self.health.directory_lock()?;
        let mut manifest = self.manifest.lock();
        if !time.is_used() {
            self.health.check_poison()?;
            let set = TableSet { time: Some(time.now()), ..manifest.set().clone() };
            let rewritten = self.rewrite_manifest(&mut manifest, set);
            rewritten.map_err(|error| self.poison_if_broken(error))?;
            time.begin();
        }
        Ok(())
    }

    /// Makes an edit durable in the manifest, then changes the view.
    ///
    /// # Errors
    /// After [`Error::Poisoned`] the manifest may hold the edit, so the files that the edit adds must stay. (If
    /// the store was poisoned before, it does not; tasks therefore do not begin in a poisoned store.)
    /// After any other error the manifest does not hold the edit.
    fn record(
        &self,
        manifest: &mut Manifest,
        mut edit: Edit,
        change: impl FnOnce(&mut ReadView),
    ) -> Result<()> {
        self.health.check_poison()?;
        edit.next_file = Some(self.env.next_file());
        edit.time = self.env.time.recorded();
        manifest.record(&edit).map_err(|error| self.poison_if_broken(error))?;
        self.views.change(change);
        if self.env.filter_memory.budget().is_some() {
            self.filters.note_budget();
        }
        self.scheduler.wake_waiters();
        if manifest.wants_rewriting() {
            // If it is refused, the old manifest stays in use, and the next edit tries again.
            let set = manifest.set().clone();
            if let Err(LogError::Broken(error)) = self.rewrite_manifest(manifest, set) {
                self.poison(error);
            }
        }
        Ok(())
    }

    /// Continues in a new manifest, with this set.
    fn rewrite_manifest(
        &self,
        manifest: &mut Manifest,
        set: TableSet,
    ) -> std::result::Result<(), LogError> {
        let _store = self.health.directory_lock().map_err(LogError::Refused)?;
        let old = manifest.rewrite(&self.env.dir, self.env.new_file_number(), set)?;
        self.remove(FileName::Manifest(old));
        Ok(())
    }

    /// Reports the tables in which a task met damage. True if there is one.
    pub(crate) fn report_damage<'a>(
        &self,
        tables: impl IntoIterator<Item = &'a Arc<Table>>,
    ) -> bool {
        let mut any = false;
        for table in tables {
            let Some(Error::Corrupt { path, offset, expected, found }) = table.damage() else {
                continue;
            };
            any = true;
            self.env.ledger.count(Activity { tables_damaged: 1, ..Activity::default() });
            self.options.listener.notify(&Event::TableDamaged {
                table: table.id(),
                path: path.clone(),
                offset: *offset,
                reason: format!("expected {expected}, found {found}"),
            });
        }
        any
    }

    pub(crate) fn report_move(&self) {
        if let Some(path) = self.env.dir.move_to_report() {
            self.options.listener.notify(&Event::DirectoryMoved { path: path.to_owned() });
        }
    }

    /// Removes a file that nothing refers to. After a failure the next open removes it.
    pub(crate) fn remove(&self, name: FileName) {
        let _ = self.env.dir.remove(name);
    }

    /// Ends all tasks and closes the logs. In a callback a new thread does this: a task waits for the
    /// callback.
    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        self.env.birth.check_process()?;
        self.health.close()?;
        self.scheduler.stop();
        if !in_callback() {
            return self.end_tasks();
        }
        let inner = Arc::clone(self);
        // If the thread does not start, the drop of the last reference unlocks the store, and the next open
        // recovers the logs.
        let _ = spawn("criba-close", move || drop(inner.end_tasks()));
        Ok(())
    }

    fn end_tasks(&self) -> Result<()> {
        self.env.dir.notice_move();
        self.report_move();
        self.scheduler.wait_for_end();
        self.views.drop_replaced();
        self.views.close();
        let mut writer = self.commits.writer();
        let check = || self.health.check_poison();
        let ended = check().and_then(|()| self.close_earlier_logs(check)).and_then(|()| {
            let Writer { log, next_seq, .. } = &mut *writer;
            log.finish(0, *next_seq).map_err(|error| self.poison_if_broken(error))?;
            // The time of the close. Without expiring entries no close waits for the manifest.
            if !self.env.time.is_used() {
                return Ok(());
            }
            self.record(&mut self.manifest.lock(), Edit::default(), |_| ())
        });
        self.next_log.remove();
        self.health.unlock();
        ended
    }
}
