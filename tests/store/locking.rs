//! A store is open once: a second opening, in this process or another, fails at once. Closing unlocks it,
//! unless a snapshot, a scan or a running task needs the files.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{self, HookVfs, contents, wait_until};
use criba::vfs::{FileKind, Operation};
use criba::{Db, Error};

const CHILD_DIR: &str = "CRIBA_TEST_LOCKING_DIR";

fn is_locked(opened: criba::Result<Db>) -> bool {
    match opened {
        Err(Error::Locked { path, .. }) => {
            assert!(path.ends_with("LOCK"));
            true
        }
        Err(other) => panic!("{other}"),
        Ok(_) => false,
    }
}

/// Not a test: the other process of the test below, which prints its result on a line.
#[test]
#[ignore = "run by the test of two processes"]
fn another_process() {
    let dir = std::env::var_os(CHILD_DIR).expect("run by the test of two processes");
    let start = Instant::now();
    let locked = is_locked(common::options().open(dir));
    println!("\nanswer {} {}", if locked { "locked" } else { "open" }, start.elapsed().as_millis());
}

fn ask_another_process(dir: &std::path::Path) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "locking::another_process", "--ignored", "--nocapture"])
        .env(CHILD_DIR, dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("answer ")).expect("an answer");
    let (answer, milliseconds) = line.split_once(' ').unwrap();
    assert!(milliseconds.parse::<u64>().unwrap() < 5_000, "not at once: {milliseconds} ms");
    answer.to_owned()
}

#[test]
fn a_second_opening_in_the_same_process_fails_at_once_and_changes_nothing() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = Db::open(&dir).unwrap();
    db.put("key", "value").unwrap();
    let before = contents(&dir);
    let start = Instant::now();
    assert!(is_locked(Db::open(&dir)));
    assert!(start.elapsed() < Duration::from_secs(5));
    // Another way to the same directory.
    assert!(is_locked(Db::open(dir.join("..").join("store"))));
    assert_eq!(contents(&dir), before);
    drop(db);
    assert_eq!(Db::open(&dir).unwrap().get("key").unwrap().unwrap(), "value");
}

#[test]
fn another_process_is_kept_out_and_let_in() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = Db::open(&dir).unwrap();
    db.put("key", "value").unwrap();
    let before = contents(&dir);
    assert_eq!(ask_another_process(&dir), "locked");
    assert_eq!(contents(&dir), before);
    db.close().unwrap();
    assert_eq!(ask_another_process(&dir), "open");
    assert_eq!(Db::open(&dir).unwrap().get("key").unwrap().unwrap(), "value");
}

#[test]
fn closing_lets_go_though_other_handles_exist_and_they_say_closed() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = Db::open(&dir).unwrap();
    let other = db.clone();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    let again = Db::open(&dir).unwrap();
    let closed = |result: criba::Result<()>| matches!(result, Err(Error::Closed));
    assert!(closed(other.get("key").map(drop)));
    assert!(closed(other.contains("key").map(drop)));
    assert!(closed(other.explain("key").map(drop)));
    assert!(closed(other.put("key", "other")));
    assert!(closed(other.delete("key")));
    assert!(closed(other.sync()));
    assert!(closed(other.flush()));
    assert!(closed(other.compact()));
    assert!(closed(other.wait_until_settled()));
    assert!(closed(other.first().map(drop)));
    assert!(closed(other.may_contain("key").map(drop)));
    for mut range in [other.range("k"..), other.prefix("k"), other.iter(), other.snapshot().iter()]
    {
        assert!(closed(range.next_back().unwrap().map(drop)));
        assert!(range.next().is_none());
    }
    assert!(closed(other.keys().next().unwrap().map(drop)));
    let snapshot = other.snapshot().clone();
    assert!(closed(snapshot.get("key").map(drop)));
    assert!(closed(snapshot.approximate_len(..).map(drop)));
    assert!(closed(snapshot.snapshot().get_many(&["key"]).map(drop)));
    assert_eq!(format!("{snapshot:?}"), "Snapshot(Closed)");
    assert!(closed(other.clone().close()));
    drop(other); // which must not close the store that is open now
    again.put("key", "new").unwrap();
    assert_eq!(again.get("key").unwrap().unwrap(), "new");
    assert!(is_locked(Db::open(&dir)));
}

#[test]
fn a_snapshot_or_scan_keeps_the_lock_and_reads_on_after_closing() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    for by_drop in [false, true] {
        let db = Db::open(&dir).unwrap();
        for number in 0..100_u32 {
            db.put(number.to_be_bytes(), "value").unwrap();
        }
        db.flush().unwrap();
        let snapshot = db.snapshot();
        let mut range = db.iter();
        range.next().unwrap().unwrap();
        if by_drop {
            drop(db);
        } else {
            db.close().unwrap();
        }
        let error = Db::open(&dir).unwrap_err();
        if cfg!(target_os = "linux") {
            assert!(error.to_string().contains(" is held by this process: "), "{error}");
        }
        assert!(error.to_string().contains("open the store read-only"), "{error}");
        assert_eq!(snapshot.get(7_u32.to_be_bytes()).unwrap().unwrap(), "value");
        assert_eq!(snapshot.iter().map(Result::unwrap).count(), 100);
        drop(snapshot);
        assert!(is_locked(Db::open(&dir)));
        assert_eq!(range.by_ref().map(Result::unwrap).count(), 99);
        assert!(is_locked(Db::open(&dir)));
        drop(range);
        Db::open(&dir).unwrap();
    }
}

/// One handle closes the store while a flush or compaction on another caller's thread is held. No opening
/// succeeds before the task ends, or the opening would remove the task's tables.
#[test]
fn work_on_a_callers_thread_keeps_the_lock_until_it_ends() {
    for (threads, compacting) in [(0, true), (1, true), (0, false)] {
        let parent = common::tempdir();
        let dir = parent.path().join("store");
        let (hold, held) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (hook_hold, hook_held) = (Arc::clone(&hold), Arc::clone(&held));
        let vfs = HookVfs::new(move |kind, operation| {
            if (kind, operation) == (FileKind::Table, Operation::Sync)
                && hook_hold.load(Ordering::SeqCst)
            {
                hook_held.store(true, Ordering::SeqCst);
                wait_until("the test to let go", || !hook_hold.load(Ordering::SeqCst));
            }
            Ok(())
        });
        let options = || common::options().background_threads(threads).auto_compaction(false);
        let db = options().vfs(vfs).open(&dir).unwrap();
        for round in 0..3_u32 {
            for number in 0..50_u32 {
                db.put(number.to_be_bytes(), round.to_be_bytes()).unwrap();
            }
            if compacting || round < 2 {
                db.flush().unwrap();
            }
        }
        hold.store(true, Ordering::SeqCst);
        let worker = std::thread::spawn({
            let db = db.clone();
            move || if compacting { db.compact() } else { db.flush() }
        });
        wait_until("work to be under way", || held.load(Ordering::SeqCst));
        let closer = std::thread::spawn(move || db.close());
        // Whether or not closing waits for the work, another opening fails.
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(100) {
            assert!(is_locked(options().open(&dir)), "another opening succeeded");
        }
        hold.store(false, Ordering::SeqCst);
        closer.join().unwrap().unwrap();
        let worked = worker.join().unwrap();
        assert!(matches!(worked, Ok(()) | Err(Error::Closed)), "{worked:?}");
        let db = options().open(&dir).unwrap();
        for number in 0..50_u32 {
            let value = db.get(number.to_be_bytes()).unwrap().unwrap();
            assert_eq!(value, 2_u32.to_be_bytes());
        }
        drop(db);
        // Nothing that the manifest names went missing behind our back.
        options().open(&dir).unwrap();
    }
}

/// The policy needs a new manifest. A close does not wait for the call; another opening would have a manifest of its
/// own, and remove this one.
#[test]
fn a_policy_that_is_being_set_keeps_the_directory_locked_after_a_close() {
    let dir = common::tempdir();
    let (hold, held) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (hook_hold, hook_held) = (Arc::clone(&hold), Arc::clone(&held));
    let vfs = HookVfs::new(move |kind, operation| {
        let is_new_manifest = (kind, operation) == (FileKind::Manifest, Operation::Create);
        if is_new_manifest && hook_hold.load(Ordering::SeqCst) {
            hook_held.store(true, Ordering::SeqCst);
            wait_until("the test to go on", || !hook_hold.load(Ordering::SeqCst));
        }
        Ok(())
    });
    let options = || criba::Options::new().background_threads(0);
    let db = options().vfs(vfs).open(dir.path()).unwrap();
    db.put("key", "value").unwrap();
    hold.store(true, Ordering::SeqCst);
    let setter = std::thread::spawn({
        let db = db.clone();
        move || db.set_policy(criba::FilterPolicy::ribbon())
    });
    wait_until("the new manifest to be made", || held.load(Ordering::SeqCst));
    db.close().unwrap();
    assert!(is_locked(options().open(dir.path())));
    hold.store(false, Ordering::SeqCst);
    setter.join().unwrap().unwrap();
    let db = options().open(dir.path()).unwrap();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    assert_eq!(db.policy(), criba::FilterPolicy::ribbon());
}
