//! The filter manager: decides which filter each table has.
//!
//! It knows the policy and applies it to the tables of a version. It writes and installs nothing: flushes and
//! compactions take recipes from it, and so does a rebuild.

pub(crate) mod advise;
mod allocation;
mod budget;
mod levels;
mod load;
mod plan;
mod residency;

use std::collections::HashMap;

use self::allocation::Share;
use self::levels::LevelKeys;
pub(crate) use self::residency::{ResidencyChange, residency_changes};
use crate::filter::{FilterPolicy, KeyCounts, PrefixExtractor};
use crate::sstable::Compression;
use crate::sync::Mutex;
use crate::version::{LiveTable, StoreSettings, Version};
use criba_filter::store::Recipe;

#[derive(Debug)]
pub(crate) struct FilterManager {
    /// With the policy of the opening.
    settings: StoreSettings,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    policy: FilterPolicy,
    /// Whether the memory budget must be applied again.
    budget_is_due: bool,
}

impl FilterManager {
    pub(crate) fn new(settings: StoreSettings) -> Self {
        let state = State { policy: settings.policy, budget_is_due: false };
        Self { settings, state: Mutex::new(state) }
    }

    pub(crate) fn policy(&self) -> FilterPolicy {
        self.state.lock().policy
    }

    pub(crate) fn extractor(&self) -> Option<PrefixExtractor> {
        self.settings.extractor
    }

    pub(crate) fn compression(&self) -> Compression {
        self.settings.compression.unwrap_or_default()
    }

    pub(crate) fn settings(&self) -> StoreSettings {
        StoreSettings { policy: self.policy(), ..self.settings }
    }

    /// Sets the policy for all later filters.
    pub(crate) fn set_policy(&self, policy: FilterPolicy) {
        self.state.lock().policy = policy;
    }

    /// The recipe for the L0 table of a flush.
    pub(crate) fn recipe_for_flush(&self, version: &Version, table: KeyCounts) -> Option<Recipe> {
        let mut keys = LevelKeys::of(version, self.extractor());
        keys.add(0, table);
        self.policy().plan(&keys.tables()).recipe(&Share { hashed: table.hashed(), load: 1.0 })
    }

    /// The recipe for a table on a level below L0, one of several alike that an ingest puts there, with `all` keys
    /// together.
    pub(crate) fn recipe_for_ingest(
        &self,
        version: &Version,
        level: usize,
        table: KeyCounts,
        all: u64,
    ) -> Option<Recipe> {
        let mut keys = LevelKeys::of(version, self.extractor());
        keys.add_alike(level, table, all.div_ceil(table.keys.max(1)));
        let load = keys.load(level, table.keys);
        self.policy().plan(&keys.tables()).recipe(&Share { hashed: table.hashed(), load })
    }

    /// The recipes for the outputs of a compaction: one plan for all, fixed before it begins.
    pub(crate) fn recipes_for_outputs(
        &self,
        version: &Version,
        inputs: &[(usize, LiveTable)],
        output_level: usize,
    ) -> impl Fn(KeyCounts) -> Option<Recipe> + use<> {
        let keys =
            LevelKeys::of(version, self.extractor()).after(inputs, output_level, self.extractor());
        let plan = self.policy().plan(&keys.tables());
        let all_counted = inputs.iter().all(|(_, live)| live.prefixes(self.extractor()).is_some());
        move |table| {
            let load = keys.load(output_level, table.keys);
            if all_counted {
                plan.recipe(&Share { hashed: table.hashed(), load })
            } else {
                plan.recipe_of_more(table, load)
            }
        }
    }

    /// The recipes of all tables by id. `counted` has the numbers of prefixes that the tables do not know.
    pub(crate) fn recipes(
        &self,
        version: &Version,
        counted: &HashMap<u64, u64>,
    ) -> HashMap<u64, Option<Recipe>> {
        let levels = LevelKeys::of(version, None);
        let (mut ids, mut shares) = (Vec::new(), Vec::new());
        for (level, live) in version.tables() {
            let (id, table) = (live.table.id(), live.key_counts(self.extractor()));
            let known = live.prefixes(self.extractor());
            let prefixes = known.or_else(|| counted.get(&id).copied()).unwrap_or(0);
            let table = KeyCounts { prefixes, ..table };
            ids.push(id);
            shares.push(Share { hashed: table.hashed(), load: levels.load(level, table.keys) });
        }
        ids.into_iter().zip(self.policy().recipes(&shares)).collect()
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
