//! Scans: the keys of a range as of one moment, forward, backward, or both.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::SystemTime;

use super::background::Scheduler;
use super::inner::DbInner;
use crate::error::Result;
use crate::expiry::{Moment, Stored};
use crate::filter::PrefixExtractor;
use crate::fork::Birth;
use crate::iter::{Cursor, Direction, MergeCursor};
use crate::key_range::{KeyBounds, borrowed};
use crate::ledger::Activity;
use crate::lookup::Lookups;
use crate::memtable::MemtableCursor;
use crate::sstable::{ReadPlan, TableEnv};
use crate::value::Value;
use crate::version::{LevelCursor, PrefixProbe};
use crate::vfs::FileLock;
use crate::view::ReadView;

/// A step that passes more versions than this seeks past the others of a key: a seek costs as much as some.
const FEW_VERSIONS: usize = 8;
/// A step tries to pass leaves of memtables once per so many entries: an attempt costs as much as some.
const BEFORE_LEAVES: usize = 16;
/// A step that passes as many entries one by one notes a hole.
const MANY_HIDDEN: usize = 64;
/// A step that passes as many entries of the memtable in use demands that it is sealed: its flush drops them.
const SEALED_HIDDEN: usize = if cfg!(criba_shuttle) { 4 } else { 16_384 };

/// A double-ended iterator over keys and values, from [`Db::range`](crate::Db::range). It sees the store as
/// of its creation, and keeps the directory locked. It reads nothing before the first item, and ends after an
/// error. If the store was closed, or this process is a fork, the first item is the error.
#[derive(Debug)]
pub struct Range {
    scan: Result<Scan>,
    ended: bool,
}

/// A scan of a store that is open.
pub(crate) struct Scan {
    view: Arc<ReadView>,
    moment: Moment,
    birth: Birth,
    bounds: KeyBounds,
    prefix: Option<Arc<PrefixProbe>>,
    env: Arc<TableEnv>,
    /// Gets a demand to seal the memtable. `None` for a snapshot and for a store that is open for reading only.
    sealer: Option<Arc<Scheduler>>,
    /// Whether all tables and sealed memtables are older than `seq`, so that a hole may be noted.
    is_newest: bool,
    front: Option<MergeCursor>,
    /// `front` is still at the entry of the last item.
    passed: bool,
    back: Option<MergeCursor>,
    #[expect(dead_code, reason = "keeps the directory locked")]
    lock: Option<Arc<dyn FileLock>>,
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = borrowed(&self.bounds);
        let written = |bound: Bound<&[u8]>| bound.map(|key| key.escape_ascii().to_string());
        f.debug_struct("Scan")
            .field("from", &written(from))
            .field("to", &written(to))
            .finish_non_exhaustive()
    }
}

impl DbInner {
    pub(crate) fn scan(
        &self,
        snapshot: Option<Moment>,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        lock: Arc<dyn FileLock>,
    ) -> Scan {
        let (view, moment) = match snapshot {
            Some(moment) => (self.views.load_full(), moment),
            None => self.present(),
        };
        let extractor = self.filters.extractor();
        let scan = Scan::new(&self.env, self.lookups(), extractor, view, moment, bounds);
        let sealer = snapshot.is_none().then(|| Arc::clone(&self.scheduler));
        Scan { is_newest: snapshot.is_none(), sealer, lock: Some(lock), ..scan }
    }
}

impl Scan {
    /// A scan of a store that is open for reading only.
    pub(crate) fn new(
        env: &Arc<TableEnv>,
        lookups: Lookups<'_>,
        extractor: Option<PrefixExtractor>,
        view: Arc<ReadView>,
        moment: Moment,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Self {
        let bounds = (bounds.0.map(<[u8]>::to_vec), bounds.1.map(<[u8]>::to_vec));
        let prefix = extractor.and_then(|extractor| {
            let hash_key = &env.prefix_hash_key;
            let ignores = lookups.ignore_filters;
            PrefixProbe::new(extractor, &bounds, hash_key, ignores, &env.ledger)
        });
        Self {
            view,
            moment,
            birth: env.birth,
            bounds,
            prefix: prefix.map(Arc::new),
            env: Arc::clone(env),
            sealer: None,
            is_newest: true,
            front: None,
            passed: false,
            back: None,
            lock: None,
        }
    }

    fn step(&mut self, direction: Direction) -> Result<Option<Item>> {
        self.birth.check()?;
        let cursor = match direction.pick(&mut self.front, &mut self.back) {
            Some(cursor) => cursor,
            none => {
                let bounds = borrowed(&self.bounds);
                none.insert(merge(
                    &self.view,
                    self.moment,
                    direction,
                    bounds,
                    self.prefix.as_ref(),
                )?)
            }
        };
        cursor.counted = 0;
        if direction == Direction::Forward && std::mem::take(&mut self.passed) {
            cursor.advance()?;
        }
        let mut step = Step::new(cursor, self.moment);
        let next = match direction {
            Direction::Forward => step.next_forward(&mut self.bounds)?,
            Direction::Backward => step.next_backward(&mut self.bounds)?,
        };
        self.passed |= direction == Direction::Forward;
        let Hidden { passed, singly, bound } = step.hidden;
        let counted = cursor.counted;
        if passed > 0 {
            let hidden_passed = passed as u64;
            self.env.ledger.count(Activity { hidden_passed, ..Activity::default() });
        }
        // Tables may be newer while an ingest is not visible yet.
        if singly >= MANY_HIDDEN && self.is_newest && self.view.version.newest() <= self.moment.seq
        {
            self.note_hole(direction, bound, next.is_some());
        }
        if counted >= SEALED_HIDDEN
            && let Some(sealer) = &self.sealer
        {
            sealer.demand_seal(self.view.memtable.log());
        }
        Ok(next)
    }

    /// Notes that nothing lies between the bound before a step and the item that it `found`, or the other bound.
    fn note_hole(&self, direction: Direction, bound: Option<Bound<Vec<u8>>>, found: bool) {
        let (from, to) = &self.bounds;
        let (moved, other) = direction.pick((from, to), (to, from));
        let near = bound.unwrap_or_else(|| moved.clone());
        // The bound excludes the item: the hole ends before it, too.
        let far = if found { moved.clone() } else { other.clone() };
        self.view.hole.note(direction.pick((near.clone(), far.clone()), (far, near)), self.moment);
    }
}

/// An item of a scan, which has not expired.
#[derive(Debug)]
struct Item {
    key: Value,
    stored: Stored,
}

impl Item {
    fn pair(self) -> (Value, Value) {
        (self.key, self.stored.into_value())
    }

    fn with_expiry(self) -> (Value, Value, Option<SystemTime>) {
        let (value, expiry) = self.stored.into_value_and_expiry();
        (self.key, value, expiry)
    }
}

impl Range {
    pub(crate) fn new(scan: Result<Scan>) -> Self {
        Self { scan, ended: false }
    }

    /// The next key and value, and when the key expires.
    pub fn next_with_expiry(&mut self) -> Option<Result<(Value, Value, Option<SystemTime>)>> {
        Some(self.item(Direction::Forward)?.map(Item::with_expiry))
    }

    /// As [`next_with_expiry`](Self::next_with_expiry), from the other end.
    pub fn next_back_with_expiry(&mut self) -> Option<Result<(Value, Value, Option<SystemTime>)>> {
        Some(self.item(Direction::Backward)?.map(Item::with_expiry))
    }

    fn item(&mut self, direction: Direction) -> Option<Result<Item>> {
        if self.ended {
            return None;
        }
        let item = match &mut self.scan {
            Ok(scan) => scan.step(direction),
            Err(error) => Err(error.clone()),
        };
        // If one direction has no more items, the other has none either.
        self.ended = !matches!(item, Ok(Some(_)));
        item.transpose()
    }
}

impl Iterator for Range {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.item(Direction::Forward).map(|item| item.map(Item::pair))
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.item(Direction::Backward).map(|item| item.map(Item::pair))
    }
}

impl std::iter::FusedIterator for Range {}

fn merge(
    view: &ReadView,
    moment: Moment,
    direction: Direction,
    bounds: (Bound<&[u8]>, Bound<&[u8]>),
    prefix: Option<&Arc<PrefixProbe>>,
) -> Result<MergeCursor> {
    let start = |bounds: (Bound<_>, Bound<_>)| direction.pick(bounds.0, bounds.1);
    // Many scans find nothing, so an empty cursor is not boxed.
    let in_use = MemtableCursor::new(Arc::clone(&view.memtable), direction, start(bounds));
    let in_use = in_use.entry().is_some().then(|| Box::new(in_use));
    let mut cursors: Vec<Box<dyn Cursor>> = Vec::new();
    // The counts of a prefix are those of its whole bounds.
    let hole = view.hole.at(moment, direction, bounds).filter(|_| prefix.is_none());
    let rest = hole.as_ref().map_or(Some(bounds), |hole| hole.rest(direction, bounds));
    if let Some(rest) = rest {
        for memtable in &view.sealed {
            let cursor = MemtableCursor::new(Arc::clone(memtable), direction, start(rest));
            if cursor.entry().is_some() {
                cursors.push(Box::new(cursor));
            }
        }
        for run in view.version.runs() {
            let cursor = LevelCursor::new(run, direction, rest, ReadPlan::Scan, prefix)?;
            if cursor.entry().is_some() {
                cursors.push(Box::new(cursor));
            }
        }
    }
    let mut merged = MergeCursor::new(cursors, direction);
    if let Some(in_use) = in_use {
        merged.count(in_use, direction);
    }
    Ok(merged)
}

/// What a step passed before its item.
#[derive(Debug, Default)]
struct Hidden {
    passed: usize,
    /// Passed entries that were compared one by one.
    singly: usize,
    /// The bound before the step, if the step has moved it.
    bound: Option<Bound<Vec<u8>>>,
}

impl Hidden {
    fn add(&mut self, entries: usize) {
        self.passed += entries;
        self.singly += entries;
    }
}

/// The search for the next item.
struct Step<'a> {
    merged: &'a mut MergeCursor,
    moment: Moment,
    hidden: Hidden,
    /// The number of singly passed entries at which leaves are tried.
    next_attempt: usize,
}

impl<'a> Step<'a> {
    fn new(merged: &'a mut MergeCursor, moment: Moment) -> Self {
        Self { merged, moment, hidden: Hidden::default(), next_attempt: BEFORE_LEAVES }
    }

    /// The next pair. The lower bound moves to its key: there the other direction must stop. The cursor stays at
    /// the pair, so that no block is read before it is needed.
    fn next_forward(&mut self, bounds: &mut KeyBounds) -> Result<Option<Item>> {
        while let Some(entry) = self.merged.entry() {
            // The newest visible entry of a key comes first, and hides the others.
            let is_older = matches!(&bounds.0, Bound::Excluded(last) if last == entry.key);
            // The cursor began at the lower bound.
            if !is_older && is_beyond(bounds.1.as_ref(), Direction::Forward, entry.key) {
                break;
            }
            if is_older || entry.seq > self.moment.seq {
                self.pass_version()?;
                continue;
            }
            if entry.value_at(self.moment.time).is_some() {
                exclude(&mut bounds.0, entry.key);
                let stored = Stored { kind: entry.kind, value: self.merged.value() };
                return Ok(Some(Item { key: self.merged.key(), stored }));
            }
            match &self.hidden.bound {
                Some(_) => exclude(&mut bounds.0, entry.key),
                None => {
                    let passed = Bound::Excluded(entry.key.to_vec());
                    self.hidden.bound = Some(std::mem::replace(&mut bounds.0, passed));
                }
            }
            self.merged.pass()?;
            self.hidden.add(1);
            self.pass_leaves(bounds.1.as_ref());
        }
        Ok(None)
    }

    /// As [`next_forward`](Self::next_forward), with the bounds exchanged. The cursor leaves the pair.
    fn next_backward(&mut self, bounds: &mut KeyBounds) -> Result<Option<Item>> {
        while let Some(entry) = self.merged.entry() {
            if is_beyond(bounds.0.as_ref(), Direction::Backward, entry.key) {
                break;
            }
            let key = self.merged.key();
            let mut newest: Option<Stored> = None;
            // All entries of the key. The newest visible entry comes last.
            let mut versions = 0;
            while let Some(entry) = self.merged.entry()
                && key == entry.key
            {
                if entry.seq <= self.moment.seq {
                    newest = Some(Stored { kind: entry.kind, value: self.merged.value() });
                }
                versions += 1;
                if versions < FEW_VERSIONS {
                    self.merged.pass()?;
                } else {
                    self.merged.skip_versions(self.moment.seq)?;
                }
            }
            if let Some(stored) = newest.filter(|stored| stored.is_value_at(self.moment.time)) {
                self.hidden.add(versions - 1);
                if self.hidden.singly >= MANY_HIDDEN {
                    self.hidden.bound = Some(bounds.1.clone());
                }
                exclude(&mut bounds.1, &key);
                return Ok(Some(Item { key, stored }));
            }
            self.hidden.add(versions);
            self.pass_leaves(bounds.0.as_ref());
        }
        Ok(None)
    }

    /// Passes an entry that is newer than the reader, or hidden by another one of its key.
    fn pass_version(&mut self) -> Result<()> {
        if self.hidden.singly < FEW_VERSIONS {
            self.merged.pass()?;
        } else {
            self.merged.skip_versions(self.moment.seq)?;
        }
        self.hidden.add(1);
        Ok(())
    }

    /// Passes leaves of memtables that have no value before a bound.
    fn pass_leaves(&mut self, bound: Bound<&Vec<u8>>) {
        if self.hidden.singly < self.next_attempt {
            return;
        }
        self.next_attempt = self.hidden.singly + BEFORE_LEAVES;
        let limit = match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key.as_slice()),
            Bound::Unbounded => None,
        };
        self.hidden.passed += self.merged.pass_hidden(self.moment.seq, limit);
    }
}

/// Whether a key lies beyond the bound at which a scan ends.
fn is_beyond(bound: Bound<&Vec<u8>>, direction: Direction, key: &[u8]) -> bool {
    match bound {
        Bound::Unbounded => false,
        Bound::Included(end) => direction.pick(key > end.as_slice(), key < end.as_slice()),
        Bound::Excluded(end) => direction.pick(key >= end.as_slice(), key <= end.as_slice()),
    }
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
