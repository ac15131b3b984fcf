//! The lookups of an open store.

use super::inner::DbInner;
use crate::error::Result;
use crate::expiry::{Millis, Moment, NEVER};
use crate::key::Seq;
use crate::lookup::{Lookups, Now, When};
use crate::value::Value;
use crate::view::ReadView;

/// The newest values of keys.
pub(crate) struct Latest {
    pub(crate) values: Vec<Option<Value>>,
    /// The first time at which one of them has expired.
    pub(crate) until: Millis,
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
        self.at_one_moment(None, |lookups, view, when| {
            let seq = when.moment().seq;
            let mut until = NEVER;
            let found = lookups
                .get_many(view, when, keys, |stored| (stored.expiry(), stored.into_value()))?;
            let mut values = Vec::with_capacity(found.len());
            for found in found {
                let (expiry, value) = found.unzip();
                until = until.min(expiry.flatten().unwrap_or(NEVER));
                values.push(value);
            }
            // An ingest may have been in the view, but not visible.
            let since = view.memtable.first().min(seq + 1);
            Ok(Latest { values, until, seq, since })
        })
    }

    /// Reads as of the moment of a snapshot, or of now.
    #[inline]
    pub(crate) fn at_one_moment<T>(
        &self,
        snapshot: Option<Moment>,
        read: impl FnOnce(Lookups<'_>, &ReadView, &When<'_>) -> Result<T>,
    ) -> Result<T> {
        // The view before the moment: newer views may lack entries that an older moment needs, because a compaction
        // dropped them.
        let view = self.views.load();
        let when = snapshot.map_or_else(|| When::now(self), When::At);
        read(self.lookups(), &view, &when)
    }

    /// The time up to which expired entries may go, and the snapshots that need some of them: in this order, so that
    /// later snapshots have at least that time.
    pub(crate) fn reclaimable(&self) -> (Millis, Vec<Moment>) {
        let over = self.env.time.for_merges();
        (over, self.sequences.snapshots())
    }
}

impl Now for DbInner {
    /// The time before the number: what is written at that time or later may renew a key, and a reader that sees the
    /// key expired then sees that, too.
    fn now(&self) -> Moment {
        let seq = self.sequences.newest();
        // Set before the first entry with an expiry is visible.
        if !self.env.time.is_used() {
            return Moment { seq, time: 0 };
        }
        let time = self.env.time.now();
        Moment { seq: self.sequences.newest(), time }
    }
}
