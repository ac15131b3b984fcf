//! Paths of stores and checkpoints that name nothing, or something else than they seem to.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Arc, Mutex};

use criba::{Db, Durability, Event, Options, ReadOnlyDb, Repaired, Uncertain, repair, verify};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::common::{self, copy_dir};
use crate::tree::{difference, tree};

fn options() -> Options {
    common::options().background_threads(0)
}

/// A store with one table, and one entry in its log.
fn store(dir: &Path) -> Db {
    let db = options().open(dir).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    db.put("other", "value").unwrap();
    db
}

#[test]
fn an_empty_path_is_said_to_be_empty() {
    let error = Db::open("").unwrap_err().to_string();
    assert!(error.contains("empty"), "{error}");
    let error = options().open_read_only("").unwrap_err().to_string();
    assert!(error.contains("empty"), "{error}");
}

#[test]
fn a_dangling_symlink_is_said_to_be_one() {
    let parent = common::tempdir();
    let link = parent.path().join("link");
    symlink(parent.path().join("nowhere"), &link).unwrap();
    let errors = [
        Db::open(&link).unwrap_err(),
        options().create_if_missing(false).open(&link).unwrap_err(),
        options().open_read_only(&link).unwrap_err(),
        verify(&link).unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("symbolic link"), "{error}");
    }
    let names: Vec<_> = std::fs::read_dir(parent.path()).unwrap().collect();
    assert_eq!(names.len(), 1);
}

/// Its temporary name is longer.
#[test]
fn a_checkpoint_with_a_name_that_is_too_long_is_told_the_limit() {
    let parent = common::tempdir();
    let db = store(&parent.path().join("store"));
    let long = "a".repeat(240);
    let error = db.checkpoint(parent.path().join(&long)).unwrap_err().to_string();
    assert!(error.contains("long") && error.contains("240"), "{error}");
    // With what fits, it is made.
    db.checkpoint(parent.path().join(&long[..200])).unwrap();
    let names = std::fs::read_dir(parent.path()).unwrap().count();
    assert_eq!(names, 2);
}

#[test]
fn a_checkpoint_into_the_store_is_refused_and_makes_nothing() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = store(&dir);
    let link = parent.path().join("link");
    symlink(&dir, &link).unwrap();
    let before = tree(parent.path(), &[]);
    let mut accepted = Vec::new();
    for path in [dir.join("x"), link.join("x"), dir.join("..").join("store").join("x")] {
        if db.checkpoint(&path).is_ok() {
            accepted.push(path.clone());
            std::fs::remove_dir_all(path).unwrap();
        }
        assert_eq!(difference(&before, &tree(parent.path(), &[]), parent.path()), None);
    }
    assert!(accepted.is_empty(), "{accepted:?}");
    db.checkpoint(parent.path().join("x")).unwrap();
}

fn is_file(path: &Path) -> bool {
    path.symlink_metadata().unwrap().is_file()
}

/// All ways to open a store, and what each says of it.
fn refusals(dir: &Path) -> Vec<(&'static str, String)> {
    let to = dir.with_extension("repaired");
    let opened = options().open(dir).map(drop);
    let found = verify(dir).map(|found| found.findings.iter().map(ToString::to_string).collect());
    let repaired = repair(dir, &to, Uncertain::SetAside);
    let _ = std::fs::remove_dir_all(to);
    let said = |said: criba::Result<Vec<String>>| match said {
        Ok(found) => found.concat(),
        Err(error) => error.to_string(),
    };
    let mut all = vec![("open", said(opened.map(|()| Vec::new()))), ("verify", said(found))];
    match options().open_read_only(dir) {
        // It takes no lock.
        Ok(reader) if !is_file(&dir.join("LOCK")) => assert_eq!(count(&reader), 2),
        opened => all.push(("open_read_only", said(opened.map(|_| Vec::new())))),
    }
    match repaired {
        // It can do without `CURRENT`.
        Ok(repaired) if !is_file(&dir.join("CURRENT")) => {
            assert!(repaired.keys == 2 && repaired.losses.is_empty(), "{repaired:?}");
        }
        repaired => {
            let of = |repaired: Repaired| repaired.losses.iter().map(ToString::to_string).collect();
            all.push(("repair", said(repaired.map(of))));
        }
    }
    all
}

/// It could lead to a file of another store, or out of a backup.
#[test]
fn a_file_that_is_a_symbolic_link_is_refused_by_name() {
    for name in ["CURRENT", "LOCK", ".log", ".sst", "MANIFEST"] {
        let parent = common::tempdir();
        let dir = parent.path().join("store");
        let db = store(&dir);
        drop(db);
        let file = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        let file = file.filter(|path| path.to_str().unwrap().contains(name)).max().unwrap();
        let elsewhere = parent.path().join("elsewhere");
        std::fs::rename(&file, &elsewhere).unwrap();
        symlink(&elsewhere, &file).unwrap();
        let before = tree(parent.path(), &[]);
        for (call, said) in refusals(&dir) {
            assert!(said.contains("symbolic link"), "{name}, {call}: {said}");
            let of_file = said.contains(file.file_name().unwrap().to_str().unwrap());
            assert!(of_file, "{name}, {call}: {said}");
        }
        assert_eq!(difference(&before, &tree(parent.path(), &[]), parent.path()), None);
    }
}

/// Its target can change, and is no part of a checkpoint.
#[test]
fn a_checkpoint_links_no_symbolic_link() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = store(&dir);
    let files = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
    let table = files.filter(|path| path.extension().is_some_and(|e| e == "sst")).max().unwrap();
    let elsewhere = parent.path().join("elsewhere");
    std::fs::rename(&table, &elsewhere).unwrap();
    symlink(&elsewhere, &table).unwrap();
    let copy = parent.path().join("copy");
    let error = db.checkpoint(&copy).unwrap_err().to_string();
    assert!(error.contains("symbolic link"), "{error}");
    assert!(!copy.exists());
}

/// Opening a pipe waits for its other end.
#[test]
fn a_file_that_is_a_pipe_is_refused_at_once() {
    for name in ["CURRENT", "LOCK", ".log", ".sst", "MANIFEST"] {
        let parent = common::tempdir();
        let dir = parent.path().join("store");
        let db = store(&dir);
        drop(db);
        let file = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
        let file = file.filter(|path| path.to_str().unwrap().contains(name)).max().unwrap();
        std::fs::remove_file(&file).unwrap();
        mknodat(CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let (done, waiting) = std::sync::mpsc::channel();
        let store = dir.clone();
        std::thread::spawn(move || done.send(refusals(&store)));
        let said = waiting.recv_timeout(std::time::Duration::from_secs(60));
        for (call, said) in said.unwrap_or_else(|error| panic!("{name}: {error}")) {
            let of_file = said.contains(file.file_name().unwrap().to_str().unwrap());
            assert!(of_file && said.contains("pipe"), "{name}, {call}: {said}");
        }
    }
}

fn count(db: &ReadOnlyDb) -> usize {
    db.iter().map(Result::unwrap).count()
}

/// A reader shows the store that it opened, never another one that lies under its path.
#[test]
fn a_reader_whose_path_leads_to_another_store_says_so() {
    let parent = common::tempdir();
    let (dir, other) = (parent.path().join("store"), parent.path().join("other"));
    let moved = parent.path().join("moved");
    store(&dir).close().unwrap();
    copy_dir(&dir, &other);
    let db = options().open(&other).unwrap();
    db.put("third", "value").unwrap();
    db.close().unwrap();
    let reader = options().open_read_only(&dir).unwrap();
    std::fs::rename(&dir, &moved).unwrap();
    std::fs::rename(&other, &dir).unwrap();
    let refreshed = reader.refresh();
    assert_eq!(count(&reader), 2);
    // The variant by its name, for it is new.
    let error = format!("{:?}", refreshed.expect_err("it is another directory"));
    assert!(error.starts_with("Moved"), "{error}");
    std::fs::rename(&dir, &other).unwrap();
    std::fs::rename(&moved, &dir).unwrap();
    assert!(!reader.refresh().unwrap(), "nothing changed");
}

/// Not a test: it changes the directory of its process.
#[test]
#[ignore = "run by the test below"]
fn a_reader_in_a_process_that_changes_its_directory() {
    let parent = common::tempdir();
    let [a, b] = ["A", "B"].map(|name| parent.path().join(name));
    for dir in [&a, &b] {
        std::fs::create_dir(dir).unwrap();
    }
    let db = store(&a.join("store"));
    copy_dir(&a.join("store"), &b.join("store"));
    let other = options().open(b.join("store")).unwrap();
    other.put_with("of b", "value", Durability::Synced).unwrap();
    std::env::set_current_dir(&a).unwrap();
    let reader = options().open_read_only("store").unwrap();
    assert_eq!(count(&reader), 2);
    std::env::set_current_dir(&b).unwrap();
    for number in 0..4 {
        db.put_with(format!("of a {number}"), "value", Durability::Synced).unwrap();
        if number % 2 == 1 {
            db.flush().unwrap();
        }
        assert!(reader.refresh().unwrap());
        assert_eq!(count(&reader), 3 + number);
        assert!(!reader.contains("of b").unwrap());
    }
    std::env::set_current_dir(parent.path()).unwrap();
}

#[test]
fn a_reader_follows_its_store_when_the_process_changes_its_directory() {
    crate::alone("names::a_reader_in_a_process_that_changes_its_directory");
}

#[test]
fn a_move_is_an_event_once() {
    let flush = |db: &Db| db.put("key", "value").and_then(|()| db.flush()).unwrap();
    let syncs = |db: &Db| {
        for _ in 0..64 {
            db.put_with("key", "value", Durability::Synced).unwrap();
        }
    };
    let close = |db: &Db| db.clone().close().unwrap();
    moves_of([&flush, &flush, &close]);
    moves_of([&syncs, &syncs, &close]);
    moves_of([&close]);
}

/// Moves the directory, and makes these calls, of which the first notices it.
fn moves_of<const N: usize>(calls: [&dyn Fn(&Db); N]) {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let moves = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&moves);
    let db = options()
        .background_threads(0)
        .on_event(move |event| {
            if let Event::DirectoryMoved { path, .. } = event {
                seen.lock().unwrap().push(path.clone());
            }
        })
        .open(&dir)
        .unwrap();
    db.put("key", "value").and_then(|()| db.flush()).unwrap();
    assert!(moves.lock().unwrap().is_empty());
    std::fs::rename(&dir, parent.path().join("moved")).unwrap();
    for call in calls {
        call(&db);
        assert_eq!(*moves.lock().unwrap(), std::slice::from_ref(&dir));
    }
}

/// Not a test: it changes the directory of its process.
#[test]
#[ignore = "run by the test below"]
fn a_store_below_a_path_that_is_too_long() {
    let parent = common::tempdir();
    std::env::set_current_dir(parent.path()).unwrap();
    // A path of more than 4096 bytes leads to no file.
    for _ in 0..20 {
        let name = "d".repeat(250);
        std::fs::create_dir(&name).unwrap();
        std::env::set_current_dir(&name).unwrap();
    }
    let db = options().open("stores/one").unwrap();
    db.put_with("key", "value", Durability::Synced).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let db = options().create_if_missing(false).open("stores/one").unwrap();
    let reader = options().open_read_only("stores/one").unwrap();
    for found in [db.get("key").unwrap(), reader.get("key").unwrap()] {
        assert_eq!(found.unwrap(), "value");
    }
    db.put_with("key", "newer", Durability::Synced).unwrap();
    assert!(reader.refresh().unwrap());
    assert_eq!(reader.get("key").unwrap().unwrap(), "newer");
    std::env::set_current_dir(parent.path()).unwrap();
}

/// The full path is for messages only.
#[test]
fn a_relative_path_works_where_the_full_one_does_not() {
    crate::alone("names::a_store_below_a_path_that_is_too_long");
}
