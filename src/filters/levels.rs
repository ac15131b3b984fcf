//! How often a lookup of an absent key asks each table: what the allocation of filter bits goes by.
//!
//! Such a lookup asks every table of L0, and on each level below one of its tables, each as often as it has
//! keys of the level (the assumption of Monkey, see `filter/allocation.rs`). So a plan needs only the number of
//! keys of each level, and of each table on L0.

use crate::filter::{Alike, Share};
use crate::ledger::LEVELS;
use crate::version::{LiveTable, Version};

/// The keys of a version, or of one that a job is about to make.
#[derive(Debug, Clone)]
pub(super) struct LevelKeys {
    /// Of each table.
    l0: Vec<u64>,
    /// By level, L0 empty: all keys, in how many tables.
    below: [(u64, u64); LEVELS],
}

impl LevelKeys {
    pub(super) fn of(version: &Version) -> Self {
        let mut keys = Self { l0: Vec::new(), below: [(0, 0); LEVELS] };
        for (level, live) in version.tables() {
            keys.add(level, live.table.meta().keys);
        }
        keys
    }

    pub(super) fn add(&mut self, level: usize, keys: u64) {
        if level == 0 {
            self.l0.push(keys);
        } else {
            self.below[level].0 += keys;
            self.below[level].1 += 1;
        }
    }

    /// As it will be when tables have gone to a level.
    pub(super) fn after(mut self, inputs: &[(usize, LiveTable)], output_level: usize) -> Self {
        let keys_of = |live: &LiveTable| live.table.meta().keys;
        for (level, live) in inputs {
            let keys = keys_of(live);
            if *level == 0 {
                let at = self.l0.iter().position(|other| *other == keys);
                at.map(|at| self.l0.swap_remove(at));
            } else {
                self.below[*level].0 -= keys;
                self.below[*level].1 -= 1;
            }
        }
        if output_level == 0 {
            self.l0.push(inputs.iter().map(|(_, live)| keys_of(live)).sum());
        } else {
            for (_, live) in inputs {
                self.add(output_level, keys_of(live));
            }
        }
        self
    }

    /// How many of the lookups of absent keys ask a table of a level.
    pub(super) fn load(&self, level: usize, keys: u64) -> f64 {
        match self.below[level].0 {
            all if level > 0 && all > 0 => keys as f64 / all as f64,
            _ => 1.0,
        }
    }

    /// All tables; those of a level below L0 as so many alike.
    pub(super) fn tables(&self) -> Vec<Alike> {
        let l0 = self.l0.iter().map(|&keys| Share { keys, load: 1.0 }.into());
        let levels = self.below.iter().filter(|(_, tables)| *tables > 0);
        let below = levels.map(|&(keys, tables)| {
            let share = Share { keys: keys / tables, load: 1.0 / tables as f64 };
            Alike { share, tables }
        });
        l0.chain(below).collect()
    }
}

/// How often a lookup of an absent key asks a table, without any history.
pub(crate) fn expected_load(version: &Version, level: usize, live: &LiveTable) -> f64 {
    let keys = |live: &LiveTable| live.table.meta().keys;
    let all: u64 = version.level(level).iter().map(keys).sum();
    if level == 0 { 1.0 } else { keys(live) as f64 / all.max(1) as f64 }
}
