//! Filters that change while the data stays: new ones are built from a table's keys and written
//! beside it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::core::Core;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::filter::{FilterPolicy, Recipe};
use crate::ledger::Activity;
use crate::table::{FilterMeta, FilterState, OpenTable, TableFilter};
use crate::version::LiveTable;

/// What rebuilding the filters of a store came to, in tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RebuildReport {
    /// Have a new filter.
    pub rebuilt: u64,
    /// Had the filter already that the policy means for them; with bits shared out among tables, up to
    /// the small differences in size that are left alone in any case.
    pub already_right: u64,
    /// Have no filter any more, because the policy wants none.
    pub removed: u64,
    /// Went, in a compaction, before their turn or while their filter was being built. What took
    /// their place is counted on its own.
    pub gone: u64,
}

/// How far the rebuilding of filters has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RebuildProgress {
    /// What it has come to so far.
    pub report: RebuildReport,
    /// Tables still to come, as things are.
    pub tables_left: usize,
    /// The bytes of the tables seen to, and of those still to come.
    pub bytes_done: u64,
    /// See `bytes_done`.
    pub bytes_left: u64,
}

/// What became of one table's filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rebuilt {
    New,
    AlreadyRight,
    Removed,
    Gone,
}

impl Core {
    /// Sees to it that every table with something in it that was in a table before this call has the
    /// filter that the policy means for it.
    pub(crate) fn rebuild_filters(
        &self,
        policy: &FilterPolicy,
        progress: &mut dyn FnMut(&RebuildProgress),
    ) -> Result<RebuildReport> {
        if let Err(reason) = policy.check() {
            return Err(Error::InvalidOption { option: "filter", reason });
        }
        self.check_writable()?;
        self.change_policy(policy)?;
        let (mut recipes, mut fitted) = (HashMap::new(), HashSet::new());
        // Flushes go on meanwhile, and their tables follow the policy. Without this limit, a store
        // that is written to fast enough would keep us for ever.
        let newest = self.manifest.lock().set().flushed_seq;
        let mut seen = HashSet::new();
        let mut damaged = None;
        let (mut report, mut bytes_done) = (RebuildReport::default(), 0);
        loop {
            let version = Arc::clone(&self.view.load().version);
            let tables = version.tables().map(|(_, live)| live);
            let left: Vec<&LiveTable> = tables
                .filter(|live| !seen.contains(&live.table.id()))
                .filter(|live| live.table.meta().min_seq <= newest)
                .collect();
            let bytes_left = left.iter().map(|live| live.table.meta().size).sum();
            progress(&RebuildProgress { report, tables_left: left.len(), bytes_done, bytes_left });
            let Some(live) = left.first() else { break };
            seen.insert(live.table.id());
            if !recipes.contains_key(&live.table.id()) {
                let shares = self.shares(&version);
                (recipes, fitted) = (shares.recipes(), shares.fitted(self.options.prefix));
            }
            let recipe = recipes.get(&live.table.id()).copied().flatten();
            let rebuilt = if fitted.contains(&live.table.id()) {
                Ok(Rebuilt::AlreadyRight)
            } else {
                self.rebuild_filter(live, recipe.as_ref())
            };
            match rebuilt {
                Ok(Rebuilt::New) => report.rebuilt += 1,
                Ok(Rebuilt::AlreadyRight) => report.already_right += 1,
                Ok(Rebuilt::Removed) => report.removed += 1,
                Ok(Rebuilt::Gone) => report.gone += 1,
                // A damaged table keeps its filter; it is no reason to leave others without theirs.
                Err(error @ Error::Corrupt { .. }) => {
                    damaged.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
            bytes_done += live.table.meta().size;
        }
        damaged.map_or(Ok(report), Err)
    }

    /// Sets what filters are to be from now on, and waits for those who are at work on tables under
    /// what was set before: what they install must not come after all others were seen to.
    fn change_policy(&self, policy: &FilterPolicy) -> Result<()> {
        *self.policy.lock() = *policy;
        let mut state = self.state.lock();
        let mut begun = state.busy.clone();
        loop {
            begun.retain(|table| state.busy.contains(table));
            if begun.is_empty() {
                return self.check_writable();
            }
            state = self.changed.wait(state);
        }
    }

    /// Gives a table the filter that a recipe makes of its keys, or none, unless it has that already.
    /// Reads the table, with no lock that anybody else waits for but a second call of this; the filter
    /// that it has serves on until the new one is proved and recorded.
    pub(crate) fn rebuild_filter(
        &self,
        live: &LiveTable,
        recipe: Option<&Recipe>,
    ) -> Result<Rebuilt> {
        let rebuilding = self.rebuilding.lock();
        self.check_writable()?;
        let id = live.table.id();
        // As it is now that nobody else can change it.
        let current = self.view.load().version.table(id).map(LiveTable::open);
        let Some(current) = current else { return Ok(Rebuilt::Gone) };
        let filter = match (current.filter.sound(), recipe) {
            (_, None) if current.filter.meta.bytes == 0 => return Ok(Rebuilt::AlreadyRight),
            (Some(stored), Some(recipe)) if stored.follows(recipe, self.options.prefix) => {
                return Ok(Rebuilt::AlreadyRight);
            }
            (_, None) => {
                let generation = current.filter.meta.generation + 1;
                let meta = FilterMeta { generation, ..FilterMeta::default() };
                Arc::new(TableFilter::new(&self.env, id, meta, FilterState::None))
            }
            (_, Some(recipe)) => self.new_filter(&current, recipe)?,
        };
        match self.install_filter(id, &filter) {
            Ok(true) => {}
            Ok(false) => {
                filter.make_obsolete();
                return Ok(Rebuilt::Gone);
            }
            // Whether the manifest names the new file is in doubt: it stays, and the next open decides.
            Err(error @ Error::Poisoned { .. }) => return Err(error),
            Err(error) => {
                filter.make_obsolete();
                return Err(error);
            }
        }
        drop(rebuilding);
        let rebuilt = if recipe.is_some() { Rebuilt::New } else { Rebuilt::Removed };
        if rebuilt == Rebuilt::New {
            self.env.ledger.count(Activity { filters_rebuilt: 1, ..Activity::default() });
        }
        self.options.listener.tell(&Event::FilterRebuilt { table: id, filter: (&*filter).into() });
        Ok(rebuilt)
    }

    /// A filter of all keys of a table: synced under its name, read back as any opening would, and
    /// asked for every one of them.
    fn new_filter(&self, open: &OpenTable, recipe: &Recipe) -> Result<Arc<TableFilter>> {
        let table = Arc::clone(&open.table);
        self.options.listener.tell(&Event::FilterRebuildStarted { table: table.id() });
        let hashes = table.key_hashes(recipe, self.options.prefix, &|| self.state.lock().stop)?;
        let meta = table.write_filter(recipe, &hashes, open.filter.meta.generation)?;
        let mut open = OpenTable { filter: Arc::new(table.load_filter(meta)), table };
        open.prove(&hashes).inspect_err(|_| open.filter.make_obsolete())?;
        open.fit_filter();
        Ok(open.filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::Edit;
    use crate::{FilterInfo, FilterKind, Options};

    /// A compaction that was picked before a filter was rebuilt moves the table with the new one.
    #[test]
    fn a_table_that_moves_keeps_its_new_filter() -> Result<()> {
        let dir = tempfile::tempdir().expect("a directory");
        let options = Options::new().background_threads(0).auto_compaction(false);
        let db = options.clone().open(dir.path())?;
        db.put("key", "value")?;
        db.flush()?;
        let core = db.core()?;
        let picked = core.view.load().version.level(0)[0].clone();
        let recipe = FilterPolicy::blocked().recipe();
        assert_eq!(core.rebuild_filter(&picked, recipe.as_ref())?, Rebuilt::New);
        assert_eq!(core.rebuild_filter(&picked, recipe.as_ref())?, Rebuilt::AlreadyRight);
        let edit = Edit { removed: vec![(0, picked.table.id())], ..Edit::default() };
        core.install(edit, &[(3, picked.open())], false)?;
        drop(picked);
        let check = |db: &crate::Db| {
            let [table] = db.tables().try_into().expect("one table");
            assert_eq!(table.level, 3);
            let blocked = FilterKind::Blocked;
            assert!(
                matches!(table.filter, FilterInfo::Active { kind, generation: 1, .. } if kind == blocked)
            );
        };
        check(&db);
        db.close()?;
        check(&options.strict_filters(true).open(dir.path())?);
        Ok(())
    }
}
