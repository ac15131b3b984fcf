//! The packages of the tree, with their crates.

use std::path::Path;

use crate::modules::Crate;
use crate::tree::{Tree, has_extension};

pub(crate) struct Package<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) name: &'a str,
    /// Libraries, commands, examples, benchmarks; not the programs of tests.
    pub(crate) crates: Vec<Crate<'a>>,
}

pub(crate) fn packages(tree: &Tree) -> Vec<Package<'_>> {
    let manifests = tree.iter().filter(|(path, _)| path.ends_with("Cargo.toml"));
    manifests.map(|(manifest, text)| package(tree, manifest, text)).collect()
}

fn package<'a>(tree: &'a Tree, manifest: &'a Path, text: &'a str) -> Package<'a> {
    let directory = manifest.parent().expect("the path of a file");
    let name = text.lines().find_map(|line| line.strip_prefix("name = ")).expect("a name");
    let mut crates = Vec::new();
    for path in tree.keys().filter(|path| has_extension(path, "rs")) {
        if path.strip_prefix(directory).is_ok_and(|path| is_root(directory, path)) {
            crates.push(Crate::read(path, tree));
        }
    }
    Package { directory, name: name.trim_matches('"'), crates }
}

/// Whether a file, by its path in the package's directory, is the first of a crate.
fn is_root(package: &Path, path: &Path) -> bool {
    let parent = path.parent().expect("the path of a file");
    if package == Path::new("benches") && parent == Path::new("") {
        return true;
    }
    let programs = ["examples", "fuzz_targets", "src/bin"];
    let is_program = programs.iter().any(|programs| parent == Path::new(programs));
    is_program || path == Path::new("src/lib.rs") || path == Path::new("src/main.rs")
}
