//! What the documents show of commands is what the commands print.
//!
//! A `console` block of a document has commands after `$ `, each with all that it prints below. There `…` is
//! any text, and on a line of its own any number of lines. The blocks of a document share a directory. Blocks
//! of commands that are not compared have the language `sh`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::shell;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

/// The documents, each with its path.
fn documents() -> Vec<(PathBuf, String)> {
    let files = |directory| fs::read_dir(root().join(directory)).expect("a directory");
    let paths = ["", "docs", "tests"].into_iter().flat_map(files);
    let mut paths: Vec<_> = paths.map(|entry| entry.expect("a name").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    paths
        .into_iter()
        .map(|path| (path.clone(), fs::read_to_string(path).expect("a text")))
        .collect()
}

struct Step<'a> {
    line: usize,
    command: &'a str,
    output: Vec<&'a str>,
}

/// The commands of the `console` blocks of a document.
fn steps(document: &str) -> Vec<Step<'_>> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for (line, text) in (1..).zip(document.lines()) {
        if text.starts_with("```") {
            inside = text == "```console";
        } else if let (true, Some(command)) = (inside, text.strip_prefix("$ ")) {
            steps.push(Step { line, command, output: Vec::new() });
        } else if inside {
            steps.last_mut().expect("a block begins with a command").output.push(text);
        }
    }
    steps
}

/// Whether a text is what a pattern shows, in which a gap stands for any part.
fn matches<T>(
    pattern: &[T],
    text: &[T],
    is_gap: &dyn Fn(&T) -> bool,
    same: &dyn Fn(&T, &T) -> bool,
) -> bool {
    match pattern {
        [] => text.is_empty(),
        [gap, rest @ ..] if is_gap(gap) => {
            (0..=text.len()).any(|skipped| matches(rest, &text[skipped..], is_gap, same))
        }
        [first, rest @ ..] => {
            text.first().is_some_and(|it| same(first, it))
                && matches(rest, &text[1..], is_gap, same)
        }
    }
}

fn line_matches(pattern: &str, line: &str) -> bool {
    let [pattern, line] = [pattern, line].map(|text| text.chars().collect::<Vec<_>>());
    matches(&pattern, &line, &|&char| char == '…', &|a, b| a == b)
}

fn output_matches(pattern: &[&str], output: &[&str]) -> bool {
    matches(pattern, output, &|&line| line == "…", &|a, b| line_matches(a, b))
}

/// What a command prints, to both streams. `cargo` prints errors only.
fn run(command: &str, directory: &Path) -> String {
    let mut shell = shell(&format!("exec 2>&1; {command}"), directory);
    let output = shell.env("CARGO_TERM_QUIET", "true").output().expect("a shell");
    String::from_utf8(output.stdout).expect("text")
}

/// The steps of a document whose output is another, run in a new directory.
fn differences(path: &Path, steps: &[Step]) -> Vec<String> {
    let target = root().join("target"); // so that `cargo` finds the workspace
    fs::create_dir_all(&target).expect("a directory");
    let directory = tempfile::tempdir_in(&target).expect("a directory");
    let mut differences = Vec::new();
    for Step { line, command, output } in steps {
        let printed = run(command, directory.path());
        let lines: Vec<_> = printed.lines().collect();
        if !output_matches(output, &lines) {
            differences.push(format!("{}:{line}: `{command}` prints\n{printed}", path.display()));
        }
    }
    differences
}

/// Runs the commands that are wanted. Returns how many there are.
///
/// Hash keys of stores are random: a filter that is shown to say "no" says "maybe" in one of a hundred runs.
/// Therefore a document differs only if it does so three times.
fn compare(wanted: impl Fn(&str) -> bool) -> usize {
    let (mut compared, mut wrong) = (0, Vec::new());
    for (path, text) in documents() {
        let mut steps = steps(&text);
        steps.retain(|step| wanted(step.command));
        compared += steps.len();
        let mut found = differences(&path, &steps);
        for _ in 0..2 {
            if !found.is_empty() {
                found = differences(&path, &steps);
            }
        }
        wrong.append(&mut found);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    compared
}

#[test]
fn the_command_prints_what_the_documents_show() {
    assert!(compare(|command| !command.starts_with("cargo ")) > 0);
}

/// `.ci/run` runs it: `cargo` builds what it runs.
#[test]
#[ignore = "builds examples, and the command as users do"]
fn cargo_prints_what_the_documents_show() {
    assert!(compare(|command| command.starts_with("cargo ")) > 0);
}

#[test]
fn the_readme_has_the_example() {
    let read = |name: &str| fs::read_to_string(root().join(name)).expect("a text");
    let example = read("examples/quickstart.rs");
    let (_, program) = example.split_once("\n\n").expect("a title, and the program");
    assert!(read("README.md").contains(&format!("```rust,no_run\n{program}```\n")), "{program}");
}

#[test]
fn other_output_is_noticed() {
    let shown = ["one", "…", "3 of … keys", "end"];
    assert!(output_matches(&shown, &["one", "two", "2", "3 of 5 keys", "end"]));
    assert!(output_matches(&shown, &["one", "3 of  keys", "end"]));
    for other in [
        &["one", "3 of 5 keys"][..],
        &["one", "3 of 5 keys", "end", "more"],
        &["one", "3 of 5 key", "end"],
        &["two", "3 of 5 keys", "end"],
        &[],
    ] {
        assert!(!output_matches(&shown, other), "{other:?}");
    }
}
