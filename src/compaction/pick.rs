//! What to compact next.
//!
//! Levels are filled from the bottom up: the last level may grow without bound, each level above it
//! is meant to hold a tenth of the one below, and a level whose share would be less than
//! `level_base_bytes` is not used at all. So all levels together take about 1.11 times the last
//! one's space, whatever the amount of data (the "dynamic level bytes" of RocksDB).

use std::collections::HashSet;

use crate::key::Seq;
use crate::ledger::LEVELS;
use crate::sstable::FilterState;
use crate::version::{LiveTable, Version, keys_within};

/// How much larger a level is than the one above it.
const LEVEL_RATIO: u64 = 10;
const LAST: usize = LEVELS - 1;
/// A table of less than this part of the usual size is small.
const SMALL_FRACTION: u64 = 8;
/// A table with at least so many tombstones can be dense in them: a scan passes fewer in a fraction of a
/// millisecond.
const MANY_TOMBSTONES: u64 = 4096;
/// A table is dense in tombstones when they are at least this part of the entries that a scan of its range
/// passes, in the table and below it.
const DENSE_FRACTION: u64 = 4;
/// While the store is quiet, up to this many bytes are written for each byte of L0: what a store of three
/// levels writes for it anyway.
const IDLE_RATIO: u64 = 2 * LEVEL_RATIO;

/// When a level is due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PickSettings {
    /// This many tables on L0 are too many.
    pub(crate) l0_tables: usize,
    /// The least share that makes a level used.
    pub(crate) level_base_bytes: u64,
    /// The size at which compactions cut their outputs.
    pub(crate) table_bytes: u64,
    /// The oldest sequence number that a snapshot reads at.
    pub(crate) oldest_snapshot: Option<Seq>,
}

impl PickSettings {
    /// The size below which a table is small.
    fn small(&self) -> u64 {
        self.table_bytes / SMALL_FRACTION
    }
}

/// Tables to merge, and where the outcome goes.
#[derive(Debug)]
pub(crate) struct Compaction {
    /// With their levels. All that overlaps them on the output level is among them.
    pub(crate) inputs: Vec<(usize, LiveTable)>,
    pub(crate) output_level: usize,
    /// The inputs overlap neither one another nor anything on the output level, so they can go
    /// there as they are.
    pub(crate) moves: bool,
}

impl Compaction {
    /// The inputs' numbers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> {
        self.inputs.iter().map(|(_, live)| live.table.id())
    }

    /// The inputs' bytes; about so many are written.
    pub(crate) fn bytes(&self) -> u64 {
        self.inputs.iter().map(|(_, live)| live.table.meta().size).sum()
    }
}

/// Each level's share, 0 for the unused ones. L0 and the last level have none.
fn targets(last_level_bytes: u64, settings: &PickSettings) -> [u64; LEVELS] {
    let mut targets = [0; LEVELS];
    let mut share = last_level_bytes;
    for level in (1..LAST).rev() {
        share /= LEVEL_RATIO;
        if share < settings.level_base_bytes {
            break;
        }
        targets[level] = share;
    }
    targets
}

/// Where L0 goes: the uppermost level that is used, or that still holds something.
fn level_below_l0(version: &Version, targets: &[u64; LEVELS]) -> usize {
    (1..LAST).find(|&level| targets[level] > 0 || !version.level(level).is_empty()).unwrap_or(LAST)
}

/// The compaction that is due most, if any is; `busy` are the tables of those under way.
pub(crate) fn pick(
    version: &Version,
    settings: &PickSettings,
    busy: &HashSet<u64>,
) -> Option<Compaction> {
    let targets = targets(version.level_bytes(LAST), settings);
    let mut due: Vec<(f64, usize)> = Vec::new();
    let l0_pressure = version.level(0).len() as f64 / settings.l0_tables as f64;
    if l0_pressure >= 1.0 {
        due.push((l0_pressure, 0));
    }
    for (level, &target) in targets.iter().enumerate().take(LAST).skip(1) {
        let bytes = version.level_bytes(level);
        if bytes > target {
            // A level without a share is to be emptied, before anything else.
            due.push((bytes as f64 / target as f64, level));
        }
    }
    due.sort_by(|a, b| b.0.total_cmp(&a.0));
    let below_l0 = level_below_l0(version, &targets);
    let regular = due.into_iter().find_map(|(_, level)| match level {
        0 => pick_l0(version, below_l0, settings.small(), busy)
            .or_else(|| pick_within_l0(version, settings.l0_tables, busy)),
        level => pick_from_level(version, level, busy),
    });
    regular.or_else(|| pick_dense(version, below_l0, settings, busy))
}

/// The compaction of a table that is dense in tombstones, one level down. On the last level the table is
/// rewritten in its place, once no snapshot keeps its tombstones.
fn pick_dense(
    version: &Version,
    below_l0: usize,
    settings: &PickSettings,
    busy: &HashSet<u64>,
) -> Option<Compaction> {
    version.tables().filter(|(level, live)| is_dense(version, *level, live)).find_map(
        |(level, live)| match level {
            0 => pick_l0(version, below_l0, settings.small(), busy),
            LAST => {
                let max_seq = live.table.meta().max_seq;
                let kept = settings.oldest_snapshot.is_some_and(|oldest| oldest < max_seq);
                let inputs = vec![(LAST, live.clone())];
                (!kept).then_some(Compaction { inputs, output_level: LAST, moves: false })
            }
            level => complete(version, vec![(level, live.clone())], level + 1, busy, true),
        },
    )
}

/// Whether a scan of a table's range passes many tombstones, and little else than these and what they
/// hide. On the last level any tombstone is a remainder, which a snapshot kept.
fn is_dense(version: &Version, level: usize, live: &LiveTable) -> bool {
    let meta = live.table.meta();
    if meta.tombstones < MANY_TOMBSTONES {
        return false;
    }
    if level == LAST {
        return true;
    }
    let below = (level + 1..LEVELS).flat_map(|level| {
        let overlapping = version.overlapping(level, &meta.smallest, &meta.largest);
        overlapping.iter().map(|below| keys_within(&below.table, &meta.smallest, &meta.largest))
    });
    (DENSE_FRACTION * meta.tombstones) as f64 >= meta.entries as f64 + below.sum::<f64>()
}

/// What pays for itself while the store is quiet, though it is not due: L0 becomes one with the level below it,
/// where that does not rewrite too many bytes for each of its own. So lookups ask one table in place of
/// several, and what L0 hides takes no space.
pub(crate) fn pick_idle(
    version: &Version,
    settings: &PickSettings,
    busy: &HashSet<u64>,
) -> Option<Compaction> {
    let targets = targets(version.level_bytes(LAST), settings);
    let output_level = level_below_l0(version, &targets);
    let compaction = pick_l0(version, output_level, settings.small(), busy)?;
    let merges = !compaction.moves && compaction.inputs.len() > 1;
    let pays = compaction.bytes() <= IDLE_RATIO * version.level_bytes(0);
    (merges && pays).then_some(compaction)
}

/// The newest tables of L0, merged into one there, while others of L0 are being merged into the level below:
/// so L0 stays short for writers and lookups until that is done. `least` are too few to merge.
///
/// A table joins newer ones only if they are together at least half as large, so that a byte is not written
/// again for each few tables that come; unless so many wait that their number counts more.
fn pick_within_l0(version: &Version, least: usize, busy: &HashSet<u64>) -> Option<Compaction> {
    let least = least.max(2);
    let free = version.level(0).iter().take_while(|live| !busy.contains(&live.table.id()));
    let free: Vec<&LiveTable> = free.collect();
    let mut bytes = 0;
    let alike = free.iter().take_while(|live| {
        let size = live.table.meta().size;
        let joins = bytes == 0 || size <= 2 * bytes;
        bytes += size;
        joins
    });
    let count = match alike.count() {
        few if few < least && free.len() >= 2 * least => free.len(),
        count => count,
    };
    let inputs: Vec<_> = free.into_iter().take(count).map(|live| (0, live.clone())).collect();
    (count >= least).then_some(Compaction { inputs, output_level: 0, moves: false })
}

/// All of L0, and what it overlaps. Small tables are merged even where they could be moved, or a store
/// that is opened and written to little and often would fill with them; and a small table beside them
/// below goes along, unless it is much larger than they are together.
fn pick_l0(
    version: &Version,
    output_level: usize,
    small: u64,
    busy: &HashSet<u64>,
) -> Option<Compaction> {
    let inputs: Vec<_> = version.level(0).iter().map(|live| (0, live.clone())).collect();
    let sizes = inputs.iter().map(|(_, live)| live.table.meta().size);
    if sizes.clone().any(|size| size >= small) {
        return complete(version, inputs, output_level, busy, true);
    }
    let much_larger = SMALL_FRACTION * sizes.sum::<u64>();
    let mut compaction = complete(version, inputs, output_level, busy, false)?;
    let (smallest, largest) = range_of(&compaction.inputs)?;
    let below = version.level(output_level);
    let before = below.partition_point(|live| live.table.meta().largest < smallest);
    let after = below.partition_point(|live| live.table.meta().smallest <= largest);
    let neighbours = [before.checked_sub(1).and_then(|i| below.get(i)), below.get(after)];
    for live in neighbours.into_iter().flatten() {
        let size = live.table.meta().size;
        if size < small && size <= much_larger && !busy.contains(&live.table.id()) {
            compaction.inputs.push((output_level, live.clone()));
        }
    }
    Some(compaction)
}

/// One table of a level, and what it overlaps below: one with many tombstones first, else the one
/// that makes the fewest bytes be rewritten for each of its own.
fn pick_from_level(version: &Version, level: usize, busy: &HashSet<u64>) -> Option<Compaction> {
    let mut choices: Vec<_> = version
        .level(level)
        .iter()
        .map(|live| {
            let meta = live.table.meta();
            let overlapped: u64 = version
                .overlapping(level + 1, &meta.smallest, &meta.largest)
                .iter()
                .map(|below| below.table.meta().size)
                .sum();
            let many_tombstones = 2 * meta.tombstones >= meta.entries;
            (!many_tombstones, overlapped as f64 / meta.size as f64, live)
        })
        .collect();
    choices.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    choices.into_iter().find_map(|(_, _, live)| {
        complete(version, vec![(level, live.clone())], level + 1, busy, true)
    })
}

/// Everything, into the last level; `None` if it is one run already, without anything to drop or a
/// filter to mend.
pub(crate) fn everything(version: &Version) -> Option<Compaction> {
    let inputs: Vec<_> = version.tables().map(|(level, live)| (level, live.clone())).collect();
    let compact = inputs.iter().all(|(level, live)| {
        let meta = live.table.meta();
        let sound = match &live.filter.state {
            FilterState::Degraded(_) => false,
            FilterState::Active(filter) => filter.damage().is_none(),
            FilterState::None | FilterState::NotResident(_) => true,
        };
        *level == LAST && meta.tombstones == 0 && meta.keys == meta.entries && sound
    });
    (!compact).then_some(Compaction { inputs, output_level: LAST, moves: false })
}

/// The first and the last key of some tables.
fn range_of(tables: &[(usize, LiveTable)]) -> Option<(Vec<u8>, Vec<u8>)> {
    let metas = || tables.iter().map(|(_, live)| live.table.meta());
    let smallest = metas().map(|meta| &meta.smallest).min()?;
    let largest = metas().map(|meta| &meta.largest).max()?;
    Some((smallest.clone(), largest.clone()))
}

/// Adds the tables of the output level that the inputs overlap; or finds that the inputs may move.
/// `None` if any of them is busy.
fn complete(
    version: &Version,
    mut inputs: Vec<(usize, LiveTable)>,
    output_level: usize,
    busy: &HashSet<u64>,
    may_move: bool,
) -> Option<Compaction> {
    let (smallest, largest) = range_of(&inputs)?;
    let metas = || inputs.iter().map(|(_, live)| live.table.meta());
    let nothing_below = |meta: &crate::sstable::TableMeta| {
        (output_level + 1..LEVELS)
            .all(|level| version.overlapping(level, &meta.smallest, &meta.largest).is_empty())
    };
    let apart = |meta: &crate::sstable::TableMeta| {
        let alone =
            metas().filter(|other| other.overlaps(&meta.smallest, &meta.largest)).count() == 1;
        alone && version.overlapping(output_level, &meta.smallest, &meta.largest).is_empty()
    };
    // Tombstones that reach the bottom are worth a rewriting, which drops them.
    let moves = may_move
        && metas().all(|meta| apart(meta) && !(meta.tombstones > 0 && nothing_below(meta)));
    if !moves {
        let below = version.overlapping(output_level, &smallest, &largest);
        inputs.extend(below.iter().map(|live| (output_level, live.clone())));
    }
    let free = inputs.iter().all(|(_, live)| !busy.contains(&live.table.id()));
    free.then_some(Compaction { inputs, output_level, moves })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_used_from_the_bottom_up() {
        let settings = PickSettings {
            l0_tables: 4,
            level_base_bytes: 100,
            table_bytes: 10,
            oldest_snapshot: None,
        };
        let shares = |last| targets(last, &settings);
        assert_eq!(shares(0), [0; LEVELS]);
        assert_eq!(shares(999), [0; LEVELS], "a tenth is less than the base");
        assert_eq!(shares(1_000), [0, 0, 0, 0, 0, 100, 0]);
        assert_eq!(shares(25_000), [0, 0, 0, 0, 250, 2_500, 0]);
        assert_eq!(shares(10_000_000), [0, 100, 1_000, 10_000, 100_000, 1_000_000, 0]);
        assert_eq!(shares(u64::MAX)[1], u64::MAX / 100_000, "L0 keeps no share");
    }
}
