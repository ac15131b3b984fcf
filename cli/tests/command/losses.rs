//! No command loses data without a word: what it does when data are damaged or input is cut.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::common::{Run, criba, run};
use tempfile::TempDir;

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("a plain path").to_owned()
    }

    /// A store of one table with five thousand keys.
    fn store(&self, name: &str) -> String {
        let dir = self.at(name);
        let db = criba::Options::new().open(&dir).expect("a new store");
        for number in 0..5000 {
            db.put(format!("user{number:04}"), format!("{number}@example.org")).expect("a write");
        }
        db.compact().expect("room");
        db.close().expect("a sound end");
        dir
    }

    /// A store whose only table has a damaged data block.
    fn damaged(&self, name: &str) -> String {
        let dir = self.store(name);
        damage(&tables(&dir)[0], 9000);
        dir
    }
}

fn tables(store: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(store).expect("a store").map(|entry| entry.expect("a name").path());
    let mut tables: Vec<_> =
        names.filter(|path| path.extension().is_some_and(|e| e == "sst")).collect();
    tables.sort();
    tables
}

fn damage(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("a file");
    bytes[at] ^= 0x40;
    fs::write(path, bytes).expect("a writable file");
}

/// Runs a command with this input.
fn fed(command: &[&str], input: &[u8]) -> Run {
    let mut child = criba(command);
    let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("it starts");
    let mut pipe = child.stdin.take().expect("piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || drop(pipe.write_all(&input)));
    let end = Run::new(child.wait_with_output().expect("an end"));
    writer.join().expect("no panic");
    end
}

fn keys(store: &str) -> usize {
    run(&format!("scan {store} --count")).well().trim_end().parse().expect("a number")
}

#[test]
fn a_dump_of_a_damaged_store_is_no_whole_dump() {
    let place = Place::new();
    let (store, copy) = (place.damaged("store"), place.at("copy"));
    let dump = run(&format!("dump {store}"));
    assert_eq!(dump.code, 3, "{}", dump.err);
    let loaded = fed(&["load", &copy, "-"], dump.out.as_bytes());
    let lines = dump.out.lines().count() - 1;
    assert!((100..4900).contains(&lines), "{lines}");
    assert_eq!(
        loaded.error(1),
        format!(
            "criba: standard input: expected a whole dump, found {lines} lines, and no last line; lines \
             stored: {lines}\n"
        )
    );
    assert_eq!(keys(&copy), lines);
}

#[test]
fn each_part_that_a_dump_lacks_is_noticed() {
    let place = Place::new();
    let dump = run(&format!("dump {}", place.store("store"))).well();
    let lines: Vec<_> = dump.lines().collect();
    assert_eq!(lines[0], r"\criba dump, version 1, fields: key value");
    assert_eq!(lines[5001], r"\end of the dump, lines: 5000");
    assert_eq!(keys(&place.at("store")), 5000);
    let load = |name: &str, lines: &[&str], options: &[&str]| {
        let copy = place.at(name);
        let input = lines.join("\n") + "\n";
        let end = fed(&[&["load", &copy, "-"], options].concat(), input.as_bytes());
        (end, copy)
    };
    let (end, copy) = load("whole", &lines, &[]);
    end.well();
    assert_eq!(keys(&copy), 5000);
    for cut in [1, 2, 2500, 5000] {
        let (end, _) = load(&format!("cut {cut}").replace(' ', "-"), &lines[..cut], &[]);
        let told = end.error(1);
        assert!(told.contains(&format!("lines stored: {}\n", thousands(cut - 1))), "{told}");
    }
    let (end, _) = load("hole", &[&lines[..100], &lines[101..]].concat(), &[]);
    let told = end.error(1);
    assert!(told.contains("found 4999 lines, and its last line says 5000"), "{told}");
    // A line without its newline is cut, too.
    let end = fed(&["load", &place.at("within"), "-"], &dump.as_bytes()[..dump.len() / 2]);
    assert_eq!(end.code, 1, "{}", end.err);
    let last = run(&format!("scan {} --reverse --limit 1", place.at("within"))).well();
    assert!(lines.contains(&last.trim_end()), "{last}");

    let mut sorted = lines.clone();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    for (name, wrong) in [
        ("sorted", sorted),
        ("twice", [&lines[..], &lines[..]].concat()),
        ("more", [&lines[..], &["a\tb"]].concat()),
        ("without a head", lines[1..].to_vec()),
        ("newer", [&[r"\criba dump, version 2, fields: key value"], &lines[1..]].concat()),
        ("fields", [&[r"\criba dump, version 1, fields: key value expiry"], &lines[1..]].concat()),
    ] {
        let (end, _) = load(&name.replace(' ', "-"), &wrong, &[]);
        let told = end.error(3);
        assert!(told.contains("lines stored: "), "{name}: {told}");
    }
    let told = load("raw", &lines, &["--raw"]).0.error(3);
    assert!(told.contains("a dump, which has escapes"), "{told}");
}

fn thousands(number: usize) -> String {
    if number < 1000 {
        number.to_string()
    } else {
        format!("{},{:03}", number / 1000, number % 1000)
    }
}

#[test]
fn a_plain_dump_has_only_keys_and_may_be_sorted_and_edited() {
    let place = Place::new();
    let store = place.store("store");
    let plain = run(&format!("dump {store} --plain --prefix user12")).well();
    assert_eq!(plain, run(&format!("scan {store} --prefix user12")).well());
    let part = run(&format!("dump {store} --prefix user12")).well();
    assert_eq!(part.lines().count(), 102);
    let mut lines: Vec<_> = plain.lines().rev().skip(1).collect();
    lines.push("user1200\tedited");
    let copy = place.at("copy");
    fed(&["load", &copy, "-"], (lines.join("\n") + "\n").as_bytes()).well();
    assert_eq!(keys(&copy), 99);
    assert_eq!(run(&format!("get {copy} user1200")).well(), "edited\n");
}

/// No key is written as the first or the last line of a dump, and none is taken for one.
#[test]
fn keys_that_look_like_the_lines_of_a_dump_are_keys() {
    let place = Place::new();
    let store = place.at("store");
    let db = criba::Db::open(&store).expect("a new store");
    for key in [r"\criba dump, version 1, fields: key value", r"\end of the dump, lines: 1"] {
        db.put(key, "").expect("a write");
    }
    db.close().expect("a sound end");
    let dump = run(&format!("dump {store}")).well();
    fed(&["load", &place.at("copy"), "-"], dump.as_bytes()).well();
    let raw = run(&format!("scan {store} --raw")).well();
    fed(&["load", &place.at("raw"), "-", "--raw"], raw.as_bytes()).well();
    for copy in ["copy", "raw"] {
        assert_eq!(run(&format!("dump {}", place.at(copy))).well(), dump);
    }
}

#[test]
fn a_mistyped_option_is_no_key() {
    let place = Place::new();
    let store = place.store("store");
    for command in [
        "put DIR --fltr ribbon",
        "put DIR key --value",
        "get DIR --ra",
        "get DIR a --josn",
        "explain DIR --jsn",
        "delete DIR --all",
        "put DIR --fltr=ribbon v",
        "delete DIR --key=1",
    ] {
        let end = run(&command.replace("DIR", &store));
        assert_eq!((end.code, end.out.as_str()), (2, ""), "{command}");
        let of_others = command.starts_with("get DIR a") && end.err.contains("'--josn'");
        let refused = end.err.contains("is no option; to take it as it is, write -- before it");
        assert!(refused || of_others, "{}", end.err);
    }
    assert_eq!(keys(&store), 5000);
    run(&format!("put {store} --filter ribbon -- --fltr --value")).well();
    assert_eq!(run(&format!("get {store} -- --fltr")).well(), "--value\n");
    run(&format!("put {store} -k -v --filter ribbon")).well();
    assert_eq!(run(&format!("get {store} -k")).well(), "-v\n");
    run(&format!("delete {store} -- --fltr")).well();
    run(&format!("get {store} -- --fltr")).error(1);
}

fn damage_filter(table: &Path) {
    let bytes = fs::read(table).expect("a file");
    let footer = bytes.len() - 128;
    let filter = u64::from_le_bytes(bytes[footer..footer + 8].try_into().expect("eight bytes"));
    damage(table, filter as usize + 20);
}

/// Each advice is run, and ends the complaint.
#[test]
fn a_damaged_filter_is_rebuilt_as_each_command_says() {
    let place = Place::new();
    for complaining in ["verify", "stats", "tune"] {
        let store = place.store(complaining);
        damage_filter(&tables(&store)[0]);
        let told = run(&format!("{complaining} {store}"));
        assert_eq!(told.code, i32::from(complaining == "verify"), "{}", told.err);
        let advice = told.out.lines().map(str::trim).find(|line| line.starts_with("criba rebuild"));
        let advice = advice.unwrap_or_else(|| panic!("{}", told.out));
        let command: Vec<_> = advice.split(' ').skip(1).take(2).collect();
        run(&command.join(" ")).well();
        for command in ["verify", "stats", "tune"] {
            let told = run(&format!("{command} {store}")).well();
            assert!(
                !told.contains("criba rebuild-filters DIR") && !told.contains("anew"),
                "{told}"
            );
            if command == "verify" {
                assert!(told.contains("note: ") && told.ends_with("sound\n"), "{told}");
            }
        }
    }
}

/// A note about a replaced filter block ends when the table is written anew.
#[test]
fn compact_writes_every_table_anew_if_it_is_asked_to() {
    let place = Place::new();
    let store = place.store("store");
    damage_filter(&tables(&store)[0]);
    run(&format!("rebuild-filters {store}")).well();
    assert!(run(&format!("verify {store}")).well().contains("note: "));
    let told = run(&format!("compact {store}")).well();
    let advice = format!("  criba compact {store} --rewrite\n");
    assert!(told.ends_with(&advice), "{told}");
    let told = run(&advice.trim()["criba ".len()..]).well();
    assert!(told.ends_with("\n1 table written anew\n"), "{told}");
    assert!(!run(&format!("verify {store}")).well().contains("note: "));
    assert_eq!(keys(&store), 5000);
    let told = run(&format!("compact {store} --rewrite --before 4 --json")).well();
    let found: serde_json::Value = serde_json::from_str(&told).expect("one object");
    assert_eq!(found["rewritten"], 0);
}

#[test]
fn tune_recommends_nothing_while_filters_are_damaged() {
    let place = Place::new();
    let store = place.store("store");
    damage_filter(&tables(&store)[0]);
    let told = run(&format!("tune {store}")).well();
    let first = "Rebuild the damaged filters first: the estimates leave them out.";
    assert!(told.contains(first) && !told.contains("--bits-per-key"), "{told}");
    let told = run(&format!("tune {store} --json")).well();
    let found: serde_json::Value = serde_json::from_str(&told).expect("one object");
    assert_eq!(found["recommendation"], first);
}

/// No repair helps against them.
#[test]
fn a_newer_format_and_a_file_without_permission_are_errors() {
    let place = Place::new();
    let (store, new) = (place.store("newer"), place.at("new"));
    let current = Path::new(&store).join("CURRENT");
    let body = fs::read_to_string(&current).expect("a text").replace("criba 2", "criba 3");
    let body = body.lines().take(2).fold(String::new(), |text, line| text + line + "\n");
    let checksum = crc32fast::hash(body.as_bytes());
    fs::write(&current, format!("{body}{checksum:08x}\n")).expect("a file");
    for command in ["verify DIR", "get DIR key", "put DIR key value", "repair DIR --to NEW"] {
        let command = command.replace("DIR", &store).replace("NEW", &new);
        let told = run(&command).error(3);
        assert!(told.contains("a newer criba"), "{told}");
        assert!(!told.contains("repair") && !told.contains("only read"), "{told}");
    }

    let store = place.store("locked away");
    let table = &tables(&store)[0];
    let mode = |mode| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(table, fs::Permissions::from_mode(mode)).expect("our file");
    };
    mode(0);
    if fs::File::open(table).is_ok() {
        crate::common::skip("this user may read every file");
        return;
    }
    for command in ["verify", "stats", "scan"] {
        let told = Run::new(criba([command, &store]).output().expect("it starts")).error(3);
        assert!(told.contains("ermission denied") && !told.contains("only read"), "{told}");
    }
}

#[test]
fn stats_say_that_level_0_fills_up() {
    let place = Place::new();
    let store = place.at("store");
    let options = criba::Options::new().auto_compaction(false).background_threads(0);
    let db = options.open(&store).expect("a new store");
    let crowded = |tables: usize| {
        for number in 0..tables {
            db.put(format!("key {number}"), "value").expect("a write");
            db.flush().expect("room");
        }
        run(&format!("stats {store}")).well().replace("\n    ", " ")
    };
    assert!(!crowded(11).contains("crowded"));
    let told = crowded(1);
    assert!(told.contains("crowded: 12 tables on L0: compactions are behind, or fail."), "{told}");
    db.close().expect("a sound end");
    run(&format!("compact {store}")).well();
    assert!(!run(&format!("stats {store}")).well().contains("crowded"));
}

#[test]
fn a_packed_file_is_named_by_its_kind() {
    let place = Place::new();
    let magics: [(&[u8], &str); 4] = [
        (b"\x28\xb5\x2f\xfd rest", "packed by zstd"),
        (b"\xfd7zXZ\0 rest", "packed by xz"),
        (b"\x04\x22\x4d\x18 rest", "packed by lz4"),
        (b"\x1f\x8b\x07 rest", "packed by gzip by an unknown method"),
    ];
    for (bytes, told) in magics {
        for raw in [&[][..], &["--raw"]] {
            let end = fed(&[&["load", &place.at("store"), "-"], raw].concat(), bytes);
            let error = end.error(3);
            assert!(error.contains(told), "{error}");
        }
    }
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all("key\tvalue\n".repeat(5000).as_bytes()).expect("memory");
    let whole = gz.finish().expect("memory");
    for (name, at) in [("middle", whole.len() / 2), ("checksum", whole.len() - 6)] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        let error = fed(&["load", &place.at(name), "-"], &bytes).error(3);
        assert!(error.contains("cannot read it as gzipped lines"), "{error}");
        assert!(error.contains("lines stored: "), "{error}");
    }
    let error = fed(&["load", &place.at("cut"), "-"], &whole[..whole.len() - 9]).error(3);
    assert!(error.contains("cannot read it as gzipped lines"), "{error}");
    assert!(!Path::new(&place.at("store")).exists());
}

#[test]
fn a_load_prints_its_object_however_it_ends() {
    let place = Place::new();
    let store = place.at("store");
    let object = |end: Run, code: i32| -> serde_json::Value {
        assert_eq!(end.code, code, "{}", end.err);
        serde_json::from_str(&end.out).expect("one object")
    };
    let load = ["load", &store, "-", "--json"];
    let found = object(fed(&load, b"a\t1\nb\t2\n"), 0);
    assert_eq!(
        found,
        serde_json::json!({ "version": 1, "lines": 2, "tables": 1, "complete": true })
    );
    let found = object(fed(&load, b"c\t3\nd\n"), 3);
    assert_eq!(
        found,
        serde_json::json!({ "version": 1, "lines": 1, "tables": null, "complete": false })
    );
    let found = object(fed(&load, b"\\criba dump, version 1, fields: key value\ne\t5\n"), 1);
    assert_eq!(
        found,
        serde_json::json!({ "version": 1, "lines": 1, "tables": null, "complete": false })
    );
}

/// A damaged block stops no load, and its error has the number of lines.
#[test]
fn a_load_beside_damage_stores_its_lines() {
    let place = Place::new();
    let store = place.damaged("store");
    let lines: Vec<_> = (0..200_000).map(|i| format!("user{:04}\t{i}\n", i % 5000)).collect();
    let end = fed(&["load", &store, "-"], lines.concat().as_bytes());
    assert_eq!((end.code, end.err.as_str()), (0, ""));
    assert!(end.out.starts_with("200,000 lines written"), "{}", end.out);
}

/// The limit of a file's size is an error as a full disk is one, and no silent end of the process.
#[test]
fn a_write_beyond_the_file_limit_is_an_error() {
    let place = Place::new();
    let (store, lines) = (place.at("store"), place.at("lines"));
    let lines_of_it = (0..60_000).map(|number| format!("user{number}\tvalue of it"));
    fs::write(&lines, lines_of_it.collect::<Vec<_>>().join("\n")).expect("room");
    let criba = criba(&[] as &[&str]).get_program().display().to_string();
    let command = format!("ulimit -f 500; {criba} load {store} {lines}");
    let limited = std::process::Command::new("sh").args(["-c", &command]).output();
    let limited = Run::new(limited.expect("a shell"));
    assert_eq!(limited.code, 3, "{}", limited.err);
    assert!(
        limited.err.contains("File too large") && limited.err.contains("lines stored: "),
        "{}",
        limited.err
    );
    assert_eq!(run(&format!("verify {store}")).code, 0);
    assert_eq!(run(&format!("load {store} {lines}")).code, 0);
    assert_eq!(run(&format!("scan {store} --count")).well(), "60000\n");
}
