//! Files of other stores in the majority: repair keeps the store that `CURRENT` names, whatever lies beside it.

use std::path::Path;
use std::sync::Arc;

use criba::vfs::{SimVfs, Vfs};
use criba::{Error, Options, Repaired, Uncertain, repair_with, verify_with};

use crate::fixture::Kind;
use crate::forge::{MANIFEST_HEADER, SALT_AT, checksum, put, u64_at};

const DIR: &str = "/store";
const OTHER: &str = "/other";
const NEW: &str = "/new";

fn options(sim: &SimVfs, seed: u64) -> Options {
    Options::new().vfs(sim.clone()).background_threads(0).seed(seed).auto_compaction(false)
}

/// A store with some tables, and a log.
fn fill(sim: &SimVfs, dir: &str, seed: u64, tables: usize) {
    let db = options(sim, seed).open(dir).unwrap();
    for table in 0..tables {
        for number in 0..20 {
            db.put(format!("{dir} {table} {number}"), "value").unwrap();
        }
        db.flush().unwrap();
    }
    db.put(format!("{dir} log"), "value").unwrap();
    db.close().unwrap();
}

/// Copies tables and manifests of the other store, under numbers that are free and below the next one.
fn stray(sim: &SimVfs, kinds: &[&str]) -> usize {
    let disk = sim.disk();
    let strays: Vec<_> = disk
        .files()
        .filter(|(path, _)| path.starts_with(OTHER))
        .filter(|(path, _)| kinds.iter().any(|kind| path.to_string_lossy().contains(kind)))
        .map(|(path, bytes)| (Path::new(DIR).join(path.file_name().unwrap()), bytes.to_vec()))
        .filter(|(path, _)| disk.read(path).is_none())
        .collect();
    sim.edit(|disk| {
        for (path, bytes) in &strays {
            disk.write(path, bytes.clone());
        }
    });
    strays.len()
}

fn repair(sim: &SimVfs, store: Option<u64>) -> Repaired {
    sim.unlock();
    let vfs: Arc<dyn Vfs> = Arc::new(sim.clone());
    repair_with(DIR, NEW, Uncertain::Accept, store, &vfs).unwrap()
}

fn keys(sim: &SimVfs) -> Vec<String> {
    let db = options(sim, 9).open(NEW).unwrap();
    let keys = db.iter().map(|item| String::from_utf8(item.unwrap().0.to_vec()).unwrap());
    keys.collect()
}

#[test]
fn strays_in_the_majority_are_listed_and_not_believed() {
    for kinds in [&[".sst"][..], &["MANIFEST"], &[".sst", "MANIFEST"]] {
        let sim = SimVfs::new();
        fill(&sim, DIR, 1, 2);
        fill(&sim, OTHER, 2, 12);
        options(&sim, 2).open(OTHER).unwrap().close().unwrap(); // its manifest has another number
        let strays = stray(&sim, kinds);
        assert!(strays > 0);
        let repaired = repair(&sim, None);
        assert_eq!(repaired.others.len(), strays, "{repaired:?}");
        assert!(repaired.losses.is_empty(), "{repaired:?}");
        assert_eq!((repaired.keys, repaired.uncertain), (41, 0), "{repaired:?}");
        assert!(keys(&sim).iter().all(|key| key.starts_with(DIR)));
    }
}

/// Then most files decide, or the user.
#[test]
fn without_a_manifest_the_user_can_name_the_store() {
    let made = || {
        let sim = SimVfs::new();
        fill(&sim, DIR, 1, 2);
        fill(&sim, OTHER, 2, 12);
        let own = repair(&sim, None).store;
        sim.edit(|disk| disk.remove(NEW));
        stray(&sim, &[".sst"]);
        sim.edit(|disk| disk.remove(Path::new(DIR).join("CURRENT")));
        let manifests: Vec<_> = sim.disk().files().map(|(path, _)| path.to_owned()).collect();
        for path in manifests.iter().filter(|path| path.to_string_lossy().contains("store/MANI")) {
            sim.edit(|disk| disk.remove(path));
        }
        (sim, own)
    };
    let (sim, own) = made();
    let repaired = repair(&sim, None);
    assert_ne!(repaired.store, own, "most files are of the other");
    assert_eq!(repaired.keys, repaired.uncertain, "a guess makes nothing certain");
    assert!(keys(&sim).iter().all(|key| key.starts_with(OTHER)));
    let (sim, own) = made();
    let repaired = repair(&sim, Some(own));
    assert_eq!(repaired.store, own);
    assert_eq!(repaired.keys, 41, "{repaired:?}");
    assert!(keys(&sim).iter().all(|key| key.starts_with(DIR)));
}

/// The same file in another version, with a right checksum.
fn in_version(version: u8, file: &str, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if Kind::of(file) == Kind::Log {
        bytes[8] = version;
        let sum = checksum(u64_at(&bytes, 16), 0, &bytes[..SALT_AT - 4]);
        put(&mut bytes, SALT_AT - 4, &sum);
    } else {
        let footer = bytes.len() - 128;
        bytes[footer + 112] = version;
        let sum = checksum(u64_at(&bytes, footer + 64), footer, &bytes[footer..footer + 116]);
        put(&mut bytes, footer + 116, &sum);
    }
    bytes
}

/// Another program's data, or a newer criba's: the next opening removes only what this store made under its name.
#[test]
fn files_of_another_store_number_or_version_stay() {
    let sim = SimVfs::new();
    fill(&sim, DIR, 1, 6);
    fill(&sim, OTHER, 2, 2);
    let disk = sim.disk();
    let others = disk.files().filter(|(path, _)| path.starts_with(OTHER));
    let files: Vec<_> = others
        .map(|(path, bytes)| (path.file_name().unwrap().to_str().unwrap(), bytes))
        .filter(|(name, _)| matches!(Kind::of(name), Kind::Table | Kind::Log))
        .collect();
    assert_eq!(files.len(), 3);
    for (file, bytes) in files {
        for version in [1, 2, 3] {
            let name = format!("000900.{}", &file[file.len() - 3..]);
            for name in [file, &name] {
                let path = Path::new(DIR).join(name);
                if disk.read(&path).is_some() {
                    continue;
                }
                let what = format!("{file} in version {version} as {name}");
                let stray = in_version(version, file, bytes);
                let sim = SimVfs::on(disk.clone());
                sim.edit(|disk| disk.write(&path, stray.clone()));
                let vfs: Arc<dyn Vfs> = Arc::new(sim.clone());
                let found = verify_with(DIR, &vfs, |_, _| {}).unwrap();
                assert!(found.is_sound(), "{what}: {found}");
                // From the promised log on, logs are in use, as far as it says.
                let may_be_in_use = name == "000900.log";
                let noted = found.notes.iter().any(|note| note.path == path);
                assert!(noted || may_be_in_use, "{what}: {found}");
                let db = options(&sim, 1).open(DIR).unwrap();
                assert_eq!(db.recovery().kept_files, std::slice::from_ref(&path), "{what}");
                assert_eq!(db.iter().count(), 121, "{what}");
                db.put("key", "value").unwrap();
                db.close().unwrap();
                assert_eq!(sim.disk().read(&path), Some(&stray[..]), "{what}");
                let repaired = repair(&sim, None);
                assert!(repaired.others.iter().any(|(other, _)| *other == path), "{what}");
                assert_eq!((repaired.keys, repaired.uncertain), (122, 0), "{what}");
            }
        }
    }
}

/// Then the header decides, or a table that an edit names by its random bytes.
#[test]
fn a_damaged_manifest_still_names_the_store() {
    let sim = SimVfs::new();
    fill(&sim, DIR, 1, 2);
    fill(&sim, OTHER, 2, 12);
    let own = repair(&sim, None).store;
    sim.edit(|disk| disk.remove(NEW));
    assert!(stray(&sim, &[".sst"]) > 5);
    let disk = sim.disk();
    let current = String::from_utf8_lossy(disk.read("/store/CURRENT").unwrap()).into_owned();
    let manifest = Path::new(DIR).join(current.lines().nth(1).unwrap());
    for at in [0, 20, 30, 37, SALT_AT, SALT_AT + 9, MANIFEST_HEADER, MANIFEST_HEADER + 50] {
        let sim = SimVfs::on(disk.clone());
        let mut bytes = disk.read(&manifest).unwrap().to_vec();
        bytes[at] ^= 1;
        sim.edit(|disk| disk.write(&manifest, bytes));
        let repaired = repair(&sim, None);
        assert_eq!(repaired.store, own, "byte {at}");
        let in_edits = at >= MANIFEST_HEADER;
        let all = repaired.keys == 41 && repaired.uncertain == if in_edits { 41 } else { 0 };
        assert!(all, "byte {at}: {repaired:?}");
        assert!(keys(&sim).iter().all(|key| key.starts_with(DIR)), "byte {at}");
    }
}

#[test]
fn a_store_of_which_no_file_is_there_is_not_repaired() {
    let sim = SimVfs::new();
    fill(&sim, DIR, 1, 2);
    let vfs: Arc<dyn Vfs> = Arc::new(sim.clone());
    let repaired = repair_with(DIR, NEW, Uncertain::Accept, Some(77), &vfs);
    assert!(matches!(repaired, Err(Error::NotAStore { .. })), "{repaired:?}");
    assert!(sim.disk().files().all(|(path, _)| path.starts_with(DIR)));
}
