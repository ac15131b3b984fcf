//! Bulk ingest: sorted pairs become tables at one moment, all or none.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::scope;

use criba::vfs::{FileKind, Operation};
use criba::{Batch, Db, Durability, Error, Event, FilterPolicy, Options, Reader, Snapshot, WeakDb};

use crate::common::{HookVfs, contents, copy_dir, files_with, options, tempdir, wait_until};

/// Small tables, and levels that are used from the bottom up as in large stores.
fn small() -> Options {
    options().memtable_bytes(32 << 10).table_bytes(16 << 10).level_base_bytes(64 << 10)
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:08}").into_bytes()
}

/// Ingests these numbers as keys, with one value.
fn ingest(db: &Db, numbers: impl IntoIterator<Item = u32>, value: &str) -> criba::Result<u64> {
    db.ingest(numbers.into_iter().map(|number| Ok::<_, Error>((key(number), value))))
}

fn value(reader: &dyn Reader, number: u32) -> Option<String> {
    let value = reader.get(&key(number)).unwrap()?;
    Some(String::from_utf8(value.to_vec()).unwrap())
}

fn all(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    db.iter().map(|pair| pair.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

fn assert_sound(dir: &Path) {
    let report = criba::verify(dir).unwrap();
    assert!(report.findings.is_empty() && report.notes.is_empty(), "{report}");
}

#[test]
fn what_is_ingested_is_newer_than_all_before_and_older_than_all_after() {
    for threads in [0, 1] {
        let dir = tempdir();
        let options = small().background_threads(threads);
        let mut map = BTreeMap::new();
        for round in 0..12_u32 {
            let db = options.clone().open(dir.path()).unwrap();
            assert!(all(&db) == map, "round {round}");
            for number in (0..2000).map(|n| n * 7919 % 4000 + round) {
                let value = format!("put {round}");
                db.put(key(number), &value).unwrap();
                map.insert(key(number), value.into_bytes());
            }
            for number in (round..4000).step_by(11) {
                db.delete(key(number)).unwrap();
                map.remove(&key(number));
            }
            let (first, step) = (round * 100, 1 + round as usize % 3);
            let numbers = || (first..first + 900).step_by(step);
            let snapshot = db.snapshot();
            let before = value(&snapshot, first);
            let (logged, new) = (db.stats().wal_writes.bytes, format!("ingested {round}"));
            assert_eq!(ingest(&db, numbers(), &new).unwrap(), numbers().count() as u64);
            assert_eq!(db.stats().wal_writes.bytes, logged, "not through the log");
            map.extend(numbers().map(|number| (key(number), new.clone().into_bytes())));
            assert_eq!(value(&snapshot, first), before);
            assert_eq!(value(&db, first), Some(new));
            db.put(key(first), "after").unwrap();
            map.insert(key(first), b"after".to_vec());
            assert!(all(&db) == map, "round {round}");
            if round == 8 {
                db.compact().unwrap();
                assert_eq!(value(&snapshot, first), before);
                assert!(all(&db) == map);
            }
            drop(snapshot);
            db.close().unwrap();
            assert_sound(dir.path());
        }
    }
}

/// Its log begins with the number behind that of the ingest, which is in no log.
#[test]
fn a_put_after_an_ingest_survives_a_crash() {
    for full in [false, true] {
        let (dir, copy) = (tempdir(), tempdir());
        let db = small().open(dir.path()).unwrap();
        if full {
            db.put("before", "old").unwrap();
        }
        ingest(&db, 0..10, "new").unwrap();
        db.put("after", "put").unwrap();
        copy_dir(dir.path(), copy.path());
        let db = small().open(copy.path()).unwrap();
        assert_eq!(db.recovery().lost_tail, None);
        assert_eq!(db.get("after").unwrap().as_deref(), Some(&b"put"[..]));
        assert_eq!(all(&db).len(), 11 + usize::from(full));
    }
}

const LAST: usize = criba::LEVELS - 1;

/// The levels with tables.
fn levels(db: &Db) -> Vec<usize> {
    let mut levels: Vec<usize> = db.tables().iter().map(|table| table.level).collect();
    levels.dedup();
    levels
}

#[test]
fn tables_go_to_the_lowest_level_above_all_that_overlap_them() {
    let dir = tempdir();
    let options = small().background_threads(0).auto_compaction(false);
    let db = options.open(dir.path()).unwrap();
    ingest(&db, 0..3000, "first").unwrap();
    assert!(db.tables().len() > 1);
    assert_eq!(levels(&db), [LAST]);
    ingest(&db, 3000..6000, "beside").unwrap();
    assert_eq!(levels(&db), [LAST]);
    for above in 1..LAST {
        ingest(&db, (0..6000).step_by(2), &format!("above {above}")).unwrap();
        assert_eq!(levels(&db), (LAST - above..=LAST).collect::<Vec<_>>());
    }
    // L0 and level 1 make way.
    db.put(key(4), "put").unwrap();
    ingest(&db, [2, 5999], "last").unwrap();
    assert!(!levels(&db).contains(&0));
    for (number, expected) in
        [(1, "first"), (2, "last"), (4, "put"), (6, "above 5"), (5999, "last")]
    {
        assert_eq!(value(&db, number).as_deref(), Some(expected));
    }
    db.compact().unwrap();
    assert_eq!(levels(&db), [LAST]);
    assert_eq!(db.iter().count(), 6000);
}

#[test]
fn an_ingest_alone_is_not_compacted_and_the_next_one_takes_it_down() {
    for threads in [0, 1] {
        let dir = tempdir();
        let db = small().background_threads(threads).open(dir.path()).unwrap();
        let written = || db.stats().activity.compactions;
        ingest(&db, 0..6000, "0").unwrap();
        ingest(&db, 0..6000, "1").unwrap();
        db.wait_until_settled().unwrap();
        assert_eq!((levels(&db), written()), (vec![LAST - 1, LAST], 0));
        for round in 2..12 {
            ingest(&db, 0..6000, &round.to_string()).unwrap();
            db.wait_until_settled().unwrap();
            assert_eq!(levels(&db).len(), 2, "one above the last level: {:?}", levels(&db));
            assert_eq!(value(&db, 5000), Some(round.to_string()));
        }
        // So does a compaction of L0.
        for number in 0..4 {
            db.put(key(number * 1500), "put").unwrap();
            db.flush().unwrap();
        }
        db.wait_until_settled().unwrap();
        assert_eq!(value(&db, 1500).as_deref(), Some("put"));
        assert_eq!(value(&db, 4).as_deref(), Some("11"));
        assert_eq!(db.iter().count(), 6000);
    }
}

#[test]
fn ingests_that_are_small_beside_the_store_gather_on_several_levels() {
    let dir = tempdir();
    let db = small().background_threads(0).open(dir.path()).unwrap();
    ingest(&db, 0..6000, "first").unwrap();
    for round in 1..LAST {
        ingest(&db, (0..6000).step_by(100), &round.to_string()).unwrap();
        db.wait_until_settled().unwrap();
        assert_eq!(levels(&db), (LAST - round..=LAST).collect::<Vec<_>>());
        assert_eq!(db.stats().activity.compactions, 0);
    }
    // Then all of them go down.
    ingest(&db, (0..6000).step_by(100), "last").unwrap();
    db.wait_until_settled().unwrap();
    assert_eq!(levels(&db), [1, LAST]);
    assert_eq!(value(&db, 100).as_deref(), Some("last"));
    assert_eq!(db.iter().count(), 6000);
}

/// The first tables of an iterator without a length are planned as if they were all.
#[test]
fn filters_fit_the_level_also_if_the_number_of_pairs_was_not_known() {
    let dir = tempdir();
    let options = small().background_threads(0).filter(FilterPolicy::bits_per_key(10.0));
    let db = options.open(dir.path()).unwrap();
    ingest(&db, 0..60_000, "below").unwrap();
    let numbers = (0..30_000).filter(|_| true);
    assert_eq!(numbers.size_hint().0, 0);
    ingest(&db, numbers, "above").unwrap();
    let tables = db.tables();
    let above = tables.iter().filter(|table| table.level == LAST - 1 && table.keys > 1000);
    let bits: Vec<f64> =
        above.map(|table| 8.0 * table.filter.bytes() as f64 / table.keys as f64).collect();
    let [least, most] = [f64::min, f64::max].map(|end| bits.iter().copied().reduce(end).unwrap());
    assert!(bits.len() > 5 && most < 1.15 * least, "{bits:?}");
}

/// A store whose tables hold these keys, with a memtable that is empty or not. Each block that a lookup reads from
/// a table runs `hook` with the store, once.
struct AtARead {
    db: Db,
    armed: Arc<AtomicBool>,
    ran: Arc<AtomicU32>,
    _dir: tempfile::TempDir,
}

impl AtARead {
    fn new(full: bool, hook: impl Fn(&Db) + Send + Sync + 'static) -> Self {
        let (armed, ran) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let weak: Arc<OnceLock<WeakDb>> = Arc::default();
        let vfs = {
            let (armed, ran, weak) = (Arc::clone(&armed), Arc::clone(&ran), Arc::clone(&weak));
            HookVfs::new(move |kind, operation| {
                let is_read = (kind, operation) == (FileKind::Table, Operation::Read);
                if is_read && armed.swap(false, Ordering::SeqCst) {
                    hook(&weak.get().unwrap().upgrade().unwrap());
                    ran.fetch_add(1, Ordering::SeqCst);
                }
                Ok(())
            })
        };
        let dir = tempdir();
        // Without filters a lookup of an absent key reads a block, too.
        let options = small().background_threads(0).cache_bytes(0).filter(FilterPolicy::none());
        let db = options.vfs(vfs).open(dir.path()).unwrap();
        assert!(weak.set(db.downgrade()).is_ok());
        for number in (0..100).step_by(2) {
            db.put(key(number), "old").unwrap();
        }
        db.flush().unwrap();
        if full {
            db.put("in the memtable", "old").unwrap();
        }
        Self { db, armed, ran, _dir: dir }
    }

    /// Calls `body`, within which the hook runs.
    fn run<T>(&self, body: impl FnOnce(&Db) -> T) -> T {
        self.armed.store(true, Ordering::SeqCst);
        let result = body(&self.db);
        assert_eq!(self.ran.load(Ordering::SeqCst), 1, "the ingest is within the call");
        result
    }
}

/// An ingest of keys 0 to 99 within the call.
fn beside_an_ingest<T>(full: bool, body: impl FnOnce(&Db) -> T) -> (T, AtARead) {
    let store = AtARead::new(full, |db| assert_eq!(ingest(db, 0..100, "new").unwrap(), 100));
    (store.run(body), store)
}

#[test]
fn conditional_writes_see_what_was_ingested_after_their_lookup() {
    for full in [false, true] {
        let (inserted, store) = beside_an_ingest(full, |db| db.insert_if_absent(key(1), "mine"));
        assert!(!inserted.unwrap(), "the key is there");
        assert_eq!(value(&store.db, 1).as_deref(), Some("new"));
        let swap = |db: &Db| db.compare_and_swap(key(2), Some(b"old"), Some(b"mine"));
        let (swapped, store) = beside_an_ingest(full, swap);
        assert!(!swapped.unwrap(), "the value is another one");
        assert_eq!(value(&store.db, 2).as_deref(), Some("new"));
        let (written, store) = beside_an_ingest(full, |db| {
            db.write(Batch::new().require_absent(key(1)).put("other", "mine"))
        });
        assert!(matches!(written, Err(Error::ConditionFailed { .. })));
        assert_eq!(store.db.get("other").unwrap(), None);
    }
}

#[test]
fn a_transaction_conflicts_with_what_was_ingested_after_it_began() {
    for full in [false, true] {
        for absent in [false, true] {
            let read = if absent { 3 } else { 4 };
            let store = AtARead::new(full, |_| {});
            let db = &store.db;
            let commit = |numbers: std::ops::Range<u32>, by_range: bool| {
                let mut transaction = db.transaction();
                if by_range {
                    transaction
                        .range(key(read)..key(read + 1))
                        .for_each(|pair| drop(pair.unwrap()));
                } else {
                    transaction.get(key(read)).unwrap();
                }
                transaction.put("mine", "");
                ingest(db, numbers, "new").unwrap();
                transaction.commit(Durability::Buffered)
            };
            for by_range in [false, true] {
                assert!(matches!(commit(0..100, by_range), Err(Error::Conflict)));
                assert_eq!(db.get("mine").unwrap(), None);
                commit(200..300, by_range).unwrap();
                db.delete("mine").unwrap();
            }
        }
    }
}

/// The ingest comes while the commit compares with tables what was read.
#[test]
fn a_validation_under_way_looks_at_what_was_ingested() {
    for full in [false, true] {
        let store = AtARead::new(full, |db| {
            db.put("another key", "of the recent writes").unwrap();
            assert_eq!(ingest(db, 40..50, "new").unwrap(), 10);
        });
        let mut transaction = store.db.transaction();
        transaction.range(key(0)..key(60)).for_each(|pair| drop(pair.unwrap()));
        transaction.put("mine", "");
        // A table that is newer than the transaction, outside of what it read but for its range.
        store.db.put(key(70), "newer").unwrap();
        store.db.put("a", "newer").unwrap();
        store.db.flush().unwrap();
        let committed = store.run(|_| transaction.commit(Durability::Buffered));
        assert!(matches!(committed, Err(Error::Conflict)), "{committed:?}");
        assert_eq!(store.db.get("mine").unwrap(), None);
    }
}

#[test]
fn readers_that_began_before_an_ingest_see_nothing_of_it() {
    for full in [false, true] {
        let (values, store) = beside_an_ingest(full, |db| {
            db.get_many(&(0..100).map(key).collect::<Vec<_>>()).unwrap()
        });
        let old = |number: u32| number.is_multiple_of(2).then_some("old");
        for (number, found) in (0..).zip(&values) {
            assert_eq!(found.as_deref(), old(number).map(str::as_bytes), "key {number}");
        }
        assert!((0..100).all(|number| value(&store.db, number).as_deref() == Some("new")));

        let scan = |db: &Db| db.range(key(0)..).map(Result::unwrap).collect::<Vec<_>>();
        let (pairs, _) = beside_an_ingest(full, scan);
        assert!(pairs.len() == 50 && pairs.iter().all(|(_, value)| value == "old"));
        let backward = |db: &Db| db.range(key(0)..).rev().map(Result::unwrap).collect::<Vec<_>>();
        let (pairs, store) = beside_an_ingest(full, backward);
        assert!(pairs.len() == 50 && pairs.iter().all(|(_, value)| value == "old"));

        let snapshot = store.db.snapshot();
        ingest(&store.db, 0..200, "newest").unwrap();
        for compacted in [false, true] {
            if compacted {
                store.db.compact().unwrap();
            }
            assert_eq!(value(&snapshot, 99).as_deref(), Some("new"));
            assert_eq!(value(&snapshot, 150), None);
            assert_eq!(snapshot.range(key(0)..).count(), 100);
            assert_eq!(value(&store.db, 150).as_deref(), Some("newest"));
        }
    }
}

/// A snapshot, and what it has seen of a key.
type Taken = (Snapshot, Option<String>);

/// The number of an ingest is visible once its tables are: never before.
#[test]
fn a_snapshot_within_the_moment_stays_as_it_is() {
    for full in [false, true] {
        let taken: Arc<Mutex<Vec<Taken>>> = Arc::default();
        let within = taken.clone();
        let (db, _dir) = within_an_ingest(full, move |db| {
            let snapshot = db.snapshot();
            let found = value(&snapshot, 4);
            within.lock().unwrap().push((snapshot, found));
        });
        let taken = std::mem::take(&mut *taken.lock().unwrap());
        assert!(taken.len() > 10);
        for (snapshot, found) in &taken {
            assert_eq!(value(snapshot, 4), *found);
        }
        assert_eq!(value(&db, 4).as_deref(), Some("new"));
    }
}

/// The outputs of a compaction under way may have keys between those of its inputs.
#[test]
fn tables_go_above_the_outputs_of_a_compaction_under_way() {
    let (dir, is_held) = (tempdir(), Arc::new(AtomicBool::new(false)));
    let waits = Arc::new(AtomicU32::new(0));
    let (held, waiting) = (is_held.clone(), waits.clone());
    let vfs = HookVfs::new(move |kind, operation| {
        let thread = std::thread::current();
        let compacts = thread.name().is_some_and(|name| name.starts_with("criba-compact"));
        if compacts && (kind, operation) == (FileKind::Table, Operation::Create) {
            waiting.fetch_add(1, Ordering::SeqCst);
            wait_until("the ingest is done", || !held.load(Ordering::SeqCst));
        }
        Ok(())
    });
    let failed = Arc::new(AtomicBool::new(false));
    let fails = failed.clone();
    let options = small().l0_compaction_trigger(2).background_threads(2).on_event(move |event| {
        fails.fetch_or(matches!(event, Event::BackgroundFailed { .. }), Ordering::SeqCst);
    });
    let db = options.vfs(vfs).open(dir.path()).unwrap();
    is_held.store(true, Ordering::SeqCst);
    for number in [0, 9000] {
        db.put(key(number), "end").unwrap();
        db.flush().unwrap();
    }
    wait_until("a compaction has begun", || waits.load(Ordering::SeqCst) > 0);
    ingest(&db, 1000..2000, "between").unwrap();
    // Now the first one is due, but must not go down to the outputs.
    ingest(&db, 1000..2000, "again").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(levels(&db), [0, LAST - 2, LAST - 1]);
    is_held.store(false, Ordering::SeqCst);
    db.wait_until_settled().unwrap();
    assert!(!failed.load(Ordering::SeqCst));
    assert_eq!(db.iter().count(), 1002);
    db.close().unwrap();
    assert_sound(dir.path());
    assert_eq!(small().open(dir.path()).unwrap().iter().count(), 1002);
}

#[test]
fn a_read_only_store_and_a_checkpoint_have_all_of_an_ingest_or_nothing() {
    const KEYS: u32 = 500;
    for full in [false, true] {
        let (dir, copies) = (tempdir(), tempdir());
        let db = small().open(dir.path()).unwrap();
        ingest(&db, 0..KEYS, "0").unwrap();
        let ended = AtomicBool::new(false);
        // All keys of a round have its value; a key that is put in between shows a round that was begun.
        let check = |reader: &dyn Reader| {
            let values: Vec<String> =
                (0..KEYS).map(|number| value(reader, number).unwrap()).collect();
            assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
            let round: u32 = values[0].parse().unwrap();
            let put = value(reader, KEYS).map_or(0, |value| value.parse().unwrap());
            assert!(!full || put == round || put == round + 1, "{put} of round {round}");
            round
        };
        scope(|scope| {
            scope.spawn(|| {
                for round in 1..40 {
                    if full {
                        db.put(key(KEYS), round.to_string()).unwrap();
                    }
                    ingest(&db, 0..KEYS, &round.to_string()).unwrap();
                }
                ended.store(true, Ordering::SeqCst);
            });
            let reader = options().open_read_only(dir.path()).unwrap();
            let mut newest = 0;
            for number in 0.. {
                let last = ended.load(Ordering::SeqCst);
                reader.refresh().unwrap();
                let round = check(&reader);
                assert!(round >= newest);
                newest = round;
                if number % 8 == 0 {
                    let copy = copies.path().join(number.to_string());
                    db.checkpoint(&copy).unwrap();
                    let copy = options().open(copy).unwrap();
                    assert!(check(&copy) >= newest);
                }
                if last {
                    break;
                }
            }
            assert_eq!(newest, 39);
        });
    }
}

/// Every writer waits for its own puts to be visible, and no put is lost or comes back.
#[test]
fn writers_and_readers_go_on_beside_ingests() {
    const WRITERS: u32 = 3;
    let dir = tempdir();
    let db = small().open(dir.path()).unwrap();
    let rounds = AtomicU32::new(0);
    scope(|scope| {
        for writer in 0..WRITERS {
            let (db, rounds) = (&db, &rounds);
            scope.spawn(move || {
                let mut count = 0_u32;
                while rounds.load(Ordering::SeqCst) < 30 {
                    let number = 10_000 + writer + WRITERS * (count % 3000);
                    db.put(key(number), count.to_string()).unwrap();
                    assert_eq!(value(db, number), Some(count.to_string()));
                    assert!(!db.insert_if_absent(key(number), "other").unwrap());
                    count += 1;
                }
            });
        }
        for round in 0..30 {
            // Keys between those of the writers, and over all of them.
            let numbers = (0..30_000).filter(|number| !(10_000..19_000).contains(number));
            ingest(&db, numbers, &round.to_string()).unwrap();
            assert_eq!(value(&db, 5000), Some(round.to_string()));
            rounds.fetch_add(1, Ordering::SeqCst);
        }
    });
    db.wait_until_settled().unwrap();
    let before = all(&db);
    assert_eq!(before.len(), 21_000 + 9000);
    db.close().unwrap();
    assert_sound(dir.path());
    assert!(all(&small().open(dir.path()).unwrap()) == before);
}

/// L0 is full at each moment, and compactions merge it all the time.
#[test]
fn ingests_end_beside_writers_that_wait_for_compactions() {
    let dir = tempdir();
    let options = small().memtable_bytes(4 << 10).table_bytes(4 << 10).level_base_bytes(8 << 10);
    let options = options.l0_compaction_trigger(1).l0_slowdown_trigger(1).l0_stop_trigger(2);
    let db = options.background_threads(2).open(dir.path()).unwrap();
    let rounds = AtomicU32::new(0);
    scope(|scope| {
        for writer in 0..3 {
            let (db, rounds) = (&db, &rounds);
            scope.spawn(move || {
                for count in 0.. {
                    if rounds.load(Ordering::SeqCst) == 60 {
                        break;
                    }
                    db.put(key((writer * 7919 + count * 104_729) % 3000), "put").unwrap();
                    if writer == 0 && count % 500 == 0 {
                        db.compact().unwrap();
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..30 {
                ingest(&db, (0..3000).step_by(3), "one").unwrap();
                rounds.fetch_add(1, Ordering::SeqCst);
            }
        });
        for _ in 0..30 {
            ingest(&db, (0..3000).step_by(2), "other").unwrap();
            rounds.fetch_add(1, Ordering::SeqCst);
        }
    });
    let before = all(&db);
    db.close().unwrap();
    assert_sound(dir.path());
    assert!(all(&small().open(dir.path()).unwrap()) == before);
}

#[test]
fn after_any_error_nothing_is_changed() {
    for threads in [0, 1] {
        let dir = tempdir();
        let db = small().background_threads(threads).open(dir.path()).unwrap();
        db.put(key(0), "old").unwrap();
        db.wait_until_settled().unwrap();
        let before = contents(dir.path());
        let pairs = |last: Option<(Vec<u8>, Vec<u8>)>| {
            let pairs = (0..5000).map(|number| (key(number), b"new".to_vec()));
            pairs.chain(last).map(Ok::<_, Error>).collect::<Vec<_>>()
        };
        for (last, before) in [(key(4999), key(4999)), (key(17), key(4999))] {
            match db.ingest(pairs(Some((last.clone(), vec![])))) {
                Err(Error::Unsorted { key, before: found }) => {
                    assert!(key == last[..] && found == before[..]);
                }
                other => panic!("{other:?}"),
            }
        }
        let long = db.ingest(pairs(Some((vec![b'z'; 1 << 16], vec![]))));
        assert!(matches!(long, Err(Error::TooLong { what: "key", .. })));
        let failing = pairs(None).into_iter().chain([Err(Error::Conflict)]);
        assert!(matches!(db.ingest(failing), Err(Error::Conflict)));
        let panics = AssertUnwindSafe(|| {
            db.ingest(pairs(None).into_iter().inspect(|pair| {
                assert!(pair.as_ref().is_ok_and(|(found, _)| *found < key(4000)), "at a key");
            }))
        });
        assert!(catch_unwind(panics).is_err());
        assert_eq!(db.ingest(std::iter::empty::<Result<([u8; 1], [u8; 1]), Error>>()).unwrap(), 0);
        assert!(contents(dir.path()) == before, "no file is left");
        let closing = pairs(None).into_iter().inspect(|pair| {
            if pair.as_ref().is_ok_and(|(found, _)| *found == key(3000)) {
                db.clone().close().unwrap();
                let other = small().open(dir.path());
                assert!(matches!(other, Err(Error::Locked { .. })), "it would remove the tables");
            }
        });
        assert!(matches!(db.ingest(closing), Err(Error::Closed)));
        assert!(contents(dir.path()).keys().all(|name| before.contains_key(name)));
        let db = small().open(dir.path()).unwrap();
        assert_eq!(all(&db), BTreeMap::from([(key(0), b"old".to_vec())]));
    }
}

#[test]
fn tables_that_a_full_disk_keeps_out_of_the_manifest_are_removed() {
    let dir = tempdir();
    let edits = Arc::new(AtomicU32::new(u32::MAX));
    let left = edits.clone();
    let vfs = HookVfs::new(move |kind, operation| {
        let is_edit = (kind, operation) == (FileKind::Manifest, Operation::Append);
        if is_edit && left.fetch_sub(1, Ordering::SeqCst) == 0 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        Ok(())
    });
    let db = small().background_threads(0).vfs(vfs).open(dir.path()).unwrap();
    ingest(&db, 0..100, "old").unwrap();
    let tables = files_with(dir.path(), "sst");
    // The flush of the empty memtable succeeds, and then the disk is full.
    edits.store(1, Ordering::SeqCst);
    assert!(matches!(ingest(&db, 0..3000, "new"), Err(Error::Io { .. })));
    assert_eq!(files_with(dir.path(), "sst"), tables);
    assert_eq!(value(&db, 7).as_deref(), Some("old"));
    assert_eq!(ingest(&db, 0..3000, "new").unwrap(), 3000);
    assert_eq!(value(&db, 7).as_deref(), Some("new"));
}

#[test]
fn the_longest_keys_and_values_and_the_empty_key_can_be_ingested() {
    let dir = tempdir();
    let db = small().open(dir.path()).unwrap();
    let longest = vec![0xff; 65_535];
    let pairs = [
        (vec![], vec![]),
        (vec![0], vec![7; 3 << 20]),
        (vec![0, 0], b"small".to_vec()),
        (longest.clone(), vec![9; 100_000]),
    ];
    db.put([0], "old").unwrap();
    assert_eq!(db.ingest(pairs.clone().map(Ok::<_, Error>)).unwrap(), 4);
    assert_eq!(all(&db), BTreeMap::from(pairs.clone()));
    db.close().unwrap();
    assert_sound(dir.path());
    let db = small().open(dir.path()).unwrap();
    assert_eq!(all(&db), BTreeMap::from(pairs));
    assert_eq!(db.last().unwrap().unwrap().0, longest[..]);
}

/// Runs `look` with the store at each operation of an ingest, on the ingesting thread.
fn within_an_ingest(
    full: bool,
    look: impl Fn(&Db) + Send + Sync + 'static,
) -> (Db, tempfile::TempDir) {
    let weak: Arc<OnceLock<WeakDb>> = Arc::default();
    let (is_ingesting, dir) = (Arc::new(AtomicBool::new(false)), tempdir());
    let (armed, store) = (is_ingesting.clone(), weak.clone());
    let vfs = HookVfs::new(move |_, _| {
        if armed.swap(false, Ordering::SeqCst) {
            look(&store.get().unwrap().upgrade().unwrap());
            armed.store(true, Ordering::SeqCst);
        }
        Ok(())
    });
    let db = small().background_threads(0).vfs(vfs).open(dir.path()).unwrap();
    assert!(weak.set(db.downgrade()).is_ok());
    ingest(&db, 0..100, "old").unwrap();
    for number in 200..400 {
        db.put(key(number), "deleted").unwrap();
    }
    for number in 200..400 {
        db.delete(key(number)).unwrap();
    }
    if full {
        db.put(key(4), "old").unwrap();
    } else {
        db.flush().unwrap();
    }
    // The ends are so long that the manifest is written anew before the number is visible.
    let ends = [b'a', b'z'].map(|byte| vec![byte; 60_000]);
    let keys = ends[..1].iter().cloned().chain((0..400).map(key)).chain(ends[1..].iter().cloned());
    is_ingesting.store(true, Ordering::SeqCst);
    assert_eq!(db.ingest(keys.map(|key| Ok::<_, Error>((key, "new")))).unwrap(), 402);
    is_ingesting.store(false, Ordering::SeqCst);
    (db, dir)
}

/// It may pass many hidden entries, and note that nothing is there for later readers of the same view.
#[test]
fn a_scan_within_the_moment_hides_nothing_from_later_ones() {
    for full in [false, true] {
        let (db, _dir) = within_an_ingest(full, |db| {
            for range in [db.range(key(200)..key(400)), db.range(key(150)..key(400))] {
                let count = range.map(Result::unwrap).count();
                assert!(count == 0 || count == 200 || count == 250, "{count}");
            }
        });
        assert_eq!(db.range(key(200)..key(400)).count(), 200);
        assert_eq!(db.range(key(150)..key(400)).count(), 250);
    }
}

/// The lookup of an insertion sees the state before the moment, and the insertion is committed after it.
#[test]
fn an_insertion_that_looked_within_the_moment_looks_again() {
    for full in [false, true] {
        for operation in 0.. {
            let (ran, held) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
            let threads: Arc<Mutex<Vec<std::thread::JoinHandle<bool>>>> = Arc::default();
            let (count, inserting) = (ran.clone(), threads.clone());
            let looking = held.clone();
            let (db, _dir) = within_an_ingest(full, move |db| {
                if count.fetch_add(1, Ordering::SeqCst) != operation {
                    return;
                }
                let (db, began) = (db.clone(), looking.clone());
                let thread = std::thread::spawn(move || {
                    began.store(1, Ordering::SeqCst);
                    // Absent before the moment.
                    db.insert_if_absent(key(150), "inserted").unwrap()
                });
                wait_until("the insertion has begun", || looking.load(Ordering::SeqCst) > 0);
                // It looks, and then waits for the writer.
                std::thread::sleep(std::time::Duration::from_millis(20));
                inserting.lock().unwrap().push(thread);
            });
            let Some(thread) = threads.lock().unwrap().pop() else { break };
            // Before the moment it is overwritten; after it, it is refused.
            thread.join().unwrap();
            assert_eq!(value(&db, 150).as_deref(), Some("new"), "operation {operation}");
        }
    }
}

/// Two ingests with overlapping keys, and compactions that make way, do not disturb each other.
#[test]
fn ingests_beside_each_other_end_without_an_error() {
    let dir = tempdir();
    let options = small().memtable_bytes(4 << 10).table_bytes(4 << 10).level_base_bytes(8 << 10);
    let failed = Arc::new(Mutex::new(Vec::new()));
    let events = failed.clone();
    let options = options.l0_compaction_trigger(2).background_threads(2).on_event(move |event| {
        if let Event::BackgroundFailed { error, .. } = event {
            events.lock().unwrap().push(error.clone());
        }
    });
    let db = options.open(dir.path()).unwrap();
    scope(|scope| {
        for thread in 0..3 {
            let db = &db;
            scope.spawn(move || {
                for round in 0..60 {
                    db.put(key(round * 31 % 500), "put").unwrap();
                    let first = round * 37 % 400;
                    ingest(db, (first..first + 100).step_by(1 + thread), "new").unwrap();
                }
            });
        }
    });
    db.wait_until_settled().unwrap();
    assert_eq!(*failed.lock().unwrap(), [""; 0]);
    let before = all(&db);
    db.close().unwrap();
    assert_sound(dir.path());
    assert!(all(&small().open(dir.path()).unwrap()) == before);
}

/// Levels are full, and each attempt finds a new key of the range in the memtable.
#[test]
fn an_ingest_ends_beside_a_writer_of_its_range() {
    let dir = tempdir();
    let db = small().auto_compaction(false).open(dir.path()).unwrap();
    for level in (2..=LAST).rev() {
        ingest(&db, 0..500, &format!("level {level}")).unwrap();
    }
    assert_eq!(levels(&db), (2..=LAST).collect::<Vec<_>>());
    let ended = AtomicBool::new(false);
    scope(|scope| {
        scope.spawn(|| {
            for number in (0..500).cycle() {
                db.put(key(number), "put").unwrap();
                if ended.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        for round in 0..5 {
            ingest(&db, (0..500).step_by(7), &round.to_string()).unwrap();
        }
        ended.store(true, Ordering::SeqCst);
    });
    assert!(db.stats().activity.compactions < 100, "{}", db.stats());
    db.close().unwrap();
    assert_sound(dir.path());
}
