//! What `--json` prints: each field is documented in docs/command.md, with its unit, and each documented field
//! is printed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::common::{Run, criba};
use serde_json::Value;
use tempfile::TempDir;

/// One object, printed by a command that may answer no.
fn object(args: &[&str]) -> Value {
    let args = args.iter().copied().chain(["--json"]);
    let run = Run::new(criba(args).output().expect("it starts"));
    assert!(run.code <= 1 && run.err.is_empty(), "{} {}", run.code, run.err);
    serde_json::from_str(&run.out).expect("one object")
}

/// A store with a plain filter, a ribbon that a budget can reduce, and changes in the log.
fn store() -> (TempDir, String) {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let dir = parent.path().join("store");
    let options = criba::Options::new().background_threads(0).auto_compaction(false);
    let db = options.open(&dir).expect("a new store");
    for number in 0..20_000 {
        db.put(format!("key{number:05}"), "value").expect("a write");
    }
    db.flush().expect("room");
    db.rebuild_filters(&criba::FilterPolicy::ribbon()).expect("room");
    db.set_policy(criba::FilterPolicy::bloom()).expect("room");
    db.put(b"bytes \xff", b"\xfe").expect("a write");
    db.delete("key00007").expect("a write");
    db.flush().expect("room");
    db.put("in the log", "日本").expect("a write");
    db.close().expect("a sound end");
    (parent, dir.to_str().expect("a plain path").to_owned())
}

fn tables_of(dir: &str) -> Vec<String> {
    let names = fs::read_dir(dir).expect("a store").map(|entry| entry.expect("a name").path());
    let tables = names.filter(|path| path.extension().is_some_and(|suffix| suffix == "sst"));
    let mut tables: Vec<_> = tables.map(|path| path.display().to_string()).collect();
    tables.sort_unstable();
    tables
}

fn damage(path: &str, at: usize) {
    let mut bytes = fs::read(path).expect("a file");
    bytes[at] ^= 1;
    fs::write(path, bytes).expect("a writable file");
}

/// The objects that a command prints, one a line.
fn objects(args: &[&str]) -> Vec<(&'static str, Value)> {
    let run = Run::new(criba(args).output().expect("it starts"));
    let lines = run.out.lines().map(|line| ("get", serde_json::from_str(line).expect("an object")));
    lines.collect()
}

/// Every command, on stores in all states, with the section that documents it.
fn printed() -> Vec<(&'static str, Value)> {
    let (parent, dir) = store();
    let [first, second] = <[String; 2]>::try_from(tables_of(&dir)).expect("two tables");
    let mut printed = vec![
        ("stats", object(&["stats", &dir])),
        ("stats", object(&["stats", &dir, "--filter-memory", "24576"])),
        ("stats", object(&["stats", &dir, "--filter-memory", "0"])),
        ("tune", object(&["tune", &dir])),
        ("explain", object(&["explain", &dir, "key01000"])),
        ("explain", object(&["explain", &dir, "bytes \\xff"])),
        ("explain", object(&["explain", &dir, "in the log"])),
        ("explain", object(&["explain", &dir, "key00007"])),
        ("inspect", object(&["inspect", &first])),
        ("inspect", object(&["inspect", &second, "--entries"])),
        ("verify", object(&["verify", &dir])),
        ("compact", object(&["backup", &dir, &format!("{dir}.copy")])),
        ("compact", object(&["restore", &format!("{dir}.copy"), &format!("{dir}.back")])),
    ];
    printed.extend(objects(&["get", &dir, "bytes \\xff", "none", "--json"]));
    printed.extend(objects(&["scan", &dir, "--prefix", "in", "--json"]));
    printed.extend(objects(&["scan", &dir, "--count", "--json"]));
    let lines = parent.path().join("lines").display().to_string();
    fs::write(&lines, "loaded\tvalue\n").expect("a file");
    printed.push(("get", object(&["load", &format!("{dir}.loaded"), &lines, "--skip-bad"])));
    let unsorted = parent.path().join("unsorted").display().to_string();
    fs::write(&unsorted, "b\tvalue\na\tvalue\n").expect("a file");
    let to = format!("{dir}.checked");
    printed.push(("get", object(&["load", "--sorted=auto", &to, &unsorted])));
    let dump = parent.path().join("dump").display().to_string();
    let first_line = "\\criba dump, version 1, fields: key value expires\n";
    let text = format!("{first_line}a\t1\t4102444800000\n\\end of the dump, lines: 1\n");
    fs::write(&dump, text).expect("a file");
    let to = format!("{dir}.expiring");
    printed.push(("get", object(&["load", "--sorted", &to, &dump])));
    printed.push(("inspect", object(&["inspect", &tables_of(&to)[0], "--entries"])));
    damage(&first, 0);
    damage(&first, 9000);
    // A table of another store.
    let stray = format!("{dir}/000900.sst");
    fs::copy(&tables_of(&format!("{dir}.loaded"))[0], &stray).expect("room");
    printed.push(("repair", object(&["repair", &dir, "--to", &format!("{dir}.repaired")])));
    fs::remove_file(stray).expect("it is there");
    damage(&first, 0);
    damage(&first, 9000);
    let filter = first.replace(".sst", "-0001.flt");
    damage(&filter, 4000);
    fs::write(parent.path().join("store/stray"), "").expect("a file");
    printed.push(("stats", object(&["stats", &dir])));
    printed.push(("verify", object(&["verify", &dir])));
    printed.push(("compact", object(&["rebuild-filters", &dir])));
    printed.push(("compact", object(&["compact", &dir, "--filter", "none"])));
    printed.push(("compact", object(&["compact", &dir, "--rewrite"])));
    printed.push(("compact", object(&["rebuild-filters", &dir])));
    printed.push(("stats", object(&["stats", &dir])));
    printed
}

/// Adds the fields of a value, as the document names them, with what they hold.
fn collect(section: &str, path: &str, value: &Value, fields: &mut BTreeMap<String, Vec<Value>>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                let name = name.strip_suffix("_base64").unwrap_or(name);
                // The same fields under two names.
                let place = match path {
                    "total" => "levels[].",
                    "after" => "before.",
                    "notes[]" => "findings[].",
                    "" => "",
                    path => &format!("{path}."),
                };
                let (section, place) =
                    if path.ends_with("filter") { ("A filter", "") } else { (section, place) };
                fields.entry(format!("{section}: {place}{name}")).or_default().push(value.clone());
                collect(section, &format!("{place}{name}"), value, fields);
            }
        }
        Value::Array(values) => {
            for value in values {
                collect(section, &format!("{path}[]"), value, fields);
            }
        }
        _ => {}
    }
}

/// The documented fields, with their units.
fn documented() -> BTreeMap<String, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/command.md");
    let text = fs::read_to_string(path).expect("the document");
    let (_, json) = text.split_once("\n## JSON\n").expect("the section");
    let json = json.split("\n## ").next().expect("text");
    let mut fields = BTreeMap::new();
    for section in json.split("\n### ").skip(1) {
        let (title, rows) = section.split_once('\n').expect("a table");
        let title = title.split(',').next().expect("a title").trim_matches('`');
        for row in rows.lines().filter(|row| row.starts_with('`')) {
            let Some((names, rest)) = row.split_once(" | ") else { continue };
            let unit = rest.trim_start_matches("| ").split('|').next().expect("a unit").trim();
            let unit = if rest.starts_with('|') { "" } else { unit };
            for name in names.split(", ") {
                let name = format!("{title}: {}", name.trim_matches('`'));
                assert_eq!(fields.insert(name.clone(), unit.to_owned()), None, "{name} twice");
            }
        }
    }
    fields
}

#[test]
fn each_field_is_documented_with_its_unit_and_each_documented_field_is_printed() {
    let mut found = BTreeMap::new();
    for (section, mut value) in printed() {
        let version = value.as_object_mut().expect("an object").remove("version");
        assert_eq!(version, Some(1.into()), "{section}");
        collect(section, "", &value, &mut found);
    }
    let documented = documented();
    let names = |fields: BTreeSet<&String>| fields.into_iter().cloned().collect::<Vec<_>>();
    assert_eq!(names(found.keys().collect()), names(documented.keys().collect()));
    for (name, values) in &found {
        let unit = &documented[name];
        let is_number = |value: &&Value| value.is_number() || (value.is_null() && !unit.is_empty());
        let numbers = values.iter().filter(is_number).count();
        let expected = if unit.is_empty() { 0 } else { values.len() };
        assert_eq!(numbers, expected, "{name} in {unit:?}: {values:?}");
    }
    println!("{} fields", found.len());
}

#[test]
fn the_numbers_are_those_of_the_library() {
    let (_parent, dir) = store();
    let db = criba::Options::new().open_read_only(&dir).expect("a sound store");
    let stats = object(&["stats", &dir]);
    for (table, found) in db.tables().iter().zip(stats["tables"].as_array().expect("a list")) {
        assert_eq!(found["id"], table.id);
        assert_eq!(found["keys"], table.keys);
        assert_eq!(found["filter"]["bytes"], table.filter.bytes());
    }
    assert_eq!(stats["total"]["keys"], 20_002);
    assert_eq!(stats["memory_bytes"], db.memory().total());
    let logged = (&stats["logs"], &stats["logged_changes"]);
    assert_eq!(logged, (&1.into(), &1.into()));

    let explained = object(&["explain", &dir, "key01000"]);
    let counts = db.explain("key01000").expect("a lookup").counts();
    assert_eq!((&explained["found"], &explained["value"]), (&true.into(), &"value".into()));
    assert_eq!(explained["disk_reads"], counts.disk_reads);
    assert_eq!(explained["reads_avoided"], counts.reads_avoided());
    let bytes = object(&["explain", &dir, "bytes \\xff"]);
    assert_eq!(bytes["key_base64"], "Ynl0ZXMg/w==");
    assert_eq!(bytes["value_base64"], "/g==");
    assert_eq!(object(&["explain", &dir, "in the log"])["value"], "日本");
    let absent = object(&["explain", &dir, "key00007"]);
    assert_eq!((&absent["found"], absent.get("value")), (&false.into(), None));

    let verified = object(&["verify", &dir]);
    let library = criba::verify(&dir).expect("a store");
    assert_eq!((&verified["sound"], &verified["keys"]), (&true.into(), &library.keys.into()));
    assert_eq!(verified["probed_keys"], library.probed_keys);

    let [first, _] = <[String; 2]>::try_from(tables_of(&dir)).expect("two tables");
    let inspected = object(&["inspect", &first, "--entries"]);
    assert_eq!(inspected["all_entries"].as_array().map(Vec::len), Some(20_000));
    assert_eq!(inspected["all_entries"][7]["key"], "key00007");
    let blocks = inspected["index"].as_array().expect("a list");
    assert_eq!(inspected["data_blocks"], blocks.len());

    let advice = db.advise();
    let tuned = object(&["tune", &dir]);
    // The parser of this test may be wrong in the last bit.
    let reads = tuned["reads_per_absent_lookup"].as_f64().expect("a number");
    assert!((reads / advice.reads_per_absent_lookup - 1.0).abs() < 1e-12, "{reads}");
    let compacted = object(&["compact", &dir]);
    let sizes = (&compacted["before"]["tables"], &compacted["after"]["tables"]);
    // Opening made a table of the log.
    assert_eq!(sizes, (&3.into(), &1.into()));
    assert_eq!(compacted["after"]["entries"], 20_001);
}
