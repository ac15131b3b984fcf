//! The lookups of an open store.

use std::cell::Cell;
use std::sync::Arc;

use super::inner::DbInner;
use crate::error::Result;
use crate::expiry::{Millis, Moment, NEVER, Stored};
use crate::filter::LookupKey;
use crate::key::Seq;
use crate::lookup::{Lookups, Now, When};
use crate::sync::sync_point;
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
            let until = Cell::new(NEVER);
            let values = lookups.get_many(view, when, keys, |stored| {
                until.set(until.get().min(stored.expiry().unwrap_or(NEVER)));
                stored.into_value()
            })?;
            // An ingest may have been in the view, but not visible.
            let since = view.memtable.first().min(seq + 1);
            Ok(Latest { values, until: until.get(), seq, since })
        })
    }

    /// Reads as of the moment of a snapshot, or of now.
    #[inline]
    pub(crate) fn at_one_moment<T>(
        &self,
        snapshot: Option<Moment>,
        read: impl FnOnce(Lookups<'_>, &ReadView, &When<'_>) -> Result<T>,
    ) -> Result<T> {
        match snapshot {
            Some(moment) => read(self.lookups(), &self.views.load(), &When::At(moment)),
            None => {
                let (view, moment) = self.present();
                read(self.lookups(), &view, &When::At(moment))
            }
        }
    }

    /// Looks one key up. Only a lookup that finds an entry needs a moment.
    #[inline]
    pub(crate) fn lookup<T>(
        &self,
        read: impl FnOnce(Lookups<'_>, &ReadView, &When<'_>) -> Result<T>,
    ) -> Result<T> {
        // The view before the moment: newer views may lack entries that an older moment needs, because a compaction
        // dropped them.
        let view = self.views.load();
        read(self.lookups(), &view, &When::now(self))
    }

    /// The present moment, and a view that has all that its readers see. The time before the view: what was written
    /// before that time is in the view. The view before the number, as for a lookup.
    pub(crate) fn present(&self) -> (Arc<ReadView>, Moment) {
        loop {
            let time = self.env.time.of_readers();
            sync_point("between the time of a reader and its view");
            let (view, seq) = (self.views.load_full(), self.sequences.newest());
            // The first expiring entry may be visible since, or a merge may have dropped what this reader would see.
            if self.env.time.is_enough(time) {
                return (view, Moment { seq, time });
            }
        }
    }

    /// The time up to which expired entries may go, and the snapshots that need some of them: in this order, so that
    /// later snapshots have at least that time.
    pub(crate) fn reclaimable(&self) -> (Millis, Vec<Moment>) {
        let over = self.env.time.for_merges();
        (over, self.sequences.snapshots())
    }
}

impl Now for DbInner {
    /// The time before the number: a snapshot sees what was written before its time.
    fn now(&self) -> Moment {
        let seq = self.sequences.newest();
        // Set before the first entry with an expiry is visible.
        if !self.env.time.is_used() {
            return Moment { seq, time: 0 };
        }
        let time = self.env.time.now();
        Moment { seq: self.sequences.newest(), time }
    }

    /// The view of a lookup is older than its time. What was written between is in the memtables, unless it was flushed:
    /// then another lookup, which counts, too.
    fn renewed(&self, key: &[u8], seen: &ReadView, moment: Moment) -> Result<Option<Stored>> {
        let (view, seq) = (self.views.load(), self.sequences.newest());
        let since = seen.memtable.first().min(moment.seq + 1);
        if view.memtables().all(|memtable| memtable.first() > since) {
            let when = When::At(Moment { seq, time: moment.time });
            return self.lookups().find(&view, &when, key, &mut (), |stored| stored);
        }
        let lookup_key = LookupKey::new(key, &self.env.hash_key, view.memtable.hash_function());
        let mut newest = view
            .memtables()
            .filter(|memtable| memtable.may_contain(&lookup_key))
            .filter_map(|memtable| memtable.get(key, seq));
        Ok(newest.next())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::sync::{AtomicU64, Ordering, with_hook};
    use crate::{Clock, Db, Options};

    const PLACE: &str = "between the time of a reader and its view";

    /// Both clocks show so many seconds.
    #[derive(Debug)]
    struct Seconds(AtomicU64);

    impl Clock for Seconds {
        fn wall(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH + self.monotonic()
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.0.load(Ordering::Relaxed))
        }
    }

    fn at(second: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(second)
    }

    /// The numbers of keys that a scan finds, and a lookup of "a" and "b", each in a store of its own in which
    /// `meanwhile` happens once between the time of the reader, 100, and its view.
    fn read_beside(
        before: impl Fn(&Db) -> Result<()>,
        meanwhile: impl Fn(&Db, &Seconds) -> Result<()> + Copy + 'static,
    ) -> [usize; 2] {
        [true, false].map(|scans| {
            let dir = crate::tempdir::tempdir();
            let clock = Arc::new(Seconds(AtomicU64::new(100)));
            let options = Options::new().background_threads(0).clock(Arc::clone(&clock) as _);
            let db = options.open(dir.path()).expect("a store");
            before(&db).expect("a sound disk");
            let (handle, first) = (db.clone(), Cell::new(true));
            let hook = move |place: &str| {
                if place == PLACE && first.replace(false) {
                    meanwhile(&handle, &clock).expect("a sound disk");
                }
            };
            let found = Rc::new(Cell::new(None));
            with_hook(hook, || {
                found.set(Some(if scans {
                    db.iter().count()
                } else {
                    let values = db.get_many(&["a", "b"]).expect("a sound disk");
                    values.into_iter().flatten().count()
                }));
            });
            found.get().expect("set above")
        })
    }

    #[test]
    fn the_first_expiring_entry_is_judged_by_a_reader_that_began_before_it() {
        let found = read_beside(|_| Ok(()), |db, _| db.put_with_expiry("a", "", at(99)));
        assert_eq!(found, [0, 0]);
    }

    /// At 100 the reader would see the new entry of "b", but not the one of "a", which was dropped.
    #[test]
    fn a_merge_beside_a_reader_drops_nothing_that_the_reader_sees() {
        let put = |db: &Db, key| db.put_with_expiry(key, "", at(110));
        let found = read_beside(
            |db| put(db, "a").and_then(|()| put(db, "b")),
            move |db, clock| {
                clock.0.store(110, Ordering::Relaxed);
                db.compact()?;
                put(db, "b")
            },
        );
        assert_eq!(found, [0, 0]);
    }
}
