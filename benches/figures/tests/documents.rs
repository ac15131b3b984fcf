//! The figures of the documents are those that the raw lines make.

use std::fs;
use std::path::{Path, PathBuf};

use criba_figures::page::{TABLES, lines_of_the_day};
use criba_figures::{Line, plot, sentences};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn lines() -> Vec<Line> {
    lines_of_the_day(&root()).expect("raw lines")
}

/// A document from the heading on.
fn from_section<'d>(document: &'d str, title: &str) -> &'d str {
    let found = document.split_once(&format!("## {title}\n"));
    found.unwrap_or_else(|| panic!("no section {title}")).1
}

#[test]
fn each_section_has_its_table_as_the_raw_lines_make_it() {
    let lines = lines();
    for table in TABLES {
        let text = table.markdown(&lines);
        assert!(text.lines().count() > 2, "{} is empty", table.title);
        assert!(
            from_section(&document(table.document), table.title).contains(&text),
            "the table of {} in {} should be:\n{text}",
            table.title,
            table.document
        );
    }
}

#[test]
fn each_sentence_has_its_figures_as_the_raw_lines_make_them() {
    for (name, sentence) in sentences(&lines()).expect("figures") {
        assert!(document(name).contains(&sentence), "{name} should have:\n{sentence}");
    }
}

/// A document that names raw lines has no figure of them that the tests do not compare.
#[test]
fn each_paragraph_that_names_raw_lines_is_compared() {
    let sentences = sentences(&lines()).expect("figures");
    let docs = fs::read_dir(root().join("docs")).expect("documents");
    let docs = docs.map(|entry| entry.expect("a document").file_name());
    let names = docs.map(|name| format!("docs/{}", name.to_string_lossy()));
    let mut named = 0;
    for name in names
        .filter(|name| Path::new(name).extension() == Some("md".as_ref()))
        .chain(["README.md".to_owned()])
    {
        if name == "docs/decisions.md" {
            continue; // what was tried once
        }
        let text = document(&name);
        let measured = text.split("## How it was measured").next().expect("the part before");
        for paragraph in measured.lines().filter(|line| line.contains(".jsonl")) {
            named += 1;
            let is_sentence = sentences
                .iter()
                .any(|(document, sentence)| *document == name && paragraph.contains(sentence));
            let is_of_table = TABLES.iter().any(|table| {
                table.document == name
                    && text.contains(&format!("## {}\n", table.title))
                    && from_section(&text, table.title)
                        .split("\n## ")
                        .next()
                        .is_some_and(|section| section.contains(paragraph))
            });
            assert!(is_sentence || is_of_table, "{name}: not compared: {paragraph}");
        }
    }
    assert!(named > 4, "only {named} paragraphs name raw lines");
}

#[test]
fn the_plot_is_of_the_raw_lines() {
    let (name, picture) = plot(&lines()).expect("figures");
    let path = root().join("docs/figures/peers").join(name);
    let found = fs::read(&path).unwrap_or_default();
    assert!(found == picture, "{}: print it with the command `table`", path.display());
}
