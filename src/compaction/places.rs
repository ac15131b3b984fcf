//! The levels on which tables may be put from outside a compaction.

use std::collections::{BTreeMap, HashSet};

use crate::ledger::LEVELS;
use crate::version::Version;

/// The level and the keys of the outputs of a running compaction.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    pub(crate) level: usize,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
}

impl Output {
    pub(crate) fn overlaps(&self, level: usize, smallest: &[u8], largest: &[u8]) -> bool {
        self.level == level
            && self.smallest.as_slice() <= largest
            && smallest <= self.largest.as_slice()
    }
}

/// The tables and the outputs of running compactions.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    tables: HashSet<u64>,
    /// By the first input.
    outputs: BTreeMap<u64, Output>,
}

impl Busy {
    pub(crate) fn begin(&mut self, tables: &[u64], output: Option<Output>) {
        self.tables.extend(tables);
        self.outputs.extend(tables.first().copied().zip(output));
    }

    pub(crate) fn end(&mut self, tables: &[u64]) {
        for id in tables {
            self.tables.remove(id);
            self.outputs.remove(id);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    pub(crate) fn contains(&self, id: u64) -> bool {
        self.tables.contains(&id)
    }

    pub(crate) fn tables(&self) -> &HashSet<u64> {
        &self.tables
    }

    pub(crate) fn outputs(&self) -> impl Iterator<Item = &Output> {
        self.outputs.values()
    }
}

/// The keys that each level below L0 has, or may have soon.
pub(crate) struct Occupied<'a> {
    version: &'a Version,
    outputs: Vec<Output>,
}

impl<'a> Occupied<'a> {
    pub(crate) fn of(version: &'a Version, busy: &Busy) -> Self {
        Self { version, outputs: busy.outputs().cloned().collect() }
    }

    pub(crate) fn add(&mut self, level: usize, smallest: &[u8], largest: &[u8]) {
        let (smallest, largest) = (smallest.to_vec(), largest.to_vec());
        self.outputs.push(Output { level, smallest, largest });
    }

    /// The lowest level where a table with these keys is above all others that overlap it, L0 aside; 0 if level 1
    /// has such tables.
    pub(crate) fn lowest_free(&self, smallest: &[u8], largest: &[u8]) -> usize {
        self.lowest_free_from(1, smallest, largest).unwrap_or(0)
    }

    /// The lowest level above all tables on levels from `first` on that overlap these keys.
    pub(crate) fn lowest_free_from(
        &self,
        first: usize,
        smallest: &[u8],
        largest: &[u8],
    ) -> Option<usize> {
        let is_free = |level: &usize| {
            self.version.overlapping(*level, smallest, largest).is_empty()
                && !self.outputs.iter().any(|output| output.overlaps(*level, smallest, largest))
        };
        (first..LEVELS).take_while(is_free).last()
    }
}
