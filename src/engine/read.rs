//! The lookups of an open store.

use super::inner::DbInner;
use crate::error::Result;
use crate::key::Seq;
use crate::ledger::Explanation;
use crate::lookup::{Lookups, Membership, Trace};
use crate::value::Value;
use crate::view::ReadView;

/// The newest values of keys.
pub(crate) struct Latest {
    pub(crate) values: Vec<Option<Value>>,
    /// The lookup saw no later entry.
    pub(crate) seq: Seq,
    /// The log of the memtable in use: an entry that the lookup missed is in it or in a newer memtable.
    pub(crate) since: u64,
}

impl DbInner {
    #[inline]
    pub(crate) fn lookups(&self) -> Lookups<'_> {
        Lookups { env: &self.env, ignore_filters: self.options.ignore_filters }
    }

    pub(crate) fn lookup(
        &self,
        key: &[u8],
        snapshot: Option<Seq>,
        trace: &mut impl Trace,
    ) -> Result<Option<Value>> {
        self.at_one_moment(snapshot, |view, seq| self.lookups().get(view, seq, key, trace))
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
        self.at_one_moment(snapshot, |view, seq| self.lookups().get_many(view, seq, keys))
    }

    pub(crate) fn lookup_latest(&self, keys: &[&[u8]]) -> Result<Latest> {
        self.at_one_moment(None, |view, seq| {
            let values = self.lookups().get_many(view, seq, keys)?;
            Ok(Latest { values, seq, since: view.memtable.log() })
        })
    }

    pub(crate) fn may_contain(&self, key: &[u8]) -> Membership {
        // The order matters, as in `at_one_moment`.
        let view = self.views.load();
        let seq = self.sequences.newest();
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
        let seq = snapshot.unwrap_or_else(|| self.sequences.newest());
        read(&view, seq)
    }
}
