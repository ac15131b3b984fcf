//! Invalid input for every command: an error of one line, and its exit code.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::common::{Run, criba};

/// The commands that need an existing store, with valid arguments.
const COMMANDS: [&[&str]; 9] = [
    &["get", "DIR", "key 0007"],
    &["delete", "DIR", "key 0007"],
    &["scan", "DIR"],
    &["compact", "DIR"],
    &["stats", "DIR"],
    &["tune", "DIR"],
    &["explain", "DIR", "key 0007"],
    &["verify", "DIR"],
    &["rebuild-filters", "DIR", "--bits-per-key", "8"],
];

fn with_dir(command: &[&str], dir: &Path) -> Vec<OsString> {
    let arg = |arg: &&str| if *arg == "DIR" { dir.into() } else { OsString::from(arg) };
    command.iter().map(arg).collect()
}

fn run(args: &[OsString]) -> Run {
    let run = Run::new(criba(args).output().expect("it starts"));
    assert!(!run.err.contains("panicked"), "{args:?}: {}", run.err);
    assert!((0..=3).contains(&run.code), "{args:?}: {}", run.code);
    run
}

fn store(dir: &Path) {
    let options = criba::Options::new().background_threads(0).block_bytes(256).seed(1);
    let db = options.auto_compaction(false).open(dir).expect("a new store");
    for round in 0..2 {
        for number in 0..40 {
            db.put(format!("key {number:04}"), format!("value {round}")).expect("a write");
        }
        db.flush().expect("room");
    }
    db.put("in the log", "only").expect("a write");
    db.close().expect("a sound end");
}

#[test]
fn places_that_hold_no_store_are_refused_in_one_line_and_left_alone() {
    let parent = tempfile::tempdir().expect("a directory");
    let at = |name: &str| parent.path().join(name);
    fs::create_dir(at("empty")).expect("a directory");
    fs::create_dir(at("other")).expect("a directory");
    fs::write(at("other").join("notes.txt"), "theirs").expect("a file");
    fs::create_dir(at("theirs")).expect("a directory");
    fs::write(at("theirs").join("CURRENT"), "MANIFEST-000001\n").expect("a file");
    fs::write(at("file"), "text").expect("a file");
    let long = "d".repeat(300);
    let odd = OsStr::from_bytes(b"not \xff text\n");
    let places =
        ["missing", "empty", "other", "theirs", "file", "file/within", "missing/deep", &long];
    let places = places.map(OsStr::new).into_iter().chain([odd]);
    let mut tried = 0;
    for place in places {
        for command in COMMANDS {
            let told = run(&with_dir(command, &parent.path().join(place)));
            let told = told.error(3);
            assert!(told.contains("expected") || told.contains("cannot"), "{told}");
            tried += 1;
        }
    }
    for command in COMMANDS {
        assert_eq!(run(&with_dir(command, Path::new(""))).code, 2, "no directory at all");
        tried += 1;
    }
    println!("{tried} commands on what is no store: refused in one line each");
    assert!(!at("missing").exists() && at("empty").read_dir().expect("there").next().is_none());
    for (dir, file) in [("other", "notes.txt"), ("theirs", "CURRENT")] {
        let names: Vec<_> =
            at(dir).read_dir().expect("there").map(|e| e.expect("a name").file_name()).collect();
        assert_eq!(names, [file]);
    }
}

#[test]
fn numbers_and_words_that_make_no_sense_are_wrong_usage() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("store");
    store(&dir);
    let numbers = ["", "-1", "x", "1e400", "99999999999999999999999999", "NaN", "inf", "0x10", "½"];
    let options: [&[&str]; 5] = [
        &["scan", "DIR", "--limit"],
        &["rebuild-filters", "DIR", "--bits-per-key"],
        &["rebuild-filters", "DIR", "--fpr"],
        &["readamp", "--n"],
        &["readamp", "--bits-per-key"],
    ];
    let mut tried = 0;
    for option in options {
        for number in numbers {
            let mut args = with_dir(option, &dir);
            args.push(number.into());
            let told = run(&args);
            assert_eq!((told.code, told.out.as_str()), (2, ""), "{args:?}: {}", told.err);
            assert!(!told.err.is_empty(), "{args:?}");
            tried += 1;
        }
    }
    for command in COMMANDS {
        for more in ["--nonsense", "--limit=1=2", "too", "--"] {
            let mut args = with_dir(command, &dir);
            args.push(more.into());
            let told = run(&args);
            let right = more == "--" || (command[0], more) == ("get", "too");
            assert!(told.code == 2 || right, "{args:?}: {}", told.code);
            tried += 1;
        }
    }
    println!("{tried} command lines that make no sense");
}

#[test]
fn keys_may_be_anything_that_fits() {
    let parent = tempfile::tempdir().expect("a directory");
    let dir = parent.path().join("store");
    store(&dir);
    let keys = ["", "é", "\\xff\\xfe", "\\\\x", "\\\\xZZ", "\\x00", "-", "--help me", "a\\nb\\tc"]
        .map(OsStr::new);
    for key in keys {
        let args = |command: &str| {
            vec![command.into(), dir.clone().into_os_string(), "--".into(), key.to_owned()]
        };
        let told = run(&args("get"));
        assert_eq!((told.code, told.err.as_str()), (1, "criba: absent\n"), "{key:?}");
        let value = OsString::from("\\xff");
        run(&[args("put"), vec![value]].concat()).well();
        assert_eq!(run(&args("get")).well(), "\\xff\n", "{key:?}");
        run(&args("explain")).well();
        run(&args("delete")).well();
        run(&args("get")).error(1);
    }
    let odd: [&[u8]; 7] = [b"\xff", b"a\tb", b"\\", b"\\d", b"\\x2d", b"\\xFF", b"\\xc3\\xa9"];
    for text in odd.map(OsStr::from_bytes) {
        for command in ["get", "put", "delete", "explain"] {
            let mut args = vec![command.into(), dir.clone().into_os_string(), text.to_owned()];
            args.extend((command == "put").then(|| "value".into()));
            let told = run(&args).error(2);
            assert!(told.starts_with("criba: the argument ") && told.contains("write"), "{told}");
        }
    }
    let long = "k".repeat(65_536);
    for command in ["get", "put", "delete"] {
        let mut args = vec![command.into(), dir.clone().into_os_string(), OsString::from(&long)];
        args.extend((command == "put").then(|| "value".into()));
        let told = run(&args);
        assert!(told.code == 3 || (command, told.code) == ("get", 1), "{command}: {}", told.code);
        assert_eq!(told.err.lines().count(), 1);
    }
}

/// Each file of a store is removed, emptied, cut, changed in its middle, or replaced by a directory.
#[test]
fn every_command_on_a_damaged_store_says_what_is_damaged() {
    let parent = tempfile::tempdir().expect("a directory");
    let (sound, dir) = (parent.path().join("sound"), parent.path().join("store"));
    store(&sound);
    let names = || sound.read_dir().expect("there").map(|e| e.expect("a name").file_name());
    let names: Vec<_> = names().filter(|name| name != "LOCK").collect();
    let (mut tried, mut failed) = (0, 0);
    for name in &names {
        for damage in 0..5 {
            for command in COMMANDS {
                let _ = fs::remove_dir_all(&dir);
                fs::create_dir(&dir).expect("a directory");
                for name in &names {
                    fs::copy(sound.join(name), dir.join(name)).expect("a copy");
                }
                let path = dir.join(name);
                let mut bytes = fs::read(&path).expect("a file");
                let middle = bytes.len() / 2;
                match damage {
                    0 => bytes.clear(),
                    1 => bytes.truncate(middle),
                    2 => bytes[middle] ^= 1,
                    _ => {}
                }
                if damage < 3 {
                    fs::write(&path, bytes).expect("a file");
                } else {
                    fs::remove_file(&path).expect("a file");
                }
                if damage == 4 {
                    fs::create_dir(&path).expect("a directory");
                }
                let told = run(&with_dir(command, &dir));
                let name = name.to_str().expect("plain");
                if told.code == 3 {
                    assert_eq!(told.err.lines().count(), 1, "{command:?}: {}", told.err);
                    // What an end of the manifest had recorded may be missed instead.
                    let missed = name.starts_with("MANIFEST") && told.err.contains("this file");
                    assert!(told.err.contains(name) || missed, "{command:?}, {name}: {}", told.err);
                    failed += 1;
                } else if command[0] == "verify" && told.code == 1 {
                    assert!(format!("{}{}", told.out, told.err).contains(name), "{}", told.out);
                    failed += 1;
                }
                tried += 1;
            }
        }
    }
    println!("{tried} commands on damaged stores: {failed} told the file and failed");
    assert!(failed > tried / 2);
}

/// 300 MB in a gzipped file of 300 kB. The line is refused before it is in memory.
#[test]
fn a_line_that_no_store_can_hold_takes_no_memory() {
    // A backslash may begin an escape of four characters.
    a_line_of(b'a');
    a_line_of(b'\\');
}

fn a_line_of(byte: u8) {
    use std::io::Write;

    let parent = tempfile::tempdir().expect("a directory");
    let lines = parent.path().join("lines.gz");
    let file = fs::File::create(&lines).expect("a file");
    let mut file = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    for _ in 0..300 {
        file.write_all(&vec![byte; 1 << 20]).expect("room");
    }
    file.finish().expect("room");
    let store = parent.path().join("store");
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 250000; exec \"$0\" load \"$1\" \"$2\""])
        .args([Path::new(env!("CARGO_BIN_EXE_criba")), &store, &lines])
        .output()
        .expect("a shell");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains("expected a key of at most 65535 bytes on line 1"), "{told}");
    assert!(!store.exists());
}
