//! Selects compactions.
//!
//! The last level grows without bound. The target of each level above is a tenth of the level below. Levels
//! with a target below `level_base_bytes` are not used. So all levels together take about 1.11 times the
//! space of the last level (RocksDB: "dynamic level bytes").

use super::places::{Busy, Occupied, Output};
use crate::expiry::{Millis, Moment};
use crate::ledger::LEVELS;
use crate::sstable::{FilterState, TableMeta};
use crate::version::{LiveTable, Version, keys_within};

const LEVEL_RATIO: u64 = 10;
const LAST: usize = LEVELS - 1;
/// A table is small if it has less than `table_bytes` divided by this.
const SMALL_FRACTION: u64 = 8;
/// A table with fewer tombstones is never dense: a scan passes these in a fraction of a millisecond.
const MANY_TOMBSTONES: u64 = 4096;
/// A table is dense if its tombstones, times this, are at least the entries that a scan of its range passes
/// in the table and below it.
const DENSE_FRACTION: u64 = 4;
/// A table of the last level is rewritten when its hidden entries, which a snapshot kept, take this part of it.
const HIDDEN_FRACTION: u64 = 16;
/// An idle merge writes at most this many bytes per byte of L0, about as many as a store of three levels
/// writes.
const IDLE_RATIO: u64 = 2 * LEVEL_RATIO;

#[derive(Debug, Clone)]
pub(crate) struct PickSettings {
    /// With this many tables, L0 is due for a compaction.
    pub(crate) l0_tables: usize,
    /// With this many, it is due also if it has fewer bytes than the level below.
    pub(crate) l0_patience: usize,
    /// With this many tables on L0, writers are about to wait.
    pub(crate) l0_crowded: usize,
    /// The least target: a level with a lower one is not used.
    pub(crate) level_base_bytes: u64,
    pub(crate) table_bytes: u64,
    /// Ascending.
    pub(crate) snapshots: Vec<Moment>,
    /// What expired up to this time is needed by snapshots alone.
    pub(crate) over: Millis,
}

impl PickSettings {
    fn small(&self) -> u64 {
        self.table_bytes / SMALL_FRACTION
    }

    /// The time up to which no reader needs what has expired in a table: the first snapshot that sees entries of it
    /// has the earliest time.
    fn over_in(&self, table: &TableMeta) -> Millis {
        let older = self.snapshots.partition_point(|snapshot| snapshot.seq < table.min_seq);
        self.snapshots.get(older).map_or(self.over, |first| self.over.min(first.time))
    }
}

#[derive(Debug)]
pub(crate) struct Compaction {
    /// The tables with their levels; with all overlapping tables of the output level.
    pub(crate) inputs: Vec<(usize, LiveTable)>,
    pub(crate) output_level: usize,
    pub(crate) how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Merge,
    /// The tables only move to the output level, because they overlap neither each other nor it.
    Move,
    /// All entries of the tables have expired, and hide none.
    Remove,
}

impl Compaction {
    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> {
        self.inputs.iter().map(|(_, live)| live.table.id())
    }

    /// Where its outputs will be: within the keys of all inputs.
    pub(crate) fn output(&self) -> Option<Output> {
        let (smallest, largest) = range_of(&self.inputs)?;
        Some(Output { level: self.output_level, smallest, largest })
    }

    /// About the bytes that it writes: those of the inputs of a merge.
    pub(crate) fn bytes(&self) -> u64 {
        if self.how != How::Merge {
            return 0;
        }
        self.inputs.iter().map(|(_, live)| live.table.meta().size).sum()
    }
}

/// The target of each level; 0 for L0, the last level, and unused levels.
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

/// The output level of L0: the level nearest to L0 that has a target or tables.
fn level_below_l0(version: &Version, targets: &[u64; LEVELS]) -> usize {
    (1..LAST).find(|&level| targets[level] > 0 || !version.level(level).is_empty()).unwrap_or(LAST)
}

/// The most urgent compaction, if one is due. `busy`: the ids of tables that it may not use.
pub(crate) fn pick(version: &Version, settings: &PickSettings, busy: &Busy) -> Option<Compaction> {
    if settings.over > 0
        && let over @ Some(_) = pick_over(version, settings, busy)
    {
        return over;
    }
    let targets = targets(version.level_bytes(LAST), settings);
    let mut due: Vec<(f64, usize)> = Vec::new();
    let below_l0 = level_below_l0(version, &targets);
    // A merge that rewrites more bytes than it brings down waits for more tables.
    let rewrites_most = version.level_bytes(0) < version.level_bytes(below_l0);
    let l0_limit = if rewrites_most { settings.l0_patience } else { settings.l0_tables };
    let l0_pressure = version.sound_l0() as f64 / l0_limit as f64;
    if l0_pressure >= 1.0 {
        due.push((l0_pressure, 0));
    }
    for (level, &target) in targets.iter().enumerate().take(LAST).skip(1) {
        let bytes = version.level_bytes(level);
        if bytes > target && !(target == 0 && keeps_ingested(version, level)) {
            // A level with target 0 must become empty, before any other compaction.
            due.push((bytes as f64 / target as f64, level));
        }
    }
    due.sort_by(|a, b| b.0.total_cmp(&a.0));
    let regular = due.into_iter().find_map(|(_, level)| match level {
        0 => pick_l0(version, below_l0, settings.small(), busy)
            .or_else(|| pick_within_l0(version, settings, busy)),
        level => pick_from_level(version, level, busy),
    });
    regular
        .or_else(|| pick_dense(version, below_l0, settings, busy))
        .or_else(|| pick_hidden(version, settings, busy))
        .or_else(|| pick_expired(version, below_l0, settings, busy))
}

/// Compacts a table of which a quarter has expired into the next level; a table of the last level is rewritten there.
fn pick_expired(
    version: &Version,
    below_l0: usize,
    settings: &PickSettings,
    busy: &Busy,
) -> Option<Compaction> {
    let is_due = |live: &LiveTable| {
        live.table
            .meta()
            .expiries
            .is_some_and(|expiries| expiries.quarter() <= settings.over_in(live.table.meta()))
    };
    version.tables().filter(|(_, live)| is_due(live)).find_map(|(level, live)| match level {
        LAST => rewrite(live, busy),
        level => push_down(version, level, live, below_l0, settings, busy),
    })
}

/// Removes tables whose entries have all expired, and whose keys no older table can hold.
fn pick_over(version: &Version, settings: &PickSettings, busy: &Busy) -> Option<Compaction> {
    let mut inputs = Vec::new();
    let mut older: Vec<&TableMeta> = Vec::new();
    for (level, live) in version.tables().collect::<Vec<_>>().into_iter().rev() {
        let meta = live.table.meta();
        let is_over =
            meta.expiries.is_some_and(|expiries| expiries.all() <= settings.over_in(meta));
        if is_over && is_free(live, busy) && !older.iter().any(|other| meta.overlaps_table(other)) {
            inputs.push((level, live.clone()));
        } else {
            older.push(meta);
        }
    }
    (!inputs.is_empty()).then_some(Compaction { inputs, output_level: LAST, how: How::Remove })
}

/// Whether a level with target 0 keeps its tables: it has ingested ones only, and either no level between L0 and it has
/// tables, or it is less than a tenth of what is below. So an ingest alone costs no compaction, and large ones of the
/// same keys do not fill one level after the other.
fn keeps_ingested(version: &Version, level: usize) -> bool {
    let below: u64 = (level + 1..LEVELS).map(|level| version.level_bytes(level)).sum();
    version.level(level).iter().all(|live| live.table.meta().is_ingested)
        && ((1..level).all(|above| version.level(above).is_empty())
            || version.level_bytes(level).saturating_mul(LEVEL_RATIO) < below)
}

/// Rewrites a table of the last level with many hidden entries, so that they take no space.
fn pick_hidden(version: &Version, settings: &PickSettings, busy: &Busy) -> Option<Compaction> {
    for live in version.level(LAST) {
        let meta = live.table.meta();
        let hidden = meta.hidden_bytes.saturating_mul(HIDDEN_FRACTION);
        if hidden > 0
            && hidden >= meta.decompressed_size()
            && let Some(compaction) = rewrite_last(live, settings, busy)
        {
            return Some(compaction);
        }
    }
    None
}

/// Rewrites a table of the last level, once no snapshot needs its tombstones and hidden entries.
fn rewrite_last(live: &LiveTable, settings: &PickSettings, busy: &Busy) -> Option<Compaction> {
    let max_seq = live.table.meta().max_seq;
    let kept = settings.snapshots.first().is_some_and(|oldest| oldest.seq < max_seq);
    if kept { None } else { rewrite(live, busy) }
}

fn rewrite(live: &LiveTable, busy: &Busy) -> Option<Compaction> {
    let inputs = vec![(LAST, live.clone())];
    is_free(live, busy).then_some(Compaction { inputs, output_level: LAST, how: How::Merge })
}

/// Compacts a table into the next level, or with all others of L0.
fn push_down(
    version: &Version,
    level: usize,
    live: &LiveTable,
    below_l0: usize,
    settings: &PickSettings,
    busy: &Busy,
) -> Option<Compaction> {
    if level > 0 {
        return complete(version, vec![(level, live.clone())], level + 1, busy, true);
    }
    pick_l0(version, below_l0, settings.small(), busy)
        .filter(|compaction| compaction.ids().any(|id| id == live.table.id()))
}

/// Compacts a dense table into the next level. A dense table of the last level is rewritten there.
fn pick_dense(
    version: &Version,
    below_l0: usize,
    settings: &PickSettings,
    busy: &Busy,
) -> Option<Compaction> {
    for (level, live) in version.tables() {
        if !is_dense(version, level, live) {
            continue;
        }
        let compaction = match level {
            LAST => rewrite_last(live, settings, busy),
            level => push_down(version, level, live, below_l0, settings, busy),
        };
        if compaction.is_some() {
            return compaction;
        }
    }
    None
}

/// Whether a scan of the table's range passes many tombstones and few other entries. On the last level many
/// tombstones suffice: a rewrite drops all that no snapshot needs.
fn is_dense(version: &Version, level: usize, live: &LiveTable) -> bool {
    let meta = live.table.meta();
    if meta.tombstones < MANY_TOMBSTONES {
        return false;
    }
    if level == LAST {
        return true;
    }
    let (smallest, largest) = (&meta.smallest, &meta.largest);
    let mut passed = meta.entries as f64;
    for below in level + 1..LEVELS {
        for other in version.overlapping(below, smallest, largest) {
            passed += keys_within(&other.table, smallest, largest);
        }
    }
    (DENSE_FRACTION * meta.tombstones) as f64 >= passed
}

/// An idle merge of L0 into its output level, if it writes few enough bytes per byte of L0. Then lookups
/// probe fewer tables, and hidden entries take no space. L0 tables larger than the target of the output level
/// may also move there; compactions of that level then take them further down.
pub(crate) fn pick_idle(
    version: &Version,
    settings: &PickSettings,
    busy: &Busy,
) -> Option<Compaction> {
    let targets = targets(version.level_bytes(LAST), settings);
    let output_level = level_below_l0(version, &targets);
    let compaction = pick_l0(version, output_level, settings.small(), busy)?;
    let merges = compaction.how == How::Merge && compaction.inputs.len() > 1;
    let l0_bytes = version.level_bytes(0);
    let pays = compaction.bytes() <= IDLE_RATIO * l0_bytes;
    let is_large = targets[output_level] > 0 && l0_bytes > targets[output_level];
    ((merges || is_large) && pays).then_some(compaction)
}

/// Merges the newest L0 tables into one L0 table, when busy tables prevent a merge with the level below.
/// Merges at least `l0_tables` tables; on a crowded L0, at least two.
///
/// To rewrite bytes rarely, a table joins newer ones only if they have half its size together. If that
/// leaves too few of very many tables, or on a crowded L0, all tables newer than the busy ones are merged.
pub(crate) fn pick_within_l0(
    version: &Version,
    settings: &PickSettings,
    busy: &Busy,
) -> Option<Compaction> {
    let crowded = version.sound_l0() >= settings.l0_crowded;
    let least = if crowded { 2 } else { settings.l0_tables.max(2) };
    // A merge does not reach across a damaged table.
    let mut parts = version.level(0).split(|live| live.table.is_damaged());
    parts.find_map(|part| pick_within(part, crowded, least, busy))
}

/// Merges the newest of some neighbours on L0.
fn pick_within(part: &[LiveTable], crowded: bool, least: usize, busy: &Busy) -> Option<Compaction> {
    let is_busy = |live: &LiveTable| busy.contains(live.table.id());
    let free = &part[..part.iter().position(is_busy).unwrap_or(part.len())];
    let (mut count, mut bytes) = (0, 0);
    for live in free {
        let size = live.table.meta().size;
        if bytes > 0 && size > 2 * bytes {
            break;
        }
        bytes += size;
        count += 1;
    }
    if crowded || (count < least && free.len() >= 2 * least) {
        count = free.len();
    }
    if count < least {
        return None;
    }
    let inputs = free[..count].iter().map(|live| (0, live.clone())).collect();
    Some(Compaction { inputs, output_level: 0, how: How::Merge })
}

fn is_free(live: &LiveTable, busy: &Busy) -> bool {
    !live.table.is_damaged() && !busy.contains(live.table.id())
}

/// The tables of L0 that may leave it, newest first. Damaged ones stay, and so does each table with keys of an older
/// one that stays, or of a damaged table of the output level: what is newer must not pass below what is older.
/// All returned tables lie on one side of each damaged table of the output level.
fn leaving_l0(version: &Version, output_level: usize) -> Vec<LiveTable> {
    let mut below: Vec<&TableMeta> = Vec::new();
    for live in version.level(output_level) {
        if live.table.is_damaged() {
            below.push(live.table.meta());
        }
    }
    let side = |meta: &TableMeta| below.partition_point(|other| other.largest < meta.smallest);
    let mut staying = below.clone();
    let mut leaving: Vec<LiveTable> = Vec::new();
    for live in version.level(0).iter().rev() {
        let meta = live.table.meta();
        if live.table.is_damaged() || staying.iter().any(|other| meta.overlaps_table(other)) {
            staying.push(meta);
        } else if leaving.first().is_none_or(|first| side(first.table.meta()) == side(meta)) {
            leaving.push(live.clone());
        }
    }
    leaving.reverse();
    leaving
}

/// The tables that may leave L0, and the overlapping tables of the output level. Small L0 tables are merged even
/// if they could
/// move; otherwise a store with rare writes would collect small tables. If all L0 tables are small, a small
/// neighbour of their range on the output level joins them, unless it is much larger than L0.
fn pick_l0(version: &Version, output_level: usize, small: u64, busy: &Busy) -> Option<Compaction> {
    if version.level(0).iter().any(|live| busy.contains(live.table.id())) {
        return None;
    }
    let leaving = leaving_l0(version, output_level);
    let inputs: Vec<_> = leaving.into_iter().map(|live| (0, live)).collect();
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
        if size < small && size <= much_larger && is_free(live, busy) {
            compaction.inputs.push((output_level, live.clone()));
        }
    }
    Some(compaction)
}

/// Merges all tables of L0 that may leave it into a level that has no key between theirs, for an ingest.
pub(crate) fn leave_l0(version: &Version, output_level: usize, busy: &Busy) -> Option<Compaction> {
    let leaving = leaving_l0(version, output_level);
    let inputs = leaving.into_iter().map(|live| (0, live)).collect();
    complete(version, inputs, output_level, busy, true)
}

/// Moves the tables of a level that have keys within a range to the lowest level above all that overlap them, or merges
/// them into the next level, for an ingest.
pub(crate) fn leave_level(
    version: &Version,
    occupied: &Occupied<'_>,
    level: usize,
    (smallest, largest): (&[u8], &[u8]),
    busy: &Busy,
) -> Option<Compaction> {
    let overlapping = version.overlapping(level, smallest, largest);
    let inputs: Vec<_> = overlapping.iter().map(|live| (level, live.clone())).collect();
    let (first, last) = range_of(&inputs)?;
    let output_level = occupied.lowest_free_from(level + 1, &first, &last).unwrap_or(level + 1);
    complete(version, inputs, output_level, busy, true)
}

/// One table of a level and the overlapping tables of the next level. Prefers a table with many tombstones,
/// then the one that overlaps the fewest bytes per byte of its own.
fn pick_from_level(version: &Version, level: usize, busy: &Busy) -> Option<Compaction> {
    let mut choices = Vec::new();
    for live in version.level(level) {
        let meta = live.table.meta();
        let mut overlapped = 0;
        for below in version.overlapping(level + 1, &meta.smallest, &meta.largest) {
            overlapped += below.table.meta().size;
        }
        let many_tombstones = 2 * meta.tombstones >= meta.entries;
        choices.push((!many_tombstones, overlapped as f64 / meta.size as f64, live));
    }
    choices.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    choices.into_iter().find_map(|(_, _, live)| {
        complete(version, vec![(level, live.clone())], level + 1, busy, true)
    })
}

/// Merges all tables into the last level; `None` if all are there, without tombstones or hidden entries, and
/// no filter is damaged, and nothing has expired up to the time `over`.
pub(crate) fn everything(version: &Version, over: Millis) -> Option<Compaction> {
    let mut inputs = Vec::new();
    let mut is_due = false;
    for (level, live) in version.tables() {
        let meta = live.table.meta();
        let is_sound = match &live.filter.state {
            FilterState::Degraded(_) => false,
            FilterState::Active(filter) => filter.damage().is_none(),
            FilterState::None | FilterState::NotResident(_) => true,
        };
        let has_expired = meta.expiries.is_some_and(|expiries| expiries.earliest <= over);
        is_due |= level != LAST || meta.tombstones > 0 || meta.keys != meta.entries;
        is_due |= has_expired || !is_sound;
        inputs.push((level, live.clone()));
    }
    is_due.then_some(Compaction { inputs, output_level: LAST, how: How::Merge })
}

fn range_of(tables: &[(usize, LiveTable)]) -> Option<(Vec<u8>, Vec<u8>)> {
    let metas = || tables.iter().map(|(_, live)| live.table.meta());
    let smallest = metas().map(|meta| &meta.smallest).min()?;
    let largest = metas().map(|meta| &meta.largest).max()?;
    Some((smallest.clone(), largest.clone()))
}

/// Whether a table overlaps none of the other inputs and no table of the output level, and has no tombstones that a
/// rewrite would drop, because no table is below their range.
fn may_move_alone(
    version: &Version,
    live: &LiveTable,
    inputs: &[(usize, LiveTable)],
    output_level: usize,
) -> bool {
    let meta = live.table.meta();
    let overlaps_at = |level| !version.overlapping(level, &meta.smallest, &meta.largest).is_empty();
    for (_, other) in inputs {
        if other.table.id() != live.table.id() && meta.overlaps_table(other.table.meta()) {
            return false;
        }
    }
    !overlaps_at(output_level)
        && (meta.tombstones == 0 || (output_level + 1..LEVELS).any(overlaps_at))
}

/// The compaction of these inputs: a trivial move if possible, else with the overlapping tables of the output
/// level. `None` if a table is busy or damaged, or if a running compaction has outputs there.
fn complete(
    version: &Version,
    mut inputs: Vec<(usize, LiveTable)>,
    output_level: usize,
    busy: &Busy,
    may_move: bool,
) -> Option<Compaction> {
    let (smallest, largest) = range_of(&inputs)?;
    let moves = may_move
        && inputs.iter().all(|(_, live)| may_move_alone(version, live, &inputs, output_level));
    if !moves {
        let below = version.overlapping(output_level, &smallest, &largest);
        inputs.extend(below.iter().map(|live| (output_level, live.clone())));
    }
    // An ingest may have put a table between the inputs of a running compaction, above its output.
    let (smallest, largest) = range_of(&inputs)?;
    let is_output_free =
        !busy.outputs().any(|output| output.overlaps(output_level, &smallest, &largest));
    let free = is_output_free && inputs.iter().all(|(_, live)| is_free(live, busy));
    let how = if moves { How::Move } else { How::Merge };
    free.then_some(Compaction { inputs, output_level, how })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_used_from_the_bottom_up() {
        let settings = PickSettings {
            l0_tables: 4,
            l0_patience: 8,
            l0_crowded: 20,
            level_base_bytes: 100,
            table_bytes: 10,
            snapshots: Vec::new(),
            over: 0,
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
