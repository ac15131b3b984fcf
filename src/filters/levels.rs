//! The load of each table, which the allocation of filter bits needs.
//!
//! A lookup of an absent key probes every table of L0, and one table of each level below, each in proportion
//! to its keys (the assumption of Monkey, see `filter/allocation.rs`). So a plan needs only the keys of each
//! level and of each L0 table.

use crate::filter::{Alike, Share};
use crate::ledger::LEVELS;
use crate::version::{LiveTable, Version};

/// The keys of a version, or of the version after a task.
#[derive(Debug, Clone)]
pub(super) struct LevelKeys {
    l0: Vec<u64>,
    /// By level, without L0: number of keys, number of tables.
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

    /// The share of lookups of absent keys that probe a table of a level.
    pub(super) fn load(&self, level: usize, keys: u64) -> f64 {
        match self.below[level].0 {
            all if level > 0 && all > 0 => keys as f64 / all as f64,
            _ => 1.0,
        }
    }

    /// All tables; those of a level below L0 as equal tables.
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

/// The expected share of lookups of absent keys that probe a table of a version.
pub(crate) fn expected_load(version: &Version) -> impl Fn(usize, &LiveTable) -> f64 + use<> {
    let levels = LevelKeys::of(version);
    move |level, live| levels.load(level, live.table.meta().keys)
}
