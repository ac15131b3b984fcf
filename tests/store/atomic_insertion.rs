//! Conditional writes: one thread inserts a key, lookups happen outside all locks, and what is returned
//! survives a crash.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use criba::vfs::{Fault, FaultRule, FaultVfs, FileKind, Keep, Operation, RealVfs, SimVfs, Unit};
use criba::{Batch, Db, Durability, Error, Value};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::{self, HookVfs};
use crate::linearizable::{Call, Event, is_linearizable};

const THREADS: usize = 4;
const KEYS: usize = 5;
const CALLS: usize = 1500;

fn number(value: &Value) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

/// Random calls of one thread. Returns its events of each key.
fn calls(db: &Db, thread: usize, clock: &AtomicU64) -> [Vec<Event>; KEYS] {
    let mut rng = ChaCha8Rng::seed_from_u64(thread as u64);
    let mut events: [Vec<Event>; KEYS] = Default::default();
    let mut last_read = [None; KEYS];
    for call in 0..CALLS {
        let new = (CALLS * thread + call) as u64;
        let bytes = |number: u64| [&number.to_le_bytes()[..], &[b'.'; 60]].concat();
        let key = rng.random_range(0..KEYS);
        let several: Vec<usize> = (0..KEYS).filter(|_| rng.random()).collect();
        let durability =
            if rng.random_ratio(1, 8) { Durability::Synced } else { Durability::Buffered };
        let swap = |expected, new, made| Call::Swap { expected, new, made };
        let from = clock.fetch_add(1, Ordering::SeqCst);
        let done: Vec<(usize, Call)> = match rng.random_range(0..10) {
            0 => {
                db.put([key as u8], bytes(new)).unwrap();
                vec![(key, Call::Set(Some(new)))]
            }
            1 | 2 => {
                db.delete([key as u8]).unwrap();
                vec![(key, Call::Set(None))]
            }
            3 => {
                let mut batch = Batch::new();
                for key in &several {
                    batch.delete([*key as u8]);
                }
                db.write_with(batch, durability).unwrap();
                several.into_iter().map(|key| (key, Call::Set(None))).collect()
            }
            4 => {
                let found = db.get([key as u8]).unwrap().as_ref().map(number);
                last_read[key] = found;
                vec![(key, Call::Get(found))]
            }
            5 | 6 => {
                let expected = last_read[key];
                let old = expected.map(bytes);
                let value = bytes(new);
                let new = rng.random_bool(0.7).then_some(new);
                let value = new.map(|_| value.as_slice());
                let made = db
                    .compare_and_swap_with([key as u8], old.as_deref(), value, durability)
                    .unwrap();
                if made {
                    last_read[key] = new;
                }
                vec![(key, swap(expected, new, made))]
            }
            7 => {
                let made = db.insert_if_absent_with([key as u8], bytes(new), durability).unwrap();
                vec![(key, swap(None, Some(new), made))]
            }
            _ => {
                let pairs = several.iter().map(|key| ([*key as u8], bytes(new)));
                let made = db.insert_many_if_absent_with(pairs, durability).unwrap();
                let all = several.into_iter().zip(made);
                all.map(|(key, made)| (key, swap(None, Some(new), made))).collect()
            }
        };
        let to = clock.fetch_add(1, Ordering::SeqCst);
        for (key, call) in done {
            events[key].push(Event { call, from, to });
        }
    }
    events
}

#[test]
fn the_calls_on_each_key_have_an_order_that_explains_them() {
    for background in [0, 1] {
        let parent = common::tempdir();
        let options = common::options().background_threads(background).memtable_bytes(4096);
        let db = options.table_bytes(2048).open(parent.path().join("store")).unwrap();
        let clock = AtomicU64::new(0);
        let threads: Vec<_> = scope(|scope| {
            let run = |thread| {
                let (db, clock) = (&db, &clock);
                scope.spawn(move || calls(db, thread, clock))
            };
            let threads: Vec<_> = (0..THREADS).map(run).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let made = |event: &&Event| matches!(event.call, Call::Swap { made: true, .. });
        let swaps = threads.iter().flatten().flatten().filter(made).count();
        let flushes = db.stats().activity.flushes;
        println!(
            "{background} background threads: {swaps} conditional writes made, {flushes} flushes"
        );
        assert!(swaps > 500 && flushes > 20);
        for key in 0..KEYS {
            let history: Vec<_> = threads.iter().map(|events| events[key].clone()).collect();
            assert!(is_linearizable(&history), "key {key}: {history:?}");
        }
    }
}

#[test]
fn of_threads_that_insert_the_same_keys_one_wins_each() {
    const NEW: usize = 20_000;
    let parent = common::tempdir();
    let db = common::options().memtable_bytes(64 << 10).open(parent.path().join("store")).unwrap();
    let won = AtomicUsize::new(0);
    scope(|scope| {
        for thread in 0..THREADS {
            let (db, won) = (&db, &won);
            scope.spawn(move || {
                for first in (0..NEW).step_by(10) {
                    // The threads go through the keys in one order, so they meet.
                    let keys = first..first + 10;
                    let wins = if thread % 2 == 0 {
                        db.insert_many_if_absent(
                            keys.map(|key| (key.to_le_bytes(), [thread as u8])),
                        )
                        .unwrap()
                    } else {
                        let insert =
                            |key: usize| db.insert_if_absent(key.to_le_bytes(), [thread as u8]);
                        keys.map(|key| insert(key).unwrap()).collect()
                    };
                    for (key, wins) in (first..).zip(wins) {
                        if wins {
                            won.fetch_add(1, Ordering::Relaxed);
                            let value = db.get(key.to_le_bytes()).unwrap();
                            assert_eq!(value.as_deref(), Some(&[thread as u8][..]));
                        }
                    }
                }
            });
        }
    });
    assert_eq!(won.into_inner(), NEW);
    assert!(db.stats().activity.flushes > 3);
}

/// Inserts and deletes of pairs, with a snapshot after another beside them.
#[test]
fn a_snapshot_sees_all_pairs_of_an_insertion_or_none() {
    let parent = common::tempdir();
    let db = common::options().memtable_bytes(8192).open(parent.path().join("store")).unwrap();
    // The writers end also if the reader panics.
    let end = Instant::now() + Duration::from_secs(60);
    let done = AtomicBool::new(false);
    let seen = scope(|scope| {
        for thread in 0..2 {
            let (db, done) = (&db, &done);
            scope.spawn(move || {
                let goes_on = |_: &u32| !done.load(Ordering::SeqCst) && Instant::now() < end;
                for round in (0..).take_while(goes_on) {
                    let value = [thread, 1, 2, 3, round as u8];
                    db.insert_many_if_absent([("left", value), ("right", value)]).unwrap();
                    let mut batch = Batch::new();
                    batch.delete("left").delete("right");
                    db.write(batch).unwrap();
                }
            });
        }
        let mut seen = [0, 0];
        while seen.iter().any(|&seen| seen < 1000) && Instant::now() < end {
            let snapshot = db.snapshot();
            let (left, right) = (snapshot.get("left").unwrap(), snapshot.get("right").unwrap());
            assert_eq!(left, right);
            seen[usize::from(left.is_some())] += 1;
        }
        done.store(true, Ordering::SeqCst);
        seen
    });
    println!("pairs absent and present in {seen:?} snapshots");
    assert!(seen[0] > 0 && seen[1] > 0);
}

#[test]
fn other_keys_are_inserted_while_one_key_is_read() {
    let parent = common::tempdir();
    let (held, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let vfs = {
        let (held, reads) = (Arc::clone(&held), Arc::clone(&reads));
        HookVfs::new(move |kind, operation| {
            if (kind, operation) == (FileKind::Table, Operation::Read) {
                reads.store(held.load(Ordering::SeqCst), Ordering::SeqCst);
                // With a limit: insertions that wait for this read come after it.
                let start = Instant::now();
                while held.load(Ordering::SeqCst) && start.elapsed().as_secs() < 30 {
                    sleep(Duration::from_millis(1));
                }
            }
            Ok(())
        })
    };
    let options = common::options().vfs(vfs).cache_bytes(0);
    let db = options.open(parent.path().join("store")).unwrap();
    db.put("slow", "value").unwrap();
    db.flush().unwrap();
    held.store(true, Ordering::SeqCst);
    scope(|scope| {
        let slow = scope.spawn(|| db.insert_if_absent("slow", "other").unwrap());
        common::wait_until("the read begins", || reads.load(Ordering::SeqCst));
        for key in 0..1000_u32 {
            assert!(db.insert_if_absent(key.to_le_bytes(), "").unwrap());
        }
        assert!(!slow.is_finished(), "the insertions waited for the read");
        held.store(false, Ordering::SeqCst);
        assert!(!slow.join().unwrap());
    });
}

#[test]
fn an_absent_key_is_inserted_without_a_read_and_each_lookup_is_counted() {
    let parent = common::tempdir();
    let policy = common::policy().with_bits_per_key(20.0);
    let options = common::options().filter(policy).cache_bytes(0).background_threads(0);
    let db = options.open(parent.path().join("store")).unwrap();
    let key = |number: u32| number.to_le_bytes();
    let present = db.insert_many_if_absent((0..1000).map(|number| (key(number), ""))).unwrap();
    assert_eq!(present, [true; 1000]);
    db.flush().unwrap();
    let before = db.stats();
    for number in 0..2000 {
        assert_eq!(db.insert_if_absent(key(number), "").unwrap(), number >= 1000);
    }
    let spent = db.stats() - before;
    let activity = spent.activity;
    assert_eq!((activity.lookups, activity.hits, activity.misses), (2000, 1000, 1000));
    let total = spent.total();
    assert_eq!(total.disk_reads, 1000 + total.false_positives);
    assert!(total.false_positives < 10, "{total:?}");
    assert_eq!(db.stats().wal_writes.calls, 1001, "a present key is written to no log");
}

#[test]
fn a_synced_refusal_says_that_the_present_value_is_synced() {
    for unsynced in [false, true] {
        let disk = SimVfs::new();
        let options =
            |vfs: &SimVfs| common::options().vfs(Arc::new(vfs.clone())).background_threads(0);
        let db = options(&disk).open("/store").unwrap();
        let durability = if unsynced { Durability::Buffered } else { Durability::Synced };
        assert!(db.insert_if_absent_with("name", "first", durability).unwrap());
        let counted = db.stats().wal_writes.calls;
        assert!(!db.insert_if_absent_with("name", "second", Durability::Synced).unwrap());
        if !unsynced {
            assert_eq!(db.stats().wal_writes.calls, counted, "nothing was left to sync");
        }
        let left = SimVfs::on(disk.disk().power_failure(Unit::Sector, |_| Keep::OLD));
        let db = options(&left).open("/store").unwrap();
        assert_eq!(db.get("name").unwrap().unwrap(), "first");
    }
}

#[test]
fn a_pair_that_is_too_long_refuses_all() {
    let parent = common::tempdir();
    let db = common::options().open(parent.path().join("store")).unwrap();
    let long = vec![0; criba::MAX_KEY_BYTES + 1];
    let refused = db.insert_many_if_absent([(vec![1], ""), (long, "")]);
    assert!(matches!(refused, Err(Error::TooLong { what: "key", .. })));
    assert!(!db.contains([1]).unwrap());
}

#[test]
fn on_a_full_disk_no_thread_wins_and_later_one_does() {
    let parent = common::tempdir();
    let faults = FaultVfs::new(Arc::new(RealVfs));
    let options = common::options().vfs(Arc::new(faults.clone()));
    let db = options.open(parent.path().join("store")).unwrap();
    db.put("present", "").unwrap();
    let writes = [Operation::Append, Operation::Write];
    let full = FaultRule::new(Fault::NoSpace).kinds([FileKind::Wal]).operations(writes);
    faults.add(full.from_then_on());
    let insert = || {
        scope(|scope| {
            let insert = || scope.spawn(|| db.insert_if_absent("key", "value"));
            let threads = [(); THREADS].map(|()| insert());
            threads.map(|thread| thread.join().unwrap())
        })
    };
    for result in insert() {
        assert!(matches!(result, Err(Error::Io { .. })), "{result:?}");
    }
    assert!(!db.contains("key").unwrap());
    assert!(!db.insert_if_absent("present", "").unwrap(), "a refusal writes nothing");
    faults.clear();
    let winners = insert().into_iter().filter(|result| *result.as_ref().unwrap()).count();
    assert_eq!(winners, 1);
}
