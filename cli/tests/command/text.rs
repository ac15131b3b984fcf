//! Keys and values as text and as bytes, from and to files, pipes and arguments.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::common::{Run, criba, output, run, with_input};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use tempfile::TempDir;

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("a plain path").to_owned()
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.at(name), content).expect("a file");
        self.at(name)
    }

    fn store(&self, name: &str, pairs: &Pairs) -> String {
        let db = criba::Db::open(self.at(name)).expect("a new store");
        for (key, value) in pairs {
            db.put(key, value).expect("a write");
        }
        db.close().expect("a sound end");
        self.at(name)
    }
}

fn pairs_of(store: &str) -> Pairs {
    let db = criba::Options::new().open_read_only(store).expect("a store");
    let pairs = db.iter().map(|item| item.expect("sound data"));
    pairs.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn strings<const N: usize>(pairs: [(&str, &str); N]) -> Pairs {
    pairs.map(|(key, value)| (key.into(), value.into())).into()
}

const PIECES: [&[u8]; 16] = [
    b"",
    b"\\",
    b"\\x2d",
    b"-",
    b"\t",
    b"\n",
    b"\r",
    b"\r\n",
    b"\\n",
    b"\x00",
    b"\x1b",
    b"\x7f",
    b"\xff",
    b"\xc3",
    "é日本".as_bytes(),
    "\u{202e}\u{85}".as_bytes(),
];

fn random_bytes(random: &mut ChaCha8Rng, may: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    loop {
        let mut bytes = Vec::new();
        for _ in 0..random.random_range(0..6) {
            match random.random_range(0..3) {
                0 => bytes.push(random.random()),
                _ => bytes.extend_from_slice(PIECES[random.random_range(0..PIECES.len())]),
            }
        }
        if may(&bytes) {
            return bytes;
        }
    }
}

/// Seven hundred random pairs, and a key of each byte.
fn random_pairs(seed: u64, key: fn(&[u8]) -> bool, value: fn(&[u8]) -> bool) -> Pairs {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let bytes = (0..=255).map(|byte| vec![byte]).filter(|bytes| key(bytes));
    let mut pairs: Pairs = bytes.map(|bytes| (bytes, Vec::new())).collect();
    for _ in 0..700 {
        pairs.insert(random_bytes(&mut random, key), random_bytes(&mut random, value));
    }
    pairs
}

#[test]
fn random_bytes_come_back_through_dump_and_load() {
    for seed in 0..4 {
        let place = Place::new();
        let pairs = random_pairs(seed, |_| true, |_| true);
        let store = place.store("store", &pairs);
        let mut dump = criba(["dump", &store]).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut load = criba(["load", &place.at("copy"), "-"]);
        load.stdin(dump.stdout.take().expect("piped"));
        let told = Run::new(load.output().expect("it starts")).well();
        assert!(dump.wait().expect("an end").success());
        assert_eq!(told, format!("{} lines written; the store has 1 table\n", pairs.len()));
        assert!(pairs_of(&place.at("copy")) == pairs, "seed {seed}");

        let printed = run(&format!("scan {store}")).well();
        assert_eq!(printed.lines().count(), pairs.len());
        assert!(printed.chars().all(|char| matches!(char, '\t' | '\n') || !char.is_control()));
    }
}

#[test]
fn random_bytes_come_back_through_raw_lines() {
    let key = |bytes: &[u8]| !bytes.contains(&b'\t') && !bytes.contains(&b'\n');
    let value = |bytes: &[u8]| !bytes.contains(&b'\n') && !bytes.ends_with(b"\r");
    for seed in 0..4 {
        let place = Place::new();
        let pairs = random_pairs(seed, key, value);
        let store = place.store("store", &pairs);
        let raw = output(["scan", &store, "--raw"], b"").stdout;
        let lines = pairs.iter().flat_map(|(k, v)| [k, &b"\t"[..], v, b"\n"].concat());
        assert!(raw == lines.collect::<Vec<_>>());
        with_input(["load", &place.at("copy"), "-", "--raw"], &raw).well();
        assert!(pairs_of(&place.at("copy")) == pairs, "seed {seed}");
    }
}

#[test]
fn raw_lines_that_would_be_read_as_others_are_refused() {
    let pairs: [(&[u8], &[u8], &str, &str); 6] = [
        (b"a\tb", b"", "keys without TAB and newline", "a\\tb"),
        (b"a\nb", b"", "keys without TAB and newline", "a\\nb"),
        (b"k", b"a\nb", "lines without a newline within, and without a CR at their end", "k"),
        (b"k", b"a\r", "lines without a newline within, and without a CR at their end", "k"),
        (b"\r", b"\r", "lines without a newline within, and without a CR at their end", "\\r"),
        (
            b"\x1f\x8b\x08",
            b"",
            "a first line that does not begin as packed files do",
            "\\x1f\\x8b\\x08",
        ),
    ];
    for (key, value, expected, name) in pairs {
        let place = Place::new();
        let store = place.store("store", &[(key.to_vec(), value.to_vec())].into());
        let told = run(&format!("scan {store} --raw")).error(3);
        let found = format!("another at the key {name}; leave --raw out");
        assert_eq!(told, format!("criba: {store}: expected {expected}, found {found}\n"));
        let printed = run(&format!("scan {store}")).well();
        with_input(["load", &place.at("copy"), "-"], printed.as_bytes()).well();
        assert!(pairs_of(&place.at("copy")) == pairs_of(&store));
    }
}

#[test]
fn arguments_and_output_have_the_same_text() {
    let place = Place::new();
    let pairs = random_pairs(26, |_| true, |_| true);
    let store = place.store("store", &pairs);
    let printed = run(&format!("scan {store}")).well();
    for (line, (key, value)) in printed.lines().zip(&pairs).step_by(12) {
        let (key_text, text) = line.split_once('\t').expect("two columns");
        let got = criba(["get", &store, "--", key_text]).output().expect("it starts");
        assert_eq!(Run::new(got).well(), format!("{text}\n"));
        let raw = criba(["get", &store, "--raw", "--", key_text]).output().expect("it starts");
        assert_eq!(&raw.stdout, value);
        let args = ["put", &place.at("copy"), "--", key_text, text];
        if text != "-" {
            Run::new(criba(args).output().expect("it starts")).well();
            let copied = pairs_of(&place.at("copy"));
            assert_eq!(copied.get(key), Some(value));
        }
    }
}

/// `a-b` and `a\x2db` were one key.
#[test]
fn two_unit_names_are_never_one_key() {
    let place = Place::new();
    let units = place.file("units", "a-b.mount\t1\na\\x2db.mount\t2\n");
    let told = run(&format!("load {} {units}", place.at("text"))).error(3);
    assert_eq!(
        told,
        format!(
            "criba: {units}: expected text on line 2, found \\x2d, which is written -; write \\\\ for a \
             backslash, or use --raw; lines stored: 1\n"
        )
    );
    assert_eq!(pairs_of(&place.at("text")), strings([("a-b.mount", "1")]));
    let store = place.at("raw");
    run(&format!("load {store} {units} --raw")).well();
    let both = "a-b.mount\t1\na\\\\x2db.mount\t2\n";
    assert_eq!(run(&format!("scan {store}")).well(), both);
    assert_eq!(run(&format!("get {store} a\\\\x2db.mount")).well(), "2\n");
    let told = run(&format!("get {store} a\\x2db.mount")).error(2);
    assert_eq!(
        told,
        "criba: the argument a\\x2db.mount: found \\x2d, which is written -; write \\\\ for a backslash\n"
    );
}

/// Every byte of `é` and `日本` was printed as `\xNN`.
#[test]
fn utf8_is_printed_as_it_is() {
    let place = Place::new();
    let store = place.store("store", &strings([("é", "日本"), ("\u{1b}[2J", "\u{202e}")]));
    let printed = "\\x1b[2J\t\\xe2\\x80\\xae\né\t日本\n";
    assert_eq!(run(&format!("scan {store}")).well(), printed);
    assert_eq!(run(&format!("get {store} é")).well(), "日本\n");
}

#[test]
fn crlf_ends_a_line_and_is_refused_among_raw_lines() {
    let place = Place::new();
    let crlf = place.file("crlf", "a\t1\r\nb\t\\r\r\nc\t3");
    run(&format!("load {} {crlf}", place.at("store"))).well();
    assert_eq!(pairs_of(&place.at("store")), strings([("a", "1"), ("b", "\r"), ("c", "3")]));
    let crlf = place.file("crlf", "a\t1\nb\t2\r\n");
    let told = run(&format!("load {} {crlf} --raw", place.at("raw"))).error(3);
    let found = "found a CRLF line end; add --crlf, or leave --raw out; lines stored: 1";
    assert_eq!(
        told,
        format!("criba: {crlf}: expected no CR before the newline on line 2, {found}\n")
    );
}

/// Gzip on standard input was "a line without a TAB".
#[test]
fn gzip_is_recognised_by_its_bytes() {
    let place = Place::new();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(b"a\t1\nb\t2\n").expect("memory");
    let gz = gz.finish().expect("memory");
    let both = strings([("a", "1"), ("b", "2")]);
    with_input(["load", &place.at("piped"), "-"], &gz).well();
    assert_eq!(pairs_of(&place.at("piped")), both);
    run(&format!("load {} {}", place.at("named"), place.file("lines.tsv", &gz))).well();
    assert_eq!(pairs_of(&place.at("named")), both);
    run(&format!("load {} {}", place.at("plain"), place.file("plain.gz", "a\t1\nb\t2\n"))).well();
    assert_eq!(pairs_of(&place.at("plain")), both);
    for length in 0..3 {
        let told = with_input(["load", &place.at("short"), "-"], &gz[..length]);
        assert_eq!(told.code, if length == 0 { 0 } else { 3 }, "{}", told.err);
    }
    let cut = place.file("cut.gz", &gz[..gz.len() - 1]);
    let told = run(&format!("load {} {cut}", place.at("cut"))).error(3);
    assert!(told.contains("cut.gz: cannot read it as gzipped lines: "), "{told}");
    assert!(told.ends_with("; lines stored: 2\n"), "{told}");
}

/// A bad first line left an empty store.
#[test]
fn a_bad_line_stores_the_lines_before_it_and_nothing_else() {
    for (before, count) in [(0, "0"), (1, "1"), (30_000, "30,000")] {
        let place = Place::new();
        let good: Vec<_> = (0..before).map(|number| format!("{number:06}\tvalue\n")).collect();
        let good = good.concat();
        for bad in ["no tab\nx\ty\n", "a\\d\tx\n", "\u{1b}\tx\n"] {
            let told = with_input(["load", &place.at("s"), "-"], format!("{good}{bad}").as_bytes());
            let told = told.error(3);
            assert!(told.starts_with("criba: standard input: expected "), "{told}");
            assert!(told.contains(&format!(" on line {}, found ", before + 1)), "{told}");
            assert!(told.ends_with(&format!("; lines stored: {count}\n")), "{told}");
            if before == 0 {
                assert!(place.0.path().read_dir().expect("there").next().is_none());
            } else {
                assert_eq!(pairs_of(&place.at("s")).len(), before);
            }
        }
    }
}

#[test]
fn put_reads_a_value_from_standard_input() {
    let place = Place::new();
    let store = place.at("store");
    let all: Vec<u8> = (0..=255).rev().collect();
    for value in [&all[..], b"", b"-", b"\\x2d\r\n"] {
        with_input(["put", &store, "key", "-"], value).well();
        assert_eq!(output(["get", &store, "key", "--raw"], b"").stdout, value);
    }
    let told = with_input(["put", &place.at("none"), "a\\d", "-"], b"v").error(2);
    assert!(told.contains("the argument a\\d"), "{told}");
    assert!(!Path::new(&place.at("none")).exists());
}

#[test]
fn several_keys_to_one_get() {
    let place = Place::new();
    let store = place.store("store", &strings([("a", "1"), ("b\tc", "2"), ("-d", "")]));
    let got = run(&format!("get {store} b\\tc none a no\\tne a"));
    assert_eq!((got.code, got.out.as_str()), (1, "b\\tc\t2\na\t1\na\t1\n"));
    assert_eq!(got.err, "criba: absent: none\ncriba: absent: no\\tne\n");
    assert_eq!(run(&format!("get {store} a b\\tc")).well(), "a\t1\nb\\tc\t2\n");
    assert_eq!(run(&format!("get {store} -- -d a")).well(), "-d\t\na\t1\n");
}

/// Bytes as `insert_bytes` puts them into an object.
fn bytes(object: &Value, name: &str) -> Vec<u8> {
    match (&object[name], &object[&format!("{name}_base64")]) {
        (Value::String(text), Value::Null) => text.clone().into_bytes(),
        (Value::Null, Value::String(code)) => STANDARD.decode(code).expect("base64"),
        other => panic!("{other:?}"),
    }
}

fn objects(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

#[test]
fn json_has_all_bytes() {
    let place = Place::new();
    let pairs = random_pairs(1, |_| true, |_| true);
    let store = place.store("store", &pairs);
    let scanned = objects(&run(&format!("scan {store} --json")).well());
    let pair = |object: &Value| (bytes(object, "key"), bytes(object, "value"));
    assert!(scanned.iter().map(pair).collect::<Pairs>() == pairs);
    assert!(scanned.iter().all(|object| object.as_object().expect("an object").len() == 3));
    let keys = objects(&run(&format!("scan {store} --json --keys")).well());
    assert!(keys.iter().map(|object| bytes(object, "key")).eq(pairs.into_keys()));
    assert!(keys.iter().all(|object| object.as_object().expect("an object").len() == 2));

    let store = place
        .store("small", &[(b"\xff".into(), b"\xfe".into()), (b"a".into(), b"1".into())].into());
    assert_eq!(
        objects(&run(&format!("scan {store} --json --count")).well()),
        [json!({"version": 1, "count": 2})]
    );
    let got = run(&format!("get {store} a none \\xff --json"));
    assert_eq!((got.code, got.err.as_str()), (1, ""));
    assert_eq!(
        objects(&got.out),
        [
            json!({"version": 1, "key": "a", "value": "1"}),
            json!({"version": 1, "key": "none", "absent": true}),
            json!({"version": 1, "key_base64": "/w==", "value_base64": "/g=="}),
        ]
    );
    assert_eq!(objects(&run(&format!("get {store} a --json")).well()).len(), 1);
    let lines = place.file("lines", "x\t1\ny\t2\n");
    let loaded = run(&format!("load {} {lines} --json", place.at("loaded"))).well();
    assert_eq!(
        objects(&loaded),
        [json!({"version": 1, "lines": 2, "tables": 1, "complete": true})]
    );
}

#[test]
fn options_of_scan_combine() {
    let place = Place::new();
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let letters = ["a", "b", "é", "\\xfe", "\\xff"];
    let text = |random: &mut ChaCha8Rng| -> String {
        (0..random.random_range(0..4)).map(|_| letters[random.random_range(0..5)]).collect()
    };
    let bytes = |text: &str| -> Vec<u8> {
        let parts = text.replace("\\xfe", "\u{1}").replace("\\xff", "\u{2}").into_bytes();
        parts.into_iter().map(|byte| if byte < 3 { 0xfd + byte } else { byte }).collect()
    };
    let texts: BTreeMap<Vec<u8>, String> =
        (0..60).map(|_| text(&mut random)).map(|text| (bytes(&text), text)).collect();
    let pairs = texts.keys().map(|key| (key.clone(), b"v".to_vec())).collect();
    let store = place.store("store", &pairs);
    let mut found = 0;
    for _ in 0..100 {
        let mut args = vec!["scan".to_owned(), store.clone()];
        let mut option = |name: &str, random: &mut ChaCha8Rng| {
            random.random_bool(0.5).then(|| {
                let text = text(random);
                args.extend([format!("--{name}"), text.clone()]);
                bytes(&text)
            })
        };
        let prefix = option("prefix", &mut random);
        let (from, to) = (option("from", &mut random), option("to", &mut random));
        let mut expected: Vec<_> = texts
            .iter()
            .filter(|(key, _)| prefix.as_ref().is_none_or(|prefix| key.starts_with(prefix)))
            .filter(|(key, _)| from.as_ref().is_none_or(|from| *key >= from))
            .filter(|(key, _)| to.as_ref().is_none_or(|to| *key < to))
            .map(|(_, text)| format!("{text}\n"))
            .collect();
        if random.random() {
            args.push("--reverse".to_owned());
            expected.reverse();
        }
        if random.random() {
            let limit = random.random_range(0..4);
            args.extend(["--limit".to_owned(), limit.to_string()]);
            expected.truncate(limit);
        }
        let scan = |option| criba(args.iter().map(String::as_str).chain([option]));
        let keys = Run::new(scan("--keys").output().expect("it starts")).well();
        assert_eq!(keys, expected.concat(), "{args:?}");
        let count = Run::new(scan("--count").output().expect("it starts")).well();
        assert_eq!(count, format!("{}\n", expected.len()), "{args:?}");
        found += expected.len();
    }
    assert!(found > 200, "{found}");
}

#[test]
fn a_limit_is_a_count() {
    for limit in ["-1", "--limit=-1", "x"] {
        let args = if limit.starts_with("--") { vec![limit] } else { vec!["--limit", limit] };
        let told =
            Run::new(criba([&["scan", "dir"], &args[..]].concat()).output().expect("it starts"));
        assert_eq!(told.code, 2);
        assert!(told.err.contains("a limit is a count of keys: 0, 1, 2 and so on"), "{}", told.err);
        assert!(!told.err.contains("tip:"), "{}", told.err);
    }
}

#[test]
fn shells_complete_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&format!("completions {shell}")).well();
        for word in ["rebuild-filters", "prefix", "bits-per-key", "completions"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let complete = "source <($CRIBA completions bash); COMP_WORDS=(criba sca); COMP_CWORD=1
                    _criba criba sca criba; echo ${COMPREPLY[@]}";
    let mut bash = std::process::Command::new("bash");
    bash.args(["-c", complete]).env("CRIBA", env!("CARGO_BIN_EXE_criba"));
    let completed = Run::new(bash.output().expect("bash starts")).well();
    assert_eq!(completed, "scan\n");
}

/// The version of the files is that of format.md, which describes them.
#[test]
fn the_version_names_the_format() {
    let told = run("--version").well();
    let expected =
        format!("criba {} (format {})\n", env!("CARGO_PKG_VERSION"), criba::FORMAT_VERSION);
    assert_eq!(told, expected);
    let format = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../format.md");
    let format = fs::read_to_string(format).expect("the document");
    assert!(format.contains(&format!("every file of version {}.", criba::FORMAT_VERSION)));
}

#[test]
fn no_help_is_wider_than_80_columns() {
    let help = run("--help").well();
    let (_, commands) = help.split_once("\nCommands:\n").expect("a list");
    let names = commands.lines().take_while(|line| !line.is_empty()).filter_map(|line| {
        let line = line.strip_prefix("  ")?;
        (!line.starts_with(' ')).then(|| line.split(' ').next())?
    });
    let names: Vec<_> = names.filter(|&name| name != "lab" && name != "help").collect();
    assert!(names.len() >= 14, "{names:?}");
    for name in [""].iter().chain(&names) {
        for option in ["-h", "--help"] {
            let help = run(&format!("{name} {option}")).well();
            let wide = help.lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None, "{name} {option}");
        }
    }
}

/// Invalid bytes in arguments are refused too, and the message has none.
#[test]
fn an_argument_of_invalid_bytes_is_refused_with_its_text() {
    let place = Place::new();
    let store = place.store("store", &[(b"\xe9".into(), b"1".into())].into());
    let args = [OsStr::new("get"), OsStr::new(&store), OsStr::from_bytes(b"\xe9")];
    let told = Run::new(criba(args).output().expect("it starts")).error(2);
    assert_eq!(told, "criba: the argument \u{fffd}: found byte e9; write \\xe9\n");
    assert_eq!(run(&format!("get {store} \\xe9")).well(), "1\n");
}

#[test]
fn a_closed_pipe_is_no_error_in_any_form() {
    let place = Place::new();
    let pairs: Pairs =
        (0..20_000).map(|i| (format!("key{i:06}").into(), b"value".into())).collect();
    let store = place.store("store", &pairs);
    for form in ["--json", "--keys", "--raw", "--reverse"] {
        let mut child = criba(["scan", &store, form])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        drop(child.stdout.take());
        let end = Run::new(child.wait_with_output().expect("an end"));
        assert_eq!((end.code, end.err.as_str()), (0, ""), "{form}");
    }
}
