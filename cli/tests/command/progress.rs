//! What long commands report while they work.

use std::fs;
use std::process::Stdio;

use crate::common::terminal::terminal;
use crate::common::{Run, criba, run};
use serde_json::Value;
use tempfile::TempDir;

fn store() -> (TempDir, String) {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let dir = parent.path().join("store").display().to_string();
    let db = criba::Db::open(&dir).expect("a new store");
    for key in 0..30_000_u32 {
        db.put(key.to_be_bytes(), [7; 40]).expect("a write");
    }
    db.close().expect("a sound end");
    (parent, dir)
}

/// Each command line that can take long, for a store at DIR.
const LONG: [&str; 10] = [
    "verify DIR",
    "compact DIR",
    "compact DIR --rewrite",
    "rebuild-filters DIR --filter ribbon",
    "backup DIR DIR.copy --copy",
    "restore DIR.copy DIR.back",
    "repair DIR --to DIR.new",
    "dump DIR",
    "scan DIR --count",
    "readamp --n 3000 --only-lookups",
];

#[test]
fn each_long_command_reports_objects_on_standard_error() {
    let (_parent, dir) = store();
    for line in LONG.map(|line| line.replace("DIR", &dir)) {
        let words = format!("{line} --progress json");
        let done = Run::new(criba(words.split(' ')).output().expect("it starts"));
        assert_eq!(done.code, 0, "{line}: {}", done.err);
        assert!(!done.err.is_empty(), "{line}: nothing");
        for text in done.err.lines() {
            let object: Value = serde_json::from_str(text).expect("an object a line");
            assert_eq!(object["version"], 1, "{line}: {text}");
            assert!(object["progress"].is_string() && object["done"].is_u64(), "{line}: {text}");
            let of = &object["of"];
            assert!(of.is_null() || of.as_u64() >= object["done"].as_u64(), "{line}: {text}");
        }
    }
    let lines = format!("{dir}.lines");
    fs::write(&lines, "a\t1\nb\t2\n").expect("a file");
    let done = run(&format!("load {dir}.loaded {lines} --progress json"));
    assert!(done.code == 0 && done.err.contains("\"progress\":\"loading\""), "{}", done.err);
}

#[test]
fn nothing_is_reported_into_a_pipe_unless_it_is_wanted() {
    let (_parent, dir) = store();
    for line in LONG.map(|line| line.replace("DIR", &dir)) {
        let done = run(&line);
        assert_eq!((done.code, done.err.as_str()), (0, ""), "{line}");
    }
    let refused = run(&format!("verify {dir} --quiet --progress json"));
    assert_eq!(refused.code, 2);
    run(&format!("verify {dir} --quiet")).well();
}

/// On a terminal a bar is drawn, and nothing of it is left beside the result.
#[test]
fn a_bar_is_drawn_on_a_terminal_and_cleared() {
    let (_parent, dir) = store();
    for line in LONG.map(|line| line.replace("DIR", &dir)) {
        let mut command = criba(line.split(' '));
        let (screen, drawn) = terminal();
        let mut child = command.stderr(screen).stdout(Stdio::null()).spawn().expect("it starts");
        drop(command); // and its end of the terminal
        assert!(child.wait().expect("an end").success(), "{line}");
        let drawn = drawn.join().expect("no panic");
        assert!(drawn.contains("left"), "{line}: {drawn:?}");
        let last = drawn.rsplit('\r').next().expect("the last line");
        let shown = last.replace("\u{1b}[2K", "");
        assert!(shown.trim().is_empty(), "{line}: {last:?} of {drawn:?}");
    }
}
