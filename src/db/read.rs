//! The read path: memtables, then tables from the newest to the oldest, filters before disk.

use super::core::Core;
use crate::error::Result;
use crate::filter::LookupHash;
use crate::key::{EntryKind, Seq};
use crate::ledger::{Activity, Counts, LEVELS, Outcome, Step, TableStep, Verdict};
use crate::sync::Ordering;
use crate::value::Value;
use crate::version::LiveTable;

/// Follows a lookup, step by step.
pub(crate) trait Trace {
    fn step(&mut self, step: Step);
}

/// Follows nothing.
impl Trace for () {
    fn step(&mut self, _: Step) {}
}

impl Trace for Counts {
    fn step(&mut self, step: Step) {
        *self += Self::from(&step);
    }
}

impl Trace for Vec<Step> {
    fn step(&mut self, step: Step) {
        self.push(step);
    }
}

impl Core {
    /// Finds the newest value of `key` up to a snapshot's sequence number, or now. Reads at most one
    /// block for each table that holds the key or whose filter is mistaken.
    pub(crate) fn lookup(
        &self,
        key: &[u8],
        snapshot: Option<Seq>,
        trace: &mut impl Trace,
    ) -> Result<Option<Value>> {
        // The view first, then the sequence number: a compaction between the two may drop, from
        // newer views, what only an older sequence number could see.
        let view = self.view.load();
        let seq = snapshot.unwrap_or_else(|| self.visible.load(Ordering::Acquire));

        let hash = LookupHash::new(key, &self.env.secret);
        let mut done = Activity { lookups: 1, ..Activity::default() };
        for (age, memtable) in std::iter::once(&view.memtable).chain(&view.sealed).enumerate() {
            let filter = if self.options.ignore_filters {
                Verdict::Unfiltered
            } else if memtable.may_contain(&hash) {
                Verdict::Maybe
            } else {
                Verdict::No
            };
            let found = match filter {
                Verdict::No => None,
                _ => memtable.get(key, seq),
            };
            done.memtables_searched += u64::from(filter != Verdict::No);
            done.memtables_denied += u64::from(filter == Verdict::No);
            let kind = found.as_ref().map(|(kind, _)| *kind);
            trace.step(Step::Memtable { age, filter, found: kind });
            if let Some(found) = found {
                done.memtable_answers = 1;
                return Ok(self.end_lookup(Some(found), done));
            }
        }

        let l0 = view.version.level(0).iter().map(|live| (0, live));
        let below = (1..LEVELS)
            .filter_map(|level| view.version.candidate(level, key).map(|live| (level, live)));
        for (level, live) in l0.chain(below) {
            let (step, found) = self.probe(live, key, seq, &hash);
            live.counters.count(step);
            trace.step(Step::Table { id: live.table.id(), level, step });
            match found {
                Ok(None) => {}
                Ok(found) => return Ok(self.end_lookup(found, done)),
                Err(error) => {
                    self.env.ledger.count(Activity { failed: 1, ..done });
                    return Err(error);
                }
            }
        }
        Ok(self.end_lookup(None, done))
    }

    fn end_lookup(&self, found: Option<(EntryKind, Value)>, done: Activity) -> Option<Value> {
        let value = found.and_then(|(kind, value)| (kind == EntryKind::Put).then_some(value));
        let hits = u64::from(value.is_some());
        self.env.ledger.count(Activity { hits, misses: 1 - hits, ..done });
        value
    }

    /// Asks one table: range, filter, then its one block. Tells what it did also when that failed, so
    /// that the read that was made is counted.
    fn probe(
        &self,
        live: &LiveTable,
        key: &[u8],
        seq: Seq,
        hash: &LookupHash<'_>,
    ) -> (TableStep, Result<Option<(EntryKind, Value)>>) {
        let table = &live.table;
        if !table.meta().covers(key) {
            return (TableStep::RangePruned, Ok(None));
        }
        let verdict = if self.options.ignore_filters {
            Verdict::Unfiltered
        } else {
            live.filter.verdict(hash)
        };
        if verdict == Verdict::No {
            let outcome = Outcome::TrueNegative;
            return (TableStep::Probed { verdict, block: None, outcome, found: None }, Ok(None));
        }
        let filtered = verdict == Verdict::Maybe;
        let mistakes = self.env.mistakes.as_ref().filter(|_| filtered);
        if mistakes.is_some_and(|mistakes| mistakes.know(table.id(), hash)) {
            let outcome = Outcome::Remembered;
            return (TableStep::Probed { verdict, block: None, outcome, found: None }, Ok(None));
        }
        let (block, found) = table.search(key, seq);
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
