//! The condition of a write, and the decision of the thread that commits it.

use crate::sync::Mutex;

/// A condition of a request: each entry is written only if its key has the expected value.
#[derive(Debug)]
pub(crate) struct Condition {
    /// `None`: the key must be absent.
    pub(crate) expected: Option<Vec<u8>>,
    /// The log of the memtable in use when the keys were looked up. An entry that the lookup missed is in
    /// this memtable or in a newer one.
    pub(crate) since: u64,
    /// A commit that is tried again decides again.
    pub(crate) decision: Mutex<Decision>,
}

#[derive(Debug)]
pub(crate) enum Decision {
    /// Entries that the lookup missed may be in tables.
    LookUpAgain,
    /// For each entry, whether it is written.
    Written(Vec<bool>),
}
