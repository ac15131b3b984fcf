//! The search for one key. It goes from one candidate to the next whose filter does not deny the key.

use super::{Lookups, Trace, When};
use crate::error::Result;
use crate::expiry::{Moment, Stored};
use crate::filter::LookupKey;
use crate::key::EntryKind;
use crate::ledger::{Activity, Outcome, Step, TableStep, Verdict};
use crate::memtable::Memtable;
use crate::sstable::{BlockHandle, Table};
use crate::version::{Interval, LiveTable, Version};
use crate::view::ReadView;
use criba_filter::store::IN_FLIGHT;

pub(super) struct Search<'a> {
    lookups: Lookups<'a>,
    view: &'a ReadView,
    when: &'a When<'a>,
    key: LookupKey<'a>,
    interval: Interval<'a>,
}

type Found = Option<Stored>;

/// The memtables that a search passed: their filters denied the key, or they were searched.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Passed {
    denied: u64,
    searched: u64,
}

impl<'a> Search<'a> {
    #[inline]
    pub(super) fn new(
        lookups: Lookups<'a>,
        view: &'a ReadView,
        when: &'a When<'a>,
        key: &'a [u8],
    ) -> Self {
        let interval = view.version.find(key);
        let key = LookupKey::new(key, &lookups.env.hash_key, view.memtable.hash_function());
        Self { lookups, view, when, key, interval }
    }

    /// Prefetches the filters of all candidates.
    #[inline]
    pub(super) fn prefetch(&self) {
        for rank in 0..self.interval.ranks() {
            if let Some(number) = self.interval.covering(rank) {
                self.view.version.slots().begin(number, &self.key);
            }
        }
    }

    /// The block that the search reads first, if it must read one from the disk. Counts nothing.
    pub(super) fn first_read(&self) -> Option<(&'a Table, BlockHandle)> {
        if self.in_memtables(&mut Passed::default(), &mut ()).is_some() {
            return None;
        }
        let number = self.interval.covering(self.next_maybe(0)?)?;
        let (live, _) = self.table(number)?;
        live.table
            .block_to_read(self.key.bytes(), self.when.moment().seq)
            .map(|block| (&*live.table, block))
    }

    /// What `take` makes of the entry that gives the key a value. Counts the lookup: once for the interval if every
    /// memtable and every filter denies the key, else each step.
    #[inline]
    pub(super) fn find<T>(
        &self,
        trace: &mut impl Trace,
        take: impl Fn(Stored) -> T,
    ) -> Result<Option<T>> {
        let mut passed = Passed::default();
        if let found @ Some(_) = self.in_memtables(&mut passed, trace) {
            return self.end(Ok(found), passed, true, take);
        }
        match self.next_maybe(0) {
            None if passed.searched == 0 => {
                self.end_denied(trace);
                Ok(None)
            }
            rank => self.in_tables(rank, passed, trace, take),
        }
    }

    /// The newest entry of the memtables.
    #[inline]
    pub(super) fn in_memtables(&self, passed: &mut Passed, trace: &mut impl Trace) -> Found {
        if let found @ Some(_) = self.in_memtable(0, &self.view.memtable, passed, trace) {
            return found;
        }
        if self.view.sealed.is_empty() { None } else { self.in_sealed(passed, trace) }
    }

    #[inline(never)]
    fn in_sealed(&self, passed: &mut Passed, trace: &mut impl Trace) -> Found {
        for (age, memtable) in (1..).zip(&self.view.sealed) {
            if let found @ Some(_) = self.in_memtable(age, memtable, passed, trace) {
                return found;
            }
        }
        None
    }

    #[expect(clippy::inline_always, reason = "mostly, the filter denies the key")]
    #[inline(always)]
    fn in_memtable<T: Trace>(
        &self,
        age: usize,
        memtable: &Memtable,
        passed: &mut Passed,
        trace: &mut T,
    ) -> Found {
        if self.lookups.ignore_filters || memtable.may_contain(&self.key) {
            passed.searched += 1;
            return self.search_memtable(age, memtable, trace);
        }
        passed.denied += 1;
        if T::STEPS {
            trace.step(Step::Memtable { age, filter: Verdict::No, found: None });
        }
        None
    }

    #[inline(never)]
    fn search_memtable(&self, age: usize, memtable: &Memtable, trace: &mut impl Trace) -> Found {
        let ignored = self.lookups.ignore_filters;
        let filter = if ignored { Verdict::Unfiltered } else { Verdict::Maybe };
        let found = memtable.get(self.key.bytes(), self.when.moment().seq);
        let kind = found.as_ref().map(|stored| stored.kind);
        trace.step(Step::Memtable { age, filter, found: kind });
        found
    }

    /// The first rank, from this one on, of a table that covers the key and whose filter does not deny it.
    #[inline]
    pub(super) fn next_maybe(&self, from: usize) -> Option<usize> {
        let ranks = self.interval.ranks();
        if self.lookups.ignore_filters {
            return (from..ranks).find(|&rank| self.interval.covering(rank).is_some());
        }
        if from + 1 < ranks {
            return self.next_of_many(from);
        }
        if from >= ranks {
            return None;
        }
        let number = self.interval.covering(from)?;
        (!self.view.version.slots().is_negative(number, &self.key)).then_some(from)
    }

    /// As `next_maybe`. Prefetches several filters before it probes them.
    #[inline(never)]
    fn next_of_many(&self, mut from: usize) -> Option<usize> {
        let (slots, interval) = (self.view.version.slots(), self.interval);
        let ranks = interval.ranks();
        let mut begun = [None; IN_FLIGHT];
        while from < ranks {
            let until = ranks.min(from + IN_FLIGHT);
            for (rank, begun) in (from..until).zip(&mut begun) {
                let number = interval.covering(rank);
                *begun = number.map(|number| slots.begin(number, &self.key));
            }
            for (rank, begun) in (from..until).zip(&begun) {
                if begun.is_some_and(|begun| !begun.is_negative()) {
                    return Some(rank);
                }
            }
            from = until;
        }
        None
    }

    /// Reads the block of the table at this rank, and goes on behind it until an entry is found.
    #[inline(never)]
    fn in_tables<T>(
        &self,
        mut rank: Option<usize>,
        passed: Passed,
        trace: &mut impl Trace,
        take: impl Fn(Stored) -> T,
    ) -> Result<Option<T>> {
        let mut counted = 0;
        while let Some(maybe) = rank {
            self.pass(counted..maybe, true, trace);
            let found = self.read(maybe, trace);
            if !matches!(found, Ok(None)) {
                return self.end(found, passed, false, take);
            }
            counted = maybe + 1;
            rank = self.next_maybe(counted);
        }
        self.pass(counted..self.interval.ranks(), true, trace);
        self.end(Ok(None), passed, false, take)
    }

    /// Traces, and counts if `count`, candidates that do not cover the key, or whose filters deny it.
    fn pass<T: Trace>(&self, ranks: std::ops::Range<usize>, count: bool, trace: &mut T) {
        for rank in ranks {
            let Some(candidate) = self.interval.at(rank) else { continue };
            let Some((live, level)) = self.table(candidate.number) else { continue };
            let step = if candidate.covers {
                let (verdict, outcome) = (Verdict::No, Outcome::TrueNegative);
                TableStep::Probed { verdict, block: None, outcome, found: None }
            } else {
                TableStep::RangePruned
            };
            if count {
                live.counters.count(step);
            }
            if T::STEPS {
                trace.step(Step::Table { id: live.table.id(), level, step });
            }
        }
    }

    fn table(&self, number: usize) -> Option<(&'a LiveTable, usize)> {
        let version: &'a Version = &self.view.version;
        Some((version.numbered(number)?, version.level_of(number)))
    }

    /// Searches the block of the table at this rank that may hold the key.
    fn read<T: Trace>(&self, rank: usize, trace: &mut T) -> Result<Found> {
        let Some(number) = self.interval.covering(rank) else { return Ok(None) };
        let Some((live, level)) = self.table(number) else { return Ok(None) };
        let verdict = if self.lookups.ignore_filters {
            Verdict::Unfiltered
        } else if self.view.version.slots().has(number) {
            Verdict::Maybe
        } else {
            live.filter.verdict(&self.key)
        };
        let timed = T::TIMED;
        let (step, found) =
            search_block(&live.table, verdict, self.when.moment(), &self.key, timed);
        live.counters.count(step);
        trace.step(Step::Table { id: live.table.id(), level, step });
        found
    }

    /// Counts a lookup whose key every memtable and every filter denied.
    #[inline]
    fn end_denied<T: Trace>(&self, trace: &mut T) {
        if T::STEPS {
            self.pass(0..self.interval.ranks(), false, trace);
        }
        let sealed = self.view.sealed.len() as u64;
        if !self.view.version.count_negative(&self.interval) {
            let (lookups, misses, memtables_denied) = (1, 1, 1 + sealed);
            let done = Activity { lookups, misses, memtables_denied, ..Activity::default() };
            self.lookups.env.ledger.count(done);
        } else if sealed > 0 {
            // The interval counts one memtable.
            let done = Activity { memtables_denied: sealed, ..Activity::default() };
            self.lookups.env.ledger.count(done);
        }
    }

    /// Whether an entry gives its key a value.
    #[inline]
    fn is_value(&self, stored: &Stored) -> bool {
        stored.kind == EntryKind::Put || stored.is_value_at(self.when.moment().time)
    }

    /// The newer entry that gives the key of an expired one a value.
    #[cold]
    fn renewed(&self) -> Result<Found> {
        let newer = self.when.renewed(self.key.bytes(), self.view)?;
        Ok(newer.filter(|stored| self.is_value(stored)))
    }

    #[inline(never)]
    fn end<T>(
        &self,
        found: Result<Found>,
        passed: Passed,
        from_memtable: bool,
        take: impl Fn(Stored) -> T,
    ) -> Result<Option<T>> {
        let found = match found {
            Ok(Some(stored)) if self.is_value(&stored) => Ok(Some(take(stored))),
            Ok(Some(stored)) if stored.kind == EntryKind::Expiring => {
                self.renewed().map(|newer| newer.map(take))
            }
            Ok(_) => Ok(None),
            Err(error) => Err(error),
        };
        self.lookups.env.ledger.count(Activity {
            lookups: 1,
            hits: u64::from(matches!(found, Ok(Some(_)))),
            misses: u64::from(matches!(found, Ok(None))),
            failed: u64::from(found.is_err()),
            memtable_answers: u64::from(from_memtable),
            memtables_denied: passed.denied,
            memtables_searched: passed.searched,
            ..Activity::default()
        });
        found
    }
}

/// Searches the one block that may hold the key. A failed read also returns a step.
#[inline(never)]
fn search_block(
    table: &Table,
    verdict: Verdict,
    moment: Moment,
    key: &LookupKey<'_>,
    timed: bool,
) -> (TableStep, Result<Found>) {
    let (block, found) = table.search(key.bytes(), moment.seq, timed);
    let outcome = match &found {
        Ok(found) if found.entry.as_ref().is_some_and(|stored| stored.is_over(moment.time)) => {
            Outcome::Expired
        }
        Ok(found) => Outcome::of_read(verdict, found.holds_key),
        Err(_) => Outcome::Failed,
    };
    let entry = found.map(|found| found.entry);
    let kind = entry.as_ref().ok().and_then(Option::as_ref).map(|stored| stored.kind);
    (TableStep::Probed { verdict, block, outcome, found: kind }, entry)
}
