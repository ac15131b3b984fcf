//! The files of a directory tree, with what shows that one was changed.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file, a link or a directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    File { inode: u64, changed: (i64, i64), bytes: Vec<u8> },
    Link(PathBuf),
    Directory { inode: u64 },
}

pub(crate) type Tree = BTreeMap<PathBuf, Entry>;

/// All below `root`, without the subtrees of `skipped`.
pub(crate) fn tree(root: &Path, skipped: &[PathBuf]) -> Tree {
    let mut tree = Tree::new();
    add(root, skipped, &mut tree);
    tree
}

fn add(dir: &Path, skipped: &[PathBuf], tree: &mut Tree) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if skipped.contains(&path) {
            continue;
        }
        let data = path.symlink_metadata().unwrap();
        let found = if data.is_dir() {
            add(&path, skipped, tree);
            Entry::Directory { inode: data.ino() }
        } else if data.is_symlink() {
            Entry::Link(path.read_link().unwrap())
        } else {
            let bytes = std::fs::read(&path).unwrap();
            Entry::File { inode: data.ino(), changed: (data.mtime(), data.mtime_nsec()), bytes }
        };
        tree.insert(path, found);
    }
}

/// Says what differs, or nothing.
pub(crate) fn difference(before: &Tree, after: &Tree, root: &Path) -> Option<String> {
    let name = |path: &PathBuf| path.strip_prefix(root).unwrap_or(path).display().to_string();
    let mut found: Vec<String> = Vec::new();
    for (path, entry) in before {
        match after.get(path) {
            None => found.push(format!("{} is gone", name(path))),
            Some(other) if other != entry => found.push(format!("{} was changed", name(path))),
            Some(_) => {}
        }
    }
    for path in after.keys().filter(|path| !before.contains_key(*path)) {
        found.push(format!("{} is new", name(path)));
    }
    (!found.is_empty()).then(|| found.join(", "))
}
