//! Compares the instructions of a lookup and of a put with the counts written down here. More than 5 % above
//! them fails.
//!
//! Times depend on the machine and its load; instruction counts do not. `valgrind --tool=callgrind` counts
//! them in this program, which is a test build: an optimised build has other counts, which grow with these.
//! The difference of a long and a short run is the cost of the operations alone.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use criba::{Db, Options};

mod common;

/// Instructions of one operation under the default policy, on 2026-11-29 with rustc 1.95: of an incremental
/// build, which inlines less, and of one with `CARGO_INCREMENTAL=0`.
const COSTS: [(&str, [f64; 2]); 6] = [
    ("absent", [561.0, 552.0]),
    ("absent in batches", [629.0, 607.0]),
    ("present", [4451.0, 4288.0]),
    ("put", [4607.0, 4471.0]),
    ("insert if absent", [10474.0, 10297.0]),
    ("compare and swap", [11390.0, 11111.0]),
];
const INCREMENTAL: Option<&str> = option_env!("CARGO_INCREMENTAL");
const TOLERANCE: f64 = 1.05;

/// The variable that gives a child process its work: kind, repetitions, factor of extra work, store.
const WORK: &str = "CRIBA_TEST_INSTRUCTIONS";
const KEYS: u64 = 20_000;
const BATCH: usize = 16;
/// The number of a key that no work has inserted.
static NEXT: AtomicU64 = AtomicU64::new(KEYS);

fn options() -> Options {
    // The default filter under every test policy, and no background thread.
    Options::new().background_threads(0).seed(1)
}

/// Sixteen bytes, in random order.
fn key(number: u64) -> String {
    format!("user{:012x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16)
}

fn fill(dir: &Path) {
    let db = options().vfs(common::HookVfs::without_syncs()).open(dir).unwrap();
    for number in 0..KEYS {
        db.put(key(number), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
}

fn work(work: &str, keys: &[String], db: &Db) {
    match work {
        "absent" => keys.iter().for_each(|key| assert!(!db.contains(key).unwrap())),
        "absent in batches" => keys.chunks(BATCH).for_each(|keys| {
            assert!(db.get_many(keys).unwrap().iter().all(Option::is_none));
        }),
        "present" => keys.iter().for_each(|key| assert!(db.contains(key).unwrap())),
        "put" => keys.iter().for_each(|key| db.put(key, [8; 100]).unwrap()),
        "insert if absent" => keys.iter().for_each(|_| {
            assert!(db.insert_if_absent(key(NEXT.fetch_add(1, Relaxed)), [8; 100]).unwrap());
        }),
        "compare and swap" => keys.iter().for_each(|key| {
            let same = Some(&[7; 100][..]);
            assert!(db.compare_and_swap(key, same, same).unwrap());
        }),
        other => panic!("{WORK}: {other}?"),
    }
}

#[test]
#[ignore = "the test below runs it in its own process"]
fn the_work_that_is_counted() {
    let Ok(work_of_child) = std::env::var(WORK) else { return };
    let [what, times, slower, dir] = work_of_child.split('|').collect::<Vec<_>>()[..] else {
        panic!("{WORK}: {work_of_child}?");
    };
    let (times, slower): (u64, f64) = (times.parse().unwrap(), slower.parse().unwrap());
    let absent = if what.starts_with("absent") { KEYS } else { 0 };
    let keys: Vec<_> = (absent..absent + 4000).map(key).collect();
    let db = options().open(dir).unwrap();
    work(what, &keys, &db); // fills the block cache
    for _ in 0..times {
        work(what, &keys, &db);
        work(what, &keys[..(keys.len() as f64 * (slower - 1.0)) as usize], &db);
    }
}

/// The instructions of one operation; `None` without callgrind.
fn instructions(what: &str, slower: f64, dir: &Path) -> Option<f64> {
    let total = |times: u64| {
        let store = dir.join(format!("{what} {times}"));
        common::copy_dir(&dir.join("store"), &store);
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        command.arg(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "the_work_that_is_counted"]);
        command.env(WORK, format!("{what}|{times}|{slower}|{}", store.display()));
        let output = command.output().ok()?;
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
        let line = told.lines().find(|line| line.contains("Collected"));
        let line = line.unwrap_or_else(|| panic!("no count: {told}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().ok()
    };
    let (more, fewer) = std::thread::scope(|scope| {
        let more = scope.spawn(|| total(2));
        let fewer = total(1);
        (more.join().unwrap(), fewer)
    });
    Some((more? - fewer?) / 4000.0)
}

fn is_within(counted: f64, cost: f64) -> bool {
    counted <= TOLERANCE * cost
}

#[test]
fn no_operation_takes_five_percent_more_instructions() {
    if !cfg!(target_arch = "x86_64") || Command::new("valgrind").arg("--version").output().is_err()
    {
        common::skip("valgrind counts the instructions, on x86-64");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fill(&dir.path().join("store"));
    let (mut lost, mut now) = (Vec::new(), Vec::new());
    for (what, costs) in COSTS {
        let cost = costs[usize::from(INCREMENTAL == Some("0"))];
        let counted = instructions(what, 1.0, dir.path()).unwrap();
        now.push((what, counted));
        println!("{what}: {counted:.0} instructions, {cost:.0} written down");
        if !is_within(counted, cost) {
            lost.push(what);
        }
    }
    assert!(lost.is_empty(), "more than {TOLERANCE} times the count written down: {lost:?}");
    // The check detects a tenth of the work done twice.
    let (what, counted) = now[0];
    let slower = instructions(what, 1.1, dir.path()).unwrap();
    println!("{what}, a tenth of them twice: {slower:.0} instructions");
    assert!(!is_within(slower, counted), "1.1 times the work was not detected");
}
