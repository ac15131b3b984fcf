//! The texts of the tree.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The texts of the tree: sources, documents, manifests, patches.
pub(crate) type Tree = BTreeMap<PathBuf, String>;

/// Adds the texts in a directory of the tree.
pub(crate) fn read(root: &Path, directory: &Path, tree: &mut Tree) {
    let made = [".git", "target", "criba-lab", "benches/peers/results", "benches/object/results"];
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
