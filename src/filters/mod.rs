//! The filter manager: decides which filter each table has.
//!
//! It knows the policy and applies it to the tables of a version. It writes and installs nothing: flushes and
//! compactions take recipes from it, and the scheduler takes the next refit.

mod levels;
mod residency;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};

use self::levels::LevelKeys;
pub(crate) use self::levels::expected_load;
pub(crate) use self::residency::{ResidencyChange, residency_changes};
use crate::filter::{
    FilterPolicy, FilterSettings, PrefixExtractor, Recipe, Share, Standing, refits,
};
use crate::sstable::{FilterState, Properties};
use crate::sync::Mutex;
use crate::version::{LiveTable, Version};

/// Refits must avoid at least this part of all wasted reads, …
const LEAST_SAVING: f64 = 0.1;
/// … or free at least this part of the bits of all filters.
const LEAST_BITS: f64 = 0.015;

#[derive(Debug)]
pub(crate) struct FilterManager {
    extractor: Option<PrefixExtractor>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    policy: FilterPolicy,
    /// Whether the memory budget must be applied again.
    budget_is_due: bool,
    refits: Refits,
}

#[derive(Debug, Default)]
struct Refits {
    queue: VecDeque<(u64, Option<Recipe>)>,
    version: Weak<Version>,
    /// The ids of tables whose refits met wrong bytes; they are not refitted again.
    broken: HashSet<u64>,
}

impl Refits {
    fn are_of(&self, version: &Arc<Version>) -> bool {
        std::ptr::eq(self.version.as_ptr(), Arc::as_ptr(version))
    }
}

impl FilterManager {
    pub(crate) fn new(settings: FilterSettings) -> Self {
        let FilterSettings { policy, extractor } = settings;
        let state = State { policy, budget_is_due: false, refits: Refits::default() };
        Self { extractor, state: Mutex::new(state) }
    }

    pub(crate) fn policy(&self) -> FilterPolicy {
        self.state.lock().policy
    }

    pub(crate) fn extractor(&self) -> Option<PrefixExtractor> {
        self.extractor
    }

    pub(crate) fn settings(&self) -> FilterSettings {
        FilterSettings { policy: self.policy(), extractor: self.extractor }
    }

    /// Sets the policy for all later filters.
    pub(crate) fn set_policy(&self, policy: FilterPolicy) {
        let mut state = self.state.lock();
        state.policy = policy;
        state.refits = Refits::default();
    }

    /// The recipe for the L0 table of a flush.
    pub(crate) fn recipe_for_flush(&self, version: &Version, table: &Properties) -> Option<Recipe> {
        let mut keys = LevelKeys::of(version);
        keys.add(0, table.keys);
        self.policy().plan(&keys.tables()).recipe(&Share { keys: table.keys, load: 1.0 })
    }

    /// The recipes for the outputs of a compaction: one plan for all, fixed before it begins.
    pub(crate) fn recipes_for_outputs(
        &self,
        version: &Version,
        inputs: &[(usize, LiveTable)],
        output_level: usize,
    ) -> impl Fn(&Properties) -> Option<Recipe> + use<> {
        let keys = LevelKeys::of(version).after(inputs, output_level);
        let plan = self.policy().plan(&keys.tables());
        move |table| {
            plan.recipe(&Share { keys: table.keys, load: keys.load(output_level, table.keys) })
        }
    }

    pub(crate) fn recipes(&self, version: &Version) -> HashMap<u64, Option<Recipe>> {
        let tables = shares(version);
        let only: Vec<Share> = tables.iter().map(|(_, share)| *share).collect();
        let ids = tables.iter().map(|(live, _)| live.table.id());
        ids.zip(self.policy().recipes(&only)).collect()
    }

    /// The live tables whose filters differ from the policy in size only, and too little for a refit.
    pub(crate) fn fitted(&self, version: &Version) -> HashSet<u64> {
        let policy = self.policy();
        if !policy.is_shared_out() {
            return HashSet::new(); // the policy gives exact sizes
        }
        let recipes = self.recipes(version);
        let mut fitted = HashSet::new();
        let standings = standings(version, |live, share| {
            let made = live.filter.sound().is_some_and(|stored| {
                policy.makes(stored.kind, stored.hash) && stored.has_prefixes_of(self.extractor)
            });
            if made {
                fitted.insert(live.table.id());
                return Some(8 * live.filter.meta.bytes);
            }
            // A rebuild will give it the planned filter.
            let recipe = recipes.get(&live.table.id()).copied().flatten();
            Some(recipe.map_or(0, |recipe| recipe.filter_bits(share.keys)))
        });
        for (id, _) in refits(&policy, &standings) {
            fitted.remove(&id);
        }
        fitted
    }

    /// The next table to refit, with its recipe; `None` if no refit pays. Filters of another kind or hash
    /// than the policy's, and degraded ones, stay until their table is rewritten.
    pub(crate) fn next_refit(
        &self,
        version: &Arc<Version>,
    ) -> Option<(LiveTable, Option<Recipe>, FilterPolicy)> {
        let mut state = self.state.lock();
        let State { policy, refits, .. } = &mut *state;
        loop {
            while let Some((id, recipe)) = refits.queue.pop_front() {
                let live = version.table(id);
                let live =
                    live.filter(|live| !live.table.is_damaged() && !refits.broken.contains(&id));
                if let Some(live) = live {
                    return Some((live.clone(), recipe, *policy));
                }
            }
            // Also if all queued tables are gone: the tables that replaced them were not examined.
            if refits.are_of(version) {
                return None;
            }
            refits.broken.retain(|id| version.table(*id).is_some());
            refits.queue = worthwhile_refits(policy, self.extractor, version).into();
            refits.version = Arc::downgrade(version);
        }
    }

    /// Whether no table of a version is known to need a refit.
    pub(crate) fn all_refitted(&self, version: &Arc<Version>) -> bool {
        let State { refits, .. } = &*self.state.lock();
        refits.queue.is_empty() && refits.are_of(version)
    }

    /// Notes a failed refit. Unless it met wrong bytes, all refits are planned again.
    pub(crate) fn note_failed_refit(&self, table: u64, wrong_bytes: bool) {
        let State { refits, .. } = &mut *self.state.lock();
        if wrong_bytes {
            refits.broken.insert(table);
        } else {
            refits.queue.clear();
            refits.version = Weak::new();
        }
    }

    /// Notes that the memory budget or the set of filters changed.
    pub(crate) fn note_budget(&self) {
        self.state.lock().budget_is_due = true;
    }

    pub(crate) fn budget_is_due(&self) -> bool {
        self.state.lock().budget_is_due
    }

    /// As `budget_is_due`, and resets it to false.
    pub(crate) fn take_budget_due(&self) -> bool {
        std::mem::take(&mut self.state.lock().budget_is_due)
    }
}

fn shares(version: &Version) -> Vec<(&LiveTable, Share)> {
    let levels = LevelKeys::of(version);
    let share = |(level, live): (usize, _)| {
        let live: &LiveTable = live;
        let keys = live.table.meta().keys;
        (live, Share { keys, load: levels.load(level, keys) })
    };
    version.tables().map(share).collect()
}

fn standings(
    version: &Version,
    mut filter_bits: impl FnMut(&LiveTable, Share) -> Option<u64>,
) -> Vec<Standing> {
    let standing = |(live, share): (&LiveTable, Share)| Standing {
        id: live.table.id(),
        share,
        filter_bits: filter_bits(live, share),
    };
    shares(version).into_iter().map(standing).collect()
}

fn worthwhile_refits(
    policy: &FilterPolicy,
    extractor: Option<PrefixExtractor>,
    version: &Version,
) -> Vec<(u64, Option<Recipe>)> {
    let standings = standings(version, |live, _| match &live.filter.state {
        FilterState::None => Some(0),
        FilterState::Active(_) | FilterState::NotResident(_) => {
            let made = live.filter.sound().filter(|s| policy.makes(s.kind, s.hash));
            made.map(|_| 8 * live.filter.meta.bytes)
        }
        FilterState::Degraded(_) => None,
    });
    let mut refits = refits(policy, &standings);
    // Some kinds cannot have every size: a rebuild would give these the same filter again.
    refits.retain(|(id, recipe)| {
        let stored = version.table(*id).and_then(|live| live.filter.sound());
        !stored.zip(*recipe).is_some_and(|(stored, recipe)| stored.follows(&recipe, extractor))
    });
    let wanted: HashMap<u64, Option<Recipe>> = refits.iter().copied().collect();
    let (mut wasted, mut saved, mut bits, mut freed) = (0.0, 0.0, 0.0, 0.0);
    for ((live, share), standing) in shares(version).into_iter().zip(standings) {
        let rate = live.filter.sound().map_or(1.0, |stored| stored.predicted_rate);
        let now = standing.filter_bits.unwrap_or_default() as f64;
        wasted += share.load * rate;
        bits += now;
        if let Some(recipe) = wanted.get(&standing.id) {
            saved += share.load * (rate - recipe.map_or(1.0, |r| r.expected_rate(share.keys)));
            freed += now - recipe.map_or(0, |r| r.filter_bits(share.keys)) as f64;
        }
    }
    let pays = saved >= LEAST_SAVING * wasted || freed >= LEAST_BITS * bits;
    if pays { refits } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Db, FilterInfo, FilterKind, Options, Result};

    fn store(dir: &Path) -> Result<Db> {
        let options = Options::new().background_threads(0).table_bytes(4096);
        let db = options.block_bytes(128).open(dir)?;
        for i in 0..2000 {
            db.put(format!("{i:06}"), "value")?;
        }
        db.compact()?;
        Ok(db)
    }

    #[test]
    fn a_queue_of_tables_that_are_gone_is_not_the_end() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let db = store(dir.path())?;
        let inner = db.inner()?;
        let policy = FilterPolicy::bits_per_key(4.0);
        inner.filters.set_policy(policy);
        let version = Arc::clone(&inner.views.load().version);
        inner.filters.state.lock().refits.queue = [(u64::MAX, None), (u64::MAX - 1, None)].into();
        assert!(inner.filters.next_refit(&version).is_some());
        db.wait_until_settled()?;
        assert!(inner.all_refitted());
        let (rebuilt, tables) = (db.stats().activity.filters_rebuilt, db.tables().len() as u64);
        assert!(tables > 5 && rebuilt >= tables, "{rebuilt} of {tables}");
        Ok(())
    }

    #[test]
    fn no_table_is_refitted_under_a_policy_that_was_replaced() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let db = store(dir.path())?;
        let inner = db.inner()?;
        inner.filters.set_policy(FilterPolicy::bits_per_key(4.0));
        let version = Arc::clone(&inner.views.load().version);
        assert!(inner.filters.next_refit(&version).is_some());
        let waiting = inner.filters.state.lock().refits.queue.len();
        assert!(waiting > 3, "{waiting} tables wait");
        drop(version);
        db.rebuild_filters(&FilterPolicy::blocked())?;
        db.wait_until_settled()?;
        for table in db.tables() {
            let found = table.filter;
            assert!(
                matches!(found, FilterInfo::Active { kind: FilterKind::Blocked, .. }),
                "{found:?}"
            );
        }
        Ok(())
    }
}
