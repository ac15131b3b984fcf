//! The log of the next memtable is made ahead, so that no writer waits for it. One that is not used does no harm.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{
    self, HookVfs, LOG_HEADER_BYTES, copy_dir, files_with, wait_until, written_logs,
};
use criba::vfs::{Fault, FaultRule, FaultVfs, FileKind, Operation, RealVfs};
use criba::{CheckpointFiles, Db, Error, Event, Options, Uncertain, repair, verify};

const MEMTABLE_BYTES: usize = 64 << 10;

fn options() -> Options {
    common::options().background_threads(1).memtable_bytes(MEMTABLE_BYTES)
}

/// Fills more than half of the memtable.
fn put_half(db: &Db, key: &str) {
    db.put(key, vec![7; MEMTABLE_BYTES / 8 * 5]).unwrap();
}

/// The log that is made ahead when half of the memtable is full.
fn next_log(db: &Db, dir: &Path) -> PathBuf {
    let newest = || files_with(dir, "log").pop().unwrap();
    let before = newest();
    put_half(db, "a");
    db.put("b", "").unwrap();
    let length = |log: PathBuf| std::fs::metadata(log).map_or(0, |file| file.len() as usize);
    wait_until("the next log", || newest() > before && length(newest()) >= LOG_HEADER_BYTES);
    newest()
}

fn keys(db: &Db) -> String {
    db.iter().map(|item| String::from_utf8(item.unwrap().0.to_vec()).unwrap()).collect()
}

#[test]
fn a_full_memtable_takes_the_log_that_was_made_ahead() {
    let dir = common::tempdir();
    let vfs = FaultVfs::new(Arc::new(RealVfs));
    let db = options().vfs(Arc::new(vfs.clone())).open(dir.path()).unwrap();
    let next = next_log(&db, dir.path());
    let full = FaultRule::new(Fault::NoSpace).kinds([FileKind::Wal]);
    vfs.add(full.operations([Operation::Create]).from_then_on());
    put_half(&db, "c");
    db.put("d", "").unwrap();
    wait_until("the flush", || written_logs(dir.path()) == [next.clone()]);

    // There is none ahead now, so the write that needs one makes it, and has the error.
    put_half(&db, "e");
    put_half(&db, "f");
    assert!(matches!(db.put("g", "").unwrap_err(), Error::Io { .. }));
    vfs.clear();
    db.put("g", "").unwrap();
    assert_eq!(keys(&db), "abcdefg");
}

#[test]
fn a_log_that_was_not_used_is_removed_when_the_store_is_closed() {
    let dir = common::tempdir();
    let db = options().open(dir.path()).unwrap();
    let next = next_log(&db, dir.path());
    db.close().unwrap();
    assert!(!next.exists());
    let db = options().open(dir.path()).unwrap();
    assert_eq!((keys(&db).as_str(), db.recovery().logs), ("ab", 1));
}

#[test]
fn a_log_ahead_moves_with_its_directory() {
    let parent = common::tempdir();
    let (dir, moved) = (parent.path().join("store"), parent.path().join("moved"));
    let db = options().open(&dir).unwrap();
    let next = next_log(&db, &dir);
    std::fs::rename(&dir, &moved).unwrap();
    put_half(&db, "c");
    db.put("d", "").unwrap();
    let used = moved.join(next.file_name().unwrap());
    wait_until("the flush", || written_logs(&moved) == [used.clone()]);
    db.close().unwrap();
    assert!(!dir.exists());
    assert_eq!(keys(&options().open(&moved).unwrap()), "abcd");
}

/// Checks all that reads logs on copies of a directory in which a process ended.
fn check_crash(dir: &Path, expected: &str) {
    let copy = |name: &str| {
        let copy = dir.with_extension(name);
        copy_dir(dir, &copy);
        copy
    };
    let found = verify(copy("verified")).unwrap();
    assert!(found.is_sound() && found.notes.is_empty(), "{found:?}");
    let read_only = options().open_read_only(copy("read")).unwrap();
    assert_eq!(read_only.recovery().lost_tail, None);
    let (repaired, target) = (copy("broken"), dir.with_extension("repaired"));
    let found = repair(&repaired, &target, Uncertain::SetAside).unwrap();
    assert!(found.losses.is_empty(), "{found:?}");
    let opened = copy("opened");
    let (copied, checkpoint) = (dir.with_extension("copied"), dir.with_extension("checkpoint"));
    read_only.checkpoint(&copied, CheckpointFiles::default()).unwrap();
    options().open(&opened).unwrap().checkpoint(&checkpoint).unwrap();
    for found in [opened, target, copied, checkpoint] {
        let db = options().open(&found).unwrap();
        assert_eq!((keys(&db).as_str(), &db.recovery().lost_tail), (expected, &None));
        drop(db);
        std::fs::remove_dir_all(found).unwrap();
    }
    for left in ["verified", "read", "broken"] {
        std::fs::remove_dir_all(dir.with_extension(left)).unwrap();
    }
}

/// What a crash may leave of a log that was being made.
fn beginnings(log: &[u8]) -> [Vec<u8>; 4] {
    [log.to_vec(), Vec::new(), log[..20].to_vec(), vec![0; log.len()]]
}

#[test]
fn a_log_ahead_that_a_crash_leaves_is_accepted() {
    let parent = common::tempdir();
    let (dir, crashed) = (parent.path().join("store"), parent.path().join("crashed"));
    let db = options().open(&dir).unwrap();
    let next = next_log(&db, &dir);
    for bytes in beginnings(&std::fs::read(&next).unwrap()) {
        copy_dir(&dir, &crashed);
        std::fs::write(crashed.join(next.file_name().unwrap()), bytes).unwrap();
        check_crash(&crashed, "ab");
    }
}

/// Holds the flushes of a store.
fn held(options: Options, gate: &Arc<Mutex<()>>) -> Options {
    let gate = Arc::clone(gate);
    options.on_event(move |event| {
        if matches!(event, Event::FlushStarted { .. }) {
            drop(gate.lock().unwrap());
        }
    })
}

#[test]
fn a_log_ahead_that_lost_its_name_is_not_used_and_may_come_back() {
    let parent = common::tempdir();
    let (dir, crashed) = (parent.path().join("store"), parent.path().join("crashed"));
    let gate = Arc::default();
    let db = held(options(), &gate).open(&dir).unwrap();
    let closed = Mutex::lock(&gate).unwrap();
    let next = next_log(&db, &dir);
    let bytes = std::fs::read(&next).unwrap();
    std::fs::remove_file(&next).unwrap();
    put_half(&db, "c");
    db.put("d", "").unwrap();
    db.sync().unwrap(); // ends the first log, which then names another next one
    for bytes in beginnings(&bytes) {
        copy_dir(&dir, &crashed);
        std::fs::write(crashed.join(next.file_name().unwrap()), bytes).unwrap();
        check_crash(&crashed, "abcd");
    }
    drop(closed);
}

/// The reader has read the log in use when the writer begins to use the next one, which the reader has listed.
#[test]
fn a_reader_beside_the_writer_misses_nothing_before_the_next_log() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let gate = Arc::default();
    let db = held(options(), &gate).open(&dir).unwrap();
    let closed = Mutex::lock(&gate).unwrap();
    let _next = next_log(&db, &dir);
    let (opens, writer) = (AtomicU64::new(0), db.clone());
    let vfs = HookVfs::new(move |kind, operation| {
        let opens_log = (kind, operation) == (FileKind::Wal, Operation::Open);
        if opens_log && opens.fetch_add(1, Ordering::SeqCst) == 1 {
            put_half(&writer, "c");
            writer.put("d", "").unwrap();
        }
        Ok(())
    });
    let reader = options().vfs(vfs).open_read_only(&dir).unwrap();
    assert_eq!(written_logs(&dir).len(), 2);
    assert_eq!(reader.recovery().lost_tail, None);
    let found = reader.iter().count();
    assert_eq!(found, 4);
    drop(closed);
}
