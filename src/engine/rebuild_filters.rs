use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::background::{Rebuilt, rebuild_filter};
use super::inner::DbInner;
use crate::error::{Error, Result};
use crate::filter::FilterPolicy;
use crate::version::Version;

/// The result of [`Db::rebuild_filters`](crate::Db::rebuild_filters): numbers of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RebuildReport {
    /// Tables that got a new filter.
    pub rebuilt: u64,
    /// Tables that had the planned filter.
    pub already_right: u64,
    /// Tables whose filter was removed, as planned.
    pub removed: u64,
    /// Tables that a compaction replaced before their filter was built. The new tables are counted, too.
    pub gone: u64,
}

impl DbInner {
    /// Gives tables the filters that the policy plans for them: all tables that hold an entry flushed before
    /// this call.
    pub(crate) fn rebuild_filters(&self, policy: &FilterPolicy) -> Result<RebuildReport> {
        self.set_policy(*policy)?;
        // Tasks that began under the old policy may install its filters: wait for them.
        self.scheduler.wait_for_busy();
        self.scheduler.wait_for_flush()?;
        self.check_writable()?;
        let (mut recipes, mut counted) = (HashMap::new(), HashMap::new());
        // Tables flushed from now on follow the policy. If the loop included them, fast writes could keep it
        // running for ever.
        let newest = self.manifest.lock().set().flushed_seq;
        let mut seen = HashSet::new();
        let mut damaged = None;
        let mut report = RebuildReport::default();
        loop {
            self.views.drop_replaced();
            let version = Arc::clone(&self.views.load().version);
            let next = version.tables().map(|(_, live)| live).find(|live| {
                !seen.contains(&live.table.id()) && live.table.meta().min_seq <= newest
            });
            let Some(live) = next else { return damaged.map_or(Ok(report), Err) };
            let id = live.table.id();
            seen.insert(id);
            if !recipes.contains_key(&id) {
                self.count_prefixes(&version, policy, &mut counted)?;
                recipes = self.filters.recipes(&version, &counted);
            }
            let recipe = recipes.get(&id).copied().flatten();
            match rebuild_filter(self, live, recipe.as_ref()) {
                Ok(Rebuilt::New) => report.rebuilt += 1,
                Ok(Rebuilt::AlreadyRight) => report.already_right += 1,
                Ok(Rebuilt::Removed) => report.removed += 1,
                Ok(Rebuilt::Gone) => report.gone += 1,
                // A damaged table keeps its filter. The loop continues with the other tables.
                Err(error @ Error::Corrupt { .. }) => {
                    damaged.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl DbInner {
    /// Counts the prefixes of tables that do not know their number, as after a change of the extractor, if the plan
    /// depends on it. Reads their data blocks.
    fn count_prefixes(
        &self,
        version: &Version,
        policy: &FilterPolicy,
        counted: &mut HashMap<u64, u64>,
    ) -> Result<()> {
        let extractor = self.filters.extractor();
        let Some(recipe) = policy.recipe().filter(|_| policy.is_shared_out()) else {
            return Ok(());
        };
        for (_, live) in version.tables() {
            let id = live.table.id();
            if live.prefixes(extractor).is_none() && !counted.contains_key(&id) {
                let hashes = live.table.key_hashes(&recipe, extractor, &|| self.scheduler.stops());
                let prefixes = match hashes {
                    Ok(hashes) => hashes.counts().prefixes,
                    // A damaged table keeps its filter.
                    Err(Error::Corrupt { .. }) => 0,
                    Err(error) => return Err(error),
                };
                counted.insert(id, prefixes);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::Edit;
    use crate::{FilterInfo, FilterKind, Options};

    #[test]
    fn a_trivial_move_picked_before_a_rebuild_keeps_the_new_filter() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let options = Options::new().background_threads(0).auto_compaction(false);
        let db = options.clone().open(dir.path())?;
        db.put("key", "value")?;
        db.flush()?;
        let inner = db.inner()?;
        let picked = inner.views.load().version.level(0)[0].clone();
        let recipe = FilterPolicy::ribbon().recipe();
        assert_eq!(rebuild_filter(inner, &picked, recipe.as_ref())?, Rebuilt::New);
        assert_eq!(rebuild_filter(inner, &picked, recipe.as_ref())?, Rebuilt::AlreadyRight);
        let edit = Edit { removed: vec![(0, picked.table.id())], ..Edit::default() };
        inner.install(edit, &mut vec![(3, picked.open())], None)?;
        drop(picked);
        let check = |db: &crate::Db| {
            let [table] = db.tables().try_into().expect("one table");
            assert_eq!(table.level, 3);
            let ribbon = FilterKind::Ribbon;
            assert!(
                matches!(table.filter, FilterInfo::Active { kind, generation: 1, .. } if kind == ribbon)
            );
        };
        check(&db);
        db.close()?;
        check(&options.strict_filters(true).open(dir.path())?);
        Ok(())
    }
}
