//! Places for the tables of an ingest: below L0, above all tables that overlap them.

use std::sync::Arc;

use super::compact::{Ended, fit_filters, run_compaction};
use crate::compaction::{Compaction, How, Occupied, leave_l0, leave_level};
use crate::engine::inner::DbInner;
use crate::error::Result;
use crate::sstable::{OpenTable, TableMeta};
use crate::version::LiveTable;

/// The level of each table of an ingest, and the tables of L0 that move below it, with their levels.
pub(crate) struct Places {
    pub(crate) moves: Vec<(LiveTable, usize)>,
    pub(crate) levels: Vec<usize>,
}

impl Places {
    /// `None` if a table of L0 or level 1 is in the way. Compactions are held until the tables are installed.
    pub(crate) fn find(db: &DbInner, tables: &[OpenTable]) -> Option<Self> {
        let state = db.scheduler.state.lock();
        // Loaded under the lock: it has the outputs of each compaction that is not busy any more.
        let version = Arc::clone(&db.views.load().version);
        let mut occupied = Occupied::of(&version, &state.busy);
        let is_in_the_way =
            |meta: &TableMeta| tables.iter().any(|open| open.table.meta().overlaps_table(meta));
        let mut moves = Vec::new();
        let mut staying: Vec<&TableMeta> = Vec::new();
        if version.level(0).iter().any(|live| is_in_the_way(live.table.meta())) {
            // The oldest first: what is newer must not pass below what is older.
            for live in version.level(0).iter().rev() {
                let meta = live.table.meta();
                let level = occupied.lowest_free(&meta.smallest, &meta.largest);
                let is_free = !state.busy.contains(meta.id) && !live.table.is_damaged();
                if level == 0 || !is_free || staying.iter().any(|it| it.overlaps_table(meta)) {
                    staying.push(meta);
                } else {
                    occupied.add(level, &meta.smallest, &meta.largest);
                    moves.push((live.clone(), level));
                }
            }
        }
        drop(state);
        if staying.into_iter().any(is_in_the_way) {
            return None;
        }
        let mut levels = Vec::new();
        for open in tables {
            let meta = open.table.meta();
            levels.push(occupied.lowest_free(&meta.smallest, &meta.largest));
        }
        (!levels.contains(&0)).then_some(Self { moves, levels })
    }
}

/// Compacts the tables of L0 and of the first levels that overlap this range, on this thread, so that so many levels
/// below L0 are free.
pub(crate) fn make_way(
    db: &DbInner,
    levels: usize,
    (smallest, largest): (&[u8], &[u8]),
) -> Result<()> {
    let mut state = db.scheduler.state.lock();
    loop {
        db.check_writable()?;
        let version = Arc::clone(&db.views.load().version);
        let occupied = Occupied::of(&version, &state.busy);
        let overlaps = |live: &LiveTable| live.table.meta().overlaps(smallest, largest);
        let of_l0 = version.level(0).iter().any(overlaps);
        let (mut from, mut to) = (smallest, largest);
        for live in version.level(0).iter().filter(|_| of_l0) {
            from = from.min(&live.table.meta().smallest);
            to = to.max(&live.table.meta().largest);
        }
        let compaction = match occupied.lowest_free(from, to) {
            _ if state.is_held() => None,
            level if of_l0 && level > 0 => leave_l0(&version, level, &state.busy),
            level if level < levels => {
                leave_level(&version, &occupied, level + 1, (from, to), &state.busy)
            }
            _ => return Ok(()),
        };
        let Some(compaction) = compaction else {
            // A compaction has the tables, unless one is damaged.
            let damage = version.tables().find_map(|(_, live)| live.table.damage());
            if let Some(damage) = damage.filter(|_| !state.has_compactions() && !state.is_held()) {
                return Err(damage.clone());
            }
            state = db.scheduler.changed.wait(state);
            continue;
        };
        let running = db.scheduler.begin_compaction(&mut state, &compaction);
        drop((state, occupied));
        if let Ended::Damaged(error) = run_compaction(db, compaction, version, &|| false)? {
            return Err(error);
        }
        drop(running);
        state = db.scheduler.state.lock();
    }
}

/// Gives the tables of an ingest, and those that moved for it, the filters of their levels.
pub(crate) fn fit_ingested(db: &DbInner, ids: &[u64]) {
    // Without filters, which a budget may release meanwhile.
    let version = db.views.load().version.without_filters();
    for (level, live) in version.tables().filter(|(_, live)| ids.contains(&live.table.id())) {
        let inputs = vec![(level, live.clone())];
        let placed = Compaction { inputs, output_level: level, how: How::Move };
        fit_filters(db, &placed, &version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::ledger::LEVELS;

    #[test]
    fn tables_of_l0_move_in_the_order_of_their_age() -> Result<()> {
        let dir = crate::tempdir::tempdir();
        let options = Options::new().background_threads(0).auto_compaction(false);
        let db = options.open(dir.path())?;
        for value in ["old", "new"] {
            db.put("key", value)?;
            db.flush()?;
        }
        let inner = db.inner()?;
        let version = Arc::clone(&inner.views.load().version);
        let [newest, oldest] = version.level(0) else { panic!("two tables") };
        let places = Places::find(inner, &[newest.open()]).expect("levels are free");
        let moved = places.moves.iter().map(|(live, level)| (live.table.id(), *level));
        let expected = [(oldest.table.id(), LEVELS - 1), (newest.table.id(), LEVELS - 2)];
        assert_eq!(moved.collect::<Vec<_>>(), expected);
        assert_eq!(places.levels, [LEVELS - 3], "above both");
        Ok(())
    }
}
