//! Keys that expire: they are written, dumped, loaded and shown with their expiries.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::common::{Run, criba, run};
use criba::{Clock, Expiry, Options};
use serde_json::Value;
use tempfile::TempDir;

const HOUR: Duration = Duration::from_secs(3600);
/// In milliseconds: 2100-01-01.
const FUTURE: u64 = 4_102_444_800_000;
const PAST: u64 = 5;
const FIRST: &str = "\\criba dump, version 1, fields: key value expires\n";

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("a plain path").to_owned()
    }

    fn file(&self, name: &str, content: &str) -> String {
        fs::write(self.at(name), content).expect("a file");
        self.at(name)
    }

    /// A dump with a key of each kind.
    fn dump(&self) -> String {
        let lines = format!("a\\\\\t1\t{FUTURE}\nb\t\t\nc\t3\\t\t{PAST}\nd\t4\t{}\n", FUTURE + 1);
        self.file("dump", &format!("{FIRST}{lines}\\end of the dump, lines: 4\n"))
    }

    /// A store of that dump.
    fn store(&self) -> String {
        run(&format!("load {} {}", self.at("store"), self.dump())).well();
        self.at("store")
    }
}

fn of(args: &[&str]) -> Run {
    Run::new(criba(args).output().expect("it starts"))
}

fn object(line: &str) -> Value {
    let run = run(line);
    serde_json::from_str(&run.out).expect("one object")
}

fn in_1970(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

/// The keys and expiries of a store.
fn expiries(store: &str) -> Vec<(String, Option<SystemTime>)> {
    let db = Options::new().open_read_only(store).expect("a sound store");
    let mut range = db.iter();
    let items = std::iter::from_fn(|| range.next_with_expiry()).map(|item| {
        let (key, _, expiry) = item.expect("a sound store");
        (String::from_utf8(key.to_vec()).expect("text"), expiry)
    });
    items.collect()
}

fn tables_of(store: &str) -> Vec<String> {
    let names = fs::read_dir(store).expect("a store").map(|entry| entry.expect("a name").path());
    let tables = names.filter(|path| path.extension().is_some_and(|suffix| suffix == "sst"));
    let mut tables: Vec<_> = tables.map(|path| path.display().to_string()).collect();
    tables.sort_unstable();
    tables
}

/// A store whose later keys live for an hour.
fn with_default_ttl(store: &str) {
    let options = Options::new().default_ttl(HOUR).background_threads(0);
    options.open(store).expect("a new store").close().expect("a sound end");
}

#[test]
fn a_dump_takes_each_expiry_into_another_store() {
    let place = Place::new();
    let store = place.store();
    let dump = run(&format!("dump {store}")).well();
    let lines = format!("a\\\\\t1\t{FUTURE}\nb\t\t\nd\t4\t{}\n", FUTURE + 1);
    assert_eq!(dump, format!("{FIRST}{lines}\\end of the dump, lines: 3\n"));
    let file = place.file("again", &dump);
    let crlf = place.file("crlf", &dump.replace('\n', "\r\n"));
    let expected = [
        ("a\\".to_owned(), Some(in_1970(FUTURE))),
        ("b".to_owned(), None),
        ("d".to_owned(), Some(in_1970(FUTURE + 1))),
    ];
    for (number, how) in ["", "--sorted", "--sorted=auto"].into_iter().enumerate() {
        for file in [&file, &crlf, &place.dump()] {
            let to = place.at(&format!("to {number}").replace(' ', "-"));
            with_default_ttl(&to);
            run(&format!("load {to} {file} {how}")).well();
            assert_eq!(expiries(&to), expected, "{how} {file}");
            assert_eq!(run(&format!("dump {to}")).well(), dump);
            run(&format!("compact {to}")).well();
            assert_eq!(run(&format!("dump {to}")).well(), dump);
            fs::remove_dir_all(to).expect("it is there");
        }
    }
}

#[test]
fn keys_of_a_dump_without_expiries_never_expire() {
    let place = Place::new();
    run(&format!("put {} a 1", place.at("plain"))).well();
    let text = run(&format!("dump {}", place.at("plain"))).well();
    assert!(text.starts_with("\\criba dump, version 1, fields: key value\n"), "{text}");
    let dump = place.file("dump", &text);
    for how in ["", "--sorted"] {
        let to = place.at(&format!("to{how}"));
        with_default_ttl(&to);
        run(&format!("load {to} {dump} {how}")).well();
        assert_eq!(expiries(&to), [("a".to_owned(), None)]);
        // And no store has keys that expire because of such a dump.
        let new = place.at(&format!("new{how}"));
        run(&format!("load {new} {dump} {how}")).well();
        assert_eq!(run(&format!("dump {new}")).well(), text);
    }
}

#[test]
fn plain_lines_and_puts_take_the_given_time_or_the_default() {
    let place = Place::new();
    let lines = place.file("lines", "a\t1\nb\t2\n");
    let store = place.at("store");
    let about = |expiry: Option<SystemTime>, lives: Duration| {
        let left =
            expiry.expect("a time").duration_since(SystemTime::now()).expect("a future time");
        assert!(left <= lives && left + Duration::from_secs(60) > lives, "{left:?} of {lives:?}");
    };
    for how in ["", "--sorted", "--sorted=auto", "--raw"] {
        run(&format!("load {store} {lines} --expires-in 7d {how}")).well();
        let found = expiries(&store);
        for (_, expiry) in found {
            about(expiry, 7 * 24 * HOUR);
        }
        fs::remove_dir_all(&store).expect("it is there");
    }
    run(&format!("load {store} {lines}")).well();
    of(&["put", &store, "a", "1", "--expires-in", "1h 30m"]).well();
    let found = expiries(&store);
    about(found[0].1, HOUR * 3 / 2);
    assert_eq!(found[1].1, None);

    let store = place.at("with-default");
    with_default_ttl(&store);
    run(&format!("load {store} {lines}")).well();
    run(&format!("put {store} b 2 --expires-in=2h")).well();
    let found = expiries(&store);
    about(found[0].1, HOUR);
    about(found[1].1, 2 * HOUR);
    assert!(run(&format!("stats {store}")).well().contains("\ndefault time to live: 1h\n"));
    assert_eq!(object(&format!("stats {store} --json"))["default_ttl_ms"], 3_600_000);
    run(&format!("put {store} a 3 --expires-in never")).well();
    assert_eq!(expiries(&store)[0].1, None);
}

#[test]
fn wrong_times_are_refused_and_make_no_store() {
    let place = Place::new();
    let store = place.at("store");
    let lines = place.file("lines", "a\t1\n");
    for time in ["0s", "0", "7", "7 parsecs", "-1d", ""] {
        for args in [["put", &store, "a", "1"], ["load", &store, &lines, "--raw"]] {
            let args = [&args[..], &["--expires-in", time]].concat();
            let run = of(&args);
            assert!(run.code == 2 && run.err.contains("--expires-in"), "{time}: {}", run.err);
        }
    }
    assert!(!fs::exists(&store).expect("a directory"));
}

#[test]
fn wrong_expiries_in_a_dump_are_named_with_their_line() {
    let place = Place::new();
    let texts = [
        "x",
        "-1",
        "+1",
        "1.5",
        " 1",
        "1\t2",
        "2100-01-01",
        "18446744073709551615",
        "99999999999999999999",
    ];
    for (number, text) in texts.into_iter().enumerate() {
        let dump = place.file("dump", &format!("{FIRST}a\t1\t\nb\t2\t{text}\n"));
        let store = place.at(&number.to_string());
        let found = format!("found \"{text}\" behind the second TAB; lines stored: ");
        let expected = "expected key TAB value TAB milliseconds since 1970, or nothing on line 3, ";
        let told = run(&format!("load {store} {dump}")).error(3);
        assert!(told.ends_with(&format!("{expected}{}1\n", found.replace('\t', "\\t"))), "{told}");
        let told = run(&format!("load {store}.sorted {dump} --sorted")).error(3);
        assert!(told.ends_with(&format!("{}0\n", found.replace('\t', "\\t"))), "{told}");
    }
    let dump = place.file("dump", &format!("{FIRST}a\t1\n"));
    let told = run(&format!("load {} {dump}", place.at("none"))).error(3);
    assert!(told.contains("on line 2, found a line with one TAB; lines stored: 0"), "{told}");
    let dump = place.file("dump", "\\criba dump, version 1, fields: key expires\na\t1\n");
    let told = run(&format!("load {} {dump}", place.at("none"))).error(3);
    let expected =
        "expected a dump of version 1, fields: key value, or, fields: key value expires on line 1";
    assert!(told.contains(expected), "{told}");
    assert!(!fs::exists(place.at("none")).expect("a directory"));
}

#[test]
fn a_dump_is_not_loaded_with_one_expiry_for_all() {
    let place = Place::new();
    let whole = format!("{FIRST}a\t1\t\n\\end of the dump, lines: 1\n");
    for (number, text) in
        [whole.replace(" expires", "").replace("1\t\n", "1\n"), whole].into_iter().enumerate()
    {
        let dump = place.file("dump", &text);
        for how in ["", "--sorted", "--sorted=auto"] {
            let store = place.at(&format!("{number}{how}"));
            let told = run(&format!("load {store} {dump} --expires-in 7d {how}")).error(3);
            let expected = "expected lines for --expires-in, found a dump, whose keys have their own expiries; \
                            leave --expires-in out; lines stored: 0\n";
            assert!(told.ends_with(expected), "{told}");
            assert!(!fs::exists(&store).expect("a directory"));
        }
    }
}

#[test]
fn what_cannot_hold_an_expiry_refuses_the_first_key_that_has_one() {
    let place = Place::new();
    let store = place.at("store");
    for put in ["a 1", "b 2 --expires-in 1h", "c 3"] {
        run(&format!("put {store} {put}")).well();
    }
    let expected = |option: &str| {
        format!(
            "criba: {store}: expected keys that do not expire, for {option}, found the key b, which expires; \
             use `dump` without --plain\n"
        )
    };
    for (command, before, option) in [
        ("dump --plain", "a\t1\n", "--plain"),
        ("scan --raw", "a\t1\n", "--raw"),
        ("scan --raw --reverse", "c\t3\n", "--raw"),
    ] {
        let end = run(&format!("{command} {store}"));
        assert_eq!(end.out, before);
        assert_eq!(end.error(3), expected(option));
    }
    // The others print it without the time, and say so.
    for (options, lines) in [("", "a\t1\nb\t2\nc\t3\n"), (" --reverse", "c\t3\nb\t2\na\t1\n")] {
        let scan = run(&format!("scan {store}{options}"));
        let note = "criba: note: 1 key with an expiry, which only dump prints\n";
        assert_eq!((scan.code, scan.out.as_str(), scan.err.as_str()), (0, lines, note));
    }
    assert_eq!(run(&format!("scan {store} --raw --limit 1")).well(), "a\t1\n");
    assert_eq!(run(&format!("scan {store} --raw --keys")).well(), "a\nb\nc\n");
    assert_eq!(run(&format!("dump {store} --plain --prefix c")).well(), "c\t3\n");
    // It stays a store whose keys may expire.
    run(&format!("delete {store} b")).well();
    assert!(run(&format!("dump {store}")).well().starts_with(FIRST));
    assert_eq!(run(&format!("dump {store} --plain")).well(), "a\t1\nc\t3\n");
}

#[test]
fn inspect_and_stats_show_expiries() {
    let place = Place::new();
    let far = 300_000_000_000_000_u64;
    let dump = format!("{FIRST}a\t1\t{FUTURE}\nb\t2\t\nc\t3\t{far}\n\\end of the dump, lines: 3\n");
    let (store, dump) = (place.at("store"), place.file("dump", &dump));
    run(&format!("load {store} {dump} --sorted")).well();
    let [table] = &tables_of(&store)[..] else { panic!("one table") };
    let shown = run(&format!("inspect {table} --entries")).well();
    for line in [
        "  earliest expiry   2100-01-01T00:00:00.000Z\n",
        "  all expire        never\n",
        "  until 2100-01-01T00:00:00.000Z  a\t1\n",
        "  put   b\t2\n",
        "  until 300000000000000 ms  c\t3\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let told = object(&format!("inspect {table} --entries --json"));
    assert_eq!((&told["earliest_expires"], &told["all_expires"]), (&FUTURE.into(), &Value::Null));
    let entries = told["all_entries"].as_array().expect("a list");
    let found: Vec<_> = entries
        .iter()
        .map(|e| (e["key"].as_str(), e["value"].as_str(), e["expires"].as_u64()))
        .collect();
    let expected = [
        (Some("a"), Some("1"), Some(FUTURE)),
        (Some("b"), Some("2"), None),
        (Some("c"), Some("3"), Some(far)),
    ];
    assert_eq!(found, expected);

    let told = object(&format!("stats {store} --json"));
    assert_eq!(
        (&told["has_expiries"], &told["tables"][0]["earliest_expires"]),
        (&true.into(), &FUTURE.into())
    );
    let shown = run(&format!("stats {store}")).well();
    let expected = "\nexpiring entries: in 1 table, the first from 2100-01-01T00:00:00.000Z on\n";
    assert!(shown.replace("\n    ", " ").contains(expected), "{shown}");
    assert_eq!(
        (&told["default_ttl_ms"], &told["tables"][0]["expired"]),
        (&Value::Null, &0.0.into())
    );
    run(&format!("put {} a 1", place.at("plain"))).well();
    assert!(!run(&format!("stats {}", place.at("plain"))).well().contains("expir"));
}

/// A clock that stands still.
#[derive(Debug)]
struct Shows(SystemTime);

impl Clock for Shows {
    fn wall(&self) -> SystemTime {
        self.0
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

#[test]
fn an_expired_key_is_absent_and_explained() {
    let place = Place::new();
    let store = place.at("store");
    // Two keys, so that the table is not removed without being read; no compaction.
    let options = Options::new().auto_compaction(false).background_threads(0);
    let db = options.clock(Arc::new(Shows(in_1970(1)))).open(&store).expect("a store");
    let items = [("a", Expiry::At(in_1970(PAST))), ("b", Expiry::Never)];
    let items = items.map(|(key, expiry)| Ok::<_, criba::Error>((key, "1", expiry)));
    db.ingest_expiring(items).expect("room");
    assert!(db.contains("a").expect("a sound store"));
    db.close().expect("a sound end");
    assert_eq!(run(&format!("get {store} a")).code, 1);
    assert_eq!(run(&format!("scan {store}")).well(), "b\t1\n");
    let end = run(&format!("explain {store} a"));
    let said = end.out.replace("\n    ", " ");
    assert!(end.code == 1 && said.contains("holds the key, which has expired"), "{said}");
    assert!(said.contains("\nabsent, because it has expired"), "{said}");
    let explained = object(&format!("explain {store} a --json"));
    let step = &explained["steps"][1];
    assert_eq!((&step["outcome"], &step["holds"]), (&"expired".into(), &"expiring".into()));
    assert_eq!((&explained["found"], &explained["expired"]), (&false.into(), &true.into()));
    let shown = run(&format!("stats {store}")).well();
    let expected = "the first from 1970-01-01T00:00:00.005Z on; at least 62.5 % of the bytes";
    assert!(shown.replace("\n    ", " ").contains(expected), "{shown}");

    run(&format!("put {store} c 1 --expires-in 1h")).well();
    run(&format!("explain {store} c")).well();
    assert_eq!(object(&format!("explain {store} absent --json"))["expired"], false);
    let options = Options::new().background_threads(0);
    let db = options.open(&store).expect("a store");
    db.put_with_expiry("d", "1", in_1970(PAST)).expect("room");
    db.close().expect("a sound end");
    let said = run(&format!("explain {store} d")).out;
    assert!(said.contains("holds the key with an expiry\n"), "{said}");
    assert!(said.contains("\nabsent, because it has expired\n"), "{said}");
    // The other commands.
    run(&format!("verify {store}")).well();
    run(&format!("verify {store} --live")).well();
    run(&format!("tune {store}")).well();
    run(&format!("rebuild-filters {store} --fpr 0.001")).well();
    let (copy, back, repaired) = (place.at("copy"), place.at("back"), place.at("repaired"));
    run(&format!("backup {store} {copy}")).well();
    run(&format!("restore {copy} {back}")).well();
    run(&format!("repair {store} --to {repaired}")).well();
    run(&format!("compact {store}")).well();
    run(&format!("compact {store} --rewrite")).well();
    let dump = run(&format!("dump {store}")).well();
    assert!(dump.contains("b\t1\t\nc\t1\t"), "{dump}");
    for other in [copy, back, repaired] {
        assert_eq!(run(&format!("dump {other}")).well(), dump, "{other}");
    }
}

#[test]
fn a_clock_far_behind_is_refused_unless_it_is_accepted() {
    let place = Place::new();
    let lines = place.file("lines", "b\t2\n");
    let dir = place.at("store");
    let make = || {
        let _ = fs::remove_dir_all(&dir);
        let ahead = Arc::new(Shows(SystemTime::now() + 2 * HOUR));
        let db = Options::new().clock(ahead).open(&dir).expect("a new store");
        db.put_with_expiry("a", "1", db.now() + HOUR).expect("room");
        db.close().expect("a sound end");
    };
    for command in [
        "put DIR b 2",
        "load DIR LINES",
        "load --sorted DIR LINES",
        "delete DIR a",
        "get DIR a",
        "scan DIR --keys",
        "dump DIR",
        "explain DIR a",
        "compact DIR",
        "compact DIR --rewrite",
        "rebuild-filters DIR",
    ] {
        make();
        let command = command.replace("DIR", &dir).replace("LINES", &lines);
        let told = run(&command).error(3);
        assert!(told.contains("the clock shows "), "{told}");
        assert!(told.contains("; if the clock is right, --accept-clock does that"), "{told}");
        run(&format!("{command} --accept-clock")).well();
    }
    make();
    for command in
        ["stats DIR", "tune DIR", "verify DIR", "verify --live DIR", "backup DIR DIR.copy"]
    {
        run(&command.replace("DIR", &dir)).well();
    }
    run(&format!("restore {dir}.copy {dir}.back")).well();
    run(&format!("repair {dir} --to {dir}.repaired")).well();
}
