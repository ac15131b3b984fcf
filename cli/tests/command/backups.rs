//! `backup` and `restore`: at any moment one whole copy is there.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{criba, run, shell};
use tempfile::TempDir;

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("a plain path").to_owned()
    }

    /// A store of two tables.
    fn store(&self, name: &str) -> String {
        let dir = self.at(name);
        let db = criba::Options::new().auto_compaction(false).open(&dir).expect("a new store");
        for number in 0..2000 {
            db.put(format!("key {number:05}"), format!("value {number}")).expect("a write");
            if number == 1000 {
                db.flush().expect("room");
            }
        }
        db.close().expect("a sound end");
        dir
    }

    /// The names beside the stores.
    fn names(&self) -> Vec<String> {
        let names = self.0.path().read_dir().expect("a directory");
        let mut names: Vec<_> = names
            .map(|entry| entry.expect("a name").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        names
    }
}

fn all(store: &str) -> String {
    run(&format!("dump {store}")).well()
}

fn tables(store: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(store).expect("a store").map(|entry| entry.expect("a name").path());
    let mut tables: Vec<_> =
        names.filter(|path| path.extension().is_some_and(|e| e == "sst")).collect();
    tables.sort();
    tables
}

fn inodes(store: &str) -> BTreeMap<String, u64> {
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    tables(store).iter().map(|path| (name(path), path.metadata().expect("it").ino())).collect()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("a file");
    bytes[at] ^= 0x40;
    // Another file, not the one that a link shares.
    fs::remove_file(path).expect("a file");
    fs::write(path, bytes).expect("a writable directory");
}

#[test]
fn a_backup_is_brought_back_as_its_output_says() {
    let place = Place::new();
    let (dir, copy) = (place.store("store"), place.at("copy"));
    run(&format!("put {dir} in-the-log only")).well();
    let before = all(&dir);
    let told = run(&format!("backup {dir} {copy}")).well();
    assert!(told.contains(&format!(" in {copy}\n")), "{told}");
    let line = |name: &str| told.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    run(line("To check it:   criba ")).well();
    run(&format!("delete {dir} in-the-log")).well();
    run(&format!("compact {dir}")).well();
    assert_ne!(all(&dir), before);
    let restored = shell(line("To restore it: "), place.0.path()).output().expect("a shell");
    assert!(restored.status.success(), "{restored:?}");
    assert_eq!(all(&dir), before);
    assert!(run(&format!("verify {dir}")).well().ends_with("sound\n"));
    // It takes writes, of which the backup knows nothing.
    run(&format!("put {dir} later x")).well();
    assert_eq!(all(&copy), before);
    assert_eq!(place.names(), ["copy", "store"]);
}

#[test]
fn a_restore_links_nothing_and_replaces_only_what_it_may() {
    let place = Place::new();
    let (dir, copy) = (place.store("store"), place.at("copy"));
    run(&format!("backup {dir} {copy}")).well();
    let new = place.at("new/within");
    run(&format!("restore {copy} {new}")).well();
    assert_eq!(all(&new), all(&dir));
    let links = |dir: &str| tables(dir).iter().map(|t| t.metadata().expect("it").nlink()).max();
    assert_eq!(links(&new), Some(1));
    fs::create_dir(place.at("empty")).expect("a directory");
    run(&format!("restore {copy} {}", place.at("empty"))).well();

    run(&format!("put {new} later x")).well();
    let later = all(&new);
    let told = run(&format!("restore {copy} {new}")).error(3);
    assert!(told.contains("expected no directory, or an empty one"), "{told}");
    let held = criba::Db::open(&new).expect("a sound store");
    let told = run(&format!("restore {copy} {new} --replace")).error(3);
    assert!(told.contains("expected a store that no program has open"), "{told}");
    held.close().expect("a sound end");
    fs::write(Path::new(&new).join("notes.txt"), "mine").expect("a file");
    let told = run(&format!("restore {copy} {new} --replace")).error(3);
    assert!(told.contains("notes.txt too; move it away first"), "{told}");
    assert_eq!(all(&new), later);
    fs::remove_file(Path::new(&new).join("notes.txt")).expect("a file");
    run(&format!("restore {copy} {new} --replace")).well();
    assert_eq!(all(&new), all(&copy));
    let other = place.at("other");
    fs::create_dir(&other).expect("a directory");
    fs::write(Path::new(&other).join("notes.txt"), "mine").expect("a file");
    run(&format!("restore {copy} {other} --replace")).error(3);
    run(&format!("restore {other} {}", place.at("nowhere"))).error(3);
    run(&format!("restore {} {}", place.at("none"), place.at("nowhere"))).error(3);
    run(&format!("restore {copy} {copy}/within")).error(3);
    run(&format!("restore {copy} {copy} --replace")).error(3);
    // A link in the place of the hidden directory leads to what is not ours.
    fs::create_dir_all(place.at("theirs/new")).expect("a directory");
    std::os::unix::fs::symlink(place.at("theirs"), place.at(".nowhere.restore-tmp")).expect("room");
    let told = run(&format!("restore {copy} {}", place.at("nowhere"))).error(3);
    assert!(told.contains("expected a directory of this user"), "{told}");
    assert!(Path::new(&place.at("theirs/new")).exists());
    assert!(!Path::new(&place.at("nowhere")).exists());
}

#[test]
fn another_backup_copies_what_the_earlier_one_lacks() {
    let place = Place::new();
    let (dir, copy) = (place.store("store"), place.at("copy"));
    run(&format!("backup {dir} {copy} --copy")).well();
    let first = inodes(&copy);
    let of_store = inodes(&dir);
    assert!(of_store.values().all(|inode| !first.values().any(|other| other == inode)));
    run(&format!("put {dir} later x")).well();
    run(&format!("backup {dir} {copy} --copy")).well();
    let second = inodes(&copy);
    // All but what it made of the log.
    assert!(!of_store.is_empty());
    for name in of_store.keys() {
        assert_eq!(second[name], first[name], "{name}");
    }
    assert_ne!(second, first);
    assert_eq!(all(&copy), all(&dir));
    assert!(run(&format!("verify {copy}")).well().ends_with("sound\n"));
    assert_eq!(place.names(), ["copy", "store"]);

    let other = place.store("other");
    for wrong in [&other, &dir, &format!("{dir}/within")] {
        let told = run(&format!("backup {dir} {wrong}")).error(3);
        assert!(told.contains("expected a new name, or an earlier backup"), "{told}");
    }
    fs::create_dir(place.at("notes")).expect("a directory");
    run(&format!("backup {dir} {}", place.at("notes"))).error(3);
    fs::write(Path::new(&copy).join("notes.txt"), "mine").expect("a file");
    run(&format!("backup {dir} {copy}")).error(3);
}

#[test]
fn a_damaged_store_replaces_no_sound_backup() {
    let place = Place::new();
    let (dir, copy) = (place.store("store"), place.at("copy"));
    run(&format!("backup {dir} {copy} --copy")).well();
    let sound = all(&copy);
    // A table that the backup lacks.
    run(&format!("compact {dir}")).well();
    flip(&tables(&dir)[0], 5000);
    for _ in 0..2 {
        let told = run(&format!("backup {dir} {copy} --copy"));
        assert_eq!((told.code, told.err.as_str()), (1, ""), "{}", told.out);
        assert!(told.out.contains("expected a data block"), "{}", told.out);
        assert!(told.out.contains(&format!(" in {copy}.damaged\n")), "{}", told.out);
    }
    assert_eq!(all(&copy), sound);
    assert_eq!(place.names(), ["copy", "copy.damaged", "store"]);
    // What the output says to do.
    let told = run(&format!("backup {dir} {copy}"));
    let repair = told.out.lines().last().expect("a line").split(" salvages").next();
    let repair = repair.expect("a command").replace("criba ", "").replace("NEW", &place.at("new"));
    assert_eq!(run(&repair).code, 1);

    // It replaces no store either; where none is, it is better than nothing.
    let told = run(&format!("restore {copy}.damaged {} --replace", place.at("new")));
    assert_eq!(told.code, 1, "{}", told.err);
    assert!(told.out.contains("stays as it is"), "{}", told.out);
    let told = run(&format!("restore {copy}.damaged {} --json", place.at("newer")));
    assert_eq!(told.code, 1, "{}", told.err);
    let found: serde_json::Value = serde_json::from_str(&told.out).expect("one object");
    assert_eq!((&found["restored"], &found["sound"]), (&true.into(), &false.into()));
    assert!(Path::new(&place.at("newer")).join("CURRENT").exists());
}

/// A backup whose own copy of a table went bad gets it anew.
#[test]
fn a_damaged_backup_is_mended_by_the_next_one() {
    let place = Place::new();
    let (dir, copy) = (place.store("store"), place.at("copy"));
    run(&format!("backup {dir} {copy} --copy")).well();
    flip(&tables(&copy)[0], 5000);
    assert_eq!(run(&format!("verify {copy}")).code, 1);
    run(&format!("backup {dir} {copy} --copy")).well();
    run(&format!("verify {copy}")).well();
    assert_eq!(place.names(), ["copy", "store"]);
}

/// Whenever the command is killed, the directory is a whole store: the earlier or the later one.
#[test]
fn a_killed_backup_or_restore_leaves_a_whole_one() {
    let place = Place::new();
    let (dir, copy, back) = (place.store("store"), place.at("copy"), place.at("back"));
    run(&format!("backup {dir} {copy} --copy")).well();
    run(&format!("restore {copy} {back}")).well();
    let (mut killed, mut whole) = (0, Duration::ZERO);
    for round in 0..40 {
        run(&format!("put {dir} round {round}")).well();
        let now = all(&dir);
        for (line, target) in [
            (format!("backup {dir} {copy} --copy"), &copy),
            (format!("restore {copy} {back} --replace"), &back),
        ] {
            let before = all(target);
            let mut child = criba(line.split(' '));
            let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it");
            thread::sleep(whole * round / 40);
            child.kill().expect("our child");
            killed += u32::from(!child.wait().expect("an end").success());
            let after = all(target);
            assert!(after == before || after == now, "{line}");
            assert!(run(&format!("verify {target}")).well().ends_with("sound\n"));
            // The next one removes what is left. It takes as long as the next one to kill.
            let start = Instant::now();
            run(&line).well();
            whole = start.elapsed();
            assert_eq!(all(target), now);
        }
        assert_eq!(place.names(), ["back", "copy", "store"]);
    }
    assert!(killed > 20, "{killed} of 80 commands were killed in time");
}

/// Without an atomic exchange a kill can come between the two renames.
#[test]
fn a_directory_that_was_moved_away_gets_its_name_back() {
    let place = Place::new();
    let (dir, copy, back) = (place.store("store"), place.at("copy"), place.at("back"));
    run(&format!("backup {dir} {copy}")).well();
    run(&format!("restore {copy} {back}")).well();
    let moved = |name: &str, purpose: &str| {
        fs::rename(place.at(name), place.at(&format!("{name}.old"))).expect("a directory");
        fs::create_dir(place.at(&format!(".{name}.{purpose}-tmp"))).expect("a directory");
    };
    let said = |end: crate::common::Run, name: &str| {
        assert_eq!(end.code, 0, "{}", end.err);
        let told = format!("{} is {} again", place.at(&format!("{name}.old")), place.at(name));
        assert!(end.err.contains(&told), "{}", end.err);
    };
    moved("copy", "backup");
    said(run(&format!("backup {dir} {copy}")), "copy");
    moved("copy", "backup");
    said(run(&format!("restore {copy} {back} --replace")), "copy");
    moved("back", "restore");
    said(run(&format!("restore {copy} {back} --replace")), "back");
    fs::remove_dir(place.at(".copy.backup-tmp")).expect("left by the restore, which makes none");
    assert_eq!(place.names(), ["back", "copy", "store"]);
    // A directory of this name that no command moved away stays.
    fs::rename(&back, place.at("back.old")).expect("a directory");
    run(&format!("restore {copy} {back}")).well();
    assert_eq!(place.names(), ["back", "back.old", "copy", "store"]);
}
