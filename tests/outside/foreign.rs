//! Files of another store in the directory, and other files that are not of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use criba::{Db, Options, verify};

use crate::common::{self, contents, copy_dir, files_with};
use crate::tree::{difference, tree};

fn options() -> Options {
    common::options().background_threads(0).auto_compaction(false)
}

/// A store whose file numbers are beyond some `flushes`, with a table, a filter file and a log with records.
/// The numbers before are free.
fn store(dir: &Path, flushes: usize) {
    let db = options().open(dir).unwrap();
    for number in 0..flushes {
        db.put("key", number.to_string()).unwrap();
        db.flush().unwrap();
    }
    db.compact().unwrap();
    db.rebuild_filters(&criba::FilterPolicy::rate(0.001)).unwrap();
    db.close().unwrap();
    // For a manifest with another number than that of each new store.
    let db = options().open(dir).unwrap();
    db.put("last", "value").unwrap();
    db.close().unwrap();
}

fn number(name: &str) -> Option<u64> {
    let digits = name.trim_start_matches("MANIFEST-");
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

fn highest(files: &BTreeMap<String, Vec<u8>>) -> u64 {
    files.keys().filter_map(|name| number(name)).max().unwrap()
}

/// The files of a store with numbers.
fn numbered(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = contents(dir);
    files.retain(|name, _| number(name).is_some());
    files
}

fn is_log(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "log")
}

fn put_into(dir: &Path, files: &BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in files {
        assert!(!dir.join(name).exists(), "{name} is not free");
        std::fs::write(dir.join(name), bytes).unwrap();
    }
}

fn assert_whole(db: &Db, flushes: usize) {
    let last = (flushes - 1).to_string();
    assert_eq!(db.get("key").unwrap().as_deref(), Some(last.as_bytes()));
    assert_eq!(db.get("last").unwrap().as_deref(), Some(&b"value"[..]));
}

/// Opens and closes a store three times, with the files of another in it from before the opening `before`.
/// Says what is wrong.
fn openings(before: usize, own_flushes: usize, other_flushes: usize, logs: bool) -> Vec<String> {
    let parent = common::tempdir();
    let (dir, other) = (parent.path().join("store"), parent.path().join("other"));
    store(&dir, own_flushes);
    store(&other, other_flushes);
    let mut files = numbered(&other);
    files.retain(|name, _| logs || !is_log(name));
    let kinds: BTreeSet<_> = files.keys().map(|name| name.trim_matches(char::is_numeric)).collect();
    assert_eq!(kinds.len(), if logs { 4 } else { 3 }, "a table, a filter file, a manifest, a log");
    let mut wrong = Vec::new();
    for opening in 0..3 {
        if opening == before {
            put_into(&dir, &files);
        }
        let there = contents(&dir);
        let db = options().open(&dir).unwrap();
        assert_whole(&db, own_flushes);
        db.put("more", opening.to_string()).unwrap();
        db.flush().unwrap();
        db.compact().unwrap();
        let report = format!("{:?}", db.recovery());
        db.close().unwrap();
        if opening >= before {
            for (name, bytes) in &files {
                if std::fs::read(dir.join(name)).ok().as_ref() != Some(bytes) {
                    wrong.push(format!("opening {opening}: {name} is gone or changed"));
                }
                if !report.contains(name.as_str()) {
                    wrong.push(format!("opening {opening}: {name} is not in the report"));
                }
            }
            let new = contents(&dir).into_keys().filter(|name| !there.contains_key(name));
            if new.filter_map(|name| number(&name)).any(|number| number <= highest(&files)) {
                wrong.push(format!("opening {opening}: a new number below a foreign one"));
            }
        }
        let found = verify(&dir).unwrap();
        assert!(found.is_sound(), "{found}");
    }
    assert_whole(&options().open(&dir).unwrap(), own_flushes);
    wrong
}

/// Their numbers are free, and below the promised log.
#[test]
fn files_of_another_store_stay_and_are_reported() {
    let wrong: Vec<_> = (0..3).flat_map(|before| openings(before, 8, 1, true)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// With numbers above all of the store: new files get greater ones.
#[test]
fn greater_numbers_of_another_store_are_not_used() {
    let wrong: Vec<_> = (0..3).flat_map(|before| openings(before, 1, 8, false)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_log_of_another_store_at_or_above_the_promised_one_is_refused_without_a_change() {
    for own_flushes in [1, 4] {
        let parent = common::tempdir();
        let (dir, other) = (parent.path().join("store"), parent.path().join("other"));
        store(&dir, own_flushes);
        store(&other, 8);
        let mut logs = numbered(&other);
        logs.retain(|name, _| is_log(name));
        put_into(&dir, &logs);
        let before = tree(parent.path(), &[]);
        let error = options().open(&dir).unwrap_err();
        assert!(matches!(error, criba::Error::Corrupt { .. }), "{error}");
        assert_eq!(difference(&before, &tree(parent.path(), &[]), parent.path()), None);
    }
}

/// What has no readable identity, and what the store itself left.
#[test]
fn other_stray_files_are_removed() {
    let parent = common::tempdir();
    let dir = parent.path().join("store");
    let db = options().open(&dir).unwrap();
    for number in 0..3 {
        db.put("key", number.to_string()).unwrap();
        db.flush().unwrap();
    }
    let own = files_with(&dir, "sst")[0].clone();
    let bytes = std::fs::read(&own).unwrap();
    db.compact().unwrap();
    db.close().unwrap();
    assert!(!own.exists());
    let strays =
        [own, dir.join("000900.sst"), dir.join("MANIFEST-000901"), dir.join("000902-0001.flt")];
    std::fs::write(&strays[0], bytes).unwrap();
    for stray in &strays[1..] {
        std::fs::write(stray, "something else").unwrap();
    }
    let db = options().open(&dir).unwrap();
    assert!(db.recovery().removed_files >= strays.len());
    for stray in &strays {
        assert!(!stray.exists(), "{}", stray.display());
    }
    assert_eq!(db.get("key").unwrap().unwrap(), "2");
}

/// Names that no store has do not make a directory something else.
#[test]
fn a_store_is_made_beside_other_files() {
    for name in ["lost+found", ".gitkeep", ".DS_Store", "notes.txt"] {
        let parent = common::tempdir();
        let dir = parent.path();
        let foreign = dir.join(name);
        if name == "lost+found" {
            std::fs::create_dir(&foreign).unwrap();
        } else {
            std::fs::write(&foreign, "something").unwrap();
        }
        let before = tree(dir, &[]);
        let db = options().open(dir).unwrap_or_else(|error| panic!("{error}"));
        db.put("key", "value").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let db = options().create_if_missing(false).open(dir).unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), "value");
        db.checkpoint(dir.with_extension("copy")).unwrap();
        std::fs::remove_dir_all(dir.with_extension("copy")).unwrap();
        db.close().unwrap();
        let after = tree(dir, &[]);
        assert_eq!(after.get(&foreign), before.get(&foreign), "{name}");
        assert!(verify(dir).unwrap().is_sound());
    }
}

/// Short ones too, and whatever the command.
#[test]
fn files_of_another_program_with_the_names_of_a_store_refuse_it_and_stay() {
    let level_db = "MANIFEST-000004\n";
    for (name, content) in [
        ("000006.log", "short text"),
        ("000006.log", "a text that is longer than the header of a log, and no header of one"),
        ("MANIFEST-000004", "V\u{8a}\u{fe}"),
        ("CURRENT.tmp", level_db),
        ("CURRENT", level_db),
        ("000001.sst", ""),
    ] {
        let parent = common::tempdir();
        let dir = parent.path();
        std::fs::write(dir.join(name), content).unwrap();
        let before = tree(dir, &[]);
        let error = options().open(dir).unwrap_err();
        let refused =
            matches!(error, criba::Error::NotAStore { .. } | criba::Error::Missing { .. });
        assert!(refused, "{name}: {error}");
        assert!(options().open_read_only(dir).is_err(), "{name}");
        if name == "CURRENT" {
            let not_a_store = |error| matches!(error, criba::Error::NotAStore { .. });
            assert!(verify(dir).is_err_and(not_a_store));
            let to = dir.with_extension("repaired");
            assert!(criba::repair(dir, to, criba::Uncertain::SetAside).is_err_and(not_a_store));
        }
        assert_eq!(difference(&before, &tree(dir, &[]), dir), None, "{name}");
    }
}

/// What a crash while a store is made can leave.
#[test]
fn the_start_of_a_store_refuses_none() {
    for (name, content) in [
        ("000001.log", &b""[..]),
        ("000001.log", b"criba"),
        ("MANIFEST-000002", &[0; 40]),
        ("CURRENT.tmp", b"criba 2\nMANIF"),
        ("CURRENT.tmp", &[0; 33]),
    ] {
        let parent = common::tempdir();
        std::fs::write(parent.path().join(name), content).unwrap();
        options().open(parent.path()).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// The files of a store that was copied by hand are as good as the store.
#[test]
fn a_copied_directory_is_a_store() {
    let parent = common::tempdir();
    let (dir, copy) = (parent.path().join("store"), parent.path().join("copy"));
    store(&dir, 3);
    copy_dir(&dir, &copy);
    std::fs::remove_file(copy.join("LOCK")).unwrap();
    assert_whole(&options().open(&copy).unwrap(), 3);
}
