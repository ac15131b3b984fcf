//! The read path: memtables, then tables from the newest to the oldest, filters before disk.

use super::inner::DbInner;
use super::views::ReadView;
use crate::error::Result;
use crate::filter::LookupHash;
use crate::key::{EntryKind, Seq};
use crate::ledger::{Activity, Outcome, Step, TableStep, Verdict};
use crate::sstable::Table;
use crate::value::Value;
use crate::version::Candidate;

/// Follows a lookup, step by step.
pub(crate) trait Trace {
    fn step(&mut self, step: Step);
}

/// Follows nothing.
impl Trace for () {
    fn step(&mut self, _: Step) {}
}

impl Trace for Vec<Step> {
    fn step(&mut self, step: Step) {
        self.push(step);
    }
}

/// So many tables of a lookup, or lookups of a batch, have the memory of their filters on the way at once. A
/// processor waits for a dozen or two cache lines at a time.
const IN_FLIGHT: usize = 16;

impl Candidate<'_> {
    /// Counts a step that a lookup made at this table.
    #[expect(clippy::inline_always, reason = "the step is known to most callers")]
    #[inline(always)]
    fn tell(&self, step: TableStep, trace: &mut impl Trace) {
        self.live.counters.count(step);
        trace.step(Step::Table { id: self.live.table.id(), level: self.level, step });
    }
}

/// The tables of level 0 are asked one after another, each filter in another place.
#[inline]
fn prefetch_l0(view: &ReadView, hash: &LookupHash<'_>) {
    if let l0 @ [_, _, ..] = view.version.level(0) {
        l0.iter().take(IN_FLIGHT).for_each(|live| live.filter.prefetch(hash));
    }
}

impl DbInner {
    /// Finds the newest value of `key` up to a snapshot's sequence number, or now. Reads at most one
    /// block for each table that holds the key or whose filter is mistaken.
    pub(crate) fn lookup(
        &self,
        key: &[u8],
        snapshot: Option<Seq>,
        trace: &mut impl Trace,
    ) -> Result<Option<Value>> {
        self.at_one_moment(snapshot, |view, seq, done| {
            let hash = LookupHash::new(key, &self.env.secret);
            prefetch_l0(view, &hash);
            let tables = view.version.candidates(key);
            self.answer(view, seq, &hash, tables, trace, done)
        })
    }

    /// The same for many keys, all at one moment: each value in the place of its key. What the filters
    /// of some keys will read is asked for before the first of them is.
    pub(crate) fn lookup_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        snapshot: Option<Seq>,
    ) -> Result<Vec<Option<Value>>> {
        self.at_one_moment(snapshot, |view, seq, done| {
            let mut values = Vec::with_capacity(keys.len());
            if view.version.level(0).len() >= IN_FLIGHT / 2 {
                // Each key has enough under way by itself.
                for key in keys {
                    let hash = LookupHash::new(key.as_ref(), &self.env.secret);
                    prefetch_l0(view, &hash);
                    // By reference: `lookup` has the only `answer` of this type, which the compiler then
                    // puts into it; that is a tenth of what an absent key costs.
                    let mut tables = view.version.candidates(hash.key());
                    values.push(self.answer(view, seq, &hash, &mut tables, &mut (), done)?);
                }
                return Ok(values);
            }
            let at_once = keys.len().min(IN_FLIGHT);
            let mut lookups: Vec<(LookupHash<'_>, usize)> = Vec::with_capacity(at_once);
            let mut tables: Vec<Candidate<'_>> = Vec::with_capacity(4 * at_once);
            for keys in keys.chunks(IN_FLIGHT) {
                lookups.clear();
                tables.clear();
                for key in keys {
                    let hash = LookupHash::new(key.as_ref(), &self.env.secret);
                    let first = tables.len();
                    tables.extend(view.version.candidates(key.as_ref()));
                    let reached = tables.iter().skip(first).filter(|candidate| candidate.covers);
                    reached.for_each(|candidate| candidate.live.filter.prefetch(&hash));
                    lookups.push((hash, tables.len() - first));
                }
                let mut others = tables.as_slice();
                for (hash, count) in &lookups {
                    let (own, behind) = others.split_at(*count);
                    others = behind;
                    let own = own.iter().copied();
                    values.push(self.answer(view, seq, hash, own, &mut (), done)?);
                }
            }
            Ok(values)
        })
    }

    /// Fixes what a lookup sees, and counts what it did.
    fn at_one_moment<T>(
        &self,
        snapshot: Option<Seq>,
        read: impl FnOnce(&ReadView, Seq, &mut Activity) -> Result<T>,
    ) -> Result<T> {
        // The view first, then the sequence number: a compaction between the two may drop, from
        // newer views, what only an older sequence number could see.
        let view = self.views.load();
        let seq = snapshot.unwrap_or_else(|| self.visibility.newest());
        let mut done = Activity::default();
        let found = read(&view, seq, &mut done);
        self.env.ledger.count(done);
        found
    }

    /// Finds the newest value in the memtables and in these tables, and adds to what was done.
    fn answer<'a>(
        &self,
        view: &ReadView,
        seq: Seq,
        hash: &LookupHash<'_>,
        tables: impl Iterator<Item = Candidate<'a>>,
        trace: &mut impl Trace,
        done: &mut Activity,
    ) -> Result<Option<Value>> {
        done.lookups += 1;
        let found = match self.search_memtables(view, seq, hash, trace, done) {
            Some(found) => Ok(Some(found)),
            None => self.search_tables(seq, hash, tables, trace),
        };
        let value = found
            .map(|found| found.and_then(|(kind, value)| (kind == EntryKind::Put).then_some(value)));
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
        hash: &LookupHash<'_>,
        trace: &mut impl Trace,
        done: &mut Activity,
    ) -> Option<(EntryKind, Value)> {
        for (age, memtable) in std::iter::once(&view.memtable).chain(&view.sealed).enumerate() {
            let filter = if self.options.ignore_filters {
                Verdict::Unfiltered
            } else if memtable.may_contain(hash) {
                Verdict::Maybe
            } else {
                Verdict::No
            };
            let found = match filter {
                Verdict::No => None,
                _ => memtable.get(hash.key(), seq),
            };
            done.memtables_searched += u64::from(filter != Verdict::No);
            done.memtables_denied += u64::from(filter == Verdict::No);
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
        hash: &LookupHash<'_>,
        tables: impl Iterator<Item = Candidate<'a>>,
        trace: &mut impl Trace,
    ) -> Result<Option<(EntryKind, Value)>> {
        for candidate in tables {
            // Each in its own branch, where what it counts is known: most end in the second.
            if !candidate.covers {
                candidate.tell(TableStep::RangePruned, trace);
                continue;
            }
            let verdict = if self.options.ignore_filters {
                Verdict::Unfiltered
            } else {
                candidate.live.filter.verdict(hash)
            };
            if verdict == Verdict::No {
                let outcome = Outcome::TrueNegative;
                let step = TableStep::Probed { verdict, block: None, outcome, found: None };
                candidate.tell(step, trace);
                continue;
            }
            let (step, found) = self.search_block(&candidate.live.table, verdict, seq, hash);
            candidate.tell(step, trace);
            if let Some(found) = found? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Reads the one block of a table that may hold the key. Tells what it did also when that failed, so
    /// that the read that was made is counted.
    #[inline(never)]
    fn search_block(
        &self,
        table: &Table,
        verdict: Verdict,
        seq: Seq,
        hash: &LookupHash<'_>,
    ) -> (TableStep, Result<Option<(EntryKind, Value)>>) {
        let filtered = verdict == Verdict::Maybe;
        let mistakes = self.env.mistakes.as_ref().filter(|_| filtered);
        if mistakes.is_some_and(|mistakes| mistakes.know(table.id(), hash)) {
            let outcome = Outcome::Remembered;
            return (TableStep::Probed { verdict, block: None, outcome, found: None }, Ok(None));
        }
        let (block, found) = table.search(hash.key(), seq);
        let outcome = match &found {
            Ok(found) => Outcome::of_read(verdict, found.holds_key),
            Err(_) => Outcome::Failed,
        };
        if let (Outcome::FalsePositive, Some(mistakes)) = (outcome, mistakes) {
            mistakes.note(table.id(), hash);
        }
        let version = found.map(|found| found.version);
        let found =
            version.as_ref().ok().and_then(|version| version.as_ref().map(|(kind, _)| *kind));
        (TableStep::Probed { verdict, block, outcome, found }, version)
    }
}
