//! Keys that expire, while a clock goes on and everything is flushed and merged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use criba_schedules::vfs::SimVfs;
use criba_schedules::{Clock, Db, Expiry, Snapshot};
use shuttle::thread::scope;

use crate::explore::explore;
use crate::store::{History, key, options, value, version};

/// The seconds since the opening. shuttle switches threads where a test calls it, and before each reading.
#[derive(Debug, Default)]
struct Seconds(AtomicU64);

const BEGIN: Duration = Duration::from_secs(1_700_000_000);

impl Seconds {
    fn now(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }

    fn advance(&self, seconds: u64) {
        shuttle::thread::yield_now();
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for Seconds {
    fn wall(&self) -> SystemTime {
        shuttle::thread::sleep(Duration::ZERO);
        SystemTime::UNIX_EPOCH + BEGIN + self.now()
    }

    fn monotonic(&self) -> Duration {
        self.now()
    }
}

fn at(seconds: u64) -> Expiry {
    Expiry::At(SystemTime::UNIX_EPOCH + BEGIN + Duration::from_secs(seconds))
}

fn store() -> (Arc<Seconds>, Db) {
    let clock = Arc::new(Seconds::default());
    let db = options(SimVfs::new()).clock(Arc::clone(&clock) as _).open("/store").unwrap();
    (clock, db)
}

/// The clock goes on only after the key was renewed, in the same thread or in another one.
#[test]
fn a_key_that_is_renewed_in_time_is_never_absent() {
    explore("renewed keys", 1500, &["flushes", "compactions", "seen later"], |seen| {
        let (clock, db) = store();
        let history = History::<1>::new();
        let put = |version: u64| {
            let renew = || db.put_with_expiry(key(0), value(version), at(2 * version)).unwrap();
            history.write(0, version, renew);
        };
        put(1);
        let renewed = AtomicU64::new(1);
        scope(|scope| {
            scope.spawn(|| {
                for version in 2..=6 {
                    put(version);
                    renewed.store(version, Ordering::Relaxed);
                    db.put(key(1), [0; 100]).unwrap();
                    if version % 2 == 0 {
                        db.flush().unwrap();
                    }
                }
            });
            scope.spawn(|| {
                for _ in 0..12 {
                    // To the last second before the key expires.
                    let last = 2 * renewed.load(Ordering::Relaxed) - 1;
                    clock.advance(last - clock.now().as_secs());
                }
            });
            scope.spawn(|| db.compact().unwrap());
            for how in 0..2 {
                let (db, history, clock) = (&db, &history, &clock);
                scope.spawn(move || {
                    for read in 0..4 {
                        let found = history.check(0, || match (how + read) % 4 {
                            0 => db.get(key(0)).unwrap(),
                            1 => db.get_many(&[key(1), key(0)]).unwrap().pop().unwrap(),
                            2 => db.iter().next().map(|item| item.unwrap().1),
                            _ => db.snapshot().get(key(0)).unwrap(),
                        });
                        assert!(found > 0);
                        if clock.now() > Duration::from_secs(2) {
                            seen.add("seen later", 1);
                        }
                    }
                });
            }
        });
        seen.add_activity(&db);
        db.close().unwrap();
    });
}

fn all(snapshot: &Snapshot) -> Vec<(u8, u64)> {
    let items = snapshot.iter().map(|item| item.unwrap());
    items.map(|(key, value)| (key[0], version(&value))).collect()
}

/// A key expires, and an older version without an expiry is under it. Readers and a snapshot of before see one state
/// while merges drop both.
#[test]
fn what_merges_drop_has_expired_for_every_reader() {
    let needed = &["flushes", "compactions", "dropped", "seen before", "seen after"];
    explore("merges of what has expired", 1500, needed, |seen| {
        let (clock, db) = store();
        db.put(key(0), value(1)).unwrap();
        db.put(key(1), value(1)).unwrap();
        db.flush().unwrap();
        db.put_with_expiry(key(0), value(2), at(5)).unwrap();
        db.put_with_expiry(key(2), value(2), at(5)).unwrap();
        scope(|scope| {
            let (db, clock) = (&db, &clock);
            scope.spawn(|| {
                db.flush().unwrap();
                clock.advance(5);
                db.compact().unwrap();
            });
            scope.spawn(|| {
                for _ in 0..3 {
                    let found = db.get_many(&[key(0), key(1), key(2)]).unwrap();
                    let found = found.iter().map(|value| value.as_ref().map(version));
                    let found: Vec<_> = found.collect();
                    assert!(found == [Some(2), Some(1), Some(2)] || found == [None, Some(1), None]);
                    seen.add(if found[0].is_some() { "seen before" } else { "seen after" }, 1);
                    // Time does not go back.
                    if found[0].is_none() {
                        assert_eq!(db.get(key(0)).unwrap(), None);
                        assert_eq!(db.iter().count(), 1);
                    }
                }
            });
            scope.spawn(|| {
                let snapshot = db.snapshot();
                let first = all(&snapshot);
                let [a, b, c] = [0, 1, 2].map(|number| key(number)[0]);
                assert!(first == [(a, 2), (b, 1), (c, 2)] || first == [(b, 1)], "{first:?}");
                for number in 0..3 {
                    let found = snapshot.get(key(number)).unwrap();
                    let listed = first.iter().find(|(name, _)| [*name] == key(number));
                    assert_eq!(found.as_ref().map(version), listed.map(|(_, version)| *version));
                }
                assert_eq!(all(&snapshot), first);
            });
        });
        assert_eq!(db.get(key(0)).unwrap(), None);
        db.compact().unwrap();
        assert_eq!(db.iter().count(), 1);
        let activity = db.stats().activity;
        seen.add("dropped", activity.expired_dropped);
        seen.add_activity(&db);
        db.close().unwrap();
    });
}
