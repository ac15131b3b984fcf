//! Checkpoints hold a prefix of the writes, with all that were acknowledged before; they are whole or not
//! there, and independent of the store.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use criba::vfs::{Fault, FaultRule, FaultVfs, FileKind, Operation, RealVfs, SimVfs, Vfs};
use criba::{Db, Error, FilterPolicy, Options, Snapshot, verify, verify_with};

use crate::common::{self, contents, files_with, tempdir, written_logs};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn small() -> Options {
    common::options()
        .memtable_bytes(16 << 10)
        .table_bytes(8 << 10)
        .level_base_bytes(32 << 10)
        .l0_compaction_trigger(2)
        .seed(1)
}

fn all(db: &Db) -> Contents {
    let items = db.iter().map(|item| item.unwrap());
    items.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn all_of(snapshot: &Snapshot) -> Contents {
    let items = snapshot.iter().map(|item| item.unwrap());
    items.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn key(number: u64) -> [u8; 8] {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()
}

fn put(db: &Db, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let mut value = [7; 100];
        value[..8].copy_from_slice(&number.to_be_bytes());
        db.put(key(number), value).unwrap();
    }
}

/// How many of the numbered writes are there; they must be the first ones.
fn prefix(found: &Contents) -> u64 {
    let mut numbers: Vec<u64> =
        found.values().map(|value| u64::from_be_bytes(value[..8].try_into().unwrap())).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "a hole among {}", numbers.len());
    numbers.len() as u64
}

fn is_there(vfs: &dyn Vfs, path: &str) -> bool {
    vfs.open_dir(path.as_ref()).is_ok()
}

#[test]
fn a_checkpoint_is_the_store_at_that_moment_and_a_sound_store() {
    for threads in [0, 2] {
        let dir = tempdir();
        let path = |name: &str| dir.path().join(name);
        let db = small().background_threads(threads).open(path("store")).unwrap();
        db.checkpoint(path("empty")).unwrap();
        put(&db, 0..1500);
        db.delete(key(77)).unwrap();
        db.rebuild_filters(&common::another_policy()).unwrap();
        put(&db, 1500..1537);
        let snapshot = db.snapshot();
        db.checkpoint(path("full")).unwrap();
        let (first, policy) = (all_of(&snapshot), db.policy());
        assert_eq!(first.len(), 1536);
        // Threads may have compacted all the tables with filter files.
        assert!(threads > 0 || !files_with(&path("full"), "flt").is_empty());
        assert!(verify(path("full")).unwrap().changes > 0, "the logs hold some");
        put(&db, 2000..2500);
        db.close().unwrap();

        for (name, expected) in [("empty", &Contents::new()), ("full", &first)] {
            let found = verify(path(name)).unwrap();
            assert!(found.is_sound() && found.notes.is_empty(), "{name}: {found:?}");
            let copy = Db::open(path(name)).unwrap();
            assert!(copy.recovery().lost_tail.is_none() && copy.recovery().lost_edit.is_none());
            assert!(all(&copy) == *expected, "{name}");
            if name == "full" {
                assert_eq!(copy.policy(), policy);
            }
            // A checkpoint of a checkpoint.
            let again = path(&format!("{name}-again"));
            copy.checkpoint(&again).unwrap();
            drop(copy);
            assert!(all(&Db::open(again).unwrap()) == *expected, "{name}");
        }
        let names = std::fs::read_dir(dir.path()).unwrap();
        let left = names
            .map(|name| name.unwrap().file_name())
            .filter(|name| name.to_str().unwrap().starts_with('.'));
        assert_eq!(left.count(), 0);
    }
}

#[test]
fn a_checkpoint_is_a_prefix_of_the_writes_while_flushes_compactions_and_rebuilds_run() {
    const CHECKPOINTS: u64 = 12;
    let dir = tempdir();
    let vfs = common::HookVfs::without_syncs();
    let db = small().vfs(vfs.clone()).background_threads(2).open(dir.path().join("store")).unwrap();
    let (done, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut counts = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let next = acknowledged.load(Ordering::SeqCst);
                put(&db, next..next + 1);
                acknowledged.store(next + 1, Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            for policy in [FilterPolicy::ribbon(), FilterPolicy::bloom()].iter().cycle() {
                if done.load(Ordering::SeqCst) {
                    return;
                }
                db.rebuild_filters(policy).unwrap();
                db.set_filter_memory(Some(4096)).unwrap();
                db.set_filter_memory(None).unwrap();
            }
        });
        for number in 0..CHECKPOINTS {
            let wanted = acknowledged.load(Ordering::SeqCst) + 300;
            common::wait_until("writes", || acknowledged.load(Ordering::SeqCst) > wanted);
            let before = acknowledged.load(Ordering::SeqCst);
            db.checkpoint(dir.path().join(number.to_string())).unwrap();
            counts.push(before..=acknowledged.load(Ordering::SeqCst) + 1);
        }
        done.store(true, Ordering::SeqCst);
    });
    let activity = db.stats().activity;
    assert!(activity.flushes > 0 && activity.compactions > 0, "{activity:?}");
    for (number, counts) in counts.iter().enumerate() {
        let path = dir.path().join(number.to_string());
        let found = verify(&path).unwrap();
        assert!(found.is_sound() && found.notes.is_empty(), "{number}: {found:?}");
        let there = prefix(&all(&small().open(path).unwrap()));
        assert!(counts.contains(&there), "checkpoint {number}: {there}, not {counts:?}");
    }
}

#[test]
fn a_checkpoint_and_its_store_do_not_see_each_others_changes() {
    let dir = tempdir();
    let path = |name: &str| dir.path().join(name);
    let db = small().open(path("store")).unwrap();
    put(&db, 0..1000);
    db.checkpoint(path("copy")).unwrap();
    let before = contents(&path("copy"));
    db.put("only there", "").unwrap();
    db.compact().unwrap();
    assert!(contents(&path("copy")) == before);

    let copy = small().open(path("copy")).unwrap();
    assert_eq!(prefix(&all(&copy)), 1000);
    for number in 0..1000 {
        copy.delete(key(number)).unwrap();
    }
    copy.put("only here", "").unwrap();
    copy.compact().unwrap();
    assert_eq!((copy.get("only there").unwrap(), db.get("only here").unwrap()), (None, None));
    drop(db);
    let db = small().open(path("store")).unwrap();
    assert_eq!(db.iter().count(), 1001);
    assert!(verify(path("copy")).is_err(), "it is open");
    drop((copy, db));
    for name in ["store", "copy"] {
        assert!(verify(path(name)).unwrap().is_sound());
    }
}

#[test]
fn an_existing_path_is_refused_before_anything_is_written() {
    let dir = tempdir();
    let db = small().open(dir.path().join("store")).unwrap();
    put(&db, 0..10);
    let made = dir.path().join("made");
    std::fs::create_dir(&made).unwrap();
    let path = made.join("path");
    let refused = || {
        let error = db.checkpoint(&path).unwrap_err();
        let Error::Io { source, path: named, .. } = &error else { panic!("{error}") };
        assert_eq!((source.kind(), named), (io::ErrorKind::AlreadyExists, &path));
        assert_eq!(std::fs::read_dir(&made).unwrap().count(), 1);
    };
    std::fs::write(&path, "a file").unwrap();
    refused();
    assert_eq!(std::fs::read(&path).unwrap(), b"a file");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    refused();
    std::fs::write(path.join("file"), "").unwrap();
    refused();
    let store = db.checkpoint(dir.path().join("store")).unwrap_err();
    assert!(matches!(store, Error::InvalidPath { .. }), "{store}");
    assert!(db.checkpoint("/").is_err());
    std::fs::remove_dir_all(&path).unwrap();
    db.checkpoint(&path).unwrap();
}

#[test]
fn what_a_crash_left_is_replaced_and_what_is_foreign_is_not() {
    let dir = tempdir();
    let db = small().open(dir.path().join("store")).unwrap();
    put(&db, 0..10);
    let files = ["000001.sst", "000001-0001.flt", "LOCK", "CURRENT"];
    let leave = |name: &str, files: &[&str]| {
        let left = dir.path().join(name);
        std::fs::create_dir(&left).unwrap();
        for name in files {
            std::fs::write(left.join(name), "half").unwrap();
        }
        left
    };
    let left = leave(".copy.checkpoint-tmp.0123456789abcdef", &files);
    let in_use = leave(".copy.checkpoint-tmp.1123456789abcdef", &files);
    let lock = RealVfs.open_dir(&in_use).unwrap().lock("LOCK".as_ref(), 0o600).unwrap();
    let foreign = [
        leave(".copy.checkpoint-tmp.2123456789abcdef", &[&files[..], &["foreign"]].concat()),
        leave(".copy.checkpoint-tmp.23456789abcdef", &files),
        leave(".copy.checkpoint-tmp.x123456789abcdef", &files),
        leave(".copy.checkpoint-tmp", &files),
        leave(".copy2.checkpoint-tmp.0123456789abcdef", &files),
        leave(".copy.repair-tmp.0123456789abcdef", &files),
    ];
    let copy = dir.path().join("copy");
    db.checkpoint(&copy).unwrap();
    assert_eq!(prefix(&all(&small().open(&copy).unwrap())), 10);
    assert!(!left.exists());
    for kept in &foreign {
        assert!(files.iter().all(|name| kept.join(name).exists()), "{}", kept.display());
    }
    assert!(foreign[0].join("foreign").exists());
    assert!(files.iter().all(|name| in_use.join(name).exists()));
    drop(lock);
    std::fs::remove_dir_all(&copy).unwrap();
    db.checkpoint(&copy).unwrap();
    assert!(!in_use.exists());
}

/// A store on a disk with faults, with tables, filter files, and entries in a log.
fn with_faults() -> (SimVfs, FaultVfs, Db) {
    let disk = SimVfs::new();
    let faults = FaultVfs::new(Arc::new(disk.clone()));
    let options = small().vfs(Arc::new(faults.clone())).background_threads(0);
    let db = options.open("/store").unwrap();
    put(&db, 0..500);
    db.rebuild_filters(&common::another_policy()).unwrap();
    put(&db, 500..520);
    (disk, faults, db)
}

fn check_on(disk: &SimVfs, path: &str, expected: u64) {
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let found = verify_with(path, &vfs, |_, _| {}).unwrap();
    assert!(found.is_sound() && found.notes.is_empty(), "{found:?}");
    assert_eq!(prefix(&all(&small().vfs(vfs).background_threads(0).open(path).unwrap())), expected);
}

#[test]
fn what_cannot_be_linked_is_copied() {
    let (disk, faults, db) = with_faults();
    faults.add(FaultRule::new(Fault::Io).operations([Operation::HardLink]).from_then_on());
    db.checkpoint("/copy").unwrap();
    faults.clear();
    let kinds: Vec<_> = faults.injected().iter().map(|fault| fault.kind).collect();
    assert!(kinds.contains(&FileKind::Table) && kinds.contains(&FileKind::Filter), "{kinds:?}");
    check_on(&disk, "/copy", 520);
}

#[test]
fn a_full_disk_and_a_damaged_log_leave_nothing() {
    let (disk, faults, db) = with_faults();
    let before: Vec<_> = disk.disk().files().map(|(path, _)| path.to_owned()).collect();
    let full = FaultRule::new(Fault::NoSpace);
    let full = full.operations([Operation::Append, Operation::Write, Operation::Create]);
    let wrong = FaultRule::new(Fault::FlippedBit(8000));
    for (rule, damaged) in [
        (full.clone().from_then_on(), false),
        (full.kinds([FileKind::Manifest]).from_then_on(), false),
        (wrong.operations([Operation::Read]).kinds([FileKind::Wal]), true),
    ] {
        faults.add(rule);
        let error = db.checkpoint("/copy").unwrap_err();
        faults.clear();
        match error {
            Error::Corrupt { path, .. } if damaged => assert!(path.starts_with("/store")),
            Error::Io { source, .. } if !damaged => {
                assert_eq!(source.kind(), io::ErrorKind::StorageFull);
            }
            other => panic!("{other}"),
        }
        let names = disk.open_dir("/".as_ref()).unwrap().list().unwrap();
        assert_eq!(names, ["store"]);
        assert!(
            before
                .iter()
                .map(std::path::PathBuf::as_path)
                .eq(disk.disk().files().map(|(path, _)| path))
        );
    }
    put(&db, 520..521);
    db.checkpoint("/copy").unwrap();
    check_on(&disk, "/copy", 521);
}

#[test]
fn a_poisoned_or_closed_store_makes_no_checkpoint() {
    let (disk, faults, db) = with_faults();
    faults.add(FaultRule::new(Fault::Io).operations([Operation::Sync]).kinds([FileKind::Wal]));
    assert!(matches!(db.sync(), Err(Error::Poisoned { .. })));
    assert!(matches!(db.checkpoint("/copy"), Err(Error::Poisoned { .. })));
    let other = db.clone();
    let _ = db.close();
    assert!(matches!(other.checkpoint("/copy"), Err(Error::Closed)));
    assert!(!is_there(&disk, "/copy"));
}

/// A flush ends, and removes its log, while the checkpoint's files are linked.
#[test]
fn a_log_that_a_flush_removes_meanwhile_is_in_the_checkpoint() {
    let dir = tempdir();
    let flushing: Arc<std::sync::OnceLock<criba::WeakDb>> = Arc::default();
    let armed = Arc::new(AtomicBool::new(false));
    let (store, once) = (Arc::clone(&flushing), Arc::clone(&armed));
    let vfs = common::HookVfs::new(move |kind, operation| {
        if (kind, operation) == (FileKind::Table, Operation::HardLink)
            && once.swap(false, Ordering::SeqCst)
        {
            let db = store.get().unwrap().upgrade().unwrap();
            db.flush().unwrap();
            db.compact().unwrap();
        }
        Ok(())
    });
    let db = small().vfs(vfs).background_threads(1).open(dir.path().join("store")).unwrap();
    flushing.set(db.downgrade()).unwrap();
    put(&db, 0..200);
    db.flush().unwrap();
    put(&db, 200..230);
    armed.store(true, Ordering::SeqCst);
    db.checkpoint(dir.path().join("copy")).unwrap();
    assert!(!armed.load(Ordering::SeqCst), "nothing was flushed meanwhile");
    assert_eq!(prefix(&all(&small().open(dir.path().join("copy")).unwrap())), 230);
    assert_eq!(prefix(&all(&db)), 230);
}

/// The memtables of a store whose flushes are held are in the checkpoint, each from its own log.
#[test]
fn the_logs_of_sealed_memtables_are_in_the_checkpoint() {
    let dir = tempdir();
    let gate = Arc::new(std::sync::Mutex::new(()));
    let held = gate.lock().unwrap();
    let waits = Arc::clone(&gate);
    let listener = Arc::new(move |event: &criba::Event| {
        if matches!(event, criba::Event::FlushStarted { .. }) {
            drop(waits.lock().unwrap());
        }
    });
    let options = small().background_threads(1).on_event(move |event| listener(event));
    let db = options.open(dir.path().join("store")).unwrap();
    let mut written = 0;
    while written_logs(&dir.path().join("store")).len() < 3 {
        put(&db, written..written + 1);
        written += 1;
        if written % 10 == 0 {
            db.sync().unwrap(); // fills the log ahead, and closes earlier ones
        }
    }
    let copy = dir.path().join("copy");
    db.checkpoint(&copy).unwrap();
    drop(held);
    let found = verify(&copy).unwrap();
    assert!(found.is_sound() && found.notes.is_empty(), "{found:?}");
    assert_eq!(prefix(&all(&small().open(&copy).unwrap())), written);
}

/// A flush records its table, and removes its log, between the moment and the opening of the log.
#[test]
fn a_log_that_is_gone_before_it_is_opened_is_in_a_table() {
    let dir = tempdir();
    let store = dir.path().join("store");
    let held = Arc::new(AtomicBool::new(true));
    let (waits, opens, of) = (Arc::clone(&held), Arc::clone(&held), store.clone());
    let listener = Arc::new(move |event: &criba::Event| {
        if matches!(event, criba::Event::FlushStarted { .. }) {
            common::wait_until("the gate", || !waits.load(Ordering::SeqCst));
        }
    });
    let vfs = common::HookVfs::new(move |kind, operation| {
        let opening = (kind, operation) == (FileKind::Wal, Operation::Open);
        if opening && opens.swap(false, Ordering::SeqCst) {
            common::wait_until("the flush", || written_logs(&of).len() == 1);
        }
        Ok(())
    });
    let options = small().vfs(vfs).background_threads(1).on_event(move |event| listener(event));
    let db = options.open(&store).unwrap();
    let mut written = 0;
    while written_logs(&store).len() < 2 {
        put(&db, written..written + 1);
        written += 1;
    }
    db.checkpoint(dir.path().join("copy")).unwrap();
    assert!(!held.load(Ordering::SeqCst), "the log was there");
    assert_eq!(prefix(&all(&small().open(dir.path().join("copy")).unwrap())), written);
}

/// The budget replaces a filter in memory, and a rebuild then removes its file, while tables are linked.
#[test]
fn a_filter_file_that_is_gone_before_it_is_linked_is_replaced() {
    let dir = tempdir();
    let store = dir.path().join("store");
    let this: Arc<std::sync::OnceLock<criba::WeakDb>> = Arc::default();
    let armed = Arc::new(AtomicBool::new(false));
    let (weak, once, of) = (Arc::clone(&this), Arc::clone(&armed), store.clone());
    let vfs = common::HookVfs::new(move |kind, operation| {
        if (kind, operation) == (FileKind::Table, Operation::HardLink)
            && once.swap(false, Ordering::SeqCst)
        {
            let old = files_with(&of, "flt").remove(0);
            let db = weak.get().unwrap().upgrade().unwrap();
            db.set_filter_memory(Some(0)).unwrap();
            db.rebuild_filters(&FilterPolicy::classic()).unwrap();
            common::wait_until("the removal", || !old.exists());
        }
        Ok(())
    });
    let options = small().vfs(vfs).background_threads(1).auto_compaction(false);
    let db = options.open(&store).unwrap();
    this.set(db.downgrade()).unwrap();
    put(&db, 0..500);
    db.flush().unwrap();
    db.rebuild_filters(&common::another_policy()).unwrap();
    armed.store(true, Ordering::SeqCst);
    db.checkpoint(dir.path().join("copy")).unwrap();
    assert!(!armed.load(Ordering::SeqCst), "the filter was there");
    let found = verify(dir.path().join("copy")).unwrap();
    assert!(found.is_sound() && found.notes.is_empty() && found.filters > 0, "{found:?}");
}

/// Links do not lead to another file system.
#[test]
fn a_checkpoint_on_another_file_system_is_a_copy() {
    let Ok(elsewhere) = tempfile::tempdir_in("/dev/shm") else {
        return common::skip("no second file system");
    };
    let dir = tempdir();
    let db = small().open(dir.path().join("store")).unwrap();
    put(&db, 0..500);
    db.checkpoint(elsewhere.path().join("a/b/copy")).unwrap();
    drop(db);
    assert!(Path::new(&elsewhere.path().join("a/b")).is_dir());
    assert_eq!(prefix(&all(&small().open(elsewhere.path().join("a/b/copy")).unwrap())), 500);
}
