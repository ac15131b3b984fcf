//! The files of the tree, and the packages they belong to.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::modules::Crate;

/// The texts of the tree: sources, documents, manifests, patches.
pub(crate) type Tree = BTreeMap<PathBuf, String>;

pub(crate) struct Package<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) name: &'a str,
    /// The shipped crates: libraries, commands, examples; not tests and benchmarks.
    pub(crate) crates: Vec<Crate<'a>>,
}

/// Adds the texts in a directory of the tree.
pub(crate) fn read(root: &Path, directory: &Path, tree: &mut Tree) {
    let made = [".git", "target", "criba-lab", "benches/peers/results"];
    for entry in fs::read_dir(root.join(directory)).expect("a directory to read") {
        let entry = entry.expect("an entry of a directory");
        let path = directory.join(entry.file_name());
        if !entry.file_type().expect("the type of a file").is_dir() {
            if ["rs", "md", "toml", "patch"].iter().any(|extension| has_extension(&path, extension))
            {
                let text = fs::read_to_string(entry.path()).expect("a text to read");
                tree.insert(path, text);
            }
        } else if !made.iter().any(|made| path.ends_with(made)) {
            read(root, &path, tree);
        }
    }
}

pub(crate) fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

pub(crate) fn is_in(path: &Path, directory: &str) -> bool {
    path.iter().any(|part| part == directory)
}

pub(crate) fn is_of_tests(path: &Path) -> bool {
    is_in(path, "tests") || is_in(path, "benches")
}

pub(crate) fn packages(tree: &Tree) -> Vec<Package<'_>> {
    let manifests = tree.iter().filter(|(path, _)| path.ends_with("Cargo.toml"));
    manifests.map(|(manifest, text)| package(tree, manifest, text)).collect()
}

fn package<'a>(tree: &'a Tree, manifest: &'a Path, text: &'a str) -> Package<'a> {
    let directory = manifest.parent().expect("the path of a file");
    let name = text.lines().find_map(|line| line.strip_prefix("name = ")).expect("a name");
    let is_root = |path: &&PathBuf| {
        let Ok(path) = path.strip_prefix(directory) else { return false };
        let parent = path.parent().expect("the path of a file");
        let is_program = parent == Path::new("examples") || parent == Path::new("fuzz_targets");
        let is_main = path == Path::new("src/lib.rs") || path == Path::new("src/main.rs");
        is_main || is_program && has_extension(path, "rs")
    };
    let roots = tree.keys().filter(|_| !is_of_tests(directory)).filter(is_root);
    let crates = roots.map(|root| Crate::read(root, tree)).collect();
    Package { directory, name: name.trim_matches('"'), crates }
}

/// Whether a file is this package's: no other package has a directory nearer to it.
pub(crate) fn owns(package: &Package, path: &Path, packages: &[Package]) -> bool {
    let above = packages.iter().filter(|package| path.starts_with(package.directory));
    let owner = above.max_by_key(|package| package.directory.as_os_str().len());
    owner.is_some_and(|owner| owner.directory == package.directory)
}
