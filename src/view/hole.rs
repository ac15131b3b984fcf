//! The hole of a read view: a range of keys that a scan passed without an item.
//!
//! A program that takes the first key and deletes it, again and again, scans over all tombstones and puts that it
//! left. The hole makes the next scan begin behind those of the tables and sealed memtables. Entries of the
//! memtable in use are scanned all the same: only there can a later reader see more than the one that left the
//! hole. So a hole holds for later readers of the same view, and ends with it.

use std::ops::Bound;
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::expiry::Moment;
use crate::iter::Direction;
use crate::key_range::{KeyBounds, borrowed};

/// Tables and sealed memtables of the view have no value within `bounds` for readers from this moment on.
#[derive(Debug)]
pub(crate) struct Hole {
    bounds: KeyBounds,
    from: Moment,
}

#[derive(Debug, Default)]
pub(crate) struct LastHole(ArcSwapOption<Hole>);

/// Another view has other tables.
impl Clone for LastHole {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl LastHole {
    /// Notes that a reader at the moment `from` saw nothing within `bounds`. It sees all entries of tables and sealed
    /// memtables.
    pub(crate) fn note(&self, bounds: KeyBounds, from: Moment) {
        self.0.store(Some(Arc::new(Hole { bounds, from })));
    }

    /// The hole at the start of a scan at this moment in `direction`.
    pub(crate) fn at(
        &self,
        moment: Moment,
        direction: Direction,
        bounds: Bounds<'_>,
    ) -> Option<Arc<Hole>> {
        let hole = self.0.load();
        let hole = hole
            .as_ref()
            .filter(|hole| hole.from.seq <= moment.seq && hole.from.time <= moment.time)?;
        let (from, to) = ends(borrowed(&hole.bounds));
        let (start, end) = ends(bounds);
        let begins_within = match direction {
            Direction::Forward => from <= start && start < to,
            Direction::Backward => from < end && end <= to,
        };
        begins_within.then(|| Arc::clone(hole))
    }
}

impl Hole {
    /// The part of a scan's bounds behind the hole, if keys can be there.
    pub(crate) fn rest<'a>(
        &'a self,
        direction: Direction,
        bounds: Bounds<'a>,
    ) -> Option<Bounds<'a>> {
        let hole = borrowed(&self.bounds);
        let ((from, to), (start, end)) = (ends(hole), ends(bounds));
        match direction {
            Direction::Forward => (to < end).then_some((beyond(hole.1), bounds.1)),
            Direction::Backward => (start < from).then_some((bounds.0, beyond(hole.0))),
        }
    }
}

type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// A place between keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Gap<'a> {
    First,
    /// Before the key, or behind it.
    At(&'a [u8], bool),
    Last,
}

/// The places where bounds begin and end.
fn ends((from, to): Bounds<'_>) -> (Gap<'_>, Gap<'_>) {
    let from = match from {
        Bound::Unbounded => Gap::First,
        Bound::Included(key) => Gap::At(key, false),
        Bound::Excluded(key) => Gap::At(key, true),
    };
    let to = match to {
        Bound::Unbounded => Gap::Last,
        Bound::Included(key) => Gap::At(key, true),
        Bound::Excluded(key) => Gap::At(key, false),
    };
    (from, to)
}

/// The bound of what lies on the other side of a bound.
fn beyond(bound: Bound<&[u8]>) -> Bound<&[u8]> {
    match bound {
        Bound::Included(key) => Bound::Excluded(key),
        Bound::Excluded(key) => Bound::Included(key),
        Bound::Unbounded => Bound::Unbounded,
    }
}
