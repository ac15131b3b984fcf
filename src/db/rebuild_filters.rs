//! Filters that change while the data stays: new ones are built from a table's keys and written
//! beside it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::inner::DbInner;
use crate::error::{Error, Result};
use crate::filter::FilterPolicy;
use crate::scheduler::{Rebuilt, rebuild_filter};

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

impl DbInner {
    /// Sees to it that every table with something in it that was in a table before this call has the
    /// filter that the policy means for it.
    pub(crate) fn rebuild_filters(&self, policy: &FilterPolicy) -> Result<RebuildReport> {
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
        let mut report = RebuildReport::default();
        loop {
            let version = Arc::clone(&self.views.load().version);
            let next = version.tables().map(|(_, live)| live).find(|live| {
                !seen.contains(&live.table.id()) && live.table.meta().min_seq <= newest
            });
            let Some(live) = next else { return damaged.map_or(Ok(report), Err) };
            seen.insert(live.table.id());
            if !recipes.contains_key(&live.table.id()) {
                recipes = self.filters.recipes(&version);
                fitted = self.filters.fitted(&version);
            }
            let recipe = recipes.get(&live.table.id()).copied().flatten();
            let rebuilt = if fitted.contains(&live.table.id()) {
                Ok(Rebuilt::AlreadyRight)
            } else {
                rebuild_filter(self, live, recipe.as_ref())
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
        }
    }

    /// Sets what filters are to be from now on, and waits for tasks that have tables under what was set before:
    /// what they install must not come after all others were seen to.
    fn change_policy(&self, policy: &FilterPolicy) -> Result<()> {
        self.filters.set_policy(*policy);
        self.scheduler.wait_for_busy(|| self.check_writable())
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
        let inner = db.inner()?;
        let picked = inner.views.load().version.level(0)[0].clone();
        let recipe = FilterPolicy::blocked().recipe();
        assert_eq!(rebuild_filter(inner, &picked, recipe.as_ref())?, Rebuilt::New);
        assert_eq!(rebuild_filter(inner, &picked, recipe.as_ref())?, Rebuilt::AlreadyRight);
        let edit = Edit { removed: vec![(0, picked.table.id())], ..Edit::default() };
        inner.install(edit, &[(3, picked.open())], false)?;
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
