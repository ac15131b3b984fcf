//! How the keys of a version are spread, as its resident indexes tell: no key is read.

use crate::table::Table;

use super::{LiveTable, Version};

/// Estimates how many of a version's keys lie in a range. A key held by several tables counts at each.
#[derive(Debug)]
pub(crate) struct KeyRanks<'a> {
    runs: Vec<Run<'a>>,
    total: u64,
}

/// Tables in key order, none of which overlap: a level, or one table of L0.
#[derive(Debug)]
struct Run<'a> {
    tables: &'a [LiveTable],
    /// How many keys the tables before each one have, and all of them.
    before: Vec<u64>,
}

impl<'a> Run<'a> {
    fn new(tables: &'a [LiveTable]) -> Self {
        let mut before = vec![0];
        let mut keys = 0;
        for live in tables {
            keys += live.table.meta().keys;
            before.push(keys);
        }
        Self { tables, before }
    }

    fn keys_within(&self, smallest: &[u8], largest: &[u8]) -> f64 {
        let first =
            self.tables.partition_point(|live| live.table.meta().largest.as_slice() < smallest);
        let after =
            self.tables.partition_point(|live| live.table.meta().smallest.as_slice() <= largest);
        let of = |number: usize| {
            self.tables.get(number).map_or(0.0, |live| keys_within(&live.table, smallest, largest))
        };
        match after.saturating_sub(first) {
            0 => 0.0,
            1 => of(first),
            _ => {
                of(first) + of(after - 1) + (self.before[after - 1] - self.before[first + 1]) as f64
            }
        }
    }
}

impl<'a> KeyRanks<'a> {
    pub(crate) fn new(version: &'a Version) -> Self {
        let [l0, below @ ..] = &version.levels;
        let runs: Vec<_> = l0
            .iter()
            .map(std::slice::from_ref)
            .chain(below.iter().map(Vec::as_slice))
            .map(Run::new)
            .collect();
        let total = runs.iter().filter_map(|run| run.before.last()).sum();
        Self { runs, total }
    }

    /// All keys.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The keys in `smallest ..= largest`.
    pub(crate) fn keys_within(&self, smallest: &[u8], largest: &[u8]) -> f64 {
        self.runs.iter().map(|run| run.keys_within(smallest, largest)).sum()
    }
}

/// How many of a table's keys lie in `smallest ..= largest`, as if each block held equally many. A
/// block that a bound falls into counts half.
pub(crate) fn keys_within(table: &Table, smallest: &[u8], largest: &[u8]) -> f64 {
    let (meta, index) = (table.meta(), table.index());
    if largest < meta.smallest.as_slice() || meta.largest.as_slice() < smallest {
        return 0.0;
    }
    let blocks = index.len() as f64;
    let at = |key: &[u8]| table.block_for(key) as f64 + 0.5;
    let from = if smallest <= meta.smallest.as_slice() { 0.0 } else { at(smallest) };
    let to = if meta.largest.as_slice() <= largest { blocks } else { at(largest) };
    meta.keys as f64 * (to - from).max(0.0) / blocks
}
