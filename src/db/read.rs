//! Lookups: memtables, then tables from newest to oldest, each filter before its table.

use super::inner::DbInner;
use super::views::ReadView;
use crate::error::Result;
use crate::filter::{HashedKey, LookupKey};
use crate::key::{EntryKind, Seq};
use crate::ledger::{Activity, Explanation, Outcome, Step, TableStep, Verdict};
use crate::sstable::{Table, TableEnv};
use crate::value::Value;
use crate::version::{Candidate, Interval, Intervals, Probed};
use criba_filter::store::IN_FLIGHT;

pub(crate) trait Trace {
    /// Whether it needs every step of a lookup.
    const STEPS: bool;

    fn step(&mut self, step: Step);
}

impl Trace for () {
    const STEPS: bool = false;

    fn step(&mut self, _: Step) {}
}

impl Trace for Vec<Step> {
    const STEPS: bool = true;

    fn step(&mut self, step: Step) {
        self.push(step);
    }
}

/// Whether a key may have a value: the answer of [`Db::may_contain`](crate::Db::may_contain).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Membership {
    /// The key certainly has no value.
    No,
    /// The key may have a value.
    Maybe,
}

/// The newest values of keys.
pub(crate) struct Latest {
    pub(crate) values: Vec<Option<Value>>,
    /// The lookup saw no later entry.
    pub(crate) seq: Seq,
    /// The log of the memtable in use: an entry that the lookup missed is in it or in a newer memtable.
    pub(crate) since: u64,
}

impl Candidate<'_> {
    #[expect(clippy::inline_always, reason = "most callers pass a constant step")]
    #[inline(always)]
    fn count_step(&self, step: TableStep, trace: &mut impl Trace) {
        self.live.counters.count(step);
        trace.step(Step::Table { id: self.live.table.id(), level: self.level, step });
    }
}

#[inline]
fn prefetch_l0(view: &ReadView, key: &LookupKey<'_>) {
    if let l0 @ [_, _, ..] = view.version.level(0) {
        l0.iter().take(IN_FLIGHT).for_each(|live| live.filter.prefetch(key));
    }
}

/// Lookups in a view.
#[derive(Clone, Copy)]
pub(crate) struct Lookups<'e> {
    pub(crate) env: &'e TableEnv,
    pub(crate) ignore_filters: bool,
}

impl Lookups<'_> {
    #[inline]
    pub(crate) fn one<T: Trace>(
        &self,
        view: &ReadView,
        seq: Seq,
        key: &[u8],
        trace: &mut T,
    ) -> Result<Option<Value>> {
        let hash_key = &self.env.hash_key;
        let Some(intervals) = self.intervals(view).filter(|_| !T::STEPS) else {
            return self.walk(view, seq, &LookupKey::new(key, hash_key), Probed::default(), trace);
        };
        let key = HashedKey::new(key, intervals.hash(), hash_key);
        match self.deny(view, intervals, intervals.find(key.bytes), key) {
            Ok(()) => Ok(None),
            Err(probed) => {
                self.walk(view, seq, &LookupKey::of_hashed(key, hash_key), probed, trace)
            }
        }
    }

    /// `None` if lookups must walk the candidates.
    #[inline]
    fn intervals<'v>(&self, view: &'v ReadView) -> Option<&'v Intervals> {
        view.version.intervals().filter(|_| !self.ignore_filters)
    }

    /// Whether each memtable and each filter of the interval denies the key; counts the lookup if so. Otherwise
    /// the verdicts of the filters that were probed.
    #[inline]
    fn deny(
        &self,
        view: &ReadView,
        intervals: &Intervals,
        interval: Option<Interval<'_>>,
        key: HashedKey<'_>,
    ) -> std::result::Result<(), Probed> {
        let denied =
            view.memtable.denies(key) && view.sealed.iter().all(|memtable| memtable.denies(key));
        let interval = interval.filter(|_| denied).ok_or_else(Probed::default)?;
        intervals.deny(interval, key)?;
        if !view.sealed.is_empty() {
            // The interval counts one memtable.
            let memtables_denied = view.sealed.len() as u64;
            self.env.ledger.count(Activity { memtables_denied, ..Activity::default() });
        }
        Ok(())
    }

    #[inline(never)]
    fn walk(
        &self,
        view: &ReadView,
        seq: Seq,
        key: &LookupKey<'_>,
        mut probed: Probed,
        trace: &mut impl Trace,
    ) -> Result<Option<Value>> {
        if probed.is_empty() {
            prefetch_l0(view, key);
        }
        let mut done = Activity::default();
        let tables = view.version.candidates(key.bytes()).map(|candidate| {
            let verdict = if candidate.covers { probed.next() } else { None };
            Candidate { verdict, ..candidate }
        });
        let found = self.answer(view, seq, key, tables, trace, &mut done);
        self.env.ledger.count(done);
        found
    }

    pub(crate) fn many<K: AsRef<[u8]>>(
        &self,
        view: &ReadView,
        seq: Seq,
        keys: &[K],
    ) -> Result<Vec<Option<Value>>> {
        // With a large L0, one key alone has enough filters to prefetch.
        if view.version.level(0).len() >= IN_FLIGHT / 2 {
            return keys.iter().map(|key| self.one(view, seq, key.as_ref(), &mut ())).collect();
        }
        match self.intervals(view) {
            Some(intervals) => self.by_intervals(view, seq, keys, intervals),
            None => {
                let mut done = Activity::default();
                let values = self.in_groups(view, seq, keys, &mut done);
                self.env.ledger.count(done);
                values
            }
        }
    }

    /// Prefetches the filters of the intervals of several keys, then looks these keys up.
    fn by_intervals<K: AsRef<[u8]>>(
        &self,
        view: &ReadView,
        seq: Seq,
        keys: &[K],
        intervals: &Intervals,
    ) -> Result<Vec<Option<Value>>> {
        let mut values = Vec::with_capacity(keys.len());
        let mut lookups = Vec::with_capacity(keys.len().min(IN_FLIGHT));
        let (function, hash_key) = (intervals.hash(), &self.env.hash_key);
        for keys in keys.chunks(IN_FLIGHT) {
            for key in keys {
                let bytes = key.as_ref();
                let key = HashedKey { bytes, function, hash: function.of(bytes, hash_key) };
                let interval = intervals.find(bytes);
                if let Some(interval) = interval {
                    intervals.prefetch(interval, key);
                }
                lookups.push((key, interval));
            }
            for (key, interval) in lookups.drain(..) {
                let value = match self.deny(view, intervals, interval, key) {
                    Ok(()) => None,
                    Err(probed) => {
                        let key = LookupKey::of_hashed(key, hash_key);
                        self.walk(view, seq, &key, probed, &mut ())?
                    }
                };
                values.push(value);
            }
        }
        Ok(values)
    }

    /// Prefetches the filters of several keys, then looks these keys up.
    fn in_groups<K: AsRef<[u8]>>(
        &self,
        view: &ReadView,
        seq: Seq,
        keys: &[K],
        done: &mut Activity,
    ) -> Result<Vec<Option<Value>>> {
        let mut values = Vec::with_capacity(keys.len());
        let at_once = keys.len().min(IN_FLIGHT);
        let mut lookups: Vec<(LookupKey<'_>, usize)> = Vec::with_capacity(at_once);
        let mut tables: Vec<Candidate<'_>> = Vec::with_capacity(4 * at_once);
        for keys in keys.chunks(IN_FLIGHT) {
            lookups.clear();
            tables.clear();
            for key in keys {
                let key = LookupKey::new(key.as_ref(), &self.env.hash_key);
                let first = tables.len();
                tables.extend(view.version.candidates(key.bytes()));
                let reached = tables.iter().skip(first).filter(|candidate| candidate.covers);
                reached.for_each(|candidate| candidate.live.filter.prefetch(&key));
                lookups.push((key, tables.len() - first));
            }
            let mut others = tables.as_slice();
            for (key, count) in &lookups {
                let (own, behind) = others.split_at(*count);
                others = behind;
                let own = own.iter().copied();
                values.push(self.answer(view, seq, key, own, &mut (), done)?);
            }
        }
        Ok(values)
    }

    fn answer<'a>(
        &self,
        view: &ReadView,
        seq: Seq,
        key: &LookupKey<'_>,
        tables: impl Iterator<Item = Candidate<'a>>,
        trace: &mut impl Trace,
        done: &mut Activity,
    ) -> Result<Option<Value>> {
        done.lookups += 1;
        let found = match self.search_memtables(view, seq, key, trace, done) {
            Some(found) => Ok(Some(found)),
            None => self.search_tables(seq, key, tables, trace),
        };
        let put = |(kind, value): (EntryKind, Value)| (kind == EntryKind::Put).then_some(value);
        let value = found.map(|found| found.and_then(put));
        match &value {
            Ok(Some(_)) => done.hits += 1,
            Ok(None) => done.misses += 1,
            Err(_) => done.failed += 1,
        }
        value
    }

    fn search_memtables(
        &self,
        view: &ReadView,
        seq: Seq,
        key: &LookupKey<'_>,
        trace: &mut impl Trace,
        done: &mut Activity,
    ) -> Option<(EntryKind, Value)> {
        for (age, memtable) in view.memtables().enumerate() {
            let filter = if self.ignore_filters {
                Verdict::Unfiltered
            } else if memtable.may_contain(key) {
                Verdict::Maybe
            } else {
                Verdict::No
            };
            let found = if filter == Verdict::No {
                done.memtables_denied += 1;
                None
            } else {
                done.memtables_searched += 1;
                memtable.get(key.bytes(), seq)
            };
            let kind = found.as_ref().map(|(kind, _)| *kind);
            trace.step(Step::Memtable { age, filter, found: kind });
            if found.is_some() {
                done.memtable_answers += 1;
                return found;
            }
        }
        None
    }

    fn search_tables<'a>(
        &self,
        seq: Seq,
        key: &LookupKey<'_>,
        tables: impl Iterator<Item = Candidate<'a>>,
        trace: &mut impl Trace,
    ) -> Result<Option<(EntryKind, Value)>> {
        for candidate in tables {
            // Each outcome has its own branch, so that the compiler knows which counter to change.
            if !candidate.covers {
                candidate.count_step(TableStep::RangePruned, trace);
                continue;
            }
            let verdict = if self.ignore_filters {
                Verdict::Unfiltered
            } else {
                candidate.verdict.unwrap_or_else(|| candidate.live.filter.verdict(key))
            };
            if verdict == Verdict::No {
                let outcome = Outcome::TrueNegative;
                let step = TableStep::Probed { verdict, block: None, outcome, found: None };
                candidate.count_step(step, trace);
                continue;
            }
            let (step, found) = search_block(&candidate.live.table, verdict, seq, key);
            candidate.count_step(step, trace);
            if let Some(found) = found? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// See [`Db::may_contain`](crate::Db::may_contain). A tombstone in a memtable is a "no". A tombstone in a
    /// table is a "maybe": filters contain the keys of tombstones.
    pub(crate) fn may_contain(&self, view: &ReadView, seq: Seq, key: &[u8]) -> Membership {
        for memtable in view.memtables() {
            match memtable.get(key, seq) {
                None => {}
                Some((EntryKind::Put, _)) => return Membership::Maybe,
                Some((EntryKind::Delete, _)) => return Membership::No,
            }
        }
        let key = LookupKey::new(key, &self.env.hash_key);
        let passes = |Candidate { live, covers, .. }: Candidate<'_>| {
            covers && (self.ignore_filters || live.filter.verdict(&key) != Verdict::No)
        };
        if view.version.candidates(key.bytes()).any(passes) {
            Membership::Maybe
        } else {
            Membership::No
        }
    }
}

impl DbInner {
    #[inline]
    pub(super) fn lookups(&self) -> Lookups<'_> {
        Lookups { env: &self.env, ignore_filters: self.options.ignore_filters }
    }

    pub(crate) fn lookup(
        &self,
        key: &[u8],
        snapshot: Option<Seq>,
        trace: &mut impl Trace,
    ) -> Result<Option<Value>> {
        self.at_one_moment(snapshot, |view, seq| self.lookups().one(view, seq, key, trace))
    }

    pub(crate) fn explain(&self, key: &[u8], snapshot: Option<Seq>) -> Result<Explanation> {
        let mut steps = Vec::new();
        let value = self.lookup(key, snapshot, &mut steps)?;
        Ok(Explanation { value, steps })
    }

    pub(crate) fn lookup_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        snapshot: Option<Seq>,
    ) -> Result<Vec<Option<Value>>> {
        self.at_one_moment(snapshot, |view, seq| self.lookups().many(view, seq, keys))
    }

    pub(crate) fn lookup_latest(&self, keys: &[&[u8]]) -> Result<Latest> {
        self.at_one_moment(None, |view, seq| {
            let values = self.lookups().many(view, seq, keys)?;
            Ok(Latest { values, seq, since: view.memtable.log() })
        })
    }

    pub(crate) fn may_contain(&self, key: &[u8]) -> Membership {
        // The order matters, as in `at_one_moment`.
        let view = self.views.load();
        let seq = self.visibility.newest();
        self.lookups().may_contain(&view, seq, key)
    }

    fn at_one_moment<T>(
        &self,
        snapshot: Option<Seq>,
        read: impl FnOnce(&ReadView, Seq) -> Result<T>,
    ) -> Result<T> {
        // The view before the sequence number: newer views may lack entries that an older sequence number
        // needs, because a compaction dropped them.
        let view = self.views.load();
        let seq = snapshot.unwrap_or_else(|| self.visibility.newest());
        read(&view, seq)
    }
}

/// Searches the one block that may hold the key. A failed read also returns a step.
#[inline(never)]
fn search_block(
    table: &Table,
    verdict: Verdict,
    seq: Seq,
    key: &LookupKey<'_>,
) -> (TableStep, Result<Option<(EntryKind, Value)>>) {
    let (block, found) = table.search(key.bytes(), seq);
    let outcome = match &found {
        Ok(found) => Outcome::of_read(verdict, found.holds_key),
        Err(_) => Outcome::Failed,
    };
    let entry = found.map(|found| found.entry);
    let kind = entry.as_ref().ok().and_then(Option::as_ref).map(|(kind, _)| *kind);
    (TableStep::Probed { verdict, block, outcome, found: kind }, entry)
}
