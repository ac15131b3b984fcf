//! Each command, its output, its exit codes and its error lines.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{Run, criba, run};
use tempfile::TempDir;

/// A store with three keys, in its own directory.
fn store() -> (TempDir, String) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = dir.path().join("store").to_str().expect("a plain path").to_owned();
    for (key, value) in [("ada", "ada@example.org"), ("bea", ""), ("cid\\x00\\\\", "\\xff")] {
        let value = format!("{value} ");
        Run::new(criba(["put", &store, key, &value]).output().expect("it starts")).well();
    }
    (dir, store)
}

fn json(line: &str) -> serde_json::Value {
    serde_json::from_str(&run(line).well()).expect("an object")
}

fn tables(store: &str) -> Vec<PathBuf> {
    let names = fs::read_dir(store).expect("a store").map(|entry| entry.expect("a name").path());
    let mut tables: Vec<_> =
        names.filter(|path| path.extension().is_some_and(|extension| extension == "sst")).collect();
    tables.sort();
    tables
}

fn change_byte(path: &Path, at: impl FnOnce(usize) -> usize) {
    let mut bytes = fs::read(path).expect("a file");
    let at = at(bytes.len());
    bytes[at] ^= 0x40;
    fs::write(path, bytes).expect("a writable file");
}

#[test]
fn put_get_delete() {
    let (_dir, store) = store();
    assert_eq!(run(&format!("get {store} ada")).well(), "ada@example.org \n");
    assert_eq!(run(&format!("get {store} bea")).well(), " \n");
    assert_eq!(run(&format!("get {store} cid\\x00\\\\")).well(), "\\xff \n");
    let raw = criba(["get", &store, "cid\\x00\\\\", "--raw"]).output().expect("it starts");
    assert_eq!(raw.stdout, b"\xff ");

    assert_eq!(run(&format!("get {store} nobody")).error(1), "criba: absent\n");
    run(&format!("delete {store} ada")).well();
    run(&format!("delete {store} ada")).well();
    let gone = run(&format!("get {store} ada"));
    assert_eq!(gone.out, "");
    gone.error(1);
}

#[test]
fn scan_in_every_direction() {
    let (_dir, store) = store();
    let all = ["ada\tada@example.org ", "bea\t ", "cid\\x00\\\\\t\\xff "];
    let scan = |options: &str| {
        let out = run(&format!("scan {store} {options}")).well();
        out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(scan(""), all);
    assert_eq!(scan("--reverse"), [all[2], all[1], all[0]]);
    assert_eq!(scan("--from b --to c"), [all[1]]);
    assert_eq!(scan("--prefix cid\\x00"), [all[2]]);
    assert_eq!(scan("--limit 1"), [all[0]]);
    assert_eq!(scan("--reverse --limit 1"), [all[2]]);
}

#[test]
fn what_scan_prints_load_reads() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("a plain path").to_owned();
    let every_byte: Vec<u8> = (0..=255).collect();
    {
        let db = criba::Db::open(path("first")).expect("a new store");
        for byte in 0..=255_u8 {
            let key = [b"key ", &[byte][..]].concat();
            db.put(key, &every_byte[..usize::from(byte)]).expect("a write");
        }
        db.put("", "the empty key").expect("a write");
        db.close().expect("a sound end");
    }
    let printed = run(&format!("scan {}", path("first"))).well();
    assert_eq!(printed.lines().count(), 257);

    fs::write(path("plain"), &printed).expect("a file");
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(printed.as_bytes()).expect("memory");
    fs::write(path("packed.gz"), gz.finish().expect("memory")).expect("a file");
    for file in ["plain", "packed.gz"] {
        let copy = path(&format!("copy of {file}").replace(' ', "-"));
        let told = run(&format!("load {copy} {}", path(file))).well();
        assert_eq!(told, "257 lines written; the store has 1 table\n");
        assert_eq!(run(&format!("scan {copy}")).well(), printed);
    }

    let mut child = criba(["load", &path("piped"), "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    child.stdin.take().expect("piped").write_all(printed.as_bytes()).expect("an open pipe");
    assert!(child.wait().expect("an end").success());
    assert_eq!(run(&format!("scan {}", path("piped"))).well(), printed);
}

#[test]
fn load_names_the_line_that_is_wrong() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("lines.txt");
    fs::write(&file, "a\t1\nb\n").expect("a file");
    let (store, file) = (dir.path().join("s"), file.display().to_string());
    let line = run(&format!("load {} {file}.none", store.display())).error(3);
    assert!(line.contains("lines.txt.none: cannot open"), "{line}");
    assert!(!store.exists());
    let line = run(&format!("load {} {file}", store.display())).error(3);
    assert_eq!(
        line,
        format!(
            "criba: {file}: expected key TAB value on line 2, found a line without a TAB (one follows \
             the key also if the value is empty); lines stored: 1\n"
        )
    );
    fs::write(&file, format!("a\t1\n{}\t2\n", "k".repeat(65_536))).expect("a file");
    let line = run(&format!("load {} {file}", store.display())).error(3);
    assert_eq!(
        line,
        format!(
            "criba: {file}: expected a key of at most 65535 bytes on line 2, found one of 65536; lines \
             stored: 1\n"
        )
    );
}

#[test]
fn compact_and_stats() {
    let (_dir, store) = store();
    run(&format!("delete {store} ada")).well();
    let told = run(&format!("compact {store}")).well();
    assert!(told.contains("after:  1 table, 2 entries, "), "{told}");
    assert_eq!(tables(&store).len(), 1);

    let stats = run(&format!("stats {store}")).well();
    let row = stats.lines().find(|line| line.starts_with("L6")).expect("a row of L6");
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!(cells[..4], ["L6", "1", "2", "0"], "{stats}");
    assert!(stats.contains("\ndegraded filters: 0\nlogs: 1, with 0 changes that"), "{stats}");
    // A command has no counts of activity.
    let page = run(&format!("stats {store} --openmetrics")).well();
    assert!(page.contains("\ncriba_filters_degraded 0\n"), "{page}");
    assert!(!page.contains("_total") && !page.contains("criba_tables_damaged"), "{page}");
}

#[test]
fn looking_changes_no_table() {
    let (_dir, store) = store();
    let before = tables(&store);
    for line in ["get STORE ada", "scan STORE", "stats STORE", "explain STORE ada"] {
        run(&line.replace("STORE", &store)).well();
        assert_eq!(tables(&store), before, "{line}");
    }
}

#[test]
fn explain_a_found_key_and_an_absent_one() {
    let (_dir, store) = store();
    let found = run(&format!("explain {store} ada")).well();
    assert!(found.contains("the key (true positive)\n"), "{found}");
    assert!(found.contains("\nfound, 16 bytes\ndisk reads: 1,"), "{found}");
    let absent = run(&format!("explain {store} bob"));
    assert_eq!((absent.code, absent.err.as_str()), (1, ""));
    assert!(absent.out.contains("\nabsent\ndisk reads: 0,"), "{}", absent.out);
}

#[test]
fn inspect_a_table() {
    let (_dir, store) = store();
    run(&format!("delete {store} ada")).well();
    run(&format!("put {store} ada again")).well();
    run(&format!("delete {store} zoe")).well();
    run(&format!("rebuild-filters {store}")).well(); // replays the log of the delete
    let newest = tables(&store).pop().expect("a table").display().to_string();
    let told = run(&format!("inspect {newest}")).well();
    for part in ["properties\n", "distinct keys", "\nfilter\n", "bits (m)", "\nindex\n"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("\nentries\n"));
    let told = run(&format!("inspect {newest} --entries")).well();
    assert!(told.contains("tomb  zoe\n"), "{told}");
}

#[test]
fn a_degraded_filter_is_reported() {
    let (_dir, store) = store();
    run(&format!("compact {store}")).well();
    let table = tables(&store).pop().expect("a table");
    let bytes = fs::read(&table).expect("a table");
    let filter = bytes.windows(8).position(|window| window == b"cribaFLT").expect("a filter");
    change_byte(&table, |_| filter + 40);
    let stats = run(&format!("stats {store}")).well();
    assert!(stats.contains("degraded filters: 1\n  "), "{stats}");
    assert_eq!(run(&format!("get {store} bea")).well(), " \n");
    let told = run(&format!("inspect {}", table.display())).well();
    assert!(told.contains("\nfilter\n  degraded: "), "{told}");
}

/// No command sets a prefix extractor, and none removes the prefixes that a program has put into filters.
#[test]
fn prefixes_are_reported_and_kept() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = dir.path().join("store").display().to_string();
    let options = criba::Options::new().prefix(criba::PrefixExtractor::until(b'/'));
    let db = options.open(&store).expect("a new store");
    for number in 0..30 {
        db.put(format!("row{}/{number:02}", number / 3), "value").expect("a write");
    }
    db.flush().expect("a table");
    db.close().expect("a sound end");
    let newest = || tables(&store).pop().expect("a table").display().to_string();
    let told = |prefixes: u64, filters: &str, keys: u64| {
        let stats = run(&format!("stats {store}")).well();
        let line = format!("\nprefixes: {prefixes} in {filters}, up to '/'; ");
        assert!(
            stats.contains(&line)
                && stats.replace("\n    ", " ").contains(" bits a key or prefix, with headers\n"),
            "{stats}"
        );
        let total = &json(&format!("stats --json {store}"))["total"];
        assert_eq!((&total["prefixes"], &total["keys"]), (&prefixes.into(), &keys.into()));
        let bits = |name: &str| total[name].as_f64().expect("a number");
        let bytes = total["filter_bytes"].as_f64().expect("a number");
        assert!((bits("bits_per_key") * keys as f64 - bytes * 8.0).abs() < 0.01);
        let hashed = (keys + prefixes) as f64;
        assert!((bits("bits_per_key_or_prefix") * hashed - bytes * 8.0).abs() < 0.01);
        let tuned = json(&format!("tune --json {store}"));
        assert_eq!((&tuned["prefixes"], &tuned["keys"]), (&prefixes.into(), &keys.into()));
        let tuned = run(&format!("tune {store}")).well();
        assert!(tuned.contains(&format!("\nprefixes {prefixes}; with them")), "{tuned}");
        let verified = run(&format!("verify {store}")).well();
        let probed = format!("probed with {keys} keys and {prefixes} prefixes, 0 denied");
        assert!(verified.contains(&probed), "{verified}");
    };
    told(10, "1 filter", 30);
    let inspected = run(&format!("inspect {}", newest())).well();
    assert!(inspected.contains("\n  prefixes          10, up to '/'\n"), "{inspected}");

    run(&format!("put {store} row9/new value")).well();
    run(&format!("rebuild-filters {store}")).well(); // replays the log of the put
    told(11, "2 filters", 31);
    run(&format!("rebuild-filters {store} --policy ribbon")).well();
    told(11, "2 filters", 31);
    run(&format!("compact {store}")).well();
    told(10, "1 filter", 31);

    let every = criba::Options::new().prefix(criba::PrefixExtractor::every(b'/'));
    every.open(&store).expect("the store").close().expect("a sound end");
    let stats = run(&format!("stats {store}")).well();
    let advised = format!("this makes them anew:\n  criba rebuild-filters {store}\n");
    assert!(stats.replace("\n    ", " ").contains(&advised), "{stats}");
    let rule = "up to each '/', of which the first 16 count";
    assert_eq!(json(&format!("stats --json {store}"))["prefix_extractor"], rule);
    run(&format!("rebuild-filters {store}")).well();
    let stats = run(&format!("stats {store}")).well();
    assert!(stats.contains(rule) && !stats.contains("anew"), "{stats}");

    let (_dir, plain) = self::store();
    let stats = run(&format!("stats {plain}")).well();
    assert!(stats.contains("\nprefixes: none\n"), "{stats}");
    assert!(json(&format!("stats --json {plain}"))["prefix_extractor"].is_null());
    let table = tables(&plain).pop().expect("a table");
    let inspected = run(&format!("inspect {}", table.display())).well();
    assert!(inspected.contains("\n  prefixes          none\n"), "{inspected}");
}

#[test]
fn stats_prints_the_filter_bytes_in_memory() {
    let (dir, store) = store();
    let lines: Vec<_> = (0..20_000).map(|i| format!("key{i:06}\tvalue\n")).collect();
    let file = dir.path().join("lines");
    fs::write(&file, lines.concat()).expect("a file");
    run(&format!("load {store} {} --filter ribbon", file.display())).well();
    run(&format!("compact {store}")).well();
    let stats = |options: &str| run(&format!("stats {store} {options}")).well();
    let title = "filters in memory in part or not at all: ";
    assert!(stats("").contains(&format!("\n{title}0\n")), "{}", stats(""));
    // No lookup and no write: filters and indexes only.
    let line = stats("").lines().find_map(|line| Some(line.strip_prefix("memory: ")?.to_owned()));
    let (total, kinds) = line.as_deref().and_then(|line| line.split_once(": ")).expect("a line");
    let number = |text: &str| text.replace(',', "").parse::<u64>().expect("a number");
    let kinds: Vec<_> = kinds.split(' ').map(|word| word.trim_end_matches(',')).collect();
    let ["memtables", "0", "filters", filters, "indexes", indexes, "cache", "0"] = kinds[..] else {
        panic!("{kinds:?}")
    };
    assert!(number(filters) > 20_000 && number(indexes) >= 4096, "{kinds:?}");
    let total = total.strip_suffix(" bytes").expect("bytes");
    assert_eq!(number(total), number(filters) + number(indexes));

    let part = stats("--filter-memory 16384");
    let (_, line) = part.split_once(&format!("{title}1\n")).expect("one filter");
    let line = line.lines().take(2).map(str::trim).collect::<Vec<_>>().join(" ");
    assert!(line.contains(".sst on L6: 6 of 9.87 columns, "), "{part}");
    assert!(line.contains("an FPR of 1.5") && line.contains(" % instead of 0."), "{part}");

    let none = stats("--filter-memory 0");
    assert!(none.contains(&format!("{title}1\n")), "{none}");
    assert!(none.contains(".sst on L6: not resident, of 2"), "{none}");
    assert!(none.contains("100.0 %\n"), "{none}");
}

#[test]
fn rebuild_filters_leaves_the_tables_alone() {
    let (_dir, store) = store();
    run(&format!("compact {store}")).well();
    let table = tables(&store).pop().expect("a table");
    let before = fs::read(&table).expect("a table");
    let command = format!("rebuild-filters {store}");
    let told = run(&format!("{command} --policy ribbon --bits-per-key 12.5")).well();
    let lines: Vec<_> = told.lines().collect();
    assert!(lines[0].starts_with("before: 1 table, "), "{told}");
    assert!(lines[1].starts_with("after:  1 table, "), "{told}");
    assert_eq!(lines[2], "1 filter rebuilt, 0 already right, 0 removed");
    let again = run(&format!("{command} --kind ribbon --bits-per-key 12.5")).well();
    assert!(again.ends_with("\n0 filters rebuilt, 1 already right, 0 removed\n"), "{again}");
    let told = run(&format!("inspect {}", table.display())).well();
    assert!(told.contains("ribbon, over SipHash-1-3") && told.contains("-0001.flt"), "{told}");

    let rebuilt = run(&format!("{command} --policy classic --fpr 0.001")).well();
    assert!(rebuilt.contains("1 filter rebuilt"), "{rebuilt}");
    let told = run(&format!("inspect {}", table.display())).well();
    assert!(told.contains("bloom, over MurmurHash2") && told.contains("-0002.flt"), "{told}");
    let none = run(&format!("{command} --bits-per-key 0")).well();
    assert!(none.contains("after:  1 table, 0 bytes of filters in use, 0.00 bits a key"), "{none}");
    assert!(none.ends_with("0 filters rebuilt, 0 already right, 1 removed\n"), "{none}");
    let told = run(&format!("inspect {}", table.display())).well();
    assert!(told.contains("\nfilter\n  none is wanted\n"), "{told}");
    assert_eq!(fs::read(&table).expect("a table"), before);
    assert_eq!(run(&format!("get {store} ada")).well(), "ada@example.org \n");

    let told = run(&format!("{command} --fpr 2")).error(2);
    assert!(told.contains("--fpr 2: expected more than 0 and less than 1"), "{told}");
    for option in ["--filter", "--policy"] {
        let told = run(&format!("{command} {option} blocked")).error(2);
        assert!(told.contains(&format!("{option} ribbon wastes fewer reads")), "{told}");
    }
}

/// The kind of the newest table's filter, as `inspect` prints it.
fn newest_kind(store: &str) -> String {
    let table = tables(store).pop().expect("a table");
    let printed = run(&format!("inspect {}", table.display())).well();
    let kinds = ["bloom", "ribbon"].into_iter();
    let mut found = kinds.filter(|kind| printed.contains(&format!("{kind}, over ")));
    found.next().unwrap_or("none").to_owned()
}

#[test]
fn the_filters_of_a_store_change_only_by_an_option() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let [fresh, ribbon] =
        ["fresh", "ribbon"].map(|name| dir.path().join(name).display().to_string());
    let file = dir.path().join("lines");
    fs::write(&file, "a\tone\nb\ttwo\n").expect("a file");
    run(&format!("load {fresh} {}", file.display())).well();
    run(&format!("compact {fresh}")).well();
    assert_eq!(newest_kind(&fresh), "bloom");

    run(&format!("load {ribbon} {} --filter ribbon --fpr 0.001", file.display())).well();
    for command in ["put", "compact", "delete", "compact"] {
        let arguments = if command == "put" { "c three" } else { "" };
        let arguments = if command == "delete" { "a" } else { arguments };
        run(&format!("{command} {ribbon} {arguments}")).well();
        let policy = "\npolicy: ribbon filters at a rate of 0.001, SipHash-1-3, keyed\n";
        let stats = run(&format!("stats {ribbon}")).well();
        assert!(stats.contains(policy), "after {command}: {stats}");
        assert_eq!(newest_kind(&ribbon), "ribbon", "after {command}");
    }
    run(&format!("delete {ribbon} b --filter bloom")).well();
    run(&format!("put {ribbon} d four --bits-per-key 12")).well();
    run(&format!("compact {ribbon}")).well();
    let stats = run(&format!("stats {ribbon}")).well();
    assert!(stats.contains("\npolicy: bloom filters of 12 bits a key, balanced"), "{stats}");
    assert_eq!(newest_kind(&ribbon), "bloom");
    run(&format!("put {ribbon} e five")).well();
    run(&format!("compact {ribbon} --filter ribbon")).well();
    assert_eq!(newest_kind(&ribbon), "ribbon");

    // A wrong number makes no store.
    let none = dir.path().join("none");
    run(&format!("put {} a one --fpr 2", none.display())).error(2);
    assert!(!none.exists());
}

#[test]
fn tune_advises_and_the_advice_can_be_followed() {
    let (dir, store) = store();
    let lines: Vec<_> = (0..20_000).map(|i| format!("key{i:06}\tvalue\n")).collect();
    let file = dir.path().join("lines");
    fs::write(&file, lines.concat()).expect("a file");
    run(&format!("load {store} {}", file.display())).well();
    run(&format!("rebuild-filters {store} --policy classic --bits-per-key 10")).well();
    let before = tables(&store);
    let told = run(&format!("tune {store}")).well();
    for part in [
        "\nassumed  absent keys are spread as the present ones\n",
        "\nuniform or balanced, which are alike here\n",
        "\nbits per key          bloom       ribbon   bloom size  ribbon size\n",
        "\n 6.00  -4  ",
        "\n10.00  today  ",
        "\n14.00  +4  ",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let json = run(&format!("tune {store} --json")).well();
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["estimates"].as_array().expect("a list").len(), 28);
    assert_eq!((json["absent_probes"].as_u64(), json["degraded"].as_u64()), (Some(0), Some(0)));
    let sentence = json["recommendation"].as_str().expect("text");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (_, printed) = told.rsplit_once("\n\n").expect("an empty line");
    let (printed, _) = printed.split_once("LZ4 would keep ").expect("what LZ4 saves");
    assert_eq!(
        words(&printed.replace('\\', "").replace(&store, "DIR")),
        words(sentence.trim_end_matches('.'))
    );
    assert_eq!(tables(&store), before);

    let (_, command) = sentence.split_once(": criba ").expect("a command");
    run(&command.trim_end_matches('.').replace("DIR", &store)).well();
    let then = run(&format!("tune {store}")).well();
    assert!(then.contains("\n\nThese filters are right for their memory: "), "{then}");
}

#[test]
fn verify_reports_all_damage() {
    let (_dir, store) = store();
    run(&format!("compact {store}")).well();
    run(&format!("put {store} new value")).well();
    run(&format!("rebuild-filters {store} --policy ribbon")).well();
    let sound = run(&format!("verify {store}")).well();
    assert_eq!(
        sound,
        "2 tables with 2 blocks, 4 keys and 4 entries\n2 filters probed with 4 keys, 0 denied\n\
         1 log with 0 changes that no table has yet\nsound\n"
    );
    let stray = Path::new(&store).join("stray");
    fs::write(&stray, "").expect("a file");
    let noted = run(&format!("verify {store}")).well();
    assert!(noted.starts_with(&format!("note: {}: not a file", stray.display())), "{noted}");

    let [first, second] = tables(&store).try_into().expect("two tables");
    change_byte(&first, |_| 3);
    change_byte(&second, |length| length - 9);
    let filter = first.with_file_name(format!(
        "{}-0001.flt",
        first.file_stem().and_then(|stem| stem.to_str()).expect("a plain name")
    ));
    change_byte(&filter, |_| 70);
    let found = run(&format!("verify {store}"));
    assert_eq!((found.code, found.err.as_str()), (1, ""));
    for path in [&first, &second, &filter] {
        let line = format!("{}: offset ", path.display());
        assert_eq!(found.out.matches(&line).count(), 1, "{}", found.out);
    }
    assert!(found.out.contains("\n3 findings\ncriba repair"), "{}", found.out);
    assert_eq!(run(&format!("verify {store}")).out, found.out, "nothing was changed");
}

#[test]
fn what_recovery_dropped_is_a_warning() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // What a crash leaves: a copy of the files of an open store, with half a record at the end.
    let db = criba::Db::open(dir.path().join("open")).expect("a new store");
    db.put("ada", "ada@example.org").expect("a write");
    let crashed = dir.path().join("crashed");
    fs::create_dir(&crashed).expect("a new directory");
    for entry in fs::read_dir(dir.path().join("open")).expect("a store") {
        let entry = entry.expect("a name");
        fs::copy(entry.path(), crashed.join(entry.file_name())).expect("a copy");
    }
    let names = fs::read_dir(&crashed).expect("a store").map(|entry| entry.expect("a name").path());
    let log = names.filter(|path| path.extension().is_some_and(|e| e == "log")).max();
    let log = log.expect("a log");
    let mut file = fs::OpenOptions::new().append(true).open(&log).expect("the log");
    file.write_all(&[0x5a; 11]).expect("a writable log");
    drop(file);

    let got = run(&format!("get {} ada", crashed.display()));
    assert_eq!((got.code, got.out.as_str()), (0, "ada@example.org\n"), "{}", got.err);
    assert_eq!(got.err.lines().count(), 1, "{}", got.err);
    assert!(got.err.starts_with("criba: warning: "), "{}", got.err);
    assert!(got.err.contains(log.to_str().expect("a plain path")), "{}", got.err);
}

#[test]
fn commands_make_no_store_but_put_load_and_readamp() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let none = dir.path().join("none");
    let path = none.display();
    for line in [
        "get NONE k",
        "delete NONE k",
        "scan NONE",
        "compact NONE",
        "stats NONE",
        "explain NONE k",
        "rebuild-filters NONE",
        "tune NONE",
        "verify NONE",
        "backup NONE NONE/backup",
    ] {
        let told = run(&line.replace("NONE", &path.to_string())).error(3);
        let expected = format!("criba: {path}: expected a criba store, found nothing");
        assert!(told.starts_with(&expected), "{told}");
        assert!(!none.exists(), "{line}");
    }
    let file = dir.path().join("file");
    fs::write(&file, "x").expect("a file");
    let told = run(&format!("get {} k", file.display())).error(3);
    assert!(told.contains("expected a criba store, found a file"), "{told}");
    let told = run(&format!("inspect {path}")).error(3);
    assert!(told.contains("none: cannot open: not found"), "{told}");
}

#[test]
fn a_damaged_store_is_an_error_in_one_line() {
    let (_dir, store) = store();
    run(&format!("compact {store}")).well();
    let table = tables(&store).pop().expect("a table");
    change_byte(&table, |length| length - 9);
    for line in [format!("get {store} ada"), format!("inspect {}", table.display())] {
        let told = run(&line).error(3);
        let name = table.file_name().and_then(|name| name.to_str()).expect("a plain name");
        assert!(told.contains(name) && told.contains("expected"), "{told}");
    }
}

#[test]
fn a_store_in_use_is_an_error() {
    let (_dir, store) = store();
    let db = criba::Db::open(&store).expect("a sound store");
    for command in [format!("delete {store} ada"), format!("verify {store}")] {
        let told = run(&command).error(3);
        assert!(told.contains("/LOCK is held by process "), "{told}");
    }
    drop(db);
    run(&format!("get {store} ada")).well();
}

#[test]
fn wrong_usage_is_2() {
    for line in [
        "",
        "nonsense",
        "get",
        "get dir",
        "put dir k",
        "scan",
        "readamp --n 0",
        "readamp --n x",
        "readamp --n 1000000001",
        "readamp --lookups 18446744073709551615",
        "readamp --history 18446744073709551615",
        "readamp --fpr 0.1 --bits-per-key 10",
        "readamp --present f",
        "readamp --fpr 2",
        "readamp --bits-per-key 65",
        "scan dir --keys --count",
        "scan dir --raw --json",
        "get dir a b --raw",
        "get dir a\\x2db",
        "completions tcsh",
        "rebuild-filters",
        "rebuild-filters dir --kind cuckoo",
        "rebuild-filters dir --fpr 0.1 --bits-per-key 10",
        "tune",
        "verify",
        "backup dir",
    ] {
        let told = run(line);
        assert_eq!((told.code, told.out.as_str()), (2, ""), "{line}");
        assert!(!told.err.is_empty(), "{line}");
    }
    for line in ["--help", "--version", "readamp --help"] {
        assert!(!run(line).well().is_empty(), "{line}");
    }
}

/// The command itself serves as `criba-lab`: its name selects the part.
#[test]
fn the_lab_is_a_program_beside_the_command_or_in_path() {
    let new_dir = || tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (place, elsewhere) = (new_dir(), new_dir());
    let command = place.path().join("criba");
    fs::hard_link(env!("CARGO_BIN_EXE_criba"), &command).expect("a second name");
    let lab = |args: &[&str]| {
        let mut started = Command::new(&command);
        started.arg("lab").args(args).env("PATH", elsewhere.path()).stdin(Stdio::null());
        Run::new(started.output().expect("it starts"))
    };
    let missing = lab(&["toy"]).error(3);
    assert!(missing.contains("cargo install --path lab"), "{missing}");

    for dir in [&elsewhere, &place] {
        let program = dir.path().join("criba-lab");
        symlink(env!("CARGO_BIN_EXE_criba"), &program).expect("a link");
        let help = lab(&["--help"]).well();
        assert!(help.contains("Usage: criba lab <COMMAND>"), "{help}");
        let (_dir, store) = store();
        assert_eq!(lab(&["put", &store, "-key", "a value"]).code, 0);
        assert_eq!(lab(&["get", &store, "-key"]).well(), "a value\n");
        assert_eq!(lab(&["get", &store, "another"]).code, 1);
        fs::remove_file(program).expect("it is there");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = dir.path().join("store").display().to_string();
    let lines: Vec<_> = (0..50_000).map(|i| format!("key{i:06}\tvalue of {i}\n")).collect();
    let file = dir.path().join("lines");
    fs::write(&file, lines.concat()).expect("a file");
    run(&format!("load {store} {}", file.display())).well();
    let mut child = criba(["scan", &store])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut first = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    out.read_line(&mut first).expect("a line");
    drop(out);
    assert_eq!(first, "key000000\tvalue of 0\n");
    let end = Run::new(child.wait_with_output().expect("an end"));
    assert_eq!((end.code, end.err.as_str()), (0, ""));
}
