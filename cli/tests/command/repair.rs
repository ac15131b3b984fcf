//! `criba repair`, from a damaged store to one that opens.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{run, shell};
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
    let [place, .., keys, read, salvaged, uncertain] = lines[..] else {
        panic!("{}", repaired.out)
    };
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
    assert!(run(&format!("repair {store} --to {new}")).error(3).contains("a new name"));
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
    names.filter(is_manifest).for_each(|path| flip(&path, 4096 + 100));
    let repaired = run(&format!("repair {store} --to {new}"));
    assert_eq!((repaired.code, repaired.err.as_str()), (1, ""), "{}", repaired.out);
    assert!(repaired.out.contains("salvaged:  0 keys into"), "{}", repaired.out);
    let accept =
        format!("criba dump {new}/uncertain | criba load {new} - && rm -r {new}/uncertain");
    assert!(repaired.out.contains(&format!("\n  {accept}\n")), "{}", repaired.out);
    assert!(repaired.out.contains("The filter policy is lost"), "{}", repaired.out);
    let aside = run(&format!("scan {new}/uncertain")).well();
    assert_eq!(aside.lines().count(), KEYS);

    let accepted = dir.path().join("accepted").display().to_string();
    let repaired = run(&format!("repair {store} --to {accepted} --accept-stale --json"));
    assert_eq!(repaired.code, 1);
    let found: Value = serde_json::from_str(&repaired.out).expect("JSON");
    assert_eq!((&found["keys"], &found["uncertain"]), (&KEYS.into(), &KEYS.into()));
    assert_eq!(run(&format!("scan {accepted}")).well(), aside);
    let accept = shell(&accept, dir.path()).output().expect("a shell");
    assert!(accept.status.success(), "{accept:?}");
    assert_eq!(run(&format!("scan {new}")).well(), aside);
    assert!(run(&format!("verify {new}")).well().ends_with("sound\n"));
}

/// What could not be read back stays aside.
#[test]
fn uncertain_keys_that_are_damaged_are_not_removed() {
    let (dir, store, new) = store();
    let names = fs::read_dir(&store).expect("a store").map(|entry| entry.expect("a name").path());
    let is_manifest = |path: &PathBuf| path.to_string_lossy().contains("MANIFEST");
    names.filter(is_manifest).for_each(|path| flip(&path, 4096 + 100));
    run(&format!("repair {store} --to {new}"));
    flip(&only_file(&format!("{new}/uncertain"), "sst"), 9000);
    let accept =
        format!("criba dump {new}/uncertain | criba load {new} - && rm -r {new}/uncertain");
    let accept = shell(&accept, dir.path()).output().expect("a shell");
    assert_eq!(accept.status.code(), Some(1), "{accept:?}");
    assert!(Path::new(&new).join("uncertain").exists());
}

/// The manifest in force says which store it is, or `--store` does.
#[test]
fn files_of_another_store_are_named_and_left_out() {
    let (dir, store, new) = store();
    let other = dir.path().join("other").display().to_string();
    run(&format!("put {other} foreign value")).well();
    run(&format!("compact {other}")).well();
    let id = |store: &str| {
        let info = run(&format!("inspect {} --json", only_file(store, "sst").display())).well();
        let info: Value = serde_json::from_str(&info).expect("JSON");
        info["store"].as_str().expect("an id").to_owned()
    };
    let (own_id, other_id) = (id(&store), id(&other));
    let stray = Path::new(&store).join("000900.sst");
    fs::copy(only_file(&other, "sst"), &stray).expect("room");

    let repaired = run(&format!("repair {store} --to {new}")).well();
    let named = format!("left out: {}, a file of store {other_id}\n", stray.display());
    assert!(repaired.starts_with(&named), "{repaired}");
    assert_eq!(run(&format!("scan {new} --count")).well(), format!("{KEYS}\n"));
    fs::remove_dir_all(&new).expect("a store");

    let repaired = run(&format!("repair {store} --to {new} --store {own_id} --json")).well();
    let found: Value = serde_json::from_str(&repaired).expect("JSON");
    assert_eq!((&found["store"], &found["keys"]), (&own_id.clone().into(), &KEYS.into()));
    let path = stray.display().to_string();
    assert_eq!(found["others"], serde_json::json!([{ "path": path, "store": other_id }]));
    assert_eq!(found["leftovers"], serde_json::json!([]));
    fs::remove_dir_all(&new).expect("a store");

    // Without its manifest, what is there of the other store is uncertain.
    let repaired = run(&format!("repair {store} --to {new} --store {other_id} --json"));
    assert_eq!(repaired.code, 1, "{}", repaired.err);
    let found: Value = serde_json::from_str(&repaired.out).expect("JSON");
    assert_eq!((&found["store"], &found["uncertain"]), (&other_id.into(), &1.into()));
    let others = found["others"].as_array().expect("a list");
    assert!(others.len() >= 3 && others.iter().all(|other| other["store"] == own_id), "{others:?}");
    assert_eq!(run(&format!("scan {new}/uncertain")).well(), "foreign\tvalue\n");

    for id in ["", "x", "+1", "00000000000000001", "-1"] {
        let refused = run(&format!("repair {store} --to {new} --store={id}"));
        assert_eq!(refused.code, 2, "{id}: {}", refused.err);
    }
}

#[test]
fn what_a_killed_repair_left_is_removed_and_named() {
    let (dir, store, new) = store();
    let leave = || {
        let left = dir.path().join(".new.repair-tmp.0123456789abcdef");
        fs::create_dir_all(left.join("uncertain")).expect("a directory");
        for name in ["LOCK", "000001.log", "uncertain/LOCK", "uncertain/MANIFEST-000002"] {
            fs::write(left.join(name), "").expect("a file");
        }
        left
    };
    let left = leave();
    let repaired = run(&format!("repair {store} --to {new}")).well();
    let named = format!("removed: {}, left by a repair that was killed\n", left.display());
    assert!(repaired.starts_with(&named) && !left.exists(), "{repaired}");
    fs::remove_dir_all(&new).expect("a store");
    let left = leave();
    let repaired = run(&format!("repair {store} --to {new} --json")).well();
    let found: Value = serde_json::from_str(&repaired).expect("JSON");
    assert_eq!(found["leftovers"], serde_json::json!([left.display().to_string()]));
    assert!(!left.exists());
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
        assert!(refused.contains("it is in the directory of the store itself"), "{to}: {refused}");
    }
    run(&format!("repair {} --to {}", path("link"), path("store/new"))).error(3);
    assert_eq!(names(), before);
    run(&format!("repair {} --to {}", path("link"), path("beside/new"))).well();
}

/// A log that was never synced opens without what follows damage. The messages say what can be done.
#[test]
fn whole_records_behind_damage_in_a_log_are_counted_and_salvaged() {
    let (dir, _, new) = store();
    let (open, copy) = (dir.path().join("open"), dir.path().join("copy"));
    let db = criba::Db::open(&open).expect("a new store");
    (0..100).for_each(|n| db.put(format!("key{n}"), "value").expect("a write"));
    fs::create_dir(&copy).expect("a new directory");
    for entry in fs::read_dir(&open).expect("a store") {
        let from = entry.expect("a name").path();
        fs::copy(&from, copy.join(from.file_name().expect("a name"))).expect("room");
    }
    db.close().expect("a sound end");
    let copy = copy.display().to_string();
    flip(&only_file(&copy, "log"), 52 + 27 + 5); // the first record
    let get = run(&format!("get {copy} key99"));
    assert_eq!(get.code, 1);
    let said = "with the end of 99 records, after damage or a power failure; before the next write, criba repair";
    assert!(get.err.contains(said), "{}", get.err);
    let verified = run(&format!("verify {copy}")).well().replace("\n    ", " ");
    assert!(
        verified.contains("do not count, with the end of 99 records, after damage"),
        "{verified}"
    );
    let backup = run(&format!("backup {copy} {new}"));
    assert_eq!(backup.code, 1, "{}", backup.err);
    assert!(backup.out.contains(&format!(" in {new}.damaged\n")), "{}", backup.out);
    assert!(!Path::new(&new).exists() && backup.err.contains(said), "{}", backup.err);
    let repaired = run(&format!("repair {copy} --to {new}"));
    assert_eq!(repaired.code, 1, "{}", repaired.err);
    assert!(repaired.out.replace("\n    ", " ").contains("one change lost"), "{}", repaired.out);
    assert_eq!(run(&format!("scan {new} --count")).well(), "99\n");
}

/// A process that dies within a long write leaves part of a record: nothing that was acknowledged is lost.
#[test]
fn a_long_write_that_a_kill_cut_short_is_no_damage() {
    let (dir, _, new) = store();
    let (open, copy) = (dir.path().join("open"), dir.path().join("copy"));
    let db = criba::Db::open(&open).expect("a new store");
    db.put("acknowledged", "value").expect("a write");
    db.put("cut short", vec![7; 1 << 20]).expect("a write");
    fs::create_dir(&copy).expect("a new directory");
    for entry in fs::read_dir(&open).expect("a store") {
        let from = entry.expect("a name").path();
        fs::copy(&from, copy.join(from.file_name().expect("a name"))).expect("room");
    }
    db.close().expect("a sound end");
    let copy = copy.display().to_string();
    let log = fs::File::options().write(true).open(only_file(&copy, "log")).expect("a log");
    log.set_len(500_000).expect("a real file");
    let verified = run(&format!("verify {copy}")).well().replace("\n    ", " ");
    assert!(verified.contains("a crash cut short what was not synced"), "{verified}");
    let backup = run(&format!("backup {copy} {new}"));
    assert_eq!(backup.code, 0, "{}", backup.err);
    assert!(backup.out.contains(&format!(" in {new}\n")), "{}", backup.out);
    assert!(backup.err.contains("of a write that a crash cut short"), "{}", backup.err);
    assert_eq!(run(&format!("get {new} acknowledged")).well(), "value\n");
    assert_eq!(run(&format!("scan {new} --count")).well(), "1\n");
}

/// A damaged filter costs reads, and no store needs a repair for it.
#[test]
fn a_damaged_filter_is_made_anew() {
    let (_dir, store, _) = store();
    let table = only_file(&store, "sst");
    let info = run(&format!("inspect {} --json", table.display())).well();
    let info: Value = serde_json::from_str(&info).expect("JSON");
    let last = info["index"].as_array().and_then(|blocks| blocks.last()).expect("a block").clone();
    let data = last["offset"].as_u64().expect("it") + last["bytes"].as_u64().expect("it");
    flip(&table, data as usize + 300);
    let verified = run(&format!("verify {store}"));
    assert_eq!(verified.code, 1);
    let advice = format!("criba rebuild-filters {store} makes filters anew\n");
    assert!(verified.out.ends_with(&advice), "{}", verified.out);
    run(&format!("rebuild-filters {store}")).well();
    let verified = run(&format!("verify {store}")).well().replace("\n    ", " ");
    assert!(verified.contains("because another filter is in its place\n"), "{verified}");
}
