//! The condition of a write, and the decision of the thread that commits it.

use std::sync::Arc;

use super::read_set::ReadSet;
use super::recent_writes::WrittenKeys;
use crate::expiry::Millis;
use crate::key::Seq;
use crate::sync::Mutex;
use crate::value::Value;

#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) terms: Terms,
    /// A commit that is tried again decides again.
    pub(crate) decision: Mutex<Decision>,
}

/// What must hold. It held when the calling thread checked it; `since` is that of [`Latest`](super::read::Latest).
#[derive(Debug)]
pub(crate) enum Terms {
    /// Each entry is written if its key is absent.
    EachIfAbsent { since: Seq },
    /// All entries are written if each of these keys has its value; see [`Batch`](crate::Batch).
    /// They had these values up to the time `until`.
    AllIf { requirements: Arc<[u8]>, since: Seq, until: Millis },
    /// All entries are written if no key of the read set was written after the number `checked`. The committing
    /// thread compares `at_most` so many keys.
    AllIfUnchanged { reads: Arc<ReadSet>, checked: Seq, at_most: u64 },
}

#[derive(Debug)]
pub(crate) enum Decision {
    /// The calling thread must check again: tables may have what it missed.
    CheckAgain,
    /// The calling thread must first compare these keys with its read set: they are many.
    CompareFirst(Vec<Arc<WrittenKeys>>),
    /// For each entry, whether it is written.
    Each(Vec<bool>),
    /// All entries are written.
    All,
    /// Nothing is written: this key has another value.
    Failed(Value),
    /// Nothing is written: something in the read set was written.
    Conflict,
}

impl Condition {
    pub(crate) fn new(terms: Terms) -> Arc<Self> {
        Arc::new(Self { terms, decision: Mutex::new(Decision::CheckAgain) })
    }

    pub(crate) fn take_decision(&self) -> Decision {
        std::mem::replace(&mut *self.decision.lock(), Decision::CheckAgain)
    }
}
