//! Counts the parts of the tree that have limits: files in import cycles, fields of the inner database, ways
//! from a path to a file, words, tokens of code, tests, sabotages. Fails if a count is beyond its limit in the file `limits`.
//!
//! `--write` moves limits to better counts. `--cycles` lists the cycles. Another argument is a directory to
//! measure.

mod cycles;
mod fields;
mod limits;
mod modules;
mod source;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use self::cycles::cycles;
use self::limits::Figures;
use self::modules::Crate;
use self::tree::{Package, Tree, has_extension, is_in, is_of_tests};

fn main() -> ExitCode {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (flags, roots): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let root = roots.first().map_or(here.join("../.."), PathBuf::from);
    let mut tree = Tree::new();
    tree::read(&root, Path::new(""), &mut tree);
    if flags.iter().any(|flag| flag == "--cycles") {
        tree::packages(&tree).iter().for_each(cycles::print);
        return ExitCode::SUCCESS;
    }
    let file = here.join("limits");
    let limits = fs::read_to_string(&file).expect("the file of limits is here");
    let figures = measure(&tree);
    let (table, held) = limits::compare(&figures, &limits);
    print!("{table}");
    if flags.iter().any(|flag| flag == "--write") {
        fs::write(&file, limits::tighten(&figures, &limits)).expect("the limits can be written");
    }
    if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure(tree: &Tree) -> Figures {
    let packages = tree::packages(tree);
    let crates = || packages.iter().flat_map(|package| &package.crates);
    let files = |extension| tree.iter().filter(move |(path, _)| has_extension(path, extension));
    let cycles: Vec<_> = crates().flat_map(|this| cycles(&this.imports())).collect();
    let fields = crates().find_map(|this| fields::count_fields("DbInner", this));
    let words = |text: &str| text.split_whitespace().count();
    let shipped = files("rs").filter(|(path, _)| !is_of_tests(path) && !is_in(path, "examples"));
    let rustdoc = shipped.flat_map(|(_, text)| text.lines().map(str::trim_start));
    let rustdoc = rustdoc.filter(|line| line.starts_with("///") || line.starts_with("//!"));
    let mut figures = vec![
        ("import cycles".into(), cycles.len()),
        ("files in import cycles".into(), cycles.iter().map(BTreeSet::len).sum()),
        ("fields of DbInner".into(), fields.expect("a struct DbInner")),
        ("ways from a path to a file".into(), crates().map(ways_to_files).sum()),
        ("words of documents".into(), files("md").map(|(_, text)| words(text)).sum()),
        // As `grep | wc -w` counts them: each marker is a word.
        ("words of rustdoc".into(), rustdoc.map(words).sum()),
        ("sabotages".into(), files("patch").count()),
    ];
    let tokens = |package: &Package| {
        // The harness in fuzz/ is a test, as it was under `cfg(test)` in the store.
        let code = package.crates.iter().filter(|_| !is_in(package.directory, "fuzz"));
        let files = code.flat_map(|this| &this.files);
        files.map(|file| source::count(&file.tokens)).sum()
    };
    let tests = |package: &Package| {
        let own = files("rs").filter(|(path, _)| tree::owns(package, path, &packages));
        own.map(|(_, text)| source::count_tests(&source::parse(text))).sum()
    };
    add_by_package(&mut figures, "tokens of code", &packages, tokens);
    add_by_package(&mut figures, "tests", &packages, tests);
    figures
}

/// The calls in the library that lead from a path to a file or directory, outside the file layer and standalone
/// filters. After an opening a store has only names in its open directory.
fn ways_to_files(this: &Crate<'_>) -> usize {
    let is_of_store = |file: &&modules::File| {
        file.path.starts_with("src")
            && !is_in(&file.path, "vfs")
            && !is_in(&file.path, "standalone")
    };
    let count = |file: &modules::File| {
        let text: String = file.tokens.iter().map(ToString::to_string).collect::<String>();
        let text: String = text.split_whitespace().collect();
        ["vfs.open_dir(", "fs::File", "std::fs", ".canonicalize("]
            .iter()
            .map(|way| text.matches(way).count())
            .sum::<usize>()
    };
    this.files.iter().filter(is_of_store).map(count).sum()
}

/// Adds the total over packages, and the count of each package, unless it is zero.
fn add_by_package(
    figures: &mut Figures,
    what: &str,
    packages: &[Package],
    count: impl Fn(&Package) -> usize,
) {
    let counts: Vec<_> = packages.iter().map(|package| (package.name, count(package))).collect();
    figures.push((what.into(), counts.iter().map(|(_, count)| count).sum()));
    let some = counts.into_iter().filter(|&(_, count)| count > 0);
    figures.extend(some.map(|(name, count)| (format!("{what}: {name}"), count)));
}
