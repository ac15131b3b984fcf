//! Measures the tree: import cycles between files, code, documents, tests. Fails only on an import cycle; the
//! other figures are for the author of a change to read.
//!
//! An argument is a directory to measure instead of this tree.

mod code;
mod cycles;
mod fields;
mod modules;
mod packages;
mod source;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use self::code::Code;
use self::cycles::cycles;
use self::modules::{Crate, File};
use self::packages::{Package, packages};
use self::tree::{Tree, has_extension, is_in};

fn main() -> ExitCode {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = std::env::args().nth(1).map_or(here.join("../.."), PathBuf::from);
    let mut tree = Tree::new();
    tree::read(&root, Path::new(""), &mut tree);
    let packages = packages(&tree);
    print!("{}", figures(&tree, &packages));
    let mut exit = ExitCode::SUCCESS;
    for package in &packages {
        for cycle in cycles_of(package) {
            print!("\n{cycle}");
            exit = ExitCode::FAILURE;
        }
    }
    exit
}

/// The import cycles of a package, each with the imports that make it.
fn cycles_of(package: &Package) -> Vec<String> {
    let mut found = Vec::new();
    for this in &package.crates {
        let imports = this.imports();
        for cycle in cycles(&imports) {
            let lines = cycles::lines(&cycle, &imports, this);
            found.push(format!("{}: a cycle of {} files\n{lines}", package.name, cycle.len()));
        }
    }
    found
}

fn figures(tree: &Tree, packages: &[Package]) -> String {
    let mut text = String::from("code, without tests and comments:\n");
    text.push_str(
        "                           lines  functions  > 50 lines  closures in 1,000 lines\n",
    );
    for package in packages {
        let code = code_of(package.crates.iter().flat_map(|this| &this.files));
        if code.lines > 0 {
            text.push_str(&code.row(package.name));
        }
        if package.directory == Path::new("") {
            for (folder, files) in folders(package) {
                text.push_str(&code_of(files.into_iter()).row(&format!("  {folder}")));
            }
        }
    }
    let mut tests = 0;
    let mut rustdoc = 0;
    let mut documents = 0;
    let mut sabotages = 0;
    for (path, content) in tree {
        if has_extension(path, "rs") {
            tests += source::count_tests(&source::parse(content));
            if !tree::is_of_tests(path) && !is_in(path, "examples") {
                rustdoc += content.lines().map(words_of_rustdoc).sum::<usize>();
            }
        } else if has_extension(path, "md") {
            documents += content.split_whitespace().count();
        } else if has_extension(path, "patch") {
            sabotages += 1;
        }
    }
    let mut ways = 0;
    let mut fields = 0;
    for this in packages.iter().flat_map(|package| &package.crates) {
        ways += ways_to_files(this);
        fields += fields::count_fields("DbInner", this).unwrap_or(0);
    }
    for (name, figure) in [
        ("words of documents", documents),
        ("words of rustdoc", rustdoc),
        ("tests", tests),
        ("sabotages", sabotages),
        ("fields of DbInner", fields),
        ("ways from a path to a file", ways),
    ] {
        let _ = writeln!(text, "{name:28}{figure:>8}");
    }
    text
}

fn code_of<'a>(files: impl Iterator<Item = &'a File>) -> Code {
    let mut code = Code::default();
    for file in files {
        code.add(&file.tokens);
    }
    code
}

/// The folders of the store's library, each with its files.
fn folders<'a>(package: &'a Package) -> BTreeMap<String, Vec<&'a File>> {
    let mut folders = BTreeMap::<_, Vec<_>>::new();
    for file in package.crates.iter().flat_map(|this| &this.files) {
        let Ok(path) = file.path.strip_prefix("src") else { continue };
        let folder = match path.iter().next() {
            Some(first) if Path::new(first) != path => first.to_string_lossy().into_owned(),
            _ => "(files of the root)".into(),
        };
        folders.entry(folder).or_default().push(file);
    }
    folders
}

/// The words of a line of a doc comment, its marker included.
fn words_of_rustdoc(line: &str) -> usize {
    let line = line.trim_start();
    let is_doc = line.starts_with("///") || line.starts_with("//!");
    if is_doc { line.split_whitespace().count() } else { 0 }
}

/// The calls in the library that lead from a path to a file or directory, outside the file layer and standalone
/// filters. After an opening a store has only names in its open directory.
fn ways_to_files(this: &Crate) -> usize {
    let mut ways = 0;
    for file in &this.files {
        let path = &file.path;
        if !path.starts_with("src") || is_in(path, "vfs") || is_in(path, "standalone") {
            continue;
        }
        let text: String = file.tokens.iter().map(ToString::to_string).collect();
        let text: String = text.split_whitespace().collect();
        for way in ["vfs.open_dir(", "fs::File", "std::fs", ".canonicalize("] {
            ways += text.matches(way).count();
        }
    }
    ways
}
