//! Closing and dropping a store beside running tasks and on a failing disk.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use criba_schedules::Durability::{Buffered, Synced};
use criba_schedules::vfs::{Fault, FaultRule, FaultVfs, Keep, Operation, SimVfs, Unit, Vfs};
use criba_schedules::{Db, Error, FilterPolicy, Result, WeakDb};
use shuttle::rand::Rng;
use shuttle::thread::{scope, yield_now};

use crate::explore::{Seen, explore};
use crate::store::{batch, key, open, options, other_policy, version};

const WRITERS: usize = 2;

/// Repeats a call until it fails, and returns the error. Yields in between, or a schedule might run this
/// thread for ever.
fn until_it_fails(mut call: impl FnMut(u64) -> Result<()>) -> Error {
    let mut call = |time| {
        yield_now();
        call(time).err()
    };
    (1..).find_map(&mut call).expect("the store ends some time")
}

/// The calls of reading threads until the store closes.
fn others() -> [fn(&Db, u64) -> Result<()>; 5] {
    [
        |db, _| {
            db.get(key(0))?;
            db.snapshot().get(key(1))?;
            db.iter().try_for_each(|item| item.map(|_| ()))
        },
        |db, _| db.flush(),
        |db, _| db.compact(),
        |db, time| {
            let policy =
                if time.is_multiple_of(2) { FilterPolicy::default() } else { other_policy() };
            db.rebuild_filters(&policy).map(|_| ())
        },
        |db, time| {
            db.set_filter_memory(Some(4096 * (time % 2)))?;
            db.wait_until_settled()
        },
    ]
}

/// shuttle reports a call that waits for ever as a deadlock.
#[test]
fn closing_ends_every_call_with_success_or_closed() {
    explore("closing", 1000, &["acknowledged", "flushes"], |seen| {
        let vfs = SimVfs::new();
        let db = open(&vfs);
        let written: [AtomicU64; WRITERS] = Default::default();
        let (first, second) = {
            let mut rng = shuttle::rand::thread_rng();
            (rng.gen_range(0..5), rng.gen_range(0..5))
        };
        scope(|scope| {
            let closed = |error: Error| assert!(matches!(error, Error::Closed), "{error}");
            for (writer, written) in written.iter().enumerate() {
                let db = &db;
                scope.spawn(move || {
                    closed(until_it_fails(|number| {
                        let durability = if writer == 0 { Synced } else { Buffered };
                        db.write_with(batch([writer], number), durability)?;
                        written.store(number, Ordering::Relaxed);
                        Ok(())
                    }));
                });
            }
            for kind in [first, second] {
                let db = &db;
                scope.spawn(move || closed(until_it_fails(|time| others()[kind](db, time))));
            }
            let closer = db.clone();
            scope.spawn(move || {
                for _ in 0..shuttle::rand::thread_rng().gen_range(0..25) {
                    yield_now();
                    closer.get(key(0)).unwrap();
                }
                closer.close().unwrap();
            });
        });
        seen.add_activity(&db);
        drop(db);
        check_written(&options(vfs).open("/store").unwrap(), &written, seen);
    });
}

/// Callbacks take and drop handles, and the writer drops its own at any moment. The store closes with the
/// last handle.
#[test]
fn the_last_handle_closes_the_store_also_in_a_callback() {
    explore("the last handle", 600, &["closed in a callback", "closed by the writer"], |seen| {
        let vfs = SimVfs::new();
        let weak: Arc<OnceLock<WeakDb>> = Arc::default();
        let callback = {
            let weak = Arc::clone(&weak);
            move |_: &_| {
                let db = weak.get().and_then(WeakDb::upgrade);
                yield_now();
                drop(db);
            }
        };
        let db = options(vfs.clone()).on_event(callback).open("/store").unwrap();
        assert!(weak.set(db.downgrade()).is_ok());
        let written: [AtomicU64; WRITERS] = Default::default();
        for number in 1..=shuttle::rand::thread_rng().gen_range(6..20) {
            db.write_with(batch([0], number), Buffered).unwrap();
            written[0].store(number, Ordering::Relaxed);
        }
        drop(db);
        let taken = weak.get().and_then(WeakDb::upgrade).is_some();
        seen.add(if taken { "closed in a callback" } else { "closed by the writer" }, 1);
        let dir = vfs.open_dir("/store".as_ref()).unwrap();
        while dir.lock("LOCK".as_ref(), 0o600).is_err() {
            yield_now();
        }
        check_written(&options(vfs).open("/store").unwrap(), &written, seen);
    });
}

fn check_written(db: &Db, written: &[AtomicU64], seen: &Seen) {
    for (writer, written) in written.iter().enumerate() {
        let written = written.load(Ordering::Relaxed);
        let found = db.get(key(writer)).unwrap().as_ref().map_or(0, version);
        assert!(found >= written, "writer {writer}: {found} found, {written} acknowledged");
        seen.add("acknowledged", written);
    }
}

/// One sync of any file fails. The store is poisoned and every waiting call fails, or it goes on. No write
/// that was acknowledged as synced is lost, and no call waits for ever.
#[test]
fn a_sync_that_fails_ends_every_waiting_and_loses_nothing_acknowledged() {
    let needed = ["acknowledged", "poisoned", "failed otherwise", "went on"];
    explore("a failing sync", 1500, &needed, |seen| {
        let vfs = SimVfs::new();
        let written: [AtomicU64; WRITERS] = Default::default();
        let (failing, kind) = {
            let mut rng = shuttle::rand::thread_rng();
            (rng.gen_range(0..24), rng.gen_range(1..5))
        };
        let faults = FaultVfs::new(Arc::new(vfs.clone()));
        let opened = options(faults.clone()).open("/store").unwrap();
        let syncs = [Operation::Sync, Operation::SyncDir];
        faults.add(FaultRule::new(Fault::Io).operations(syncs).skip(failing));
        scope(|scope| {
            let judge = |result: Result<()>| match result {
                Ok(()) => seen.add("went on", 1),
                Err(Error::Poisoned { .. }) => seen.add("poisoned", 1),
                Err(Error::Background { .. } | Error::Io { .. }) => seen.add("failed otherwise", 1),
                Err(other) => panic!("{other}"),
            };
            let db = &opened;
            for (writer, written) in written.iter().enumerate() {
                scope.spawn(move || {
                    for number in 1..=6 {
                        let done = db.write_with(batch([writer], number), Synced);
                        if done.is_ok() {
                            written.store(number, Ordering::Relaxed);
                        }
                        judge(done);
                    }
                });
            }
            for call in [others()[0], others()[1], others()[kind]] {
                scope.spawn(move || {
                    for time in 1..=2 {
                        judge(call(db, time));
                    }
                });
            }
        });
        seen.add_activity(&opened);
        let _ = opened.close();
        let left = vfs.disk().power_failure(Unit::Sector, |_| Keep::OLD);
        let options = options(SimVfs::on(left)).background_threads(0);
        check_written(&options.open("/store").unwrap(), &written, seen);
    });
}
