//! Commands at a terminal: what they draw, and what a signal leaves.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::terminal::terminal;
use crate::common::{Run, criba};
use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, kill_process};

fn lines(count: usize) -> String {
    let lines: Vec<_> = (0..count).map(|number| format!("{number:07}\tvalue {number}\n")).collect();
    lines.concat()
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("it runs");
}

/// Waits until something holds.
#[track_caller]
fn until(mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "a minute has passed");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The keys of a store, which are the first lines of the input, without a gap.
fn stored(dir: &Path) -> usize {
    let db = criba::Options::new().open_read_only(dir).expect("a sound store");
    let mut count = 0;
    for item in &db {
        let (key, value) = item.expect("sound data");
        assert_eq!(key, format!("{count:07}").as_bytes());
        assert_eq!(value, format!("value {count}").as_bytes());
        count += 1;
    }
    count
}

/// The number of table files.
fn tables_of(dir: &Path) -> usize {
    let names = dir.read_dir().into_iter().flatten().map(|e| e.expect("a name").path());
    names.filter(|path| path.extension().is_some_and(|extension| extension == "sst")).count()
}

/// The number that an interrupted `load` prints.
fn told(end: &Run) -> usize {
    assert_eq!((end.code, end.out.as_str()), (130, ""), "{}", end.err);
    let count = end.err.strip_prefix("criba: interrupted; lines stored: ").expect("the message");
    count.trim_end().replace(',', "").parse().expect("a number")
}

fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// The end of a command that gets a signal once it has `begun`. A command that was quicker than the signal is
/// started again.
fn interrupted(
    signal: Signal,
    mut command: impl FnMut() -> Command,
    begun: impl Fn() -> bool,
    was_quicker: impl Fn(&Run) -> bool,
) -> Run {
    for _ in 0..10 {
        let mut child = start(&mut command());
        let mut is_over = || child.try_wait().expect("our child").is_some();
        until(|| begun() || is_over());
        if !is_over() {
            send(&child, signal);
        }
        let end = Run::new(child.wait_with_output().expect("an end"));
        if end.code != 0 && !was_quicker(&end) {
            return end;
        }
    }
    panic!("ten commands were quicker than the signal");
}

/// Removes what an earlier command made.
fn remove(dir: &Path) {
    if dir.exists() {
        fs::remove_dir_all(dir).expect("a directory");
    }
}

fn load_from_pipe(store: &Path) -> (Child, ChildStdin) {
    let mut command = criba([Path::new("load"), store, Path::new("-")]);
    let mut child = start(command.stdin(Stdio::piped()));
    let pipe = child.stdin.take().expect("piped");
    (child, pipe)
}

#[test]
fn a_signal_ends_load_with_the_number_of_stored_lines() {
    for signal in [Signal::INT, Signal::TERM] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let store = dir.path().join("store");
        let (child, mut pipe) = load_from_pipe(&store);
        // A pipe and a buffer hold less than the second half of it.
        pipe.write_all(lines(40_000).as_bytes()).expect("an open pipe");
        send(&child, signal);
        let count = told(&Run::new(child.wait_with_output().expect("an end")));
        assert!((20_000..=40_000).contains(&count), "{count}");
        assert_eq!(stored(&store), count);
    }
}

#[test]
fn a_signal_ends_load_before_the_end_of_a_file() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (store, file) = (dir.path().join("store"), dir.path().join("lines"));
    fs::write(&file, lines(2_000_000)).expect("a file");
    let load = || {
        remove(&store);
        criba([Path::new("load"), &store, &file])
    };
    let begun = || store.join("CURRENT").exists();
    let count = told(&interrupted(Signal::INT, load, begun, |end| told(end) == 2_000_000));
    assert!(count < 2_000_000, "{count}");
    assert_eq!(stored(&store), count);
}

/// The tables of an ingest that ends before its moment are removed.
#[test]
fn a_signal_ends_an_ingest_with_all_lines_or_none() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (store, file) = (dir.path().join("store"), dir.path().join("lines"));
    fs::write(&file, lines(2_000_000)).expect("a file");
    let load = || {
        remove(&store);
        criba([Path::new("load"), Path::new("--sorted"), &store, &file])
    };
    let count = told(&interrupted(Signal::INT, load, || tables_of(&store) > 0, |_| false));
    assert!(count == 0 || count == 2_000_000, "{count}");
    assert_eq!(tables_of(&store) == 0, count == 0);
    assert_eq!(stored(&store), count);
}

/// The rest of the input may never come. What the ingest wrote is removed by the next opening.
#[test]
fn a_signal_ends_an_ingest_that_waits_for_input() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = dir.path().join("store");
    let args =
        [Path::new("load"), Path::new("--sorted"), &store, Path::new("-"), Path::new("--json")];
    let mut child = start(criba(args).stdin(Stdio::piped()));
    let mut pipe = child.stdin.take().expect("piped");
    pipe.write_all(lines(70_000).as_bytes()).expect("an open pipe");
    until(|| store.join("CURRENT").exists() && waits_for_input(&child, &pipe));
    send(&child, Signal::TERM);
    let end = Run::new(child.wait_with_output().expect("an end"));
    drop(pipe);
    assert_eq!((end.code, &*end.err), (130, "criba: interrupted; lines stored: 0\n"));
    let found: serde_json::Value = serde_json::from_str(&end.out).expect("one object");
    assert_eq!((&found["lines"], &found["complete"]), (&0.into(), &false.into()));
    assert_eq!(stored(&store), 0);
    criba::Db::open(&store).and_then(criba::Db::close).expect("a sound store");
    assert_eq!(tables_of(&store), 0);
}

/// The command waits for its input, with lines that do not fill a batch.
#[test]
fn a_signal_ends_a_load_that_waits_for_input() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = dir.path().join("store");
    let (child, mut pipe) = load_from_pipe(&store);
    pipe.write_all(lines(7).as_bytes()).expect("an open pipe");
    until(|| handles_signals(&child) && waits_for_input(&child, &pipe));
    send(&child, Signal::INT);
    let count = told(&Run::new(child.wait_with_output().expect("an end")));
    drop(pipe);
    assert_eq!((count, stored(&store)), (7, 7));
}

#[test]
fn a_signal_before_the_first_line_leaves_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (child, pipe) = load_from_pipe(&dir.path().join("store"));
    until(|| handles_signals(&child));
    send(&child, Signal::TERM);
    assert_eq!(told(&Run::new(child.wait_with_output().expect("an end"))), 0);
    drop(pipe);
    assert!(dir.path().read_dir().expect("there").next().is_none());
}

/// What the kernel says of the main thread of a process.
fn status(child: &Child, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    value.map_or("", |value| value.trim_start_matches(':').trim()).to_owned()
}

/// Whether the process catches SIGTERM, by the bits of the kernel's list.
fn handles_signals(child: &Child) -> bool {
    let caught = u64::from_str_radix(&status(child, "SigCgt"), 16);
    caught.is_ok_and(|bits| bits >> (Signal::TERM.as_raw() - 1) & 1 == 1)
}

/// Whether the process has read the pipe, and its main thread sleeps: it has done what can be done with that.
fn waits_for_input(child: &Child, pipe: &ChildStdin) -> bool {
    let is_empty = ioctl_fionread(pipe).is_ok_and(|unread| unread == 0);
    is_empty && status(child, "State").starts_with('S')
}

#[test]
fn a_signal_removes_the_temporary_store_of_readamp() {
    for signal in [Signal::INT, Signal::TERM] {
        let temporary = tempfile::tempdir().expect("a temporary directory");
        let readamp = || {
            let mut command = criba(["readamp", "--n", "400000"]);
            command.env("TMPDIR", temporary.path());
            command
        };
        let stores =
            || temporary.path().read_dir().expect("there").map(|e| e.expect("a name").path());
        let begun = || stores().any(|store| store.join("CURRENT").exists());
        let end = interrupted(signal, readamp, begun, |_| false);
        assert_eq!((end.code, end.out.as_str(), end.err.as_str()), (130, "", ""));
        assert_eq!(stores().next(), None);
    }
}

/// It has the size of the store.
#[test]
fn a_signal_names_what_a_repair_leaves_and_the_next_one_removes_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (store, new) = (dir.path().join("store"), dir.path().join("new"));
    let db = criba::Db::open(&store).expect("a new store");
    for number in 0..400_000 {
        db.put(format!("key {number:06}"), [7; 60]).expect("a write");
    }
    db.close().expect("a sound end");
    let repair = || {
        remove(&new);
        criba([Path::new("repair"), &store, Path::new("--to"), &new])
    };
    let hidden = || {
        let names = dir.path().read_dir().expect("there").map(|e| e.expect("a name").path());
        names.filter(|path| path.to_string_lossy().contains("/.new.repair-tmp.")).last()
    };
    let is_done = |_: &Run| new.exists();
    let end = interrupted(Signal::INT, repair, || hidden().is_some(), is_done);
    let left = hidden().expect("it was not done yet");
    let told =
        format!("criba: interrupted; left is {}, which the same command removes\n", left.display());
    assert_eq!((end.code, end.out.as_str(), end.err.as_str()), (130, "", told.as_str()));
    let told = Run::new(repair().output().expect("it starts")).well();
    assert!(told.starts_with(&format!("removed: {}", left.display())), "{told}");
    assert!(hidden().is_none() && new.join("CURRENT").exists());
}

#[test]
fn load_draws_its_progress_on_a_terminal_only() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("lines");
    fs::write(&file, lines(200_000)).expect("a file");
    for (from, parts) in [
        (file.as_path(), ["MiB/s", "left"]),
        (Path::new("/dev/stdin"), ["lines", "a second"]),
        (Path::new("-"), ["lines", "a second"]),
    ] {
        let store =
            dir.path().join("store of ".to_owned() + &from.display().to_string().replace('/', " "));
        let mut command = criba([Path::new("load"), &store, from]);
        let (screen, drawn) = terminal();
        let mut child = command
            .stdin(Stdio::piped())
            .stderr(screen)
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut pipe = child.stdin.take().expect("piped");
        if from != file {
            pipe.write_all(lines(200_000).as_bytes()).expect("an open pipe");
        }
        drop((pipe, command)); // and its end of the terminal
        assert!(child.wait().expect("an end").success());
        let drawn = drawn.join().expect("no panic");
        for part in ["loading"].iter().chain(&parts) {
            assert!(drawn.contains(part), "{part}: {drawn:?}");
        }
    }
    let quiet = criba([Path::new("load"), &dir.path().join("quiet"), &file]).output();
    Run::new(quiet.expect("it starts")).well();
}
