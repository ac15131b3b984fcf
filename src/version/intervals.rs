//! The keys in intervals: between two ends of tables, all keys have the same candidates.
//!
//! A lookup finds its interval by one search over the ends of all tables, and so its candidates: all tables of L0,
//! and on each sorted level the first table that does not end before the key. Most intervals need a few words; a
//! table of L0 has the range of intervals that it covers, because L0 may have many tables over the same keys.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::ops::Range;
use std::sync::Arc;

use super::live_table::LiveTable;
use crate::fences::Fences;
use crate::key::head;
use crate::ledger::Candidates;
use crate::sstable::Table;

/// Where tables begin or end: at a key, or right behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct IntervalEnd<'a> {
    key: &'a [u8],
    behind: bool,
}

/// The end of a table at which an interval begins.
#[derive(Debug)]
struct End {
    table: Arc<Table>,
    /// Right behind its largest key, or at its smallest.
    behind: bool,
}

impl End {
    fn bound(&self) -> IntervalEnd<'_> {
        let meta = self.table.meta();
        let key = if self.behind { &meta.largest } else { &meta.smallest };
        IntervalEnd { key, behind: self.behind }
    }
}

/// The candidate of an interval on a sorted level: the number of a table, and whether it covers the interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry(u32);

impl Entry {
    const NONE: Self = Self(u32::MAX);
    const PRUNED: u32 = 1 << 31;

    fn of(number: usize, covers: bool) -> Self {
        Self(number as u32 | if covers { 0 } else { Self::PRUNED })
    }

    #[inline]
    fn candidate(self) -> Option<Candidate> {
        let candidate =
            Candidate { number: (self.0 & !Self::PRUNED) as usize, covers: self.0 < Self::PRUNED };
        (self != Self::NONE).then_some(candidate)
    }
}

/// A table that a lookup considers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its number in the version.
    pub(crate) number: usize,
    /// Whether its key range covers the key.
    pub(crate) covers: bool,
}

/// The intervals of some tables. They hold no filter.
#[derive(Debug, Default)]
pub(crate) struct Intervals {
    /// Ends of the intervals, ascending. Interval `n` begins at `ends[n - 1]`; interval 0 is before all tables.
    ends: Vec<End>,
    heads: Fences,
    /// The intervals that each table of L0 covers, newest first.
    l0: Vec<Range<u32>>,
    /// One entry for each sorted level with tables, for each interval.
    rows: Vec<Entry>,
    width: usize,
}

/// The interval of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interval<'a> {
    of: &'a Intervals,
    pub(crate) number: usize,
}

impl Interval<'_> {
    /// Candidates have ranks from 0 to this, newest first; a rank may be empty.
    #[inline]
    pub(crate) fn ranks(&self) -> usize {
        self.of.l0.len() + self.of.width
    }

    #[inline]
    pub(crate) fn at(&self, rank: usize) -> Option<Candidate> {
        match self.of.l0.get(rank) {
            Some(covered) => {
                let covers = covered.contains(&(self.number as u32));
                Some(Candidate { number: rank, covers })
            }
            None => {
                let row = self.number * self.of.width;
                self.of.rows.get(row + (rank - self.of.l0.len()))?.candidate()
            }
        }
    }

    /// The number of the table at this rank, if it covers the key.
    #[inline]
    pub(crate) fn covering(&self, rank: usize) -> Option<usize> {
        self.at(rank).filter(|candidate| candidate.covers).map(|candidate| candidate.number)
    }

    /// The candidates, newest first.
    pub(crate) fn candidates(self) -> impl Iterator<Item = Candidate> {
        (0..self.ranks()).filter_map(move |rank| self.at(rank))
    }
}

impl Intervals {
    /// Intervals of tables in the order of their numbers: L0, newest first, then the sorted levels that have tables.
    pub(super) fn of(l0: &[LiveTable], sorted: &[&[LiveTable]]) -> Self {
        let tables = || l0.iter().chain(sorted.iter().copied().flatten());
        let mut found: Vec<(u64, IntervalEnd<'_>, usize)> =
            Vec::with_capacity(2 * tables().count());
        for (number, live) in tables().enumerate() {
            let meta = live.table.meta();
            for (key, behind) in [(&meta.smallest, false), (&meta.largest, true)] {
                found.push((head(key), IntervalEnd { key, behind }, number));
            }
        }
        found.sort(); // finds the runs of levels, which are in order
        let mut covered = vec![0..0; tables().count()];
        let mut begun = 0;
        let mut last = None;
        let mut at_ends = Vec::with_capacity(found.len());
        for (_, bound, number) in found {
            if last != Some(bound) {
                begun += 1;
                at_ends.push((number, bound.behind));
                last = Some(bound);
            }
            if let Some(covered) = covered.get_mut(number) {
                if bound.behind { covered.end = begun } else { covered.start = begun }
            }
        }
        let tables: Vec<&LiveTable> = tables().collect();
        let ends = at_ends.into_iter().filter_map(|(number, behind)| {
            Some(End { table: Arc::clone(&tables.get(number)?.table), behind })
        });
        let ends: Vec<End> = ends.collect();
        let width = sorted.len();
        let mut rows = vec![Entry::NONE; width * (ends.len() + 1)];
        let mut number = l0.len();
        for (column, level) in sorted.iter().enumerate() {
            let mut entries = rows.iter_mut().skip(column).step_by(width).zip(0_u32..).peekable();
            for _ in *level {
                let Some(covered) = covered.get(number) else { break };
                while let Some((entry, interval)) = entries.next_if(|(_, n)| *n < covered.end) {
                    *entry = Entry::of(number, covered.start <= interval);
                }
                number += 1;
            }
        }
        covered.truncate(l0.len());
        let heads = Fences::new(ends.iter().map(|end| end.bound().key));
        Self { ends, heads, l0: covered, rows, width }
    }

    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Interval<'_> {
        let key = IntervalEnd { key, behind: false };
        let begins_by = |n: usize| self.ends.get(n).is_some_and(|end| end.bound() <= key);
        self.interval(self.heads.below(key.key, begins_by))
    }

    #[inline]
    fn interval(&self, number: usize) -> Interval<'_> {
        Interval { of: self, number }
    }
}

impl Candidates for Intervals {
    fn intervals(&self) -> usize {
        self.ends.len() + 1
    }

    fn for_each(&self, interval: usize, each: &mut dyn FnMut(usize, bool)) {
        for Candidate { number, covers } in self.interval(interval).candidates() {
            each(number, covers);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::version::Version;
    use crate::{Options, Result};

    /// A version of about so many tables on one level, and some on L0.
    fn version(tables: u32) -> Result<Arc<Version>> {
        let dir = crate::tempdir::tempdir();
        let options = Options::new().auto_compaction(false).table_bytes(1024).max_open_files(64);
        let db = options.open(dir.path())?;
        for number in 0..tables {
            db.put(number.to_be_bytes(), [7; 1100])?;
        }
        db.compact()?;
        for number in 0..10_u32 {
            db.put((number * 100).to_be_bytes(), "newer")?;
            db.put((number * 100 + 150).to_be_bytes(), "newer")?;
            db.flush()?;
        }
        Ok(Arc::clone(&db.inner()?.views.load().version))
    }

    #[test]
    fn intervals_take_few_bytes_a_table_and_are_shared() -> Result<()> {
        let version = version(2000)?;
        let intervals = &version.intervals;
        let bytes = intervals.ends.len() * size_of::<End>()
            + intervals.heads.memory()
            + intervals.rows.len() * size_of::<Entry>()
            + intervals.l0.len() * size_of::<Range<u32>>();
        let tables = version.tables().count();
        let each = bytes as f64 / tables as f64;
        println!("{each:.0} bytes for each of {tables} tables, and 64 of its filter");
        assert!(tables > 1900 && each + 64.0 < 200.0, "{each}");
        assert!(Arc::ptr_eq(intervals, &version.without_filters().intervals));
        Ok(())
    }

    #[test]
    #[ignore = "a measurement: --release"]
    fn installing_a_version_takes_milliseconds() -> Result<()> {
        for tables in [2000, 20_000] {
            let version = version(tables)?;
            let ledger = Arc::clone(&version.level(0)[0].table.env().ledger);
            for replaced in [1, version.tables().count()] {
                let live = version.tables().take(replaced);
                let added: Vec<_> = live.map(|(level, live)| (level, live.open())).collect();
                let removed: Vec<_> =
                    added.iter().map(|(level, open)| (*level, open.table.id())).collect();
                let mut times = Vec::new();
                for _ in 0..20 {
                    let start = Instant::now();
                    let next = version.with(&removed, &added, &ledger);
                    times.push(start.elapsed());
                    drop(next);
                }
                times.sort();
                let (median, most) = (times[10], times[19]);
                println!("{replaced} of {tables} tables replaced: {median:?}, at most {most:?}");
            }
        }
        Ok(())
    }
}
