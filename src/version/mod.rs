//! Versions: the live tables by level, and the manifest that records them.
//!
//! A version never changes. A flush, compaction or rebuild makes a new one, records the difference in the
//! manifest durably, and then installs it. Invariants: L0 is ordered newest first; below, the tables of a
//! level are sorted and disjoint.

mod cursor;
mod edit;
mod intervals;
mod live_table;
mod manifest;
mod prefix;
mod ranks;
mod settings;
mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) use cursor::LevelCursor;
pub(crate) use edit::{Edit, TableSet};
pub(crate) use intervals::Interval;
pub(crate) use live_table::LiveTable;
pub(crate) use manifest::{Manifest, is_temporary_current, read_current};
pub(crate) use prefix::PrefixProbe;
pub(crate) use ranks::keys_within;
pub(crate) use settings::StoreSettings;

use self::slots::Slots;
use crate::fork::Birth;
use crate::key::Seq;
use crate::ledger::{LEVELS, Ledger, Negatives};
use crate::sstable::{FilterState, OpenTable, TableFilter};
use intervals::Intervals;

#[derive(Debug, Default)]
pub(crate) struct Version {
    /// The first field: its drop settles the counters of the tables.
    negatives: VersionNegatives,
    /// Tables by number: L0 newest first, then each level in key order.
    tables: Vec<LiveTable>,
    /// Where each level begins in `tables`, and where the last one ends.
    starts: [usize; LEVELS + 1],
    /// Intervals of the tables, shared by versions that differ in filters only.
    intervals: Arc<Intervals>,
    /// The filters of the tables, by number.
    slots: Slots,
    /// The newest sequence number; 0 without tables.
    newest: Seq,
}

/// The counters of lookups that every filter of this version denied. `None` without tables.
#[derive(Debug, Default)]
struct VersionNegatives(Option<(Arc<Negatives>, Arc<Ledger>, Birth)>);

impl Drop for VersionNegatives {
    /// Settles the counters: the last lookup has ended.
    fn drop(&mut self) {
        if let Some((negatives, ledger, birth)) = &self.0
            && birth.is_this_process()
        {
            ledger.end_negatives(negatives);
        }
    }
}

impl Version {
    /// The tables of a level: L0 newest first, others in key order.
    #[inline]
    pub(crate) fn level(&self, level: usize) -> &[LiveTable] {
        match self.starts.get(level..=level + 1) {
            Some(&[start, end]) => self.tables.get(start..end).unwrap_or_default(),
            _ => &[],
        }
    }

    /// The runs in the order of a lookup: each table of L0, and each level below with tables.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &[LiveTable]> {
        self.level(0).chunks(1).chain(self.sorted())
    }

    /// The levels below L0 with tables.
    fn sorted(&self) -> impl Iterator<Item = &[LiveTable]> {
        (1..LEVELS).map(|level| self.level(level)).filter(|tables| !tables.is_empty())
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (usize, &LiveTable)> {
        (0..LEVELS).flat_map(|level| self.level(level).iter().map(move |live| (level, live)))
    }

    pub(crate) fn table(&self, id: u64) -> Option<&LiveTable> {
        self.tables.iter().find(|live| live.table.id() == id)
    }

    /// The tables with these ids, found in one pass.
    pub(crate) fn with_ids(&self, ids: &BTreeSet<u64>) -> BTreeMap<u64, &LiveTable> {
        let mut found = BTreeMap::new();
        for live in &self.tables {
            if ids.contains(&live.table.id()) {
                found.insert(live.table.id(), live);
            }
        }
        found
    }

    pub(crate) fn newest(&self) -> Seq {
        self.newest
    }

    /// The interval of a key.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Interval<'_> {
        self.intervals.find(key)
    }

    /// The filters of the tables by their numbers.
    #[inline]
    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    #[inline]
    pub(crate) fn numbered(&self, number: usize) -> Option<&LiveTable> {
        self.tables.get(number)
    }

    pub(crate) fn level_of(&self, number: usize) -> usize {
        self.starts.iter().skip(1).take_while(|&&start| start <= number).count()
    }

    /// Counts a lookup: a memtable and the filter of each table that covers the interval denied its key. False
    /// without tables.
    #[inline]
    pub(crate) fn count_negative(&self, interval: &Interval<'_>) -> bool {
        let Some((negatives, ..)) = &self.negatives.0 else { return false };
        negatives.count(interval.number);
        true
    }

    /// The tables of levels from this one on that cover the key, newest first.
    pub(crate) fn covering(&self, level: usize, key: &[u8]) -> impl Iterator<Item = &LiveTable> {
        let first = self.starts.get(level).copied().unwrap_or(usize::MAX);
        let covering =
            self.find(key).candidates().filter(move |it| it.covers && it.number >= first);
        covering.filter_map(|candidate| self.numbered(candidate.number))
    }

    pub(crate) fn level_bytes(&self, level: usize) -> u64 {
        self.level(level).iter().map(|live| live.table.meta().size).sum()
    }

    /// The number of L0 tables that compactions can merge.
    pub(crate) fn sound_l0(&self) -> usize {
        self.level(0).iter().filter(|live| !live.table.is_damaged()).count()
    }

    /// The tables of a level below L0 with a key in `smallest ..= largest`.
    pub(crate) fn overlapping(
        &self,
        level: usize,
        smallest: &[u8],
        largest: &[u8],
    ) -> &[LiveTable] {
        let tables = self.level(level);
        let first = tables.partition_point(|live| live.table.meta().largest.as_slice() < smallest);
        let after = tables.partition_point(|live| live.table.meta().smallest.as_slice() <= largest);
        tables.get(first..after).unwrap_or_default()
    }

    /// This version with other filters for some tables; unknown ids are ignored. Counters stay.
    pub(crate) fn with_filters(&self, filters: &BTreeMap<u64, Arc<TableFilter>>) -> Self {
        let mut tables = self.tables.clone();
        for live in &mut tables {
            if let Some(filter) = filters.get(&live.table.id()) {
                live.filter = Arc::clone(filter);
            }
        }
        Self::new(tables, self.starts, Arc::clone(&self.intervals))
    }

    pub(crate) fn without_filters(&self) -> Self {
        let tables = self.tables.iter().map(LiveTable::without_filter).collect();
        Self::new(tables, self.starts, Arc::clone(&self.intervals))
    }

    /// This version without some tables and with others. A table in both lists moves, and keeps the filter that
    /// it has in this version: the filter may have changed since the move was planned.
    pub(crate) fn with(
        &self,
        removed: &[(usize, u64)],
        added: &[(usize, OpenTable)],
        ledger: &Ledger,
    ) -> Self {
        let mut levels: [Vec<LiveTable>; LEVELS] =
            std::array::from_fn(|level| self.level(level).to_vec());
        let removed: BTreeSet<u64> = removed.iter().map(|(_, id)| *id).collect();
        // In order: what is left is dropped in the same order in each run of one seed.
        let mut moving = BTreeMap::new();
        for tables in &mut levels {
            for live in tables.extract_if(.., |live| removed.contains(&live.table.id())) {
                moving.insert(live.table.id(), live.filter);
            }
        }
        for (level, open) in added {
            let counters = ledger.counters(open.table.id(), *level);
            let mut open = open.clone();
            if let Some(filter) = moving.remove(&open.table.id()) {
                open.filter = filter;
            }
            levels[*level].push(LiveTable::new(open, counters));
        }
        let [l0, sorted @ ..] = &mut levels;
        l0.sort_by_key(|live| std::cmp::Reverse(live.table.meta().max_seq));
        for tables in sorted.iter_mut() {
            tables.sort_by(|a, b| a.table.meta().smallest.cmp(&b.table.meta().smallest));
        }
        let sorted: Vec<&[LiveTable]> =
            sorted.iter().map(Vec::as_slice).filter(|tables| !tables.is_empty()).collect();
        let intervals = Arc::new(Intervals::of(l0, &sorted));
        let mut starts = [0; LEVELS + 1];
        for (level, tables) in levels.iter().enumerate() {
            starts[level + 1] = starts[level] + tables.len();
        }
        Self::new(levels.concat(), starts, intervals)
    }

    fn new(tables: Vec<LiveTable>, starts: [usize; LEVELS + 1], intervals: Arc<Intervals>) -> Self {
        let slots = Slots::of(tables.iter().map(|live| match &live.filter.state {
            FilterState::Active(filter) => Some(filter),
            _ => None,
        }));
        let negatives = tables.first().map(|live| {
            let env = live.table.env();
            let counters = tables.iter().map(|live| Arc::clone(&live.counters)).collect();
            let negatives = env.ledger.negatives(counters, Arc::clone(&intervals) as _);
            (negatives, Arc::clone(&env.ledger), env.birth)
        });
        let newest = tables.iter().map(|live| live.table.meta().max_seq).max().unwrap_or(0);
        Self { negatives: VersionNegatives(negatives), tables, starts, intervals, slots, newest }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;
    use std::path::Path;

    use super::*;
    use crate::iter::{Cursor, Direction};
    use crate::names::FileName;
    use crate::sstable::Portion;
    use crate::sstable::{ReadPlan, Table, TableEnv, TableMeta};
    use crate::store_dir::StoreDir;
    use crate::vfs::RealVfs;
    use crate::{Options, Result};

    const KEYS: usize = 2000;

    fn key(number: usize) -> Vec<u8> {
        format!("{number:06}").into_bytes()
    }

    /// Even keys below `2 * KEYS` in many tables of one level, and three of the tables again on L0.
    fn store(dir: &Path) -> Result<Version> {
        let options = Options::new().background_threads(0).auto_compaction(false);
        let db = options.table_bytes(4096).block_bytes(128).open(dir)?;
        for number in 0..KEYS {
            db.put(key(2 * number), "value")?;
        }
        db.compact()?;
        for number in [0, 1000, 2000] {
            db.put(key(number), "other")?;
        }
        db.flush()?;
        db.close()?;
        let dir = StoreDir::of(RealVfs, dir);
        let number = read_current(&dir)?.expect("a store");
        let (set, store, _) = Manifest::read(&dir, number)?;
        let env = TableEnv::standalone(&dir, store, set.hash_key);
        let open =
            |(level, meta): &(usize, _)| Ok((*level, Table::open(&env, TableMeta::clone(meta))?));
        let tables = set.tables.values().map(open).collect::<Result<Vec<_>>>()?;
        Ok(Version::default().with(&[], &tables, &env.ledger))
    }

    fn ranges() -> impl Iterator<Item = (usize, usize)> {
        let ends = || (0..2 * KEYS + 100).step_by(173);
        ends().flat_map(move |from| ends().filter(move |&to| from <= to).map(move |to| (from, to)))
    }

    #[test]
    fn a_level_is_searched_for_the_tables_that_a_range_touches() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let version = store(dir.path())?;
        let level = (1..LEVELS).max_by_key(|&level| version.level(level).len()).expect("levels");
        let tables = version.level(level);
        assert!(tables.len() > 5);
        let ids = |tables: &[LiveTable]| tables.iter().map(|t| t.table.id()).collect::<Vec<_>>();
        let ends = || tables.iter().map(|t| (&t.table.meta().smallest, &t.table.meta().largest));
        let bounds = ends().flat_map(|(a, b)| [(a, b), (a, a), (b, b)]);
        let bounds = bounds.map(|(from, to)| (from.clone(), to.clone()));
        let between = ranges().map(|(from, to)| (key(from), key(to)));
        let mut met = 0;
        for (from, to) in between.chain(bounds) {
            let touched =
                |t: &&LiveTable| t.table.meta().smallest <= to && from <= t.table.meta().largest;
            let expected: Vec<_> = tables.iter().filter(touched).map(|t| t.table.id()).collect();
            assert_eq!(ids(version.overlapping(level, &from, &to)), expected);
            let mut candidates = version.find(&from).candidates();
            let candidate =
                candidates.find(|candidate| version.level_of(candidate.number) == level);
            let first = tables.iter().find(|t| from <= t.table.meta().largest);
            let id = |number| version.numbered(number).expect("a table").table.id();
            let found = candidate.map(|candidate| id(candidate.number));
            assert_eq!(found, first.map(|t| t.table.id()));
            let covers = tables.iter().any(|t| t.table.meta().overlaps(&from, &from));
            assert_eq!(candidate.is_some_and(|candidate| candidate.covers), covers);
            met += expected.len();
        }
        assert!(met > 500, "{met}");
        let length = |t: &LiveTable| {
            let path = dir.path().join(FileName::Table(t.table.id()).to_string());
            std::fs::metadata(path).expect("a table's file").len()
        };
        assert_eq!(version.level_bytes(level), tables.iter().map(length).sum());
        Ok(())
    }

    #[test]
    fn a_lookup_considers_the_table_whose_keys_reach_its_own() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let all = store(dir.path())?;
        let level = (1..LEVELS).max_by_key(|&level| all.level(level).len()).expect("levels");
        for count in 1..=6 {
            let behind = all.level(level).iter().skip(count);
            let removed: Vec<_> = behind.map(|live| (level, live.table.id())).collect();
            let version = all.with(&removed, &[], &Ledger::default());
            let tables = version.level(level);
            assert_eq!(tables.len(), count);
            let ends = tables.iter().map(|live| &live.table.meta().largest);
            let behind = ends.clone().map(|end| [end, &b"+"[..]].concat());
            let between = (0..2 * KEYS).step_by(7).map(key);
            for key in ends.cloned().chain(behind).chain(between) {
                let expected = tables.iter().find(|live| key <= live.table.meta().largest);
                let mut candidates = version.find(&key).candidates();
                let candidate = candidates.find(|one| version.level_of(one.number) == level);
                let id = |number| version.numbered(number).expect("a table").table.id();
                let found = candidate.map(|one| (id(one.number), one.covers));
                let covers = |live: &LiveTable| live.table.meta().smallest <= key;
                assert_eq!(found, expected.map(|live| (live.table.id(), covers(live))));
            }
        }
        Ok(())
    }

    #[test]
    fn the_keys_of_a_range_are_estimated_to_a_block_at_each_end() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let version = store(dir.path())?;
        let level = (1..LEVELS).max_by_key(|&level| version.level(level).len()).expect("levels");
        let mut furthest: f64 = 0.0;
        for (from, to) in ranges() {
            let below = |end: usize| end.div_ceil(2).min(KEYS);
            let tables = version.level(level).iter();
            let estimate: f64 =
                tables.map(|live| keys_within(&live.table, &key(from), &key(to))).sum();
            furthest = furthest.max((estimate - (below(to + 1) - below(from)) as f64).abs());
        }
        println!("at most {furthest} keys off");
        for (_, live) in version.tables() {
            let meta = live.table.meta();
            let within = |from: &[u8], to: &[u8]| keys_within(&live.table, from, to);
            assert!((within(&meta.smallest, &meta.largest) - meta.keys as f64).abs() < 1e-6);
            assert!(within(b"", &meta.smallest) > 0.0 && within(&meta.largest, b"z") > 0.0);
            let before = meta.smallest.split_last().expect("a key").1;
            let behind = [&meta.largest[..], b"0"].concat();
            assert_eq!((within(b"", before), within(&behind, b"z")), (0.0, 0.0));
        }
        assert!(furthest < 10.0, "{furthest}");
        Ok(())
    }

    #[test]
    fn a_version_without_filters_has_its_tables_and_a_moved_table_what_is_resident() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let version = store(dir.path())?;
        let without = version.without_filters();
        let ids = |version: &Version| -> Vec<_> {
            version.tables().map(|(level, live)| (level, live.table.id())).collect()
        };
        assert_eq!(ids(&without), ids(&version));
        let resident = |live: &LiveTable| live.filter.residency().map(|(_, portion)| portion);
        for (_, live) in version.tables() {
            assert_eq!(resident(live), Some(Portion::Whole));
            let bare = without.table(live.table.id()).expect("the same table");
            assert_eq!(resident(bare), Some(Portion::Nothing));
            assert_eq!(resident(&live.without_filter()), Some(Portion::Nothing));
        }
        // Its filter was dropped after the move was decided.
        let (level, live) = version.tables().last().expect("a table");
        let (id, ledger) = (live.table.id(), Ledger::default());
        let moved = without.with(&[(level, id)], &[(1, live.open())], &ledger);
        assert_eq!(moved.table(id).and_then(resident), Some(Portion::Nothing));
        Ok(())
    }

    #[test]
    fn a_level_is_walked_in_both_directions() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let version = store(dir.path())?;
        let level = (1..LEVELS).max_by_key(|&level| version.level(level).len()).expect("levels");
        for direction in [Direction::Forward, Direction::Backward] {
            let bounds = (Bound::Unbounded, Bound::Unbounded);
            let tables = version.level(level);
            let mut cursor = LevelCursor::new(tables, direction, bounds, ReadPlan::Scan, None)?;
            let mut met = 0;
            while let Some(entry) = cursor.entry() {
                let number = if direction == Direction::Forward { met } else { KEYS - 1 - met };
                assert_eq!(entry.key, key(2 * number));
                assert_eq!(cursor.value(), "value");
                met += 1;
                cursor.advance()?;
            }
            assert_eq!(met, KEYS);
        }
        Ok(())
    }
}
