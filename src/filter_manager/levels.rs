//! The load of each table, which the allocation of filter bits needs.
//!
//! A lookup of an absent key probes every table of L0. On each level below it probes one table, with a
//! probability proportional to the keys of the table (the assumption of Monkey, see `filter/allocation.rs`).
//! So a plan needs only the keys of each L0 table and of each level.

use super::allocation::{Share, TableGroup};
use crate::ledger::LEVELS;
use crate::version::{LiveTable, Version};

/// The keys of a version, or of the version after a task.
#[derive(Debug, Clone)]
pub(super) struct LevelKeys {
    l0: Vec<u64>,
    /// Numbers of keys and of tables, for each level except L0.
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
        let mut all = 0;
        for (level, live) in inputs {
            let keys = live.table.meta().keys;
            if *level == 0 {
                let at = self.l0.iter().position(|other| *other == keys);
                at.map(|at| self.l0.swap_remove(at));
            } else {
                self.below[*level].0 -= keys;
                self.below[*level].1 -= 1;
            }
            if output_level > 0 {
                self.add(output_level, keys);
            }
            all += keys;
        }
        if output_level == 0 {
            self.l0.push(all);
        }
        self
    }

    /// The share of lookups of absent keys that probe a table with these `keys`.
    pub(super) fn load(&self, level: usize, keys: u64) -> f64 {
        match self.below[level].0 {
            all if level > 0 && all > 0 => keys as f64 / all as f64,
            _ => 1.0,
        }
    }

    /// All tables; the tables of a level below L0 count as equal.
    pub(super) fn tables(&self) -> Vec<TableGroup> {
        let mut all = Vec::new();
        for &keys in &self.l0 {
            all.push(Share { keys, load: 1.0 }.into());
        }
        for (keys, tables) in self.below {
            let Some(keys) = keys.checked_div(tables) else { continue };
            all.push(TableGroup { share: Share { keys, load: 1.0 / tables as f64 }, tables });
        }
        all
    }
}

/// The expected share of lookups of absent keys that probe a table of a version.
pub(super) fn expected_load(version: &Version) -> impl Fn(usize, &LiveTable) -> f64 + use<> {
    let levels = LevelKeys::of(version);
    move |level, live| levels.load(level, live.table.meta().keys)
}
