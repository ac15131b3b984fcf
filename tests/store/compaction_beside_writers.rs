//! Writers and compactions beside a large merge: `compact` begins under every load, and a large merge, by
//! `compact` or in quiet, leaves level 0 short enough for writers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use criba::vfs::{FileKind, Operation};
use criba::{Db, Error, Event, Options};

use crate::common::{self, HookVfs, wait_until};

fn small() -> Options {
    common::options()
        .memtable_bytes(4 << 10)
        .table_bytes(8 << 10)
        .level_base_bytes(16 << 10)
        .block_bytes(512)
}

fn key(number: usize) -> [u8; 8] {
    ((number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40).to_be_bytes()
}

fn on_compaction_thread() -> bool {
    std::thread::current().name().is_some_and(|name| name.starts_with("criba-compact"))
}

/// With four threads there is always a running compaction; `compact` must not wait for a moment without
/// one.
#[test]
fn compact_begins_under_a_load_that_keeps_all_threads_busy() {
    let dir = common::tempdir();
    let slow = HookVfs::new(|kind, operation| {
        if (kind, operation) == (FileKind::Table, Operation::Create) && on_compaction_thread() {
            sleep(Duration::from_millis(3));
        }
        Ok(())
    });
    let caller = std::thread::current().id();
    let (waits, done) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let begun_before = Arc::new(AtomicUsize::new(0));
    let listener = {
        let (waits, begun) = (Arc::clone(&waits), Arc::clone(&begun_before));
        move |event: &Event| {
            if let Event::CompactionStarted { output_level, .. } = event {
                if std::thread::current().id() == caller {
                    // While it waits, it merges within level 0.
                    waits.fetch_and(*output_level == 0, Ordering::SeqCst);
                } else if waits.load(Ordering::SeqCst) {
                    begun.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
    };
    let options = small().background_threads(4).l0_compaction_trigger(1).vfs(slow);
    let db = options.on_event(listener).open(dir.path()).unwrap();
    let stop_after = Instant::now() + Duration::from_secs(30);
    scope(|scope| {
        for writer in 0..2 {
            let (db, done) = (&db, &done);
            scope.spawn(move || {
                let mut number = writer;
                while !done.load(Ordering::SeqCst) && Instant::now() < stop_after {
                    db.put(key(number), [1; 100]).unwrap();
                    number += 2;
                }
            });
        }
        wait_until("compactions", || db.stats().activity.compactions > 20);
        for _ in 0..12 {
            // The flush that `compact` begins with has compactions begin; so has the time until its
            // thread goes on.
            db.flush().unwrap();
            waits.store(true, Ordering::SeqCst);
            db.compact().unwrap();
        }
        done.store(true, Ordering::SeqCst);
    });
    let begun = begun_before.load(Ordering::SeqCst);
    println!("{begun} compactions began while compact waited twelve times");
    assert!(begun <= 200, "{begun} compactions began while compact waited");
}

/// Records the number of tables on level 0.
fn watch_l0(db: &Db, most: &AtomicUsize) {
    let l0 = db.tables().iter().filter(|table| table.level == 0).count();
    most.fetch_max(l0, Ordering::SeqCst);
}

/// Fills memtables while `compact` is held.
#[test]
fn level_0_is_compacted_while_compact_has_the_tables() {
    let dir = common::tempdir();
    let (held, holds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let compacting = Arc::new(Mutex::new(None));
    let vfs = {
        let (held, holds, compacting) =
            (Arc::clone(&held), Arc::clone(&holds), Arc::clone(&compacting));
        HookVfs::new(move |kind, operation| {
            let here = Some(std::thread::current().id()) == *compacting.lock().unwrap();
            if here && (kind, operation) == (FileKind::Table, Operation::Create) {
                held.store(true, Ordering::SeqCst);
                while holds.load(Ordering::SeqCst) {
                    sleep(Duration::from_millis(1));
                }
            }
            Ok(())
        })
    };
    let options = small().background_threads(1).vfs(vfs);
    let db = options.open(dir.path()).unwrap();
    for number in 0..2000 {
        db.put(key(number), [1; 100]).unwrap();
    }
    db.wait_until_settled().unwrap();
    db.put("so that compact", "has something to do").unwrap();
    holds.store(true, Ordering::SeqCst);
    let most = AtomicUsize::new(0);
    scope(|scope| {
        let compact = scope.spawn(|| {
            *compacting.lock().unwrap() = Some(std::thread::current().id());
            db.compact()
        });
        wait_until("compact to begin", || held.load(Ordering::SeqCst));
        let flushes = db.stats().activity.flushes;
        let writes = scope.spawn(|| {
            for number in 2000..6000 {
                db.put(key(number), [2; 100]).unwrap();
                if number < 4000 && number % 5 == 0 {
                    db.delete(key(number - 2000)).unwrap(); // of what `compact` is merging
                }
                if number % 10 == 0 {
                    watch_l0(&db, &most);
                }
            }
        });
        let start = Instant::now();
        while !writes.is_finished() && start.elapsed() < Duration::from_secs(60) {
            sleep(Duration::from_millis(1));
        }
        let finished = writes.is_finished();
        let flushes = db.stats().activity.flushes - flushes;
        holds.store(false, Ordering::SeqCst);
        compact.join().unwrap().unwrap();
        writes.join().unwrap();
        assert!(finished, "writers waited for compact");
        println!("{flushes} flushes; level 0 had {} tables at most", most.load(Ordering::SeqCst));
        assert!(flushes > 48, "{flushes} flushes: level 0 has room for half of them");
    });
    db.wait_until_settled().unwrap();
    for number in 0..6000 {
        let expected = match number {
            0..2000 if number % 5 == 0 => None,
            0..2000 => Some([1; 100]),
            _ => Some([2; 100]),
        };
        let value = db.get(key(number)).unwrap();
        assert_eq!(value.as_deref(), expected.as_ref().map(<[u8; 100]>::as_slice), "{number}");
    }
}

/// `compact` waits for a compaction of nearly all tables that level 0 may have. No other thread compacts
/// then.
#[test]
fn level_0_is_compacted_while_compact_waits_for_a_compaction() {
    let dir = common::tempdir();
    let db = small().auto_compaction(false).open(dir.path()).unwrap();
    for number in 0..18 {
        db.put(key(number), [1; 100]).unwrap();
        db.put(key(number + 1000), [1; 100]).unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    let (held, holds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
    let vfs = {
        let (held, holds) = (Arc::clone(&held), Arc::clone(&holds));
        HookVfs::new(move |kind, operation| {
            let creates = (kind, operation) == (FileKind::Table, Operation::Create);
            if creates && on_compaction_thread() {
                held.store(true, Ordering::SeqCst);
                while holds.load(Ordering::SeqCst) {
                    sleep(Duration::from_millis(1));
                }
            }
            Ok(())
        })
    };
    let db = small().background_threads(1).vfs(vfs).open(dir.path()).unwrap();
    wait_until("a compaction", || held.load(Ordering::SeqCst));
    db.put("so that compact", "flushes").unwrap();
    let finished = scope(|scope| {
        let compact = scope.spawn(|| db.compact());
        // Before writers stop: a stopped writer has the log, for which the flush of `compact` would wait.
        wait_until("the flush of compact", || db.tables().len() == 19);
        let writes = scope.spawn(|| {
            for number in 2000..5000 {
                db.put(key(number), [2; 100]).unwrap();
            }
        });
        let start = Instant::now();
        while !writes.is_finished() && start.elapsed() < Duration::from_secs(60) {
            sleep(Duration::from_millis(1));
        }
        let finished = writes.is_finished();
        assert!(!compact.is_finished(), "the compaction is held");
        holds.store(false, Ordering::SeqCst);
        compact.join().unwrap().unwrap();
        finished
    });
    assert!(finished, "writers waited for the compaction that compact waits for");
    for number in 2000..5000 {
        assert_eq!(db.get(key(number)).unwrap().unwrap(), [2; 100]);
    }
}

/// An idle merge gives way to writers.
#[test]
fn an_idle_merge_gives_way_when_level_0_fills_up() {
    // Beside the table that is merged, as many as the trigger.
    fill_level_0_beside_an_idle_merge(small().l0_compaction_trigger(3), 4);
}

/// Level 0 may not grow by its compaction trigger before writers stop.
#[test]
fn an_idle_merge_gives_way_before_writers_stop() {
    let options = small().l0_compaction_trigger(8).l0_slowdown_trigger(8).l0_stop_trigger(8);
    fill_level_0_beside_an_idle_merge(options, 8);
}

/// Holds the merge until level 0 has so many tables.
fn fill_level_0_beside_an_idle_merge(options: Options, full: usize) {
    let dir = common::tempdir();
    let (held, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let vfs = {
        let (held, begun) = (Arc::clone(&held), Arc::clone(&begun));
        HookVfs::new(move |kind, operation| {
            let creates = (kind, operation) == (FileKind::Table, Operation::Create);
            if creates && on_compaction_thread() && held.load(Ordering::SeqCst) {
                begun.store(true, Ordering::SeqCst);
                wait_until("a full level 0", || !held.load(Ordering::SeqCst));
            }
            Ok(())
        })
    };
    let ended = Arc::new(Mutex::new(Vec::new()));
    let listener = {
        let ended = Arc::clone(&ended);
        move |event: &Event| {
            if let Event::CompactionEnded { tables, .. } = event {
                ended.lock().unwrap().push(tables.len());
            }
        }
    };
    let options = options.memtable_bytes(64 << 10).level_base_bytes(64 << 20);
    let options = options.background_threads(1).vfs(vfs);
    let db = options.on_event(listener).open(dir.path()).unwrap();
    for number in 0..10_000 {
        db.put(key(number), [1; 100]).unwrap();
    }
    db.compact().unwrap();
    for number in 0..600 {
        db.put(key(number), [2; 100]).unwrap();
    }
    db.flush().unwrap();
    ended.lock().unwrap().clear();
    held.store(true, Ordering::SeqCst);
    // After a second of quiet. It makes more than a hundred tables.
    wait_until("an idle merge", || begun.load(Ordering::SeqCst));
    scope(|scope| {
        scope.spawn(|| {
            for number in 10_000..14_000 {
                db.put(key(number), [3; 100]).unwrap();
            }
        });
        let l0 = || db.tables().iter().filter(|table| table.level == 0).count();
        wait_until("a full level 0", || l0() >= full);
        held.store(false, Ordering::SeqCst);
    });
    db.wait_until_settled().unwrap();
    let ended = ended.lock().unwrap().clone();
    assert_eq!(ended.first(), Some(&0), "tables that compactions made: {ended:?}");
    assert!(ended.iter().any(|&tables| tables > 100), "{ended:?}");
    for number in 0..14_000 {
        let written = match number {
            0..600 => 2,
            600..10_000 => 1,
            _ => 3,
        };
        assert_eq!(db.get(key(number)).unwrap().unwrap(), [written; 100]);
    }
}

#[test]
fn compactions_are_turned_off_and_on_in_an_open_store() {
    for threads in [0, 1] {
        let dir = common::tempdir();
        let options = small().l0_slowdown_trigger(5).l0_stop_trigger(6);
        let db = options.background_threads(threads).open(dir.path()).unwrap();
        let l0 = || db.tables().iter().filter(|table| table.level == 0).count();
        db.set_auto_compaction(false).unwrap();
        for number in 0..20 {
            db.put(key(number), [7; 100]).unwrap();
            db.flush().unwrap();
        }
        db.wait_until_settled().unwrap();
        assert_eq!(l0(), 20, "{threads} threads");
        db.set_auto_compaction(true).unwrap();
        // Without threads, the call has merged them.
        if threads > 0 {
            db.wait_until_settled().unwrap();
        }
        assert!(l0() < 4, "{threads} threads: {} tables", l0());
        let other = db.clone();
        db.close().unwrap();
        assert!(matches!(other.set_auto_compaction(true), Err(Error::Closed)));
    }
}

#[test]
fn a_writer_that_waits_for_level_0_goes_on_when_compactions_are_turned_off() {
    let dir = common::tempdir();
    let (held, waits) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let vfs = {
        let (held, waits) = (Arc::clone(&held), Arc::clone(&waits));
        HookVfs::new(move |kind, operation| {
            if (kind, operation) == (FileKind::Table, Operation::Create) && on_compaction_thread() {
                waits.store(true, Ordering::SeqCst);
                wait_until("the end of the test", || !held.load(Ordering::SeqCst));
            }
            Ok(())
        })
    };
    let options = small().l0_compaction_trigger(2).l0_slowdown_trigger(3).l0_stop_trigger(4);
    let db = options.vfs(vfs).open(dir.path()).unwrap();
    let written = AtomicUsize::new(0);
    scope(|scope| {
        scope.spawn(|| {
            for number in 0..40 {
                db.put(key(number), [7; 1024]).unwrap();
                written.fetch_add(1, Ordering::SeqCst);
            }
        });
        let l0 = || db.tables().iter().filter(|table| table.level == 0).count();
        wait_until("a full level 0", || waits.load(Ordering::SeqCst) && l0() >= 4);
        sleep(Duration::from_millis(50));
        assert!(written.load(Ordering::SeqCst) < 40);
        db.set_auto_compaction(false).unwrap();
        wait_until("all writes", || written.load(Ordering::SeqCst) == 40);
        held.store(false, Ordering::SeqCst);
    });
}
