//! A process that may have few open files.

use std::path::Path;

use criba::{Db, Options};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::common::{self, copy_dir, files_with};

const STORES: usize = 8;
const TABLES: usize = 106;
const LIMIT: u64 = 256;

fn options() -> Options {
    common::options().background_threads(0).auto_compaction(false)
}

/// Makes the stores, each with so many tables.
fn stores(parent: &Path) -> Vec<std::path::PathBuf> {
    let dirs: Vec<_> = (0..STORES).map(|number| parent.join(format!("store {number}"))).collect();
    let db = options().open(&dirs[0]).unwrap();
    for number in 0..TABLES {
        db.put(key(number), number.to_string()).unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    assert_eq!(files_with(&dirs[0], "sst").len(), TABLES);
    for dir in &dirs[1..] {
        copy_dir(&dirs[0], dir);
    }
    dirs
}

fn key(number: usize) -> String {
    format!("key {number:03}")
}

fn limit_open_files() {
    let limit = Some(LIMIT);
    setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).unwrap();
}

/// Not a test: it limits the files of its process.
#[test]
#[ignore = "run by the test below"]
fn stores_in_a_process_with_few_files() {
    let parent = common::tempdir();
    let dirs = stores(parent.path());
    limit_open_files();
    let (mut dbs, mut errors): (Vec<Db>, Vec<String>) = (Vec::new(), Vec::new());
    for dir in &dirs {
        match options().open(dir) {
            Ok(db) => dbs.push(db),
            Err(error) => errors.push(error.to_string()),
        }
    }
    assert!(errors.is_empty(), "{} of {STORES} do not open: {}", errors.len(), errors[0]);
    for round in 0..2 {
        for number in 0..TABLES {
            for db in &dbs {
                let found = db.get(key(number)).unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(found.unwrap(), number.to_string());
            }
        }
        for db in &dbs {
            assert_eq!(db.iter().map(Result::unwrap).count(), TABLES + round);
            db.put("more", round.to_string()).unwrap();
            db.flush().unwrap();
        }
    }
    // A merge of all tables of a store has them all open.
    for db in dbs {
        db.compact().unwrap();
        db.close().unwrap();
    }
}

#[test]
fn many_stores_work_with_few_files() {
    crate::alone("descriptors::stores_in_a_process_with_few_files");
}

/// Not a test: it limits the files of its process.
#[test]
#[ignore = "run by the test below"]
fn readers_in_a_process_with_few_files() {
    let parent = common::tempdir();
    let dirs = stores(parent.path());
    limit_open_files();
    for files in [None, Some(usize::MAX)] {
        let (mut readers, mut errors) = (Vec::new(), Vec::new());
        for dir in &dirs {
            let options = files.map_or_else(options, |files| options().max_open_files(files));
            match options.open_read_only(dir) {
                Ok(reader) => readers.push(reader),
                Err(error) => errors.push(error.to_string()),
            }
        }
        for reader in &readers {
            for number in 0..TABLES {
                assert_eq!(reader.get(key(number)).unwrap().unwrap(), number.to_string());
            }
        }
        if files.is_some() {
            assert!(!readers.is_empty(), "{}", errors[0]);
        }
        for error in &errors {
            let needed = |word: &str| word.parse().is_ok_and(|needed: usize| needed >= TABLES);
            let says = error.split(|c: char| !c.is_ascii_digit()).any(needed);
            let what = ["limit", "max_open_files"].iter().any(|what| error.contains(what));
            assert!(what && says, "{} of {STORES}: {error}", errors.len());
        }
    }
}

#[test]
fn readers_without_enough_files_say_how_many_they_need() {
    crate::alone("descriptors::readers_in_a_process_with_few_files");
}
