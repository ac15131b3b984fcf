//! The levels on which tables may be put from outside a compaction.

use crate::ledger::LEVELS;
use crate::version::Version;

/// The level and the keys of the outputs of a running compaction.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    pub(crate) level: usize,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
}

/// The keys that each level below L0 has, or may have soon.
pub(crate) struct Occupied<'a> {
    version: &'a Version,
    outputs: Vec<Output>,
}

impl<'a> Occupied<'a> {
    /// `outputs`: those of all running compactions.
    pub(crate) fn of(version: &'a Version, outputs: impl IntoIterator<Item = Output>) -> Self {
        Self { version, outputs: outputs.into_iter().collect() }
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
            let overlaps = |output: &Output| {
                output.level == *level
                    && output.smallest.as_slice() <= largest
                    && smallest <= output.largest.as_slice()
            };
            self.version.overlapping(*level, smallest, largest).is_empty()
                && !self.outputs.iter().any(overlaps)
        };
        (first..LEVELS).take_while(is_free).last()
    }
}
