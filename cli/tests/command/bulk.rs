//! Many keys in one command.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::common::{criba, run, with_input};

/// A store with "key0" to "key4999", the key "-" and one of TAB and backslash.
fn store() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = dir.path().join("store").display().to_string();
    let db = criba::Db::open(&store).expect("a new store");
    for number in 0..5000 {
        db.put(format!("key{number}"), format!("value {number}")).expect("a write");
    }
    db.put("-", "hyphen").expect("a write");
    db.put("a\t\\", "\n").expect("a write");
    db.close().expect("a sound end");
    (dir, store)
}

#[test]
fn keys_of_standard_input_are_looked_up_in_their_order() {
    let (_dir, store) = store();
    let numbers = || (0..9000).map(|i| i * 4099 % 9000);
    let keys = numbers().map(|number| format!("key{number}\n"));
    let input: String = keys.collect();
    let line = |number: u32| format!("key{number}\tvalue {number}\n");
    let present: String = numbers().filter(|number| *number < 5000).map(line).collect();
    let get = |options: &[&str]| {
        with_input([&["get", &store, "-"][..], options].concat(), input.as_bytes())
    };
    assert_eq!(get(&["--missing", "skip"]).well(), present);
    let failed = get(&[]);
    assert_eq!((failed.code, failed.out), (1, present.clone()));
    let absent = numbers().filter(|number| *number >= 5000);
    let absent = absent.map(|number| format!("criba: absent: key{number}\n"));
    let errors: String = absent.collect();
    assert_eq!(failed.err, errors);
    let marked: String = numbers()
        .map(|number| if number < 5000 { line(number) } else { format!("key{number}\n") })
        .collect();
    assert_eq!(get(&["--missing=mark"]).well(), marked);
}

#[test]
fn absent_keys_are_objects_or_left_out() {
    let (_dir, store) = store();
    let present = "{\"version\":1,\"key\":\"key1\",\"value\":\"value 1\"}\n";
    let absent = "{\"version\":1,\"absent\":true,\"key\":\"none\"}\n";
    for (missing, code, objects) in
        [("fail", 1, [present, absent]), ("mark", 0, [present, absent]), ("skip", 0, [present, ""])]
    {
        let line = ["get", &store, "-", "--json", "--missing", missing];
        let got = with_input(line, b"key1\nnone");
        assert_eq!((got.code, got.err.as_str()), (code, ""), "{missing}");
        assert_eq!(got.out, objects.concat(), "{missing}");
        let got = run(&format!("get {store} key1 none --json --missing {missing}"));
        assert_eq!((got.code, got.out), (code, objects.concat()), "{missing}");
    }
    assert_eq!(run(&format!("get {store} key1 --missing mark")).well(), "key1\tvalue 1\n");
    assert_eq!(run(&format!("get {store} none --missing mark")).well(), "none\n");
    assert_eq!(run(&format!("get {store} none --missing skip")).well(), "");
    assert_eq!(run(&format!("get {store} key1 --missing skip")).well(), "value 1\n");
}

#[test]
fn the_key_hyphen_follows_two_hyphens() {
    let (_dir, store) = store();
    assert_eq!(run(&format!("get {store} -- -")).well(), "hyphen\n");
    assert_eq!(run(&format!("get {store} --raw -- -")).well(), "hyphen");
    assert_eq!(
        run(&format!("get {store} key1 -- - key2")).well(),
        "key1\tvalue 1\n-\thyphen\nkey2\tvalue 2\n"
    );
    assert_eq!(with_input(["get", &store, "-"], b"-\n").well(), "-\thyphen\n");
    for line in ["get DIR - --raw", "get DIR --raw -- a b", "get DIR"] {
        assert_eq!(run(&line.replace("DIR", &store)).code, 2, "{line}");
    }
}

#[test]
fn lines_of_keys_are_text() {
    let (dir, store) = store();
    let get = |input: &[u8]| with_input(["get", &store, "-"], input);
    assert_eq!(get(b"a\\t\\\\\r\nkey7\r\n").well(), "a\\t\\\\\t\\n\nkey7\tvalue 7\n");
    assert_eq!(get(b"").well(), "");
    let wrong = get(b"key1\nkey2\tvalue 2\nkey3\n");
    assert_eq!(wrong.out, "key1\tvalue 1\n", "the keys before have their answers");
    let told = wrong.error(3);
    assert_eq!(told, "criba: standard input: expected text on line 2, found U+0009; write \\t\n");
    let told = get(&b"k".repeat(65_536)).error(3);
    assert!(told.contains("a key of at most 65535 bytes on line 1"), "{told}");
    let file = dir.path().join("keys");
    fs::write(&file, "key1\nkey2\n").expect("a file");
    let mut child = criba(["get", &store, "-"]);
    let input = fs::File::open(file).expect("it was written");
    let output = child.stdin(input).output().expect("it starts");
    assert_eq!(output.stdout, b"key1\tvalue 1\nkey2\tvalue 2\n");
}

/// A program that asks for one key after the other gets each answer before it asks for the next.
#[test]
fn an_answer_does_not_wait_for_the_next_key() {
    let (_dir, store) = store();
    let mut command = criba(["get", &store, "-"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("piped");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    for (key, value) in [("-", "hyphen"), ("key4", "value 4"), ("key4000", "value 4000")] {
        writeln!(input, "{key}").expect("it reads");
        let mut line = String::new();
        output.read_line(&mut line).expect("an answer");
        assert_eq!(line, format!("{key}\t{value}\n"));
    }
    drop(input);
    assert!(child.wait().expect("an end").success());
}

/// Lines of which 12 are wrong.
fn lines_with_errors() -> (Vec<u8>, Vec<u8>) {
    let (mut lines, mut wrong) = (Vec::new(), Vec::new());
    for number in 0..3000 {
        lines.extend_from_slice(format!("key{number}\tvalue\n").as_bytes());
        if number % 300 == 0 {
            let line = format!("C:\\new\\{number}\tno escape\n");
            wrong.extend_from_slice(line.as_bytes());
            lines.extend_from_slice(line.as_bytes());
        }
    }
    lines.extend_from_slice(&[&b"k".repeat(300_000), &b"\tlong\n"[..]].concat());
    lines.extend_from_slice(b"no tab");
    wrong.extend_from_slice(b"no tab\n");
    (lines, wrong)
}

#[test]
fn load_leaves_wrong_lines_out_and_keeps_them() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let (lines, wrong) = lines_with_errors();
    fs::write(at("lines"), &lines).expect("a file");
    let (store, file, rejects) = (at("store"), at("lines"), at("rejects"));
    let loaded = run(&format!("load {store} {file} --skip-bad --rejects {rejects}"));
    assert_eq!(loaded.code, 1);
    assert_eq!(loaded.out, "3,000 lines written; the store has 1 table\n12 wrong lines left out\n");
    assert_eq!(loaded.err.lines().count(), 10, "{}", loaded.err);
    let first = format!("criba: {file}: expected text on line 2, found \\0, ");
    assert!(loaded.err.starts_with(&first), "{}", loaded.err);
    assert_eq!(fs::read(&rejects).expect("made"), wrong);
    assert_eq!(run(&format!("scan {store} --count")).well(), "3000\n");

    let line = format!("load {store} {file} --skip-bad --rejects {rejects} --json");
    let told = run(&line).error(3);
    assert!(told.contains("rejects: cannot make it: "), "{told}");
    assert_eq!(fs::read(&rejects).expect("as it was"), wrong);
    let json = run(&format!("load {} {file} --skip-bad --json", at("other")));
    let object: serde_json::Value = serde_json::from_str(&json.out).expect("JSON");
    let counts = ["lines", "rejected", "complete"].map(|name| object[name].clone());
    assert_eq!((json.code, counts), (1, [3000.into(), 12.into(), true.into()]));

    // What was left out is loaded as it is.
    let told = run(&format!("load {store} {rejects} --raw")).error(3);
    assert!(told.contains("on line 11"), "{told}");
    assert_eq!(run(&format!("get {store} C:\\\\new\\\\300")).well(), "no escape\n");
    let well = run(&format!("load {store} {rejects} --skip-bad --raw"));
    assert_eq!((well.code, well.err.lines().count()), (1, 1), "{}", well.err);
    run(&format!("load {} {rejects}", at("none"))).error(3);
    assert!(!dir.path().join("none").exists());
    let usage = ["--skip-bad --sorted", "--rejects there", "--crlf"];
    for options in usage {
        assert_eq!(run(&format!("load {store} {file} {options}")).code, 2, "{options}");
    }
}

#[test]
fn a_line_that_is_cut_short_is_not_kept() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| dir.path().join(name).display().to_string();
    let long = [&b"k".repeat(300_000), &b"\tv\na\t1\n"[..]].concat();
    fs::write(at("lines"), long).expect("a file");
    let line = format!("load {} {} --skip-bad --rejects {}", at("s"), at("lines"), at("r"));
    let told = run(&line);
    assert_eq!((told.code, fs::read(at("r")).expect("made")), (1, Vec::new()));
    assert!(told.err.contains("a key of at most 65535 bytes on line 1"), "{}", told.err);
    assert_eq!(run(&format!("scan {}", at("s"))).well(), "a\t1\n");
}

#[test]
fn lines_with_backslashes_may_end_with_cr() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| dir.path().join(name).display().to_string();
    fs::write(at("lines"), "C:\\new\tD:\\temp\r\nE:\\x\t\r\nlast\tone").expect("a file");
    run(&format!("load {} {} --raw --crlf", at("s"), at("lines"))).well();
    let pairs = "C:\\\\new\tD:\\\\temp\nE:\\\\x\t\nlast\tone\n";
    assert_eq!(run(&format!("scan {}", at("s"))).well(), pairs);
    let told = run(&format!("load {} {} --raw", at("s"), at("lines"))).error(3);
    assert!(told.contains("a CRLF line end; add --crlf, or leave --raw out"), "{told}");
}

#[test]
fn sizes_have_units() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = dir.path().join("store").display().to_string();
    let lines = (0..2000).map(|number| format!("key{number}\t{number:200}\n"));
    let lines: String = lines.collect();
    with_input(["load", &store, "-", "--block-bytes", "16K"], lines.as_bytes()).well();
    let blocks = |store: &str| {
        let stats = run(&format!("stats {store} --json")).well();
        let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
        let table =
            format!("{store}/{:06}.sst", stats["tables"][0]["id"].as_u64().expect("a number"));
        let table = run(&format!("inspect {table} --json")).well();
        let table: serde_json::Value = serde_json::from_str(&table).expect("JSON");
        table["data_blocks"].as_u64().expect("a number")
    };
    let large = blocks(&store);
    assert!((25..35).contains(&large), "{large}");
    run(&format!("compact {store} --rewrite --block-bytes 0.5MiB")).well();
    assert_eq!(blocks(&store), 1);
    for size in ["16Q", "-1", "", "63"] {
        let line = ["load", &store, "-", "--block-bytes", size];
        assert_eq!(with_input(line, b"").code, 2, "{size}");
    }
}

/// A damaged block costs the answers of its own keys.
#[test]
fn a_damaged_block_has_an_error_line_for_each_of_its_keys() {
    let (dir, store) = store();
    run(&format!("compact {store}")).well();
    let table = fs::read_dir(&store).expect("a store").map(|entry| entry.expect("a name").path());
    let table = table.filter(|path| path.extension().is_some_and(|end| end == "sst")).max();
    let table = table.expect("a table");
    let mut bytes = fs::read(&table).expect("a table");
    bytes[9000] ^= 1;
    fs::write(&table, bytes).expect("a writable file");
    let keys: Vec<String> = (0..5000).map(|number| format!("key{number}")).collect();
    let got = with_input(["get", &store, "-"], keys.join("\n").as_bytes());
    assert_eq!(got.code, 3);
    let (answers, errors) = (got.out.lines().count(), got.err.lines().count());
    assert_eq!(answers + errors, 5000);
    assert!((1..300).contains(&errors), "{errors}");
    for line in got.err.lines() {
        let (key, error) =
            line.strip_prefix("criba: key").and_then(|line| line.split_once(": ")).expect(line);
        assert!(
            error.contains("expected a data block") && !got.out.contains(&format!("key{key}\t")),
            "{line}"
        );
        let alone = run(&format!("get {store} key{key}"));
        assert!(alone.code == 3 && alone.out.is_empty(), "{}", alone.err);
    }
    drop(dir);
}
