//! The modes of files and directories: the hash key of a store is in its manifest, and each user that may open
//! `LOCK` may hold it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use criba::{Db, Options};
use rustix::fs::Mode;
use rustix::process::umask;

use crate::common;

fn options() -> Options {
    common::options().background_threads(0)
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

fn files(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Makes files of all kinds.
fn work(db: &Db) {
    for number in 0..4 {
        db.put("key", number.to_string()).unwrap();
        db.flush().unwrap();
    }
    db.compact().unwrap();
    db.rebuild_filters(&common::named("ribbon")).unwrap();
    db.put("key", "last").unwrap();
}

/// A store and a checkpoint, whose files and directories have these modes.
fn assert_modes(options: &dyn Fn() -> Options, file: u32, directory: u32) {
    let parent = common::tempdir();
    // Its parent is made, too.
    let (dir, copy) = (parent.path().join("parent").join("store"), parent.path().join("copy"));
    let db = options().open(&dir).unwrap();
    work(&db);
    db.checkpoint(&copy).unwrap();
    db.close().unwrap();
    let db = options().open(&dir).unwrap();
    work(&db);
    for dir in [&dir, &copy] {
        assert_eq!(mode(dir), directory, "{}", dir.display());
        let files = files(dir);
        assert!(files.len() >= 6, "{files:?}");
        for path in files {
            assert_eq!(mode(&path), file, "{} has mode {:o}", path.display(), mode(&path));
        }
    }
}

/// Not a test: it changes the mask of its process.
#[test]
#[ignore = "run by the test below"]
fn default_modes_under_masks() {
    for mask in [0, 0o022, 0o077] {
        umask(Mode::from_raw_mode(mask));
        assert_modes(&options, 0o600, 0o700);
    }
}

#[test]
fn only_the_owner_reads_new_files() {
    crate::alone("modes::default_modes_under_masks");
}

/// Not a test: it changes the mask of its process.
#[test]
#[ignore = "run by the test below"]
fn chosen_modes_under_masks() {
    for mask in [0, 0o022] {
        umask(Mode::from_raw_mode(mask));
        // A directory can be searched by all users that can read its files.
        assert_modes(&|| options().file_mode(0o640), 0o640, 0o750);
        assert_modes(&|| options().file_mode(0o600), 0o600, 0o700);
    }
}

#[test]
fn new_files_have_the_chosen_mode() {
    crate::alone("modes::chosen_modes_under_masks");
}

#[test]
fn existing_files_keep_their_modes() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = options().open(&dir).unwrap();
    work(&db);
    db.close().unwrap();
    set_mode(&dir, 0o755);
    let before = files(&dir);
    for path in &before {
        set_mode(path, 0o644);
    }
    let db = options().open(&dir).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    assert_eq!(mode(&dir), 0o755);
    let kept: Vec<_> = before.iter().filter(|path| path.exists()).collect();
    assert!(kept.len() >= 3, "LOCK, a table, a filter: {kept:?}");
    for path in kept {
        // A new one takes the place of the old.
        let new = path.ends_with("CURRENT");
        assert_eq!(mode(path), if new { 0o600 } else { 0o644 }, "{}", path.display());
    }
}

/// A command that root runs must not lock the owner out.
#[test]
fn the_files_that_root_makes_get_the_owner_of_the_directory() {
    use std::os::unix::fs::{MetadataExt, chown};

    let parent = common::tempdir();
    let dir = parent.path().join("store");
    std::fs::create_dir(&dir).unwrap();
    if chown(&dir, Some(65534), Some(65534)).is_err() {
        common::skip("only root may change the owner of a directory");
        return;
    }
    let db = options().open(&dir).unwrap();
    work(&db);
    db.close().unwrap();
    for path in files(&dir) {
        let found = path.metadata().unwrap();
        assert_eq!((found.uid(), found.gid()), (65534, 65534), "{}", path.display());
    }
}
