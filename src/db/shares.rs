//! Which filters the tables of a version get: its keys and what is known of the lookups, put before
//! the policy.

use std::collections::{HashMap, HashSet};

use super::last_plan::{Basis, LastPlan};
use super::loads::{Heritage, Histories, History};
use crate::filter::{FilterPolicy, Plan, PrefixExtractor, Recipe, Share, Standing, refits};
use crate::table::{FilterState, OpenTable, Properties};
use crate::version::{KeyRanks, LiveTable, Version};

/// The tables of a version, each with its part of the keys and of the lookups.
#[derive(Debug)]
pub(crate) struct Shares<'a> {
    policy: FilterPolicy,
    version: &'a Version,
    ranks: KeyRanks<'a>,
    histories: Histories,
    last_plan: &'a LastPlan,
}

impl<'a> Shares<'a> {
    pub(crate) fn new(
        policy: FilterPolicy,
        version: &'a Version,
        histories: Histories,
        last_plan: &'a LastPlan,
    ) -> Self {
        Self { policy, version, ranks: KeyRanks::new(version), histories, last_plan }
    }

    /// The plan for a store of these shares, or one for a store that was nearly as this one is.
    fn plan(&self, shares: impl FnOnce() -> Vec<Share>) -> Plan {
        let Histories { lookups, half_life, .. } = self.histories;
        let (tables, keys) = (self.version.tables().count(), self.ranks.total());
        let now = Basis { policy: self.policy, tables, keys, lookups, half_life };
        self.last_plan.for_basis(now, || self.policy.plan(&shares()))
    }

    /// The part of all keys that lies in a range: without any history this is a table's load,
    /// because an absent key that is drawn like the present ones meets the table so often. `more` are
    /// keys in the range that the version does not have.
    fn prior(&self, smallest: &[u8], largest: &[u8], more: u64) -> f64 {
        let more = more as f64;
        let within = self.ranks.keys_within(smallest, largest) + more;
        within.max(1.0) / (self.ranks.total() as f64 + more).max(1.0)
    }

    /// The absent probes of a live table for each lookup that goes to tables.
    pub(crate) fn load(&self, live: &LiveTable) -> f64 {
        let meta = live.table.meta();
        self.histories.of(meta.id).load(self.prior(&meta.smallest, &meta.largest, 0))
    }

    /// The same for each lookup of a key that no table holds, where a part `passing` of all lookups finds
    /// nothing at the table's level or above.
    pub(crate) fn absent_load(&self, live: &LiveTable, passing: f64) -> f64 {
        let meta = live.table.meta();
        let history = self.histories.of(meta.id).among(passing);
        history.load(self.prior(&meta.smallest, &meta.largest, 0))
    }

    /// The absent probes, fading, that all loads together are based on.
    pub(crate) fn absent_probes(&self) -> f64 {
        self.histories.absent_probes()
    }

    pub(crate) fn share(&self, live: &LiveTable) -> Share {
        // A false positive costs one read, at any level.
        Share { keys: live.table.meta().keys, load: self.load(live) }
    }

    /// What the new L0 table of a flush gets.
    pub(crate) fn for_flushed(&self, table: &Properties) -> Option<Recipe> {
        let load = self.prior(&table.smallest, &table.largest, table.keys);
        let new = Share { keys: table.keys, load };
        let live = || self.version.tables().map(|(_, live)| self.share(live));
        self.plan(|| live().chain([new]).collect()).recipe(&new)
    }

    /// What the outputs of a compaction get: one λ for all of them, fixed before it begins.
    pub(crate) fn for_outputs_of(
        &self,
        inputs: &[(usize, LiveTable)],
    ) -> impl Fn(&Properties) -> Option<Recipe> {
        let heritage = self.histories.heritage(inputs);
        let plan = self.plan(|| self.after(inputs, &heritage));
        move |table| {
            let load = self.inherited(&heritage, &table.smallest, &table.largest);
            plan.recipe(&Share { keys: table.keys, load })
        }
    }

    fn inherited(&self, heritage: &Heritage, smallest: &[u8], largest: &[u8]) -> f64 {
        let history = heritage.of_range(&self.ranks, smallest, largest);
        history.load(self.prior(smallest, largest, 0))
    }

    /// What the outputs of a compaction inherit of what its inputs met.
    pub(crate) fn inherited_by(
        &self,
        inputs: &[(usize, LiveTable)],
        outputs: &[OpenTable],
    ) -> Vec<(u64, History)> {
        let heritage = self.histories.heritage(inputs);
        let metas = outputs.iter().map(|open| open.table.meta());
        metas.map(|m| (m.id, heritage.of_range(&self.ranks, &m.smallest, &m.largest))).collect()
    }

    /// The tables that there will be after a compaction: the others, and in place of the inputs those
    /// of the lowest level, grown by the keys that come down to them.
    fn after(&self, inputs: &[(usize, LiveTable)], heritage: &Heritage) -> Vec<Share> {
        let gone: HashSet<u64> = inputs.iter().map(|(_, live)| live.table.id()).collect();
        let others = self.version.tables().filter(|(_, live)| !gone.contains(&live.table.id()));
        let mut shares: Vec<Share> = others.map(|(_, live)| self.share(live)).collect();

        let keys = |inputs: &mut dyn Iterator<Item = &(usize, LiveTable)>| -> u64 {
            inputs.map(|(_, live)| live.table.meta().keys).sum()
        };
        let lowest = inputs.iter().map(|(level, _)| *level).max().unwrap_or(0);
        let base = || inputs.iter().filter(|(level, _)| *level == lowest && lowest > 0);
        let (all, of_base) = (keys(&mut inputs.iter()), keys(&mut base()));
        if of_base > 0 {
            let growth = all as f64 / of_base as f64;
            shares.extend(base().map(|(_, live)| {
                let share = self.share(live);
                Share { keys: (share.keys as f64 * growth) as u64, ..share }
            }));
        } else {
            let metas = || inputs.iter().map(|(_, live)| live.table.meta());
            let smallest = metas().map(|meta| &meta.smallest).min();
            if let Some((smallest, largest)) = smallest.zip(metas().map(|meta| &meta.largest).max())
            {
                let load = self.inherited(heritage, smallest, largest);
                shares.push(Share { keys: all, load });
            }
        }
        shares
    }

    /// What each live table should have.
    pub(crate) fn recipes(&self) -> HashMap<u64, Option<Recipe>> {
        let lives: Vec<_> = self.version.tables().map(|(_, live)| live).collect();
        let shares: Vec<Share> = lives.iter().map(|live| self.share(live)).collect();
        let ids = lives.iter().map(|live| live.table.id());
        ids.zip(self.policy.recipes(&shares)).collect()
    }

    /// The live tables whose filter the policy would make but for a difference in size that
    /// [`refits`](Self::refits) leaves alone. While bits are shared out by what tables are asked for, no
    /// two looks at a store that is being read find quite the same shares.
    pub(crate) fn fitted(&self, extractor: Option<PrefixExtractor>) -> HashSet<u64> {
        if !self.policy.is_shared_out() {
            return HashSet::new(); // sizes are what they are, to the bit
        }
        let recipes = self.recipes();
        let mut fitted = HashSet::new();
        let standing = |(_, live): (usize, &LiveTable)| {
            let (id, share) = (live.table.id(), self.share(live));
            let made = live.filter.sound().is_some_and(|stored| {
                self.policy.makes(stored.kind(), stored.hash()) && stored.has_prefixes_of(extractor)
            });
            let filter_bits = if made {
                fitted.insert(id);
                8 * live.filter.meta.bytes
            } else {
                // It will have what it should.
                recipes
                    .get(&id)
                    .copied()
                    .flatten()
                    .map_or(0, |recipe| recipe.filter_bits(share.keys))
            };
            Standing { id, share, filter_bits: Some(filter_bits) }
        };
        let standings: Vec<Standing> = self.version.tables().map(standing).collect();
        for (id, _) in refits(&self.policy, &standings) {
            fitted.remove(&id);
        }
        fitted
    }

    /// The live tables that should have another filter, or none. Those whose filter is of another
    /// kind or hash than the policy's, or degraded, keep it until they are rewritten; and so do those
    /// of a store just opened until it is known what they are asked for. `asked` has the bits that were
    /// asked for where a table was refitted already: a kind may have had to take others, and would again.
    pub(crate) fn refits(&self, asked: &HashMap<u64, u64>) -> Vec<(u64, Option<Recipe>)> {
        let standing = |(_, live): (usize, &LiveTable)| Standing {
            id: live.table.id(),
            share: self.share(live),
            filter_bits: match &live.filter.state {
                _ if self.histories.past_unknown(live.table.id()) => None,
                _ if asked.contains_key(&live.table.id()) => asked.get(&live.table.id()).copied(),
                FilterState::None => Some(0),
                FilterState::Active(_) | FilterState::NotResident(_) => {
                    let sound = live.filter.sound();
                    let made = sound.filter(|s| self.policy.makes(s.kind(), s.hash()));
                    made.map(|_| 8 * live.filter.meta.bytes)
                }
                FilterState::Degraded(_) => None,
            },
        };
        refits(&self.policy, &self.version.tables().map(standing).collect::<Vec<_>>())
    }
}
