//! The load of each table, which the allocation of filter bits needs.
//!
//! A lookup of an absent key probes every table of L0. On each level below it probes one table, with a
//! probability proportional to the keys of the table (the assumption of Monkey, see `filter/allocation.rs`).
//! So a plan needs only the keys and prefixes of each L0 table and of each level.

use super::allocation::{Share, TableGroup};
use crate::filter::{KeyCounts, PrefixExtractor};
use crate::ledger::LEVELS;
use crate::version::{LiveTable, Version};

/// The keys and prefixes of a version, or of the version after a task.
#[derive(Debug, Clone)]
pub(super) struct LevelKeys {
    l0: Vec<KeyCounts>,
    /// For each level except L0.
    below: [Level; LEVELS],
}

#[derive(Debug, Clone, Copy, Default)]
struct Level {
    keys: u64,
    hashed: u64,
    tables: u64,
}

impl LevelKeys {
    pub(super) fn of(version: &Version, extractor: Option<PrefixExtractor>) -> Self {
        let mut keys = Self { l0: Vec::new(), below: [Level::default(); LEVELS] };
        for (level, live) in version.tables() {
            keys.add(level, live.key_counts(extractor));
        }
        keys
    }

    pub(super) fn add(&mut self, level: usize, of_table: KeyCounts) {
        if level == 0 {
            self.l0.push(of_table);
        } else {
            self.add_alike(level, of_table, 1);
        }
    }

    /// Adds tables with the same numbers to a level below L0.
    pub(super) fn add_alike(&mut self, level: usize, each: KeyCounts, tables: u64) {
        let of_level = &mut self.below[level];
        of_level.keys = of_level.keys.saturating_add(each.keys.saturating_mul(tables));
        of_level.hashed = of_level.hashed.saturating_add(each.hashed().saturating_mul(tables));
        of_level.tables = of_level.tables.saturating_add(tables);
    }

    /// The state after a compaction. Its outputs have at most the keys and prefixes of its inputs.
    pub(super) fn after(
        mut self,
        inputs: &[(usize, LiveTable)],
        output_level: usize,
        extractor: Option<PrefixExtractor>,
    ) -> Self {
        let mut all = KeyCounts::default();
        for (level, live) in inputs {
            let of_table = live.key_counts(extractor);
            if *level == 0 {
                // Damage of a filter may have been found meanwhile, and its number of prefixes forgotten.
                let at = |alike: fn(&KeyCounts, &KeyCounts) -> bool| {
                    self.l0.iter().position(|other| alike(other, &of_table))
                };
                let at = at(|a, b| a == b).or_else(|| at(|a, b| a.keys == b.keys));
                at.map(|at| self.l0.swap_remove(at));
            } else {
                self.below[*level].keys -= of_table.keys;
                let hashed = &mut self.below[*level].hashed;
                *hashed = hashed.saturating_sub(of_table.hashed());
                self.below[*level].tables -= 1;
            }
            if output_level > 0 {
                self.add(output_level, of_table);
            }
            all.keys += of_table.keys;
            all.prefixes += of_table.prefixes;
        }
        if output_level == 0 {
            self.l0.push(all);
        }
        self
    }

    /// The share of lookups of absent keys that probe a table with these `keys`.
    pub(super) fn load(&self, level: usize, keys: u64) -> f64 {
        match self.below[level].keys {
            all if level > 0 && all > 0 => keys as f64 / all as f64,
            _ => 1.0,
        }
    }

    /// All tables; the tables of a level below L0 count as equal.
    pub(super) fn tables(&self) -> Vec<TableGroup> {
        let mut all = Vec::new();
        for of_table in &self.l0 {
            all.push(Share { hashed: of_table.hashed(), load: 1.0 }.into());
        }
        for Level { hashed, tables, .. } in self.below {
            let Some(hashed) = hashed.checked_div(tables) else { continue };
            all.push(TableGroup { share: Share { hashed, load: 1.0 / tables as f64 }, tables });
        }
        all
    }
}

/// The expected share of lookups of absent keys that probe a table of a version.
pub(super) fn expected_load(version: &Version) -> impl Fn(usize, &LiveTable) -> f64 + use<> {
    let levels = LevelKeys::of(version, None);
    move |level, live| levels.load(level, live.table.meta().keys)
}
