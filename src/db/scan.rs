//! Scans: the keys of a range as of one moment, forward, backward, or both.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::inner::DbInner;
use super::read::Lookups;
use super::views::ReadView;
use crate::error::Result;
use crate::filter::PrefixExtractor;
use crate::fork::Birth;
use crate::iter::{Cursor, Direction, MergeCursor};
use crate::key::{EntryKind, Seq, successor};
use crate::memtable::MemtableCursor;
use crate::sstable::ReadPlan;
use crate::value::Value;
use crate::version::{KeyBounds, LevelCursor, PrefixProbe, borrowed};
use crate::vfs::FileLock;

/// A double-ended iterator over keys and values, from [`Db::range`](crate::Db::range). It sees the store as
/// of its creation, and keeps the directory locked. It reads nothing before the first item, and ends after an
/// error.
pub struct Range {
    view: Arc<ReadView>,
    seq: Seq,
    birth: Birth,
    bounds: KeyBounds,
    prefix: Option<Arc<PrefixProbe>>,
    front: Option<MergeCursor>,
    /// `front` is still at the entry of the last item.
    passed: bool,
    back: Option<MergeCursor>,
    ended: bool,
    #[expect(dead_code, reason = "keeps the directory locked")]
    lock: Option<Arc<dyn FileLock>>,
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = borrowed(&self.bounds);
        let written = |bound: Bound<&[u8]>| bound.map(|key| key.escape_ascii().to_string());
        f.debug_struct("Range")
            .field("from", &written(from))
            .field("to", &written(to))
            .finish_non_exhaustive()
    }
}

impl DbInner {
    pub(crate) fn scan(
        &self,
        snapshot: Option<Seq>,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        lock: Arc<dyn FileLock>,
    ) -> Range {
        // The view before the sequence number, as in lookups.
        let view = self.views.load_full();
        let seq = snapshot.unwrap_or_else(|| self.visibility.newest());
        Range::new(self.lookups(), self.filters.extractor(), view, seq, bounds, Some(lock))
    }
}

impl Range {
    /// `lock`: none if the store is open for reading only.
    pub(crate) fn new(
        lookups: Lookups<'_>,
        extractor: Option<PrefixExtractor>,
        view: Arc<ReadView>,
        seq: Seq,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        lock: Option<Arc<dyn FileLock>>,
    ) -> Self {
        let bounds = (bounds.0.map(<[u8]>::to_vec), bounds.1.map(<[u8]>::to_vec));
        let Lookups { env, ignore_filters } = lookups;
        let prefix = extractor.and_then(|extractor| {
            let hash_key = &env.prefix_hash_key;
            PrefixProbe::new(extractor, &bounds, hash_key, ignore_filters, &env.ledger)
        });
        let prefix = prefix.map(Arc::new);
        Self {
            view,
            seq,
            birth: env.birth,
            bounds,
            prefix,
            front: None,
            passed: false,
            back: None,
            ended: false,
            lock,
        }
    }

    fn step(&mut self, direction: Direction) -> Result<Option<(Value, Value)>> {
        let cursor = match direction.pick(&mut self.front, &mut self.back) {
            Some(cursor) => cursor,
            none => {
                let bounds = borrowed(&self.bounds);
                none.insert(merge(&self.view, direction, bounds, self.prefix.as_ref())?)
            }
        };
        match direction {
            Direction::Forward => {
                if std::mem::take(&mut self.passed) {
                    cursor.advance()?;
                }
                let next = next_forward(cursor, self.seq, &mut self.bounds)?;
                self.passed = true;
                Ok(next)
            }
            Direction::Backward => next_backward(cursor, self.seq, &mut self.bounds),
        }
    }

    fn item(&mut self, direction: Direction) -> Option<Result<(Value, Value)>> {
        if self.ended {
            return None;
        }
        let item = self.birth.check().and_then(|()| self.step(direction));
        // If one direction has no more items, the other has none either.
        self.ended = !matches!(item, Ok(Some(_)));
        item.transpose()
    }
}

impl Iterator for Range {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.item(Direction::Forward)
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.item(Direction::Backward)
    }
}

impl std::iter::FusedIterator for Range {}
pub(crate) fn prefix_bounds(prefix: &[u8]) -> KeyBounds {
    let end = successor(prefix).map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(prefix.to_vec()), end)
}

fn merge(
    view: &ReadView,
    direction: Direction,
    bounds: (Bound<&[u8]>, Bound<&[u8]>),
    prefix: Option<&Arc<PrefixProbe>>,
) -> Result<MergeCursor> {
    let mut cursors: Vec<Box<dyn Cursor>> = Vec::new();
    let start = direction.pick(bounds.0, bounds.1);
    // Many scans find nothing, so an empty cursor is not boxed.
    for memtable in view.memtables() {
        let cursor = MemtableCursor::new(Arc::clone(memtable), direction, start);
        if cursor.entry().is_some() {
            cursors.push(Box::new(cursor));
        }
    }
    for run in view.version.runs() {
        let cursor = LevelCursor::new(run, direction, bounds, ReadPlan::Scan, prefix)?;
        if cursor.entry().is_some() {
            cursors.push(Box::new(cursor));
        }
    }
    Ok(MergeCursor::new(cursors, direction))
}

/// The next pair. The lower bound moves to its key: there the other direction must stop. The cursor stays at
/// the pair, so that no block is read before it is needed.
fn next_forward(
    merged: &mut MergeCursor,
    seq: Seq,
    bounds: &mut KeyBounds,
) -> Result<Option<(Value, Value)>> {
    while let Some(entry) = merged.entry() {
        // The newest visible entry of a key comes first, and hides the others.
        let hidden = matches!(&bounds.0, Bound::Excluded(last) if last == entry.key);
        if hidden || entry.seq > seq {
            merged.advance()?;
            continue;
        }
        // The cursor began at the lower bound.
        if !RangeBounds::<[u8]>::contains(&(Bound::Unbounded, borrowed(bounds).1), entry.key) {
            break;
        }
        exclude(&mut bounds.0, entry.key);
        if entry.kind == EntryKind::Put {
            return Ok(Some((merged.key(), merged.value())));
        }
    }
    Ok(None)
}

/// As [`next_forward`], with the bounds exchanged.
fn next_backward(
    merged: &mut MergeCursor,
    seq: Seq,
    bounds: &mut KeyBounds,
) -> Result<Option<(Value, Value)>> {
    while merged.entry().is_some() {
        let key = merged.key();
        let mut newest: Option<(EntryKind, Value)> = None;
        // All entries of the key. The newest visible entry comes last.
        while let Some(entry) = merged.entry()
            && key == entry.key
        {
            if entry.seq <= seq {
                newest = Some((entry.kind, merged.value()));
            }
            merged.advance()?;
        }
        if let Some((EntryKind::Put, value)) = newest {
            let rest = (borrowed(bounds).0, Bound::Unbounded);
            if !RangeBounds::<[u8]>::contains(&rest, &*key) {
                break;
            }
            exclude(&mut bounds.1, &key);
            return Ok(Some((key, value)));
        }
    }
    Ok(None)
}

fn exclude(bound: &mut Bound<Vec<u8>>, key: &[u8]) {
    match bound {
        Bound::Excluded(last) => {
            last.clear();
            last.extend_from_slice(key);
        }
        other => *other = Bound::Excluded(key.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_key_that_lacks_it() {
        let ends = |prefix: &[u8]| prefix_bounds(prefix).1;
        assert_eq!(ends(b"ab"), Bound::Excluded(b"ac".to_vec()));
        assert_eq!(ends(b"a\xff\xff"), Bound::Excluded(b"b".to_vec()));
        assert_eq!(ends(b"\xff"), Bound::Unbounded);
        assert_eq!(ends(b""), Bound::Unbounded);
    }
}
