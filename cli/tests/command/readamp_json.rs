//! What `readamp --json` prints: docs/readamp-json.md has each field, and each of its fields is printed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::common::run;
use serde_json::Value;

/// The section of the objects in a field.
fn section_within(section: &str, field: &str) -> Option<&'static str> {
    Some(match (section, field) {
        ("Scans", "passes") => "A pass of scans",
        (_, "passes" | "pass") => "A pass",
        (_, "levels") => "A level",
        (_, "setup") => "Setup",
        (_, "first_probes") => "First probes",
        (_, "batches") => "Batches",
        (_, "other_filters" | "other_filters_loaded") => "Other filters",
        (_, "scans") => "Scans",
        (_, "compaction") => "Compaction",
        (_, "state" | "before" | "after") => "A state",
        (_, "rows") => "A policy",
        (_, "runs") => "A run",
        _ => return None,
    })
}

/// Adds the fields of an object, with what they hold.
fn collect(section: &str, value: &Value, fields: &mut BTreeMap<String, Vec<Value>>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                fields.entry(format!("{section}: {name}")).or_default().push(value.clone());
                if let Some(within) = section_within(section, name) {
                    collect(within, value, fields);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(section, value, fields)),
        _ => {}
    }
}

/// The documented fields, with their units.
fn documented() -> BTreeMap<String, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/readamp-json.md");
    let text = fs::read_to_string(path).expect("the document");
    let mut fields = BTreeMap::new();
    for section in text.split("\n## ").skip(1) {
        let (title, rows) = section.split_once('\n').expect("a table");
        for row in rows.lines().filter(|row| row.starts_with('`')) {
            let (name, rest) = row.split_once(" | ").expect("columns");
            let unit = rest.split('|').next().expect("a unit").trim().to_owned();
            let name = format!("{title}: {}", name.trim_matches('`'));
            assert_eq!(fields.insert(name.clone(), unit), None, "{name} twice");
        }
    }
    fields
}

#[test]
fn each_field_is_documented_with_its_unit_and_each_documented_field_is_printed() {
    let mut found = BTreeMap::new();
    let sizes =
        "--n 3000 --memtable-bytes 16000 --table-bytes 20000 --level-base-bytes 8000 --json";
    for (section, options) in
        [("Report", ""), ("Comparison", "--compare"), ("Sweep", "--sweep bits=8..10..2")]
    {
        let printed = run(&format!("readamp {options} {sizes}")).well();
        let mut object: Value = serde_json::from_str(&printed).expect("one object");
        let version = object.as_object_mut().expect("an object").remove("version");
        assert_eq!(version, Some(1.into()), "{section}");
        collect(section, &object, &mut found);
    }
    // A run has the fields of a policy.
    let fields = std::mem::take(&mut found).into_iter().map(|(name, values)| {
        match name.strip_prefix("A run: ") {
            Some(field) if field != "bits" => (format!("A policy: {field}"), values),
            _ => (name, values),
        }
    });
    for (name, mut values) in fields {
        found.entry(name).or_insert_with(Vec::new).append(&mut values);
    }
    let documented = documented();
    let names = |fields: BTreeSet<&String>| fields.into_iter().cloned().collect::<Vec<_>>();
    // Reasons are there only if a check fails, or the kernel has no count.
    let without_reasons = |fields: BTreeSet<&String>| {
        names(fields)
            .into_iter()
            .filter(|name| !name.ends_with("check_reasons"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        without_reasons(found.keys().collect()),
        without_reasons(documented.keys().collect())
    );
    for (name, values) in found.iter().filter(|(name, _)| !name.ends_with("check_reasons")) {
        let unit = &documented[name];
        let is_number = |value: &&Value| value.is_number() || (value.is_null() && !unit.is_empty());
        let expected = if unit.is_empty() { 0 } else { values.len() };
        assert_eq!(values.iter().filter(is_number).count(), expected, "{name} in {unit:?}");
    }
}

#[test]
fn ratios_without_a_number_are_null_as_documented() {
    let rows = |options: &str, list: &str| {
        let printed = run(&format!("readamp --n 500 --json {options}")).well();
        let object: Value = serde_json::from_str(&printed).expect("one object");
        object[list].as_array().expect("a list").clone()
    };
    for row in rows("--sweep bits=8..8", "runs") {
        assert!(row["times_fewer"].is_null() && row["wasted_per_lookup"].is_number(), "{row}");
    }
    for row in rows("--compare --lookups 0", "rows") {
        assert!(row["times_fewer"].is_null() && row["wasted_per_lookup"].is_null(), "{row}");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/readamp-json.md");
    let document = fs::read_to_string(path).expect("the document");
    for (name, expected) in
        [("times_fewer", "in a sweep"), ("wasted_per_lookup", "`null` without lookups")]
    {
        let mut lines = document.lines().filter(|line| line.starts_with(&format!("`{name}`")));
        assert!(lines.all(|line| line.contains(expected)), "{name}");
    }
}
