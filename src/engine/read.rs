//! The lookups of an open store.

use super::inner::DbInner;
use crate::error::Result;
use crate::key::Seq;
use crate::lookup::Lookups;
use crate::value::Value;
use crate::view::ReadView;

/// The newest values of keys.
pub(crate) struct Latest {
    pub(crate) values: Vec<Option<Value>>,
    /// The lookup saw no later entry.
    pub(crate) seq: Seq,
    /// An entry that the lookup missed is in memtables, if one of them has this first number or a smaller one.
    pub(crate) since: Seq,
}

impl DbInner {
    #[inline]
    pub(crate) fn lookups(&self) -> Lookups<'_> {
        Lookups { env: &self.env, ignore_filters: self.options.ignore_filters }
    }

    pub(crate) fn lookup_latest(&self, keys: &[&[u8]]) -> Result<Latest> {
        self.at_one_moment(None, |lookups, view, seq| {
            let values = lookups.get_many(view, seq, keys)?;
            // An ingest may have been in the view, but not visible.
            let since = view.memtable.first().min(seq + 1);
            Ok(Latest { values, seq, since })
        })
    }

    /// Reads as of the moment of a snapshot, or of now.
    #[inline]
    pub(crate) fn at_one_moment<T>(
        &self,
        snapshot: Option<Seq>,
        read: impl FnOnce(Lookups<'_>, &ReadView, Seq) -> Result<T>,
    ) -> Result<T> {
        // The view before the sequence number: newer views may lack entries that an older sequence number
        // needs, because a compaction dropped them.
        let view = self.views.load();
        let seq = snapshot.unwrap_or_else(|| self.sequences.newest());
        read(self.lookups(), &view, seq)
    }
}
