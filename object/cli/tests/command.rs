//! The command as a program, on a directory and in memory.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn criba_object(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_criba-object")).args(args).output().expect("a program")
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("text")
}

/// The files in a directory and below it.
fn files(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("a name").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path.display().to_string());
        }
    }
    found
}

const SMALL: [&str; 9] =
    ["readamp", "--n", "6000", "--lookups", "200", "--absent", "20000", "--table-bytes", "16384"];

#[test]
fn readamp_counts_requests_and_leaves_no_object() {
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("file://{}", dir.path().display());
    let ran = criba_object(&[&SMALL[..], &["--url", &url, "--json", "--rate", "100"]].concat());
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    assert_eq!(files(dir.path()), [""; 0]);
    let report: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    assert_eq!(report["version"], 1);
    assert_eq!(report["checks_hold"], true);
    let number = |run: usize, pointer: &str| {
        report["runs"][run].pointer(pointer).and_then(Value::as_f64).expect("a number")
    };
    let [without, bloom, ribbon] = [0, 1, 2].map(|run| number(run, "/absent/gets_each"));
    assert!(without > 20.0 * bloom && bloom > 2.0 * ribbon, "{without} {bloom} {ribbon}");
    assert!(number(1, "/filter_bytes") * 1.1 >= number(2, "/filter_bytes"));
    for run in 0..3 {
        assert!((1.0..2.0).contains(&number(run, "/present/gets_each")) || run == 0);
        let gets = number(run, "/present/requests/gets");
        assert!((gets - number(run, "/present/disk_reads")).abs() < 0.5);
        let money = gets / 200.0 * 100.0 * 2_592_000.0 * 0.0004 / 1000.0;
        assert!((number(run, "/present/dollars_a_month") - money).abs() < 1e-6 * money);
    }
    let tables = report["tables"].as_f64().expect("a count");
    assert!((number(1, "/opening/gets") - tables - 1.0).abs() < 0.5, "each table and the manifest");
}

#[test]
fn the_page_has_three_plots() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    let ran = criba_object(&[&SMALL[..], &["--report", out.to_str().expect("text")]].concat());
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    assert!(
        text(&ran.stdout)
            .lines()
            .filter(|line| !line.starts_with("The report"))
            .all(|line| line.chars().count() <= 80)
    );
    let page = fs::read_to_string(out.join("report.html")).expect("a page");
    let document = page.split_once('\n').expect("a first line").1;
    let document = roxmltree::Document::parse(document).expect("well-formed");
    let plots = document.descendants().filter(|node| node.has_tag_name("figure"));
    assert_eq!(plots.count(), 3);
}

#[test]
fn a_url_without_a_bucket_or_a_store_is_an_error() {
    let refused = criba_object(&["readamp", "--url", "nowhere"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("file://{}", dir.path().display());
    let empty = criba_object(&["gc", "--url", &url]);
    assert_eq!(empty.status.code(), Some(3));
    assert!(
        text(&empty.stderr).contains("no version of a store is published"),
        "{}",
        text(&empty.stderr)
    );
}

#[test]
fn gc_lists_what_an_earlier_writer_left_and_then_removes_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = dir.path().join("bucket");
    fs::create_dir(&bucket).expect("a directory");
    let url = format!("file://{}", bucket.display());
    let options = criba_object::Options::new().publish_every(None).grace(std::time::Duration::ZERO);
    for (name, key) in [("a", "1"), ("b", "2")] {
        let writer = criba_object::open(url.as_str(), dir.path().join(name), options.clone());
        let writer = writer.expect("a writer");
        writer.put(key, "value").expect("written");
        writer.close().expect("published");
    }
    // As one that the first writer uploaded and did not publish: only its random part is another.
    let is_first = |name: &String| name.contains("-000001-");
    let name = files(&bucket.join("tables")).into_iter().find(is_first).expect("a table");
    let last = if name.ends_with("0.sst") { "1.sst" } else { "0.sst" };
    let left = format!("{}{last}", &name[..name.len() - last.len()]);
    fs::copy(&name, &left).expect("a copy");
    let left = Path::new(&left);
    let listed = criba_object(&["gc", "--url", &url]);
    assert!(listed.status.success() && left.exists(), "{}", text(&listed.stderr));
    let removed = criba_object(&["gc", "--url", &url, "--remove"]);
    assert!(removed.status.success(), "{}", text(&removed.stderr));
    assert_eq!(text(&listed.stdout).lines().count(), text(&removed.stdout).lines().count());
    assert!(!left.exists() && Path::new(&name).exists());
    let reader = criba_object::open_reader(url.as_str(), dir.path().join("reader"), options);
    assert_eq!(reader.expect("a reader").iter().count(), 2);
    let nothing = criba_object(&["gc", "--url", &url]);
    assert!(text(&nothing.stdout).starts_with("0 objects"), "{}", text(&nothing.stdout));
}

/// The cells of a row of the README's table, as numbers.
fn row(readme: &str, name: &str) -> Vec<String> {
    let line = readme.lines().find(|line| line.starts_with(&format!("| {name} |")));
    line.expect("a row").split('|').skip(2).map(|cell| cell.trim().to_owned()).collect()
}

#[test]
fn the_readme_has_what_readamp_counts() {
    let readme = include_str!("../../README.md");
    let ran = criba_object(&["readamp", "--json"]);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let report: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    for (name, pointer, decimals) in [
        ("GETs of an absent key", "/absent/gets_each", 5),
        ("$ a month, 10,000 absent keys a second", "/absent/dollars_a_month", 2),
        ("GETs of a present key", "/present/gets_each", 5),
    ] {
        let row = row(readme, name);
        for (run, shown) in row[..3].iter().enumerate() {
            let counted = report["runs"][run].pointer(pointer).and_then(Value::as_f64);
            assert_eq!(*shown, format!("{:.decimals$}", counted.expect("a number")), "{name}");
        }
    }
    assert!(readme.contains(&format!("{} sorted runs", report["sorted_runs"])));
}
