//! Whether a key may be there, from what is in memory alone.

use super::inner::DbInner;
use crate::filter::LookupHash;
use crate::key::EntryKind;
use crate::ledger::Verdict;
use crate::version::Candidate;

/// Whether a key may have a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Membership {
    /// It has none; certain.
    No,
    /// It may have one.
    Maybe,
}

impl DbInner {
    /// Asks the memtables, and then the filters of the tables that may hold the key. No I/O.
    ///
    /// The newest change of the key decides. In a memtable it is seen: a value is a maybe, which
    /// could be more, and a tombstone a no. Below the memtables a filter knows no difference between
    /// the two.
    pub(crate) fn may_contain(&self, key: &[u8]) -> Membership {
        // In this order for the reason that `lookup` gives.
        let view = self.views.load();
        let seq = self.visibility.newest();
        for memtable in std::iter::once(&view.memtable).chain(&view.sealed) {
            match memtable.get(key, seq) {
                None => {}
                Some((EntryKind::Put, _)) => return Membership::Maybe,
                Some((EntryKind::Delete, _)) => return Membership::No,
            }
        }
        let hash = LookupHash::new(key, &self.env.secret);
        let passes = |Candidate { live, covers, .. }: Candidate<'_>| {
            covers && (self.options.ignore_filters || live.filter.verdict(&hash) != Verdict::No)
        };
        if view.version.candidates(key).any(passes) { Membership::Maybe } else { Membership::No }
    }
}
