//! The commands that read change nothing: they work where nothing can be written, and beside a process that
//! has the store open. And what they print is for a terminal of 80 columns.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{Run, run, skip};
use tempfile::TempDir;

/// Each with its usual forms; TABLE is a table of the store.
const READING: [&str; 15] = [
    "get DIR key01000",
    "scan DIR --prefix key01",
    "scan DIR --reverse --limit 3",
    "stats DIR",
    "stats DIR --filter-memory 4096",
    "stats DIR --json",
    "explain DIR key01000",
    "explain DIR key01000 --json",
    "tune DIR",
    "tune DIR --json",
    "inspect TABLE",
    "inspect TABLE --entries",
    "inspect TABLE --json",
    "verify DIR",
    "verify DIR --json",
];

/// Files that nothing refers to, filters beside their tables, tombstones, and changes that only the log has.
fn fill(db: &criba::Db) {
    for round in 0..3 {
        for number in 0..2000 {
            db.put(format!("key{number:05}"), format!("value {round} {number}")).expect("a write");
        }
        db.delete(format!("key{round:05}")).expect("a write");
        db.flush().expect("room");
    }
    db.rebuild_filters(&criba::FilterPolicy::ribbon()).expect("room");
    db.put("in the log", "only").expect("a write");
}

fn store() -> (TempDir, String) {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let dir = parent.path().join("store");
    let options = criba::Options::new().background_threads(0).auto_compaction(false);
    let db = options.open(&dir).expect("a new store");
    fill(&db);
    db.close().expect("a sound end");
    fs::write(dir.join("999999.sst"), "left by a crash").expect("a file");
    (parent, dir.to_str().expect("a plain path").to_owned())
}

fn table_of(dir: &str) -> String {
    let names = fs::read_dir(dir).expect("a store").map(|entry| entry.expect("a name").path());
    let tables = names.filter(|path| path.extension().is_some_and(|suffix| suffix == "sst"));
    tables.min().expect("a table").display().to_string()
}

fn line_for(line: &str, dir: &str) -> String {
    line.replace("TABLE", &table_of(dir)).replace("DIR", dir)
}

/// Names, checksums and times.
fn state(dir: &str) -> BTreeMap<String, (u32, i64, i64)> {
    let entry = |path: &Path| {
        let mut checksum = flate2::Crc::new();
        checksum.update(&fs::read(path).unwrap_or_default()); // nothing of the directory itself
        let found = fs::metadata(path).expect("it is there");
        (path.display().to_string(), (checksum.sum(), found.mtime(), found.mtime_nsec()))
    };
    let names = fs::read_dir(dir).expect("a store").map(|entry| entry.expect("a name").path());
    names.chain([dir.into()]).map(|path| entry(&path)).collect()
}

#[test]
fn reading_commands_leave_each_file_as_it_is() {
    let (_parent, dir) = store();
    let before = state(&dir);
    for line in READING {
        assert!(!run(&line_for(line, &dir)).well().is_empty(), "{line}");
        assert_eq!(state(&dir), before, "{line}");
    }
    run(&format!("delete {dir} key00007")).well();
    assert_ne!(state(&dir), before, "a writing command changes files");
}

/// System calls with a path that only look.
const LOOKS: [&str; 14] = [
    "execve",
    "access",
    "faccessat",
    "faccessat2",
    "stat",
    "lstat",
    "newfstatat",
    "statx",
    "readlink",
    "readlinkat",
    "getcwd",
    "statfs",
    "open",
    "openat",
];

/// The system calls of a command that could change a file.
fn changes(line: &str, trace: &Path) -> Option<Vec<String>> {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=%file", "-o"]).arg(trace);
    command.arg(env!("CARGO_BIN_EXE_criba")).args(line.split_whitespace());
    let done = command.output().ok()?;
    if !done.status.success() && fs::read(trace).is_ok_and(|trace| trace.is_empty()) {
        return None; // this system forbids tracing
    }
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    let calls = fs::read_to_string(trace).expect("a trace");
    assert!(calls.contains("CURRENT") || calls.contains(".sst"), "{calls}");
    let looks = |call: &str| {
        let name = call.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        let Some((name, _)) = name.split_once('(') else { return true }; // a signal or an end
        let writes = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC"];
        LOOKS.contains(&name) && !writes.iter().any(|flag| call.contains(flag))
    };
    Some(calls.lines().filter(|call| !looks(call)).map(str::to_owned).collect())
}

#[test]
fn reading_commands_make_no_system_call_that_could_change_a_file() {
    let (parent, dir) = store();
    let trace = parent.path().join("trace");
    for line in READING {
        match changes(&line_for(line, &dir), &trace) {
            Some(found) => assert_eq!(found, Vec::<String>::new(), "{line}"),
            None => return skip("strace is not there or may not trace"),
        }
    }
    let found = changes(&format!("delete {dir} key00007"), &trace).expect("strace");
    for call in ["O_CREAT", "unlink", "rename"] {
        assert!(found.iter().any(|found| found.contains(call)), "{call}: {found:?}");
    }
}

/// Runs a command as a user that may only read: the owner, or, if that is root, another one.
fn as_reader(line: &str, program: &Path) -> Run {
    let mut command = Command::new(program);
    command.args(line.split_whitespace());
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    Run::new(command.output().expect("it starts"))
}

#[test]
fn reading_commands_need_no_permission_to_write() {
    let (parent, dir) = store();
    let allow = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
    let program = parent.path().join("criba");
    fs::copy(env!("CARGO_BIN_EXE_criba"), &program).expect("a copy");
    allow(parent.path(), 0o755).expect("ours");
    for entry in fs::read_dir(&dir).expect("a store") {
        allow(&entry.expect("a name").path(), 0o444).expect("ours");
    }
    allow(Path::new(&dir), 0o555).expect("ours");
    for line in READING {
        assert!(!as_reader(&line_for(line, &dir), &program).well().is_empty(), "{line}");
    }
    let refused = as_reader(&format!("delete {dir} key00007"), &program).error(3);
    assert!(refused.contains("Permission denied"), "{refused}");
    assert!(
        refused
            .ends_with("; get, scan, dump, stats, tune, explain, inspect and verify only read\n")
    );
    allow(Path::new(&dir), 0o755).expect("ours");
}

#[test]
fn reading_commands_work_on_a_read_only_file_system() {
    let (_parent, dir) = store();
    // In a namespace of its own, the mount ends with the command.
    let mount = "mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\" || exit 99; shift 1; exec \"$@\"";
    let mounted = |line: &str| {
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", mount, "sh", &dir, env!("CARGO_BIN_EXE_criba")]);
        command.args(line_for(line, &dir).split_whitespace()).output().ok()
    };
    let works =
        |done: &Output| done.status.code() != Some(99) && !done.stderr.starts_with(b"unshare: ");
    let refused = mounted("delete DIR key00007").filter(works);
    let Some(refused) = refused else { return skip("no file system can be mounted") };
    let refused = Run::new(refused).error(3);
    assert!(refused.contains("/LOCK: cannot lock: Read-only file system"), "{refused}");
    for line in READING {
        let done = Run::new(mounted(line).expect("as before")).well();
        assert!(!done.is_empty(), "{line}");
    }
}

#[test]
fn reading_commands_work_beside_a_process_that_has_the_store_open() {
    let (_parent, dir) = store();
    let options = criba::Options::new().background_threads(0).auto_compaction(false);
    let db = options.open(&dir).expect("a sound store");
    db.put("key01000", "unsynced, in the log").expect("a write");
    let before = state(&dir);
    for line in READING.into_iter().filter(|line| !line.starts_with("verify")) {
        assert!(!run(&line_for(line, &dir)).well().is_empty(), "{line}");
    }
    assert_eq!(run(&format!("get {dir} key01000")).well(), "unsynced, in the log\n");
    for line in ["verify DIR --live", "backup DIR COPY"] {
        let copy = format!("{dir} of {line}").replace(' ', "-");
        run(&line_for(line, &dir).replace("COPY", &copy)).well();
    }
    for line in ["verify DIR", "delete DIR key", "compact DIR", "repair DIR --to NEW"] {
        let told = run(&line_for(line, &dir)).error(3);
        assert!(told.contains("/LOCK is held by "), "{told}");
        if cfg!(target_os = "linux") {
            let holder = format!("process {} (", std::process::id());
            assert!(told.contains(&holder) && told.contains("close it there"), "{told}");
        }
    }
    assert_eq!(state(&dir), before);
    db.close().expect("a sound end");
    run(&format!("verify {dir}")).well();
}

#[test]
fn a_store_with_more_tables_than_open_files_allowed_at_first_is_read() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let dir = parent.path().join("store");
    let options = criba::Options::new().background_threads(0).auto_compaction(false);
    let db = options.open(&dir).expect("a new store");
    for number in 0..70 {
        db.put(format!("{number}"), "value").expect("a write");
        db.flush().expect("room");
    }
    db.close().expect("a sound end");
    let limited = format!("ulimit -Sn 60; exec \"$0\" get {} 7", dir.display());
    let mut command = Command::new("sh");
    command.args(["-c", &limited, env!("CARGO_BIN_EXE_criba")]);
    assert_eq!(Run::new(command.output().expect("it starts")).well(), "value\n");
}

#[test]
fn nothing_is_wider_than_80_columns() {
    let (_parent, dir) = store();
    let writing =
        ["rebuild-filters DIR", "compact DIR --filter none", "compact DIR --filter ribbon"];
    let reading = READING.into_iter().filter(|line| !line.contains("--json"));
    for line in reading.chain(writing) {
        let shown = run(&line_for(line, &dir)).well().replace(&dir, "DIR");
        for text in shown.lines() {
            assert!(text.chars().count() <= 80 && text.trim_end() == text, "{line}: {text}");
        }
    }
}

#[test]
fn a_healthy_store_has_no_word_of_removed_files() {
    let (_parent, dir) = store();
    let shown = run(&format!("stats {dir}")).well();
    let logs = "\nlogs: 1, with 1 change that no table has yet\n";
    let fact = "unreferenced files: 1, which the next writing command removes\n";
    assert!(shown.ends_with(&format!("{logs}{fact}")), "{shown}");
    run(&format!("delete {dir} key")).well();
    let shown = run(&format!("stats {dir}")).well();
    assert!(shown.ends_with(logs) && !shown.contains("unreferenced"), "{shown}");
}

/// The first segments of this filter have 10 columns: 9 of them are less than the filter, and not "9 of 9".
#[test]
fn stats_prints_the_true_number_of_columns() {
    let (_parent, dir) = store();
    let db = criba::Db::open(&dir).expect("a sound store");
    (0..20_000).for_each(|number| db.put(format!("key{number:05}"), "").expect("a write"));
    db.rebuild_filters(&criba::FilterPolicy::ribbon()).expect("room");
    db.compact().expect("room");
    db.close().expect("a sound end");
    let shown = run(&format!("stats {dir} --filter-memory 24576")).well();
    assert!(shown.contains(" on L6: 9 of 9.86 columns, 22,960 of 25,128 bytes, an "), "{shown}");
    let shown = run(&format!("stats {dir} --filter-memory 28672")).well();
    assert!(shown.contains("\nfilters in memory in part or not at all: 0\n"), "{shown}");
}

#[test]
fn tune_has_no_negative_zero_and_advises_nothing_for_few_keys() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let dir = parent.path().join("store").display().to_string();
    drop(criba::Db::open(&dir).expect("a new store"));
    let shown = run(&format!("tune {dir}")).well();
    assert_eq!(shown, "There are no tables yet, and so nothing to advise.\n");
    assert!(!run(&format!("tune {dir} --json")).well().contains("-0"), "-0");
    run(&format!("put {dir} one key")).well();
    run(&format!("compact {dir}")).well();
    let shown = run(&format!("tune {dir}")).well();
    let (_, advice) = shown.rsplit_once("\n\n").expect("an empty line");
    assert!(advice.starts_with("The tables have few keys, fewer than 100"), "{shown}");
    assert!(!shown.contains("bits per key"), "no rates that vary: {shown}");
}

/// On one level both allocations are the same: the advice keeps the store's.
#[test]
fn tune_keeps_the_allocation_where_both_are_alike() {
    let (_parent, dir) = store();
    for how in ["uniform", "balanced"] {
        run(&format!("compact {dir}")).well();
        let filters = format!("--filter bloom --bits-per-key 10 --allocation {how}");
        run(&format!("rebuild-filters {dir} {filters}")).well();
        let shown = run(&format!("tune {dir}")).well();
        assert!(shown.contains("\nuniform or balanced, which are alike here\n"), "{shown}");
        assert!(shown.contains(&format!("--allocation {how} ")), "{shown}");
    }
}

#[test]
fn inspect_says_what_it_takes() {
    let (parent, dir) = store();
    let refusal = |path: &str| run(&format!("inspect {path}")).error(3);
    let at = |name: &str| parent.path().join(name).display().to_string();
    for missing in [at("nofile.sst"), at("nofile")] {
        let expected = "cannot open: not found; criba stats --json DIR lists the tables of a store";
        assert_eq!(refusal(&missing), format!("criba: {missing}: {expected}\n"));
    }
    assert!(refusal(&dir).contains("found a directory: criba stats and criba verify take"));
    let table = table_of(&dir);
    let filter = table.replace(".sst", "-0001.flt");
    assert!(Path::new(&filter).exists());
    let expected = format!("found the filter of a table: criba inspect {table} prints it\n");
    assert!(refusal(&filter).ends_with(&expected), "{}", refusal(&filter));
    let current = format!("{dir}/CURRENT");
    let expected = "expected a table, named NNNNNN.sst, found a file with another name\n";
    assert_eq!(refusal(&current), format!("criba: {current}: {expected}"));
}

#[test]
fn options_that_contradict_each_other_or_are_out_of_range_are_refused_by_name() {
    let (_parent, dir) = store();
    let before = state(&dir);
    let range = "expected more than 0 and less than 1";
    for (options, [first, second]) in [
        ("--filter none --fpr 0.01", ["--filter none", "--fpr"]),
        ("--filter none --bits-per-key 10", ["--filter none", "--bits-per-key"]),
        ("--filter none --filter-bytes 10", ["--filter none", "--filter-bytes"]),
        ("--fpr 0.01 --allocation balanced", ["--fpr", "--allocation balanced"]),
        ("--policy classic --allocation balanced", ["--policy classic", "--allocation balanced"]),
        ("--fpr 2", ["--fpr 2", range]),
        ("--fpr 0", ["--fpr 0", range]),
        ("--fpr NaN", ["--fpr NaN", range]),
        ("--bits-per-key -3", ["--bits-per-key -3", "0 (no filters) to 64"]),
        ("--bits-per-key=-3", ["--bits-per-key -3", "0 (no filters) to 64"]),
        ("--bits-per-key 65", ["--bits-per-key 65", "0 (no filters) to 64"]),
    ] {
        let told = run(&format!("rebuild-filters {dir} {options}")).error(2);
        assert!(told.contains(first) && told.contains(second), "{options}: {told}");
        if !options.contains("--allocation") && !options.contains("--filter-bytes") {
            for command in ["compact DIR", "put DIR k v", "delete DIR k", "load DIR /dev/null"] {
                let again = run(&format!("{} {options}", command.replace("DIR", &dir))).error(2);
                assert_eq!(again, told, "{command}");
            }
        }
        let told = run(&format!("readamp --n 10 {options}")).error(2);
        assert!(told.contains(first), "{told}");
    }
    assert_eq!(state(&dir), before);
}

#[test]
fn filters_after_none_begin_at_the_default() {
    let (_parent, dir) = store();
    let policy = || {
        let shown = run(&format!("stats {dir}")).well();
        shown.lines().find_map(|line| Some(line.strip_prefix("policy: ")?.to_owned()))
    };
    run(&format!("rebuild-filters {dir} --policy classic")).well();
    run(&format!("rebuild-filters {dir} --filter none")).well();
    assert_eq!(policy().as_deref(), Some("no filters"));
    run(&format!("rebuild-filters {dir} --filter bloom")).well();
    let default = "bloom filters of 10 bits a key, balanced, SipHash-1-3, keyed";
    assert_eq!(policy().as_deref(), Some(default));
}

#[test]
fn compact_says_that_the_filters_of_one_run_stay() {
    let (_parent, dir) = store();
    run(&format!("compact {dir} --filter bloom")).well();
    let shown = run(&format!("compact {dir}")).well();
    let anew =
        format!("nothing was merged. To write them anew:\n  criba compact {dir} --rewrite\n");
    assert!(shown.ends_with(&anew), "{shown}");
    let shown = run(&format!("compact {dir} --filter none")).well();
    let (_, command) = shown.rsplit_once("\n  ").expect("a command");
    assert_eq!(command, format!("criba rebuild-filters {dir}\n"));
    let done = run(&command["criba ".len()..]).well();
    assert!(done.ends_with("0 filters rebuilt, 0 already right, 1 removed\n"), "{done}");
}

/// Opening it with compactions would begin one under the old policy.
#[test]
fn compact_merges_four_tables_under_the_policy_that_it_is_given() {
    for _ in 0..5 {
        let (_parent, dir) = store();
        let shown = run(&format!("compact {dir} --filter none")).well();
        assert!(shown.starts_with("before: 4 tables, ") && shown.lines().count() == 2, "{shown}");
        let stats = run(&format!("stats {dir}")).well();
        assert!(stats.contains("    0 B     0.00   100.0 %\n"), "{stats}");
    }
}

#[test]
fn errors_end_with_what_to_do() {
    let (parent, dir) = store();
    let missing = parent.path().join("stor").display().to_string();
    for line in ["get DIR key", "delete DIR key", "compact DIR", "verify DIR", "backup DIR copy"] {
        let told = run(&line.replace("DIR", &missing)).error(3);
        assert!(told.ends_with("found nothing; is the name right? put and load make a store\n"));
    }
    let file = parent.path().join("lines");
    fs::write(&file, "").expect("a file");
    let other = parent.path().join("other");
    fs::create_dir(&other).expect("a directory");
    fs::write(other.join("5.sst"), "").expect("a file");
    let told = run(&format!("load {} {}", other.display(), file.display())).error(3);
    assert!(told.contains("; put and load make a store in a new or an empty directory"), "{told}");

    let table = table_of(&dir);
    let mut bytes = fs::read(&table).expect("a table");
    let at = bytes.len() - 9;
    bytes[at] ^= 1;
    fs::write(&table, bytes).expect("a table");
    for line in ["get DIR key01000", "compact DIR", "stats DIR", "inspect TABLE"] {
        let told = run(&line_for(line, &dir)).error(3);
        let hint = format!(
            "; criba verify {dir} lists the damage, criba repair {dir} --to NEW salvages the rest\n"
        );
        assert!(told.ends_with(&hint), "{line}: {told}");
    }
    let found = run(&format!("verify {dir}"));
    assert_eq!(found.code, 1);
    let hint = format!("\n1 finding\ncriba repair {dir} --to NEW salvages ");
    assert!(found.out.contains(&hint), "{}", found.out);
}
