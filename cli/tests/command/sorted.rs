//! `load --sorted`: sorted lines are ingested, all or none.

use std::fs::{self, File};
use std::io::Write;
use std::process::Stdio;

use crate::common::terminal::terminal;
use crate::common::{Run, criba, run};
use serde_json::{Value, json};
use tempfile::TempDir;

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("a plain path").to_owned()
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.at(name), content).expect("a file");
        self.at(name)
    }

    /// A store with two keys in the log.
    fn store(&self, name: &str) -> String {
        let lines = self.file("lines of a store", "b\told\nx\told\n");
        let args = ["load", &self.at(name), &lines];
        Run::new(criba(args).output().expect("it starts")).well();
        self.at(name)
    }
}

fn scan(store: &str) -> String {
    run(&format!("scan {store}")).well()
}

/// Runs a command with a pipe of this input.
fn fed(command: &str, input: &[u8]) -> Run {
    let mut child = criba(command.split_whitespace());
    let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("it starts");
    let mut pipe = child.stdin.take().expect("piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || drop(pipe.write_all(&input)));
    let end = Run::new(child.wait_with_output().expect("an end"));
    writer.join().expect("no panic");
    end
}

fn object(end: &Run) -> Value {
    serde_json::from_str(&end.out).expect("one object")
}

fn gzipped(text: &str) -> Vec<u8> {
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(text.as_bytes()).expect("memory");
    gz.finish().expect("memory")
}

/// Whether the only table of a store was ingested.
fn is_ingested(store: &str) -> bool {
    let names = fs::read_dir(store).expect("a store").map(|entry| entry.expect("a name").path());
    let tables: Vec<_> =
        names.filter(|path| path.extension().is_some_and(|e| e == "sst")).collect();
    let [table] = &*tables else { panic!("{tables:?}") };
    let told = run(&format!("inspect {} --json", table.display()));
    object(&told)["ingested"] == true
}

#[test]
fn sorted_lines_of_each_form_are_ingested() {
    let place = Place::new();
    let lines: Vec<_> =
        (0..3000).map(|number| format!("key{number:04}\\x00\t{number}\n")).collect();
    let lines = lines.concat();
    let plain = place.file("plain", &lines);
    let packed = place.file("packed", gzipped(&lines));
    run(&format!("load {} {plain}", place.at("usual"))).well();
    assert!(!is_ingested(&place.at("usual")));
    let dump = place.file("dump", run(&format!("dump {}", place.at("usual"))).well());
    for file in [plain, packed, dump] {
        let (named, piped, auto) = (place.at("named"), place.at("piped"), place.at("auto"));
        let input = fs::read(&file).expect("a file");
        let ends = [
            (run(&format!("load --sorted {named} {file}")), &named),
            (fed(&format!("load {piped} - --sorted=yes"), &input), &piped),
            (run(&format!("load --sorted=auto {auto} {file}")), &auto),
        ];
        for (end, store) in ends {
            assert_eq!(end.well(), "3,000 lines ingested; the store has 1 table\n");
            assert_eq!(scan(store), lines, "{file}");
            assert!(is_ingested(store));
            fs::remove_dir_all(store).expect("it is there");
        }
    }
}

#[test]
fn ingested_lines_replace_older_values_in_the_log() {
    let place = Place::new();
    let store = place.store("store");
    let new = place.file("new", "a\tnew\nb\tnew\n");
    run(&format!("load --sorted {store} {new}")).well();
    assert_eq!(scan(&store), "a\tnew\nb\tnew\nx\told\n");
}

/// The order is that of the bytes, not that of their text.
#[test]
fn escapes_are_sorted_as_their_bytes() {
    let place = Place::new();
    let by_bytes = place.file("by bytes", "a\\x01\t1\na!\t2\n");
    let by_text = place.file("by text", "a!\t2\na\\x01\t1\n");
    let load = |options: &[&str], file: &str, store: &str| {
        let store = place.at(store);
        let args = [&["load", &store, file], options].concat();
        Run::new(criba(args).output().expect("it starts"))
    };
    load(&["--sorted"], &by_bytes, "text").well();
    assert_eq!(scan(&place.at("text")), "a\\x01\t1\na!\t2\n");
    load(&["--sorted"], &by_text, "refused").error(3);
    load(&["--sorted", "--raw"], &by_text, "raw").well();
    load(&["--sorted", "--raw"], &by_bytes, "refused").error(3);
    assert_eq!(run(&format!("get {} a\\\\x01", place.at("raw"))).well(), "1\n");
}

#[test]
fn a_key_that_does_not_ascend_is_named_with_its_line_and_nothing_is_changed() {
    let place = Place::new();
    let long = "k".repeat(100);
    let cut = "k".repeat(64);
    let mistakes = [
        ("c\t1\nb\\t\t2\n", 2, r#""c""#, r#""b\t""#),
        ("a\t1\nb\t2\nb\t2\n", 3, r#""b""#, r#""b""#),
        ("a\t1\n\t2\n", 2, r#""a""#, r#""""#),
        (&*format!("{long}\t1\n{long}\t2\n"), 2, &*format!("\"{cut}…\""), &*format!("\"{cut}…\"")),
    ];
    for (lines, line, last, key) in mistakes {
        let store = place.store("store");
        let before = scan(&store);
        let file = place.file("lines", lines);
        let told = run(&format!("load --sorted {store} {file}")).error(3);
        let expected = format!("expected a key greater than {last} on line {line}, found {key}");
        assert_eq!(told, format!("criba: {file}: {expected}; lines stored: 0\n"));
        assert_eq!(scan(&store), before);
        let told = fed(&format!("load --sorted {store} - --json"), lines.as_bytes());
        let found = json!({
            "version": 1, "lines": 0, "tables": null, "complete": false, "ingested": false
        });
        assert_eq!((told.code, object(&told)), (3, found));
        assert_eq!(scan(&store), before);
        fs::remove_dir_all(&store).expect("it is there");
    }
}

#[test]
fn a_wrong_line_among_sorted_ones_and_a_cut_dump_change_nothing() {
    let place = Place::new();
    let dump = "\\criba dump, version 1, fields: key value\na\t1\nb\t2\n";
    let store = place.store("store");
    let before = scan(&store);
    for option in ["--sorted", "--sorted=auto"] {
        for (lines, code, part) in [
            ("a\t1\nb\n", 3, "expected key TAB value on line 2"),
            ("a\t1\nb\\d\t2\n", 3, "expected text on line 2"),
            (dump, 1, "found 2 lines, and no last line"),
        ] {
            let file = place.file("lines", lines);
            let told = run(&format!("load {option} {store} {file}")).error(code);
            assert!(told.contains(part) && told.ends_with("; lines stored: 0\n"), "{told}");
            assert_eq!(scan(&store), before);
        }
        // The first line makes no store if it is wrong.
        let file = place.file("lines", "a\nb\t1\n");
        run(&format!("load {option} {} {file}", place.at("none"))).error(3);
        assert!(!fs::exists(place.at("none")).expect("a directory"));
    }
}

#[test]
fn auto_ingests_a_sorted_file_and_loads_another_one() {
    let place = Place::new();
    let sorted = place.file("sorted", "a\t1\nb\t2\nc\t3\n");
    let unsorted = place.file("unsorted", "a\t1\nc\t3\nb\t2\nc\t4\n");
    let store = place.at("store");
    let told = run(&format!("load --sorted=auto {store} {sorted}")).well();
    assert_eq!(told, "3 lines ingested; the store has 1 table\n");
    let told = run(&format!("load --sorted=auto {store} {unsorted}")).well();
    let reason = "not ingested: the key of line 3 is not greater than the one before";
    assert_eq!(told, format!("4 lines written; the store has 1 table\n{reason}\n"));
    assert_eq!(scan(&store), "a\t1\nb\t2\nc\t4\n");

    let load = |file: &str| {
        let mut command = criba(["load", "--sorted=auto", "--json", &store, "-"]);
        let mut input = File::open(file).expect("the file");
        // The lines begin where standard input is.
        std::io::Seek::seek_relative(&mut input, 4).expect("a file");
        object(&Run::new(command.stdin(input).output().expect("it starts")))
    };
    let found = load(&sorted);
    assert_eq!((&found["lines"], &found["complete"]), (&2.into(), &true.into()));
    assert_eq!((&found["ingested"], &found["unsorted_line"]), (&true.into(), &Value::Null));
    let found = load(&unsorted);
    assert_eq!((&found["lines"], &found["complete"]), (&3.into(), &true.into()));
    assert_eq!((&found["ingested"], &found["unsorted_line"]), (&false.into(), &2.into()));
}

#[test]
fn auto_refuses_what_cannot_be_read_twice() {
    let place = Place::new();
    let store = place.at("store");
    let told = fed(&format!("load --sorted=auto {store} -"), b"a\t1\n").error(2);
    assert_eq!(
        told,
        "criba: --sorted=auto: standard input is no regular file, so its order cannot be checked first; \
         --sorted takes sorted lines from it\n"
    );
    let told = run(&format!("load --sorted=auto {store} /dev/null")).error(2);
    assert!(told.contains("/dev/null is no regular file"), "{told}");
    assert!(!fs::exists(&store).expect("a directory"));
    // A word behind the option is the directory.
    assert_eq!(run(&format!("load --sorted auto {store} -")).code, 2);
    assert_eq!(run(&format!("load --sorted=no {store} -")).code, 2);
}

#[test]
fn a_sorted_load_draws_its_steps_on_a_terminal() {
    let place = Place::new();
    let lines: Vec<_> = (0..200_000).map(|number| format!("{number:07}\tvalue\n")).collect();
    let file = place.file("lines", lines.concat());
    for (option, steps) in
        [("auto", &["checking the order", "ingesting"][..]), ("yes", &["ingesting"])]
    {
        let store = place.at(option);
        let mut command = criba(["load", &format!("--sorted={option}"), &store, &file]);
        let (screen, drawn) = terminal();
        let end = command.stderr(screen).output().expect("it starts");
        drop(command); // and its end of the terminal
        assert!(end.status.success());
        let drawn = drawn.join().expect("no panic");
        for part in steps.iter().chain(&["MiB/s", "left"]) {
            assert!(drawn.contains(part), "{option}: {part}: {drawn:?}");
        }
    }
}
