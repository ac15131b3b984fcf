//! `criba repair`, from a damaged store to one that opens.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::run;
use serde_json::Value;
use tempfile::TempDir;

const KEYS: usize = 1000;

/// A store of a thousand keys in one table.
fn store() -> (TempDir, String, String) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("a plain path").to_owned();
    let (store, new, lines) = (path("store"), path("new"), path("lines"));
    let text = (0..KEYS).map(|n| format!("key{n:04}\tvalue {n}\n"));
    fs::write(&lines, text.collect::<String>()).expect("a writable directory");
    run(&format!("load {store} {lines}")).well();
    run(&format!("compact {store}")).well();
    (dir, store, new)
}

fn only_file(store: &str, extension: &str) -> PathBuf {
    let names = fs::read_dir(store).expect("a store").map(|entry| entry.expect("a name").path());
    let of_kind = names.filter(|path| path.extension().is_some_and(|is| is == extension));
    let [file] = of_kind.collect::<Vec<_>>().try_into().expect("one file");
    file
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("a file");
    bytes[at] ^= 1;
    fs::write(path, bytes).expect("a writable file");
}

#[test]
fn a_damaged_block_costs_its_keys_and_no_others() {
    let (_dir, store, new) = store();
    let table = only_file(&store, "sst");
    flip(&table, 5000);
    let damaged = fs::read(&table).expect("a file");
    let repaired = run(&format!("repair {store} --to {new}"));
    assert_eq!((repaired.code, repaired.err.as_str()), (1, ""), "{}", repaired.out);
    let lines: Vec<_> = repaired.out.lines().collect();
    let [place, keys, read, salvaged, uncertain] = lines[..] else { panic!("{}", repaired.out) };
    assert!(place.starts_with(&format!("{}: offset ", table.display())), "{place}");
    let named = keys.strip_prefix("  may have cost keys after key").expect("a range");
    let (after, last) = named.split_once(" up to key").expect("a range");
    let (after, last) = (after.parse::<usize>().expect("it"), last.parse::<usize>().expect("it"));
    assert!(after < last && last - after < 300, "{keys}");
    assert!(read.starts_with("read:      1 table and "), "{read}");
    let kept = KEYS - (last - after);
    assert_eq!(salvaged, format!("salvaged:  {kept} keys into {new}"));
    assert_eq!(uncertain, "uncertain: none");
    assert_eq!(run(&format!("scan {new}")).well().lines().count(), kept);
    assert!(run(&format!("verify {new}")).well().ends_with("sound\n"));
    assert_eq!(fs::read(&table).expect("a file"), damaged);
    assert!(run(&format!("repair {store} --to {new}")).error(3).contains("exists"));
}

/// One flipped byte in the header of a log without changes makes a store unopenable.
#[test]
fn a_damaged_log_header_costs_nothing() {
    let (_dir, store, new) = store();
    flip(&only_file(&store, "log"), 0);
    run(&format!("get {store} key0000")).error(3);
    let repaired = run(&format!("repair {store} --to {new} --json"));
    let found: Value = serde_json::from_str(&repaired.well()).expect("JSON");
    assert_eq!(found["keys"], KEYS);
    assert_eq!(found["losses"], serde_json::json!([]));
    assert_eq!(run(&format!("get {new} key0000")).well(), "value 0\n");
}

#[test]
fn a_damaged_manifest_makes_all_keys_uncertain() {
    let (dir, store, new) = store();
    let names = fs::read_dir(&store).expect("a store").map(|entry| entry.expect("a name").path());
    let is_manifest = |path: &PathBuf| path.to_string_lossy().contains("MANIFEST");
    names.filter(is_manifest).for_each(|path| flip(&path, 100));
    let repaired = run(&format!("repair {store} --to {new}"));
    assert_eq!((repaired.code, repaired.err.as_str()), (1, ""), "{}", repaired.out);
    assert!(repaired.out.contains("salvaged:  0 keys into"), "{}", repaired.out);
    let accept = format!("  criba dump {new}/uncertain | criba load {new} -\n");
    assert!(repaired.out.contains(&accept), "{}", repaired.out);
    assert!(repaired.out.contains("The filter policy is lost"), "{}", repaired.out);
    let aside = run(&format!("scan {new}/uncertain")).well();
    assert_eq!(aside.lines().count(), KEYS);

    let accepted = dir.path().join("accepted").display().to_string();
    let repaired = run(&format!("repair {store} --to {accepted} --accept-stale --json"));
    assert_eq!(repaired.code, 1);
    let found: Value = serde_json::from_str(&repaired.out).expect("JSON");
    assert_eq!((&found["keys"], &found["uncertain"]), (&KEYS.into(), &KEYS.into()));
    assert_eq!(run(&format!("scan {accepted}")).well(), aside);
}

#[cfg(unix)]
#[test]
fn no_way_leads_into_the_damaged_store() {
    let (dir, store, _) = store();
    let path = |name: &str| dir.path().join(name).to_str().expect("a plain path").to_owned();
    std::os::unix::fs::symlink(&store, path("link")).expect("a link");
    fs::create_dir(path("beside")).expect("a directory");
    let names = || fs::read_dir(&store).expect("a store").count();
    let before = names();
    for to in ["link/new", "beside/../store/new", "absent/../store/new", "link/../store/new"] {
        let refused = run(&format!("repair {store} --to {}", path(to))).error(3);
        assert!(refused.contains("it is in the damaged store"), "{to}: {refused}");
    }
    run(&format!("repair {} --to {}", path("link"), path("store/new"))).error(3);
    assert_eq!(names(), before);
    run(&format!("repair {} --to {}", path("link"), path("beside/new"))).well();
}
