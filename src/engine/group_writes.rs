//! What the requests of a group write: the thread that commits the group decides their conditions.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::commit_queue::Request;
use super::condition::{Condition, Decision, Terms};
use super::read_set::ReadSet;
use super::recent_writes::RecentWrites;
use crate::batch::{encode, entries};
use crate::clock::StoreTime;
use crate::expiry::Millis;
use crate::filter::LookupKey;
use crate::key::Seq;
use crate::value::Value;
use crate::view::ReadView;
use criba_filter::store::HashKey;

/// The entries that a request writes, and their number; `None` for all of them.
type Written = Option<(Vec<u8>, u64)>;

const NOTHING: Written = Some((Vec::new(), 0));

pub(crate) struct GroupWrites<'a> {
    group: &'a [&'a Request],
    /// What each request writes. Empty if none has a condition.
    decided: Vec<Written>,
    /// The number of transactions whose validation has ended.
    pub(crate) validated: usize,
}

/// What the conditions of a group depend on. No other thread writes meanwhile.
pub(crate) struct State<'a> {
    pub(crate) view: &'a ReadView,
    pub(crate) hash_key: &'a HashKey,
    pub(crate) recent: &'a RecentWrites,
    /// The number of the newest entry.
    pub(crate) newest: Seq,
    pub(crate) time: &'a StoreTime,
}

impl<'a> GroupWrites<'a> {
    pub(crate) fn decide(group: &'a [&'a Request], state: State<'_>) -> Self {
        if group.iter().all(|request| request.condition.is_none()) {
            return Self { group, decided: Vec::new(), validated: 0 };
        }
        let is_alone = group.len() == 1;
        let time = state.time.of_readers();
        let changes = HashMap::default();
        let mut decider = Decider { state, time, is_alone, changes, validated: 0 };
        let decided = group.iter().map(|request| decider.decide(request)).collect();
        Self { group, decided, validated: decider.validated }
    }

    /// The encoded entries of each request, and their number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.group.iter().enumerate().map(|(index, request)| match self.decided.get(index) {
            Some(Some((ops, entries))) => (ops.as_slice(), *entries),
            _ => (request.ops.as_slice(), request.entries),
        })
    }
}

struct Decider<'a, 's> {
    state: State<'s>,
    /// The time by which all conditions of the group are judged.
    time: Millis,
    /// Whether the group has one request.
    is_alone: bool,
    /// The changes of the requests so far, which are not in the memtable yet.
    changes: HashMap<&'a [u8], Option<&'a [u8]>, RandomState>,
    validated: usize,
}

impl<'a> Decider<'a, '_> {
    fn decide(&mut self, request: &'a Request) -> Written {
        let Some(Condition { terms, decision: place }) = request.condition.as_deref() else {
            self.change(&request.ops);
            return None;
        };
        let mut written = NOTHING;
        let decision = match terms {
            Terms::EachIfAbsent { since } | Terms::AllIf { since, .. }
                if self.is_flushed(*since) =>
            {
                Decision::CheckAgain
            }
            Terms::AllIf { until, .. } if *until <= self.time => Decision::CheckAgain,
            Terms::EachIfAbsent { .. } => self.insert_each(request, &mut written),
            Terms::AllIf { requirements, .. } => {
                let mut required = entries(requirements);
                let failed = required.find(|entry| !self.has(entry.key, entry.value_at(0)));
                failed.map_or(Decision::All, |entry| Decision::Failed(Value::copied(entry.key)))
            }
            Terms::AllIfUnchanged { reads, checked, at_most } => {
                let decision = self.compare(reads, *checked, *at_most);
                self.validated +=
                    usize::from(matches!(decision, Decision::All | Decision::Conflict));
                decision
            }
        };
        if matches!(decision, Decision::All) {
            self.change(&request.ops);
            written = None;
        }
        *place.lock() = decision;
        written
    }

    /// Whether entries that a lookup missed may be in tables.
    fn is_flushed(&self, since: Seq) -> bool {
        self.state.view.memtables().all(|memtable| memtable.first() > since)
    }

    /// Notes the changes of a request, for the later ones.
    fn change(&mut self, ops: &'a [u8]) {
        if self.is_alone {
            return;
        }
        let time = self.time;
        self.changes.extend(entries(ops).map(|entry| (entry.key, entry.value_at(time))));
    }

    fn insert_each(&mut self, request: &'a Request, written: &mut Written) -> Decision {
        let (mut decisions, mut inserted) = (Vec::new(), Vec::new());
        for entry in entries(&request.ops) {
            let is_absent = self.has(entry.key, None);
            if is_absent {
                self.changes.insert(entry.key, entry.value_at(self.time));
                inserted.push(entry);
            }
            decisions.push(is_absent);
        }
        *written = (inserted.len() < decisions.len()).then(|| encode(&inserted));
        Decision::Each(decisions)
    }

    /// Whether a key has this value, as it had at the lookup.
    fn has(&self, key: &[u8], expected: Option<&[u8]>) -> bool {
        if let Some(value) = self.changes.get(key) {
            return *value == expected;
        }
        let view = self.state.view;
        let key = LookupKey::new(key, self.state.hash_key, view.memtable.hash_function());
        let mut newest = view
            .memtables()
            .filter(|memtable| memtable.may_contain(&key))
            .filter_map(|memtable| memtable.get(key.bytes(), Seq::MAX));
        match newest.next() {
            Some(stored) => stored.value_at(self.time).as_deref() == expected,
            None => true,
        }
    }

    /// Compares what was written after the number `checked` with a read set.
    fn compare(&self, reads: &ReadSet, checked: Seq, at_most: u64) -> Decision {
        if self.changes.len() as u64 > at_most {
            return Decision::CompareFirst(Vec::new()); // they are recent writes at the next attempt
        }
        if self.changes.keys().any(|key| reads.contains(key)) {
            return Decision::Conflict;
        }
        let State { newest, recent, .. } = &self.state;
        if checked == *newest {
            return Decision::All;
        }
        let Some(runs) = recent.after(checked) else { return Decision::CheckAgain };
        if newest - checked > at_most {
            return Decision::CompareFirst(runs.cloned().collect());
        }
        let mut keys = runs.flat_map(|run| run.after(checked));
        if keys.any(|key| reads.contains(key)) { Decision::Conflict } else { Decision::All }
    }
}
