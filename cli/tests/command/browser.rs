//! The page of `criba readamp --report`, in a browser: one that is installed, or that `CRIBA_BROWSER` names.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::run;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use criba::{TableFile, Verdict};
use criba_cli::readamp::sample_table;
use flate2::Crc;
use serde_json::{Value, json};
use tempfile::TempDir;

const WIDTHS: [u64; 2] = [360, 1280];
const SEED: u64 = 1;
/// A browser that takes longer hangs. It takes two seconds when nothing else runs.
const LIMIT: Duration = Duration::from_secs(120);

fn browser() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("CRIBA_BROWSER") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<_> = std::env::split_paths(&path).collect();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut files = names.iter().flat_map(|name| dirs.iter().map(move |dir| dir.join(name)));
    // A file of this name may do no more than say how to install one.
    files.find(|file| {
        let version = Command::new(file).arg("--version").stdin(Stdio::null()).output();
        version.is_ok_and(|version| version.status.success())
    })
}

/// Opens a page, and returns the document after its scripts ran, and the lines of its console.
fn visit(browser: &Path, page: &Path, dark: bool) -> (String, Vec<String>) {
    let dir = tempfile::tempdir().expect("a directory");
    let [out, err] = ["out", "err"].map(|name| dir.path().join(name));
    let to = |path| Stdio::from(File::create(path).expect("a file"));
    let scheme = u8::from(!dark); // 0 is dark
    let mut child = Command::new(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--dump-dom",
        ])
        .args(["--no-first-run", "--disable-extensions", "--disable-background-networking"])
        .arg("--disable-dev-shm-usage")
        .args(["--enable-logging=stderr", "--v=0", "--allow-file-access-from-files"])
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .arg(format!("--timeout={}", LIMIT.as_millis()))
        .arg(format!("file://{}", page.display()))
        .env("HOME", dir.path())
        .stdin(Stdio::null())
        .stdout(to(&out))
        .stderr(to(&err))
        .process_group(0)
        .spawn()
        .expect("the browser starts");
    let began = Instant::now();
    let text = |path| String::from_utf8_lossy(&fs::read(path).expect("a file")).into_owned();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if began.elapsed() > LIMIT {
            let group = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = child.wait();
            panic!("the browser hangs: {}", text(&err));
        }
        sleep(Duration::from_millis(20));
    };
    let console = text(&err);
    assert!(status.success(), "{status}: {console}");
    let lines = console.lines().filter(|line| line.contains("CONSOLE"));
    (text(&out), lines.map(str::to_owned).collect())
}

/// Shows a page of this directory in frames of both widths. Returns what `browser.js` finds, with the console.
fn examine(browser: &Path, dir: &Path, page: &str, questions: &Value, dark: bool) -> Value {
    let frames = WIDTHS.map(|width| {
        format!(
            "<iframe src=\"{page}\" style=\"border: 0; width: {width}px; height: 800px\"></iframe>"
        )
    });
    let harness = format!(
        "<!DOCTYPE html><meta charset=\"utf-8\">{}<pre id=\"found\"></pre>\
         <script>const questions = {questions};\n{}</script>",
        frames.concat(),
        include_str!("browser.js")
    );
    let file = dir.join(format!("harness-{page}-{dark}.html"));
    fs::write(&file, harness).expect("a file");
    let (document, console) = visit(browser, &file, dark);
    let (_, found) = document.split_once("<pre id=\"found\">").expect("the harness");
    let (found, _) = found.split_once('<').expect("an end");
    let found = BASE64_STANDARD.decode(found).expect("base64");
    let mut found: Value =
        serde_json::from_slice(&found).unwrap_or_else(|e| panic!("{e}: {console:#?}"));
    assert!(found["error"].is_null(), "{}", found["error"]);
    found["console"] = json!(console);
    found
}

struct Examined {
    dir: TempDir,
    keys: Vec<Vec<u8>>,
    present: usize,
    table: TableFile,
    /// What the refusal of each forged table expects.
    expected: Vec<&'static str>,
    /// In light and dark colours.
    found: [Value; 2],
}

/// The report, examined once for all tests; `None` without a browser.
fn examined() -> Option<&'static Examined> {
    // If it fails for one test, it fails for the others at once.
    static EXAMINED: LazyLock<Option<Examined>> = LazyLock::new(|| {
        let browser = browser()?;
        let dir = tempfile::tempdir().expect("a directory");
        let report = dir.path().join("report");
        let sizes = "--memtable-bytes 16000 --table-bytes 20000 --level-base-bytes 8000";
        run(&format!("readamp --n 3000 {sizes} --seed {SEED} --report {}", report.display()))
            .well();
        // The same table again, to ask the library.
        let store = dir.path().join("store");
        let (input, file) = sample_table::write(&store, SEED).expect("a table");
        let every = input.present.len() / 1000;
        let present = input.present.iter().step_by(every).take(1000).map(|(key, _)| key.clone());
        let keys: Vec<_> = present.chain(input.absent).collect();
        let texts: Vec<_> = keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
        let (forged, expected): (Vec<_>, Vec<_>) = forged(&file).into_iter().unzip();
        let questions = json!({ "keys": texts, "every": FLIPS_EVERY, "forged": forged });
        let found = [(false, &questions), (true, &json!({}))]
            .map(|(dark, questions)| examine(&browser, &report, "report.html", questions, dark));
        let table = TableFile::open(file).expect("a sound table");
        Some(Examined { dir, keys, present: 1000, table, expected, found })
    });
    if EXAMINED.is_none() {
        crate::common::skip("no chromium, chromium-browser or google-chrome, nor CRIBA_BROWSER");
    }
    EXAMINED.as_ref()
}

const FLIPS_EVERY: u64 = 61;

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

/// Ends of the table with one wrong field under the right checksum, in base64, and what is expected instead.
fn forged(file: &Path) -> Vec<(String, &'static str)> {
    let whole = fs::read(file).expect("the table");
    let footer = whole.len() - 128;
    let handle = |at: usize| [0, 8].map(|more| number(&whole[footer + at + more..]) as usize);
    let [id, salt] = [64, 80].map(|at| number(&whole[footer + at..]));
    let [begin, _] = handle(0);
    let sealed = |mut bytes: Vec<u8>, offset: usize, covered: usize| {
        let mut crc = Crc::new();
        crc.update(&if offset == footer { id } else { salt }.to_le_bytes());
        crc.update(&(offset as u64).to_le_bytes());
        crc.update(&bytes[offset..offset + covered]);
        bytes[offset + covered..offset + covered + 4].copy_from_slice(&crc.sum().to_le_bytes());
        BASE64_STANDARD.encode(&bytes[begin..])
    };
    let forge = |[offset, covered]: [usize; 2], at: usize, value: &[u8]| {
        let mut bytes = whole.clone();
        bytes[offset + at..offset + at + value.len()].copy_from_slice(value);
        sealed(bytes, offset, covered)
    };
    let block = |at| {
        let [offset, length] = handle(at);
        [offset, length + 1]
    };
    let (filter, index, properties) = (block(0), block(16), block(32));
    assert_eq!(
        forge(filter, 0, b"cribaFLT"),
        BASE64_STANDARD.encode(&whole[begin..]),
        "nothing forged"
    );
    let m = number(&whole[begin + 40..]);
    let count = index[1] - 5;
    vec![
        (forge(filter, 0, b"x"), "filter of version 1"),
        (forge(filter, 8, &[2]), "filter of version 1"),
        (forge(filter, 10, &[2]), "kind 1"),
        (forge(filter, 11, &[2]), "hash 3"),
        (forge(filter, 24, &[0; 8]), "fingerprint"),
        (forge(filter, 32, &20_001_u64.to_le_bytes()), "as many keys"),
        (forge(filter, 40, &0_u64.to_le_bytes()), "m and k"),
        (forge(filter, 40, &(m + 64).to_le_bytes()), "array of m bits"),
        (forge(filter, 40, &u64::MAX.to_le_bytes()), "m and k"),
        (forge(filter, 48, &[0]), "m and k"),
        (forge(filter, 48, &[65]), "m and k"),
        (forge(filter, 56, &1.5_f64.to_le_bytes()), "a rate"),
        (forge(filter, 56, &f64::NAN.to_le_bytes()), "a rate"),
        (forge(filter, 64, &[1]), "no wide"),
        (forge(filter, 80, &[1]), "prefixes"),
        (forge(filter, filter[1] - 1, &[1]), "type 2"),
        (forge(index, 0, &[1]), "first block at 0"),
        (forge(index, 8, &[0, 0]), "entries in a row"),
        (forge(index, count, &[0; 4]), "as many entries"),
        (forge(index, count, &u32::MAX.to_le_bytes()), "as many entries"),
        (forge(properties, 0, &[1]), "keyspace 0"),
        (forge(properties, 28, &[0; 8]), "an entry for each"),
        (forge(properties, 68, &[255; 5]), "a key of its length"),
        (forge(properties, 69, &[255]), "ranges"),
        (forge(properties, 4, &[0; 8]), "counts"),
        (forge(properties, 12, &[255; 8]), "counts"),
        (forge(properties, 20, &[255; 8]), "counts"),
        (forge(properties, 52, &[255; 8]), "ranges"),
        (forge(index, count - 8, &[0; 8]), "behind the data"),
        (forge(index, count - 12, &[1]), "no key that two blocks share"),
        (forge([footer, 116], 0, &[0; 8]), "in a row"),
        (forge([footer, 116], 16, &[0; 8]), "in a row"),
        (forge([footer, 116], 56, &[1]), "no range tombstones"),
        (forge([footer, 116], 112, &[1]), "version 2"),
        (forge([footer, 116], 108, &[1]), "version 2"),
    ]
}

fn list(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

/// What is wrong with how a page looks and what it loads: in words, empty for a sound one.
fn faults(found: &Value, dark: bool) -> Vec<String> {
    let mut faults: Vec<String> =
        list(&found["console"]).iter().map(|line| format!("console: {line}")).collect();
    for (layout, width) in list(&found["layouts"]).iter().zip(WIDTHS) {
        assert_eq!((layout["width"].as_u64(), layout["dark"].as_bool()), (Some(width), Some(dark)));
        if layout["scrollWidth"].as_u64() > Some(width) {
            faults.push(format!("width: {} at {width}", layout["scrollWidth"]));
        }
        for (name, of) in [
            ("wide", &layout["wide"]),
            ("contrast", &layout["faint"]["found"]),
            ("untitled", &layout["untitled"]),
            ("request", &layout["requests"]),
        ] {
            faults.extend(list(of).iter().map(|found| format!("{name}: {found} at {width}")));
        }
    }
    faults
}

#[test]
fn the_page_is_readable_and_loads_nothing() {
    let Some(examined) = examined() else { return };
    for (found, dark) in examined.found.iter().zip([false, true]) {
        assert_eq!(faults(found, dark), [""; 0]);
        for layout in list(&found["layouts"]) {
            println!(
                "{} texts, contrast {} or more",
                layout["faint"]["texts"], layout["faint"]["least"]
            );
            assert_eq!(layout["figures"].as_u64(), Some(6));
            assert!(layout["faint"]["texts"].as_u64() > Some(300), "{}", layout["faint"]["texts"]);
        }
    }
}

/// Each check of the page notices a page that breaks it.
#[test]
fn a_page_that_is_not_is_noticed() {
    let Some(examined) = examined() else { return };
    let browser = browser().expect("there was one");
    let report = examined.dir.path().join("report");
    let page = fs::read_to_string(report.join("report.html")).expect("the page");
    let body = "<body>\
        <p style=\"width: 500px; height: 1px\"></p>\
        <p style=\"color: #888\">Grey.</p>\
        <figure></figure>\
        <img src=\"https://example.org/x.png\"/>\
        <script>nothing.at.all;</script>";
    fs::write(report.join("broken.html"), page.replacen("<body>", body, 1)).expect("a file");
    let found = examine(&browser, &report, "broken.html", &json!({}), false);
    let faults = faults(&found, false);
    for expected in [
        "width: ",
        "wide: ",
        "contrast: \"Grey.",
        "untitled: ",
        "violates",
        "nothing is not defined",
    ] {
        assert!(faults.iter().any(|fault| fault.contains(expected)), "{expected}: {faults:#?}");
    }
}

#[test]
fn the_script_answers_as_the_library_does() {
    let Some(examined) = examined() else { return };
    let [found, _] = &examined.found;
    let properties = examined.table.properties();
    let index = examined.table.index();
    let blocks: Vec<_> = index
        .iter()
        .map(|block| json!([block.offset, block.bytes, String::from_utf8_lossy(&block.separator)]))
        .collect();
    assert_eq!(list(&found["blocks"]), &blocks);
    let answers = list(&found["answers"]);
    assert_eq!((answers.len(), examined.keys.len()), (11_000, 11_000));
    let mut maybe = [0, 0];
    for (place, (key, answer)) in examined.keys.iter().zip(answers).enumerate() {
        let verdict = if **key < *properties.smallest || **key > *properties.largest {
            "outside"
        } else if examined.table.verdict(key) == Verdict::No {
            "no"
        } else {
            maybe[usize::from(place >= examined.present)] += 1;
            "maybe"
        };
        let block = index.iter().position(|block| **key <= *block.separator);
        assert_eq!(answer, &json!([verdict, block]), "{}", String::from_utf8_lossy(key));
    }
    println!("maybe of {} present and {} absent keys", maybe[0], maybe[1]);
    assert_eq!(maybe[0], 1000);
    assert!((1..500).contains(&maybe[1]), "{maybe:?}");
}

#[test]
fn the_script_refuses_wrong_bytes() {
    let Some(examined) = examined() else { return };
    let [found, _] = &examined.found;
    for (name, count) in [("flips", 481), ("cuts", 6), ("forged", examined.expected.len())] {
        let refusals = list(&found[name]);
        assert_eq!(refusals.len(), count, "{name}");
        for (place, refusal) in refusals.iter().enumerate() {
            let refusal = refusal.as_str().unwrap_or_else(|| panic!("{name} {place} is accepted"));
            let [begin, middle] = ["offset ", ": expected "];
            assert!(
                refusal.starts_with(begin) && refusal.contains(middle),
                "{name} {place}: {refusal}"
            );
            let expected = if name == "forged" { examined.expected[place] } else { "" };
            assert!(refusal.contains(expected), "{name} {place}: {expected}: {refusal}");
        }
    }
}

#[test]
fn typed_keys_buttons_and_changed_bytes_show_their_result() {
    let Some(examined) = examined() else { return };
    let [found, _] = &examined.found;
    let buttons = list(&found["buttons"]);
    let expected = [("Maybe.", Verdict::Maybe), ("No.", Verdict::No), ("Maybe.", Verdict::Maybe)];
    assert_eq!(buttons.len(), expected.len());
    for (button, (answer, verdict)) in buttons.iter().zip(expected) {
        let text = |name: &str| button[name].as_str().expect("text");
        assert_eq!(examined.table.verdict(text("key")), verdict);
        assert!(text("answer").starts_with(answer), "{button}");
        assert!(text("hash").starts_with("0x") && text("block").starts_with("block "), "{button}");
        assert_eq!((button["hidden"].as_bool(), text("fault")), (Some(false), ""));
        let zeros = button["zeros"].as_u64().expect("a number");
        assert_eq!(
            (zeros > 0, button["probes"].as_u64()),
            (verdict == Verdict::No, Some(7)),
            "{button}"
        );
    }
    let broken = list(&found["broken"]);
    assert_eq!(broken.len(), 3);
    for broken in broken {
        assert!(broken["fault"].as_str().expect("text").contains("refused"), "{broken}");
        assert_eq!(broken["hidden"].as_bool(), Some(true));
    }
    assert_eq!(
        (found["mended"]["fault"].as_str(), found["mended"]["hidden"].as_bool()),
        (Some(""), Some(false))
    );
}
