//! Parallel writers, and failing file layers: acknowledged writes stay, no read sees half a batch, a group
//! shares a sync, and a failure affects only the writes that it must.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::common::{self, HookVfs, contents, files_with, no_space, restore, wait_until};
use criba::vfs::{
    CountingVfs, Fault, FaultRule, FaultVfs, FileKind, Keep, Operation, RealVfs, SimVfs, Unit,
};
use criba::{Batch, Db, Durability, Error, Event, Options, WeakDb};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn all(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let items = db.iter();
    items.map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect()
}

const WRITERS: u64 = 4;
const WRITES: u64 = 600;
/// Keys that are overwritten often, and never deleted.
const FIXED: u64 = 20;

/// Reads until `done`: the keys of one batch agree, and no version goes back.
fn watch(db: &Db, done: &AtomicBool) -> u64 {
    let mut last = [0; WRITERS as usize];
    let mut checks = 0;
    while !done.load(Ordering::Acquire) {
        let snapshot = db.snapshot();
        for (writer, last) in last.iter_mut().enumerate() {
            let read = |side: &str| {
                let value = snapshot.get(format!("{side} {writer}")).unwrap();
                value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()))
            };
            let (left, right) = (read("left"), read("right"));
            assert_eq!(left, right, "half a batch of writer {writer}");
            assert!(left >= *last, "writer {writer} went back");
            *last = left;
            checks += 1;
        }
        // A scan sees one moment too, and keys that are never deleted are always there.
        let scanned = all(db);
        for writer in 0..WRITERS {
            let side = |side: &str| scanned.get(format!("{side} {writer}").as_bytes()).cloned();
            assert_eq!(side("left"), side("right"), "half a batch in a scan");
        }
        for number in 0..FIXED {
            let value = db.get(format!("fixed {number}")).unwrap();
            assert!(value.is_some(), "fixed key {number} was not there");
        }
    }
    checks
}

/// Writes batches; flushes, settles or compacts at times.
fn write(db: &Db, writer: u64, seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed + writer);
    for number in 1..=WRITES {
        let mut batch = Batch::new();
        batch.put(format!("left {writer}"), number.to_le_bytes());
        batch.put(format!("{writer}/{number}"), [writer as u8; 20]);
        if number > 10 {
            batch.delete(format!("{writer}/{}", number - 10));
        }
        batch.put(format!("right {writer}"), number.to_le_bytes());
        batch.put(format!("fixed {}", number % FIXED), "value");
        let synced = rng.random_range(0..20) == 0;
        let durability = if synced { Durability::Synced } else { Durability::Buffered };
        db.write_with(batch, durability).unwrap();
        let own = db.get(format!("{writer}/{number}")).unwrap();
        assert!(own.is_some(), "an acknowledged write of {writer} is not there");
        match rng.random_range(0..60) {
            0 => db.flush().unwrap(),
            1 => db.wait_until_settled().unwrap(),
            2 => db.compact().unwrap(),
            _ => {}
        }
        let own = db.get(format!("{writer}/{number}")).unwrap();
        assert!(own.is_some(), "write {number} of {writer} went with a flush");
    }
}

/// Parallel writers that also flush and compact, with readers beside them.
fn write_in_parallel(threads: usize, seed: u64) {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let options = || {
        common::options()
            .background_threads(threads)
            .memtable_bytes(8192)
            .table_bytes(4096)
            .level_base_bytes(1000)
    };
    let db = options().open(&dir).unwrap();
    for number in 0..FIXED {
        db.put(format!("fixed {number}"), "value").unwrap();
    }
    let done = AtomicBool::new(false);
    let checks: u64 = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2).map(|_| scope.spawn(|| watch(&db, &done))).collect();
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let db = db.clone();
                scope.spawn(move || write(&db, writer, seed))
            })
            .collect();
        let written: Vec<_> =
            writers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        done.store(true, Ordering::Release);
        assert!(written.iter().all(Result::is_ok), "a writer failed");
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    let mut expected: BTreeMap<Vec<u8>, Vec<u8>> = (0..FIXED)
        .map(|number| (format!("fixed {number}").into_bytes(), b"value".to_vec()))
        .collect();
    for writer in 0..WRITERS {
        for side in ["left", "right"] {
            expected.insert(format!("{side} {writer}").into_bytes(), WRITES.to_le_bytes().to_vec());
        }
        for number in WRITES - 9..=WRITES {
            expected.insert(format!("{writer}/{number}").into_bytes(), vec![writer as u8; 20]);
        }
    }
    assert_eq!(all(&db), expected);
    let activity = db.stats().activity;
    assert!(activity.flushes > 20 && activity.compactions > 5, "{activity:?}");
    drop(db);
    let db = options().open(&dir).unwrap();
    assert_eq!(all(&db), expected);
    println!(
        "{threads} background threads, seed {seed}: {} batches by {WRITERS} writers, {checks} checks \
         of a batch, {} flushes, {} compactions",
        WRITERS * WRITES,
        activity.flushes,
        activity.compactions
    );
}

#[test]
fn nothing_is_lost_and_no_batch_is_seen_half_without_threads() {
    write_in_parallel(0, 100);
}

#[test]
fn nothing_is_lost_and_no_batch_is_seen_half_with_threads() {
    write_in_parallel(1, 200);
    write_in_parallel(2, 300);
}

#[test]
fn writers_that_wait_share_a_sync() {
    // The first sync waits until all the other writers are there, so they make one group.
    const WAITING: u64 = 15;
    let parent = common::tempdir();
    let armed = Arc::new(AtomicBool::new(false));
    let (arrived, hold) = (Arc::new(AtomicU64::new(0)), Arc::clone(&armed));
    let others = Arc::clone(&arrived);
    let vfs = HookVfs::new(move |kind, operation| {
        if (kind, operation) == (FileKind::Wal, Operation::Sync)
            && hold.swap(false, Ordering::SeqCst)
        {
            wait_until("the other writers", || others.load(Ordering::SeqCst) == WAITING);
            // They have announced themselves, and are on their way into the queue.
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    });
    let counting = CountingVfs::new(vfs);
    let options = common::options().vfs(Arc::new(counting.clone()));
    let db = options.open(parent.path().join("store")).unwrap();
    let syncs = || counting.counts().of(FileKind::Wal, Operation::Sync).calls;
    let appends = || {
        let calls = |operation| counting.counts().of(FileKind::Wal, operation).calls;
        calls(Operation::Append) + calls(Operation::Write)
    };
    let (before, appends_before) = (syncs(), appends());
    armed.store(true, Ordering::SeqCst);
    let write = |key: String| {
        let mut batch = Batch::new();
        batch.put(key, "value");
        db.write_with(batch, Durability::Synced).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| write("first".into()));
        wait_until("the first sync", || !armed.load(Ordering::SeqCst));
        for number in 0..WAITING {
            let (arrived, write) = (&arrived, &write);
            scope.spawn(move || {
                arrived.fetch_add(1, Ordering::SeqCst);
                write(format!("other {number}"));
            });
        }
    });
    let (syncs, appends) = (syncs() - before, appends() - appends_before);
    println!("{} synced writes: {syncs} syncs, {appends} appends", WAITING + 1);
    assert_eq!(all(&db).len() as u64, WAITING + 1);
    // Two if all of the others got into the queue in time; a straggler or two must not matter.
    assert!((2..=WAITING / 2).contains(&syncs), "{syncs} syncs");
    assert_eq!(syncs, appends);
}

#[test]
fn a_buffered_write_syncs_nothing_and_a_sync_with_nothing_new_costs_nothing() {
    let parent = common::tempdir();
    let counting = CountingVfs::new(Arc::new(RealVfs));
    let options = common::options().vfs(Arc::new(counting.clone()));
    let db = options.open(parent.path().join("store")).unwrap();
    let syncs = || counting.counts().of(FileKind::Wal, Operation::Sync).calls;
    let before = syncs();
    for number in 0..100_u32 {
        db.put(number.to_be_bytes(), "value").unwrap();
    }
    assert_eq!(syncs(), before);
    db.sync().unwrap();
    assert_eq!(syncs(), before + 1);
    db.sync().unwrap();
    assert_eq!(syncs(), before + 1);
}

/// The real files, until rules are added.
fn real() -> FaultVfs {
    FaultVfs::new(Arc::new(RealVfs))
}

/// The next such operation finds the disk full.
fn full(kind: FileKind, operation: Operation) -> FaultRule {
    FaultRule::new(Fault::NoSpace).kinds([kind]).operations([operation])
}

/// The next record of a log finds the disk full, beyond the end of the file or within its zeros.
fn full_for_logs() -> FaultRule {
    let operations = [Operation::Append, Operation::Write];
    FaultRule::new(Fault::NoSpace).kinds([FileKind::Wal]).operations(operations)
}

#[test]
fn an_append_that_fails_fails_its_write_alone() {
    for threads in [0, 1] {
        let parent = common::tempdir();
        let dir = parent.path().join("store");
        let vfs = real();
        let options = common::options().background_threads(threads);
        let db = options.vfs(Arc::new(vfs.clone())).open(&dir).unwrap();
        let mut expected = BTreeMap::new();
        let mut failed = 0;
        for number in 0..60_u32 {
            let key = number.to_be_bytes().to_vec();
            let mut batch = Batch::new();
            batch.put(&key, "value").put([&key[..], b"+"].concat(), "value");
            let fails = number % 7 == 3;
            if fails {
                vfs.add(full_for_logs());
            }
            let durability =
                if number % 2 == 0 { Durability::Synced } else { Durability::Buffered };
            let written = db.write_with(batch, durability);
            assert_eq!(written.is_err(), fails, "{written:?}");
            match written {
                Ok(()) => {
                    expected.insert([&key[..], b"+"].concat(), b"value".to_vec());
                    expected.insert(key, b"value".to_vec());
                }
                Err(error) => {
                    assert!(matches!(error, Error::Io { .. }), "{error}");
                    assert_eq!(db.get(&key).unwrap(), None);
                    failed += 1;
                }
            }
        }
        assert_eq!(all(&db), expected);
        let copy = parent.path().join("copy");
        common::copy_dir(&dir, &copy);
        for dir in [&copy, &dir] {
            if dir == &parent.path().join("store") {
                db.clone().close().unwrap();
            }
            let db = common::options().open(dir).unwrap();
            assert_eq!(all(&db), expected);
            assert_eq!(db.recovery().lost_tail, None);
        }
        println!("{failed} of 60 writes failed, with {threads} background threads");
        assert!(failed > 5);
    }
}

#[test]
fn an_append_that_fails_does_not_fail_the_others_of_its_group() {
    const WAITING: u64 = 12;
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let (hold, arrived) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let failures = Arc::new(AtomicU64::new(0));
    let (hook_hold, others, left) =
        (Arc::clone(&hold), Arc::clone(&arrived), Arc::clone(&failures));
    let vfs = HookVfs::new(move |kind, operation| {
        let takes = |left: &AtomicU64| {
            left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
        };
        match (kind, operation) {
            (FileKind::Wal, Operation::Sync) if hook_hold.swap(false, Ordering::SeqCst) => {
                wait_until("the other writers", || others.load(Ordering::SeqCst) == WAITING);
                // They have announced themselves, and are on their way into the queue.
                std::thread::sleep(Duration::from_millis(50));
                // The append of the group fails, and then one more.
                left.store(2, Ordering::SeqCst);
                Ok(())
            }
            (FileKind::Wal, Operation::Append | Operation::Write) if takes(&left) => {
                Err(no_space())
            }
            _ => Ok(()),
        }
    });
    let db = common::options().vfs(vfs).open(&dir).unwrap();
    hold.store(true, Ordering::SeqCst);
    let write = |number: u64| {
        let mut batch = Batch::new();
        batch.put(number.to_be_bytes(), "value");
        (number, db.write_with(batch, Durability::Synced))
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let first = scope.spawn(|| write(0));
        wait_until("the first sync", || !hold.load(Ordering::SeqCst));
        let others: Vec<_> = (1..=WAITING)
            .map(|number| {
                let (arrived, write) = (&arrived, &write);
                scope.spawn(move || {
                    arrived.fetch_add(1, Ordering::SeqCst);
                    write(number)
                })
            })
            .collect();
        std::iter::once(first).chain(others).map(|writer| writer.join().unwrap()).collect()
    });
    assert_eq!(failures.load(Ordering::SeqCst), 0);
    let written: Vec<_> = results.iter().filter(|(_, result)| result.is_ok()).collect();
    let failed = results.len() - written.len();
    println!("{failed} of {} writes failed after two failed appends", results.len());
    // One if they made one group; two if a straggler came on its own.
    assert!((1..=2).contains(&failed), "{failed} failed");
    let expected: BTreeMap<_, _> = written
        .iter()
        .map(|(number, _)| (number.to_be_bytes().to_vec(), b"value".to_vec()))
        .collect();
    assert_eq!(all(&db), expected);
    db.close().unwrap();
    assert_eq!(all(&common::options().open(&dir).unwrap()), expected);
}

#[test]
fn a_partial_append_is_cut_back() {
    // The first piece of a large record gets through, the second does not.
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let vfs = real();
    let db = common::options().vfs(Arc::new(vfs.clone())).open(&dir).unwrap();
    db.put("before", "value").unwrap();
    vfs.add(full_for_logs().skip(1));
    let error = db.put("large", vec![7; 3 << 20]).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    db.put("after", "value").unwrap();
    let copy = parent.path().join("copy");
    common::copy_dir(&dir, &copy);
    let db = common::options().open(&copy).unwrap();
    assert_eq!(all(&db).into_keys().collect::<Vec<_>>(), [b"after".to_vec(), b"before".to_vec()]);
    assert_eq!(db.recovery().lost_tail, None);
}

#[test]
fn a_failed_cut_poisons() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let vfs = real();
    let db = common::options().vfs(Arc::new(vfs.clone())).open(&dir).unwrap();
    db.put("before", "value").unwrap();
    vfs.add(full_for_logs());
    vfs.add(full(FileKind::Wal, Operation::SetLength));
    let error = db.put("during", "value").unwrap_err();
    assert!(matches!(error, Error::Poisoned { .. }), "{error}");
    assert_eq!(vfs.injected().len(), 2);
    let error = db.put("after", "value").unwrap_err();
    assert!(matches!(error, Error::Poisoned { .. }), "{error}");
    assert_eq!(db.get("before").unwrap().unwrap(), "value");
    assert!(db.close().is_err());
    assert_eq!(all(&common::options().open(&dir).unwrap()).len(), 1);
}

#[test]
fn a_failed_sync_poisons_and_is_never_tried_again() {
    for threads in [0, 1] {
        let parent = common::tempdir();
        let dir = parent.path().join("store");
        let vfs = real();
        let counting = CountingVfs::new(Arc::new(vfs.clone()));
        let options = common::options()
            .background_threads(threads)
            .memtable_bytes(2048)
            .vfs(Arc::new(counting.clone()));
        let db = options.open(&dir).unwrap();
        for number in 0..40_u32 {
            db.put(number.to_be_bytes(), [1; 20]).unwrap();
        }
        db.wait_until_settled().unwrap();
        db.put("last", "value").unwrap();
        let syncs = || counting.counts().of(FileKind::Wal, Operation::Sync).calls;
        let before = syncs();
        vfs.add(full(FileKind::Wal, Operation::Sync));
        let error = db.sync().unwrap_err();
        assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        for error in [
            db.sync().unwrap_err(),
            db.put("more", "value").unwrap_err(),
            db.delete("last").unwrap_err(),
            db.flush().unwrap_err(),
            db.compact().unwrap_err(),
            db.wait_until_settled().unwrap_err(),
        ] {
            assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        }
        assert_eq!(db.get("last").unwrap().unwrap(), "value");
        assert_eq!(all(&db).len(), 41);
        db.snapshot().get("last").unwrap().unwrap();
        assert!(matches!(db.close(), Err(Error::Poisoned { .. })));
        assert_eq!(syncs(), before + 1, "a failed sync was tried again");
        // This crash lost no data: the file system kept everything.
        assert_eq!(all(&common::options().open(&dir).unwrap()).len(), 41);
    }
}

#[test]
fn a_sync_that_fails_when_a_log_is_closed_is_not_tried_again_in_the_background() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let syncs = Arc::new(AtomicU64::new(0));
    let hook = Arc::clone(&syncs);
    let vfs = HookVfs::new(move |kind, operation| {
        let flushes = std::thread::current().name().is_some_and(|name| name == "criba-flush");
        if flushes && (kind, operation) == (FileKind::Wal, Operation::Sync) {
            hook.fetch_add(1, Ordering::SeqCst);
            return Err(no_space());
        }
        Ok(())
    });
    let db = common::options().vfs(vfs).open(&dir).unwrap();
    db.put("key", "value").unwrap();
    let error = db.flush().unwrap_err();
    assert!(matches!(error, Error::Poisoned { .. }), "{error}");
    // Long enough for a few more tries, if there were any.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(syncs.load(Ordering::SeqCst), 1, "a failed sync was tried again");
    assert_eq!(db.get("key").unwrap().unwrap(), "value");
    assert!(matches!(db.close(), Err(Error::Poisoned { .. })));
    assert_eq!(all(&common::options().open(&dir).unwrap()).len(), 1);
}

/// After a failed sync the manifest may have the edit or not, so the files that the edit names stay.
#[test]
fn a_failed_sync_of_the_manifest_loses_nothing() {
    for threads in [0, 1] {
        for compacting in [false, true] {
            let parent = common::tempdir();
            let dir = parent.path().join("store");
            let vfs = real();
            let options = common::options().background_threads(threads).auto_compaction(false);
            let db = options.vfs(Arc::new(vfs.clone())).open(&dir).unwrap();
            for round in 0..3_u32 {
                for number in 0..40_u32 {
                    db.put(number.to_be_bytes(), round.to_be_bytes()).unwrap();
                }
                db.flush().unwrap();
            }
            db.put("last", "value").unwrap();
            let expected = all(&db);
            if compacting {
                db.flush().unwrap();
            }
            vfs.add(full(FileKind::Manifest, Operation::Sync));
            if compacting { db.compact() } else { db.flush() }.unwrap_err();
            assert_eq!(vfs.injected().len(), 1);
            let error = db.put("more", "value").unwrap_err();
            assert!(matches!(error, Error::Poisoned { .. }), "{error}");
            assert_eq!(all(&db), expected);
            drop(db);
            let db = common::options().open(&dir).unwrap();
            assert_eq!(all(&db), expected, "threads {threads}, compacting {compacting}");
        }
    }
}

/// Each attempt would leave a table, which no manifest names, until the disk is full.
#[test]
fn a_poisoned_store_writes_no_more_tables() {
    for compacting in [false, true] {
        let dir = common::tempdir();
        let vfs = real();
        let options = common::options().background_threads(1).l0_compaction_trigger(2);
        let options = options.auto_compaction(compacting);
        let db = options.vfs(Arc::new(vfs.clone())).open(dir.path()).unwrap();
        db.put("a", "value").unwrap();
        db.flush().unwrap();
        db.put("b", "value").unwrap();
        vfs.add(full(FileKind::Manifest, Operation::Sync).skip(u64::from(compacting)));
        // With compactions the flush succeeds, and the compaction of both tables fails.
        let _ = db.flush();
        let poisoned = || matches!(db.put("c", "value"), Err(Error::Poisoned { .. }));
        wait_until("the failed sync", poisoned);
        std::thread::sleep(Duration::from_millis(500)); // attempts after 50, 100, 200 ms
        let tables = files_with(dir.path(), "sst").len();
        assert!(tables <= 2 + usize::from(compacting), "{tables} tables");
    }
}

#[test]
fn a_full_disk_fails_writers_and_lets_them_go_on_when_there_is_room_again() {
    for threads in [0, 1, 2] {
        for operation in [Operation::Create, Operation::Append, Operation::Sync] {
            let parent = common::tempdir();
            let dir = parent.path().join("store");
            let vfs = real();
            let options = || {
                common::options().background_threads(threads).memtable_bytes(2048).cache_bytes(0)
            };
            let db = options().vfs(Arc::new(vfs.clone())).open(&dir).unwrap();
            vfs.add(full(FileKind::Table, operation).from_then_on());
            let mut expected = BTreeMap::new();
            let mut put = |number: u32, db: &Db| {
                let key = number.to_be_bytes().to_vec();
                db.put(&key, [1; 20]).map(|()| expected.insert(key, vec![1; 20]))
            };
            let mut failed = None;
            for number in 0..1000 {
                if let Err(error) = put(number, &db) {
                    failed = Some(error);
                    break;
                }
            }
            let error = failed.expect("writers must get the error");
            assert!(matches!(error, Error::Background { .. }), "{error}");
            assert!(matches!(db.flush(), Err(Error::Background { .. } | Error::Io { .. })));
            assert_eq!(db.tables().len(), 0);
            // A flush that is being tried again has half a table for a moment; none stays.
            wait_until("no half table", || files_with(&dir, "sst").is_empty());
            vfs.clear();
            wait_until("room", || db.flush().is_ok());
            for number in 1000..1100 {
                put(number, &db).unwrap();
            }
            db.wait_until_settled().unwrap();
            assert_eq!(all(&db), expected);
            db.close().unwrap();
            assert_eq!(all(&options().open(&dir).unwrap()), expected);
        }
    }
}

#[test]
fn a_crash_while_the_disk_is_full_loses_nothing() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let full = Arc::new(AtomicBool::new(false));
    let hook = Arc::clone(&full);
    let vfs = HookVfs::new(move |kind, what| {
        let grows = matches!(what, Operation::Create | Operation::Append);
        if kind != FileKind::Directory && grows && hook.load(Ordering::SeqCst) {
            return Err(no_space());
        }
        Ok(())
    });
    let db =
        common::options().background_threads(0).memtable_bytes(2048).vfs(vfs).open(&dir).unwrap();
    let mut expected = BTreeMap::new();
    let mut failed = 0;
    for number in 0..400_u32 {
        full.store(number % 3 == 0, Ordering::SeqCst);
        let key = number.to_be_bytes().to_vec();
        match db.put(&key, [3; 40]) {
            Ok(()) => {
                expected.insert(key, vec![3; 40]);
            }
            Err(Error::Io { .. } | Error::Background { .. }) => failed += 1,
            Err(other) => panic!("{other}"),
        }
        if number % 50 == 49 {
            let copy = parent.path().join("copy");
            restore(&copy, &contents(&dir));
            let db = common::options().open(&copy).unwrap();
            assert_eq!(all(&db), expected, "after {number}");
            assert_eq!(db.recovery().lost_tail, None);
        }
    }
    assert_eq!(all(&db), expected);
    println!("{failed} of 400 writes failed on a disk that was full now and then");
    assert!(failed >= 130);
}

/// A failing compaction blocks writers only until they get its error.
#[test]
fn failing_compactions_fail_writers_and_let_them_go_on_afterwards() {
    for threads in [1, 2] {
        let parent = common::tempdir();
        let dir = parent.path().join("store");
        let full = Arc::new(AtomicBool::new(true));
        let hook = Arc::clone(&full);
        let vfs = HookVfs::new(move |kind, what| {
            let thread = std::thread::current();
            let compacts = thread.name().is_some_and(|name| name.starts_with("criba-compact"));
            let creates = (kind, what) == (FileKind::Table, Operation::Create);
            if compacts && creates && hook.load(Ordering::SeqCst) {
                return Err(no_space());
            }
            Ok(())
        });
        let options = || {
            common::options()
                .background_threads(threads)
                .memtable_bytes(2048)
                .l0_compaction_trigger(2)
                .l0_slowdown_trigger(4)
                .l0_stop_trigger(6)
        };
        let told = Arc::<Mutex<Vec<_>>>::default();
        let events = Arc::clone(&told);
        let listener = move |event: &Event| {
            if let Event::BackgroundFailed { work, .. } | Event::BackgroundRecovered { work, .. } =
                event
            {
                let fails = matches!(event, Event::BackgroundFailed { .. });
                events.lock().unwrap().push((*work, fails));
            }
        };
        let db = options().on_event(listener).vfs(vfs).open(&dir).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut expected = BTreeMap::new();
        let mut failed = None;
        for number in 0..10_000_u32 {
            // Overlapping tables, which cannot just be moved.
            let key = rng.random_range(0..1000_u32).to_be_bytes().to_vec();
            match db.put(&key, number.to_be_bytes()) {
                Ok(()) => expected.insert(key, number.to_be_bytes().to_vec()),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            };
        }
        let error = failed.expect("writers must get the error");
        // The event comes before the error, and once.
        assert_eq!(told.lock().unwrap()[..], [("compaction", true)]);
        assert!(db.stats().activity.tasks_failed > 0);
        assert!(matches!(error, Error::Background { .. }), "{error}");
        assert!(matches!(db.wait_until_settled(), Err(Error::Background { .. })));
        assert_eq!(all(&db), expected);
        full.store(false, Ordering::SeqCst);
        wait_until("compactions to go on", || db.wait_until_settled().is_ok());
        for number in 0..500_u32 {
            let key = number.to_be_bytes().to_vec();
            db.put(&key, "again").unwrap();
            expected.insert(key, b"again".to_vec());
        }
        db.wait_until_settled().unwrap();
        assert!(db.tables().iter().filter(|table| table.level == 0).count() < 2);
        assert_eq!(all(&db), expected);
        assert_eq!(told.lock().unwrap()[..], [("compaction", true), ("compaction", false)]);
        drop(db);
        assert_eq!(all(&options().open(&dir).unwrap()), expected);
    }
}

/// The threads of a store on a full disk wait longer each time, however many they are: a failure of one
/// thread does not wake the others.
#[test]
fn work_that_fails_is_tried_again_now_and_then() {
    // A busy machine delays a close, but not three times.
    let is_quick = |_| closing_after_failures() < Duration::from_millis(300);
    assert!((0..3).any(is_quick), "closing waited");
}

/// The duration of a close while threads wait for their next try.
fn closing_after_failures() -> Duration {
    let tries = Arc::new(AtomicU64::new(0));
    let hook = {
        let tries = Arc::clone(&tries);
        move |kind, operation| {
            if (kind, operation) == (FileKind::Table, Operation::Create) {
                tries.fetch_add(1, Ordering::SeqCst);
                return Err(no_space());
            }
            Ok(())
        }
    };
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = common::options().auto_compaction(false).open(&dir).unwrap();
    for number in 0..5 {
        db.put("key", number.to_string()).unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    let options = common::options().background_threads(2).vfs(HookVfs::new(hook));
    let db = options.open(&dir).unwrap();
    db.put("key", "more").unwrap();
    assert!(matches!(db.flush(), Err(Error::Background { .. })));
    std::thread::sleep(Duration::from_secs(1));
    let tries = tries.load(Ordering::SeqCst);
    println!("three threads tried {tries} times in a second");
    // After 50, 150, 350 and 750 milliseconds.
    assert!((3..=20).contains(&tries), "{tries}");
    let start = Instant::now();
    let _ = db.close();
    start.elapsed()
}

/// Writes of other threads go on during a sync, which makes durable what was appended before it began. If a frame
/// claimed more, its store would be refused after a power failure.
#[test]
fn a_write_during_a_sync_is_not_synced_by_it() {
    let (sim, handle) = (SimVfs::new(), Arc::new(OnceLock::<WeakDb>::new()));
    let (db_of, during) = (Arc::clone(&handle), AtomicU32::new(0));
    let sim = sim.during_sync(move |kind| {
        if let (FileKind::Wal, Some(db)) = (kind, db_of.get().and_then(WeakDb::upgrade)) {
            let number = during.fetch_add(1, Ordering::Relaxed);
            db.put(format!("during {number}"), [b'd'; 2000]).unwrap();
        }
    });
    let options = Options::new().background_threads(0);
    let db = options.clone().vfs(Arc::new(sim.clone())).open("/store").unwrap();
    handle.set(db.downgrade()).unwrap();
    for number in 0..3 {
        db.put_with(format!("synced {number}"), [b's'; 2000], Durability::Synced).unwrap();
        db.put(format!("after {number}"), [b'a'; 2000]).unwrap();
    }
    let disk = sim.disk();
    let items = disk.unsynced(Unit::Sector).len();
    assert!(items > 8, "{items}");
    let mut lost = 0;
    for one in 0..items {
        for all_before in [false, true] {
            let mut item = 0;
            let left = disk.power_failure(Unit::Sector, |_| {
                let is_lost = item == one || (all_before && item < one);
                item += 1;
                if is_lost { Keep::OLD } else { Keep::NEW }
            });
            let db = options.clone().vfs(Arc::new(SimVfs::on(left))).open("/store").unwrap();
            for number in 0..3 {
                assert!(db.contains(format!("synced {number}")).unwrap(), "{one} {number}");
            }
            lost += u32::from(!db.contains("during 2").unwrap());
        }
    }
    println!("{items} unsynced items, {lost} times the last write during a sync was lost");
    assert!(lost > 0);
}

/// The flush of a sealed memtable waits for the end of its log, which waits for the sync of the log that runs.
#[test]
fn a_log_that_is_sealed_during_its_sync_ends_after_it() {
    const LOG: &str = "/store/000001.log";
    let (sim, handle) = (SimVfs::new(), Arc::new(OnceLock::<WeakDb>::new()));
    let flushes = Arc::new(AtomicBool::new(false));
    let (db_of, disk_of, begun) = (Arc::clone(&handle), sim.clone(), Arc::clone(&flushes));
    let sealed = AtomicBool::new(false);
    let sim = sim.during_sync(move |kind| {
        let Some(db) = db_of.get().and_then(WeakDb::upgrade) else { return };
        if kind != FileKind::Wal || sealed.swap(true, Ordering::SeqCst) {
            return;
        }
        db.put("second", [2; 5000]).unwrap();
        db.put("third", [3; 10]).unwrap();
        let log = || disk_of.disk().read(LOG).unwrap().to_vec();
        let before = log();
        wait_until("the flush", || begun.load(Ordering::SeqCst));
        std::thread::sleep(Duration::from_millis(50)); // long enough for an end frame
        assert!(log() == before, "the log changed during its sync");
    });
    let options = Options::new().background_threads(1).memtable_bytes(4096);
    let listener = move |event: &Event| {
        flushes.fetch_or(matches!(event, Event::FlushStarted { .. }), Ordering::SeqCst);
    };
    let db = options.clone().vfs(Arc::new(sim.clone())).on_event(listener).open("/store").unwrap();
    db.put("first", [1; 10]).unwrap();
    assert!(sim.disk().read(LOG).is_some());
    handle.set(db.downgrade()).unwrap();
    db.sync().unwrap();
    wait_until("the removal of the log", || sim.disk().read(LOG).is_none());
    let left = sim.disk().power_failure(Unit::Sector, |_| Keep::OLD);
    let db = options.vfs(Arc::new(SimVfs::on(left))).open("/store").unwrap();
    assert!(db.contains("first").unwrap() && db.contains("second").unwrap());
}
