//! Tables whose share of the filter bits has changed get another filter, when nothing is due that
//! would rewrite them anyway.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};

use super::background::Running;
use super::budget::AtWork;
use super::core::Core;
use crate::error::{Error, Result};
use crate::filter::{FilterPolicy, Recipe};
use crate::version::{LiveTable, Version};

/// Who is to get another filter, as of when.
#[derive(Debug, Default)]
pub(crate) struct Refits {
    /// What all of this was decided under.
    policy: Option<FilterPolicy>,
    queue: VecDeque<(u64, Option<Recipe>)>,
    /// The version that was judged last, and the lookups until then.
    judged: Weak<Version>,
    lookups: u64,
    /// The bits that were asked for at each table's last refit.
    asked: HashMap<u64, u64>,
    /// Tables that cannot be read through: they keep what they have.
    damaged: HashSet<u64>,
}

impl Refits {
    fn is_of(&self, version: &Arc<Version>) -> bool {
        std::ptr::eq(self.judged.as_ptr(), Arc::as_ptr(version))
    }
}

impl Core {
    /// Gives one table another filter; false if none is to get one. Tables are judged anew when they
    /// are others than before, or lookups enough have come to change their shares.
    pub(crate) fn refit_once(&self) -> Result<bool> {
        if !self.options.auto_compaction {
            return Ok(false);
        }
        // From before a table is taken from the queue: whoever finds it empty waits for us.
        let _at_work = AtWork::begin(self, &mut self.state.lock());
        let policy = self.policy();
        let Some((live, recipe)) = self.next_refit(policy) else { return Ok(false) };
        let id = live.table.id();
        let running = {
            let mut state = self.state.lock();
            if state.stop || state.exclusive {
                return Ok(false);
            }
            if state.busy.contains(&id) {
                return Ok(true); // it is being rewritten
            }
            // From here on, whoever changes the policy waits for this.
            if self.policy() != policy {
                return Ok(true);
            }
            Running::begin(self, &mut state, [id], false)
        };
        let keys = live.table.meta().keys;
        let done = self.rebuild_filter(&live, recipe.as_ref());
        // The filter that was replaced is let go before anybody hears that this is over.
        drop(live);
        drop(running);
        match done {
            Ok(_) => {
                let bits = recipe.map_or(0, |recipe| recipe.filter_bits(keys));
                self.refits.lock().asked.insert(id, bits);
                Ok(true)
            }
            Err(error @ Error::Corrupt { .. }) => {
                // Told once; it is no reason to leave others without theirs.
                self.refits.lock().damaged.insert(id);
                Err(error)
            }
            Err(error) => {
                let mut refits = self.refits.lock(); // to be judged again
                refits.queue.clear();
                refits.judged = Weak::new();
                Err(error)
            }
        }
    }

    fn next_refit(&self, policy: FilterPolicy) -> Option<(LiveTable, Option<Recipe>)> {
        let version = Arc::clone(&self.view.load().version);
        let lookups = self.env.ledger.table_lookups();
        let mut refits = self.refits.lock();
        if refits.policy != Some(policy) {
            *refits = Refits { policy: Some(policy), ..Refits::default() };
        }
        loop {
            while let Some((id, recipe)) = refits.queue.pop_front() {
                let live =
                    version.tables().map(|(_, live)| live).find(|live| live.table.id() == id);
                if let Some(live) = live.filter(|_| !refits.damaged.contains(&id)) {
                    return Some((live.clone(), recipe));
                }
            }
            // Also when all in the queue are gone: those that came in their place were not judged.
            let turned = lookups.saturating_sub(refits.lookups) > self.loads.lock().half_life() / 2;
            if refits.is_of(&version) && !turned {
                return None;
            }
            let live: HashSet<u64> = version.tables().map(|(_, live)| live.table.id()).collect();
            refits.asked.retain(|id, _| live.contains(id));
            refits.damaged.retain(|id| live.contains(id));
            refits.queue = self.shares(&version).refits(&refits.asked).into();
            (refits.judged, refits.lookups) = (Arc::downgrade(&version), lookups);
        }
    }

    /// Whether the tables as they are were judged, and all have what they are to have.
    pub(super) fn all_refitted(&self) -> bool {
        let refits = self.refits.lock();
        !self.options.auto_compaction
            || refits.queue.is_empty() && refits.is_of(&self.view.load().version)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Db, FilterInfo, FilterKind, Options};

    /// A store of several tables.
    fn store(dir: &Path) -> Result<Db> {
        let options = Options::new().background_threads(0).table_bytes(4096);
        let db = options.block_bytes(128).open(dir)?;
        for i in 0..2000 {
            db.put(format!("{i:06}"), "value")?;
        }
        db.compact()?;
        Ok(db)
    }

    /// Those in the queue were rewritten by a compaction, and what came in their place is to get other
    /// filters too.
    #[test]
    fn a_queue_of_tables_that_are_gone_is_not_the_end() -> Result<()> {
        let dir = tempfile::tempdir().expect("a directory");
        let db = store(dir.path())?;
        let core = db.core()?;
        let policy = FilterPolicy::bits_per_key(4.0);
        *core.policy.lock() = policy;
        let queue = [(u64::MAX, None), (u64::MAX - 1, None)].into();
        *core.refits.lock() = Refits { policy: Some(policy), queue, ..Refits::default() };
        assert!(core.refit_once()?);
        while core.refit_once()? {}
        assert!(core.all_refitted());
        Ok(())
    }

    /// Tables wait for other filters while the policy changes: none gets what the old one meant.
    #[test]
    fn nobody_is_refitted_under_a_policy_that_was_replaced() -> Result<()> {
        let dir = tempfile::tempdir().expect("a directory");
        let db = store(dir.path())?;
        let core = db.core()?;
        *core.policy.lock() = FilterPolicy::bits_per_key(4.0);
        assert!(core.refit_once()?);
        let waiting = core.refits.lock().queue.len();
        assert!(waiting > 3, "{waiting} tables wait");
        db.rebuild_filters(&FilterPolicy::blocked())?;
        while core.refit_once()? {
            for table in db.tables() {
                let blocked = FilterKind::Blocked;
                let found = table.filter;
                assert!(
                    matches!(found, FilterInfo::Active { kind, .. } if kind == blocked),
                    "{found:?}"
                );
            }
        }
        Ok(())
    }
}
