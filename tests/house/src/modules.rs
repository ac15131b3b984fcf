//! The modules of a crate, their items, and the imports between files.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use proc_macro2::TokenTree;

use crate::source::{after_modifiers, inside, is, item_length, parse, path_attribute, shipped};
use crate::tree::Tree;

/// The modules that a crate ships: files that only tests include are left out.
pub(crate) struct Crate<'a> {
    tree: &'a Tree,
    pub(crate) files: Vec<File>,
    modules: Vec<Module>,
}

pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) tokens: Vec<TokenTree>,
    module: usize,
}

#[derive(Default)]
struct Module {
    file: usize,
    parent: usize,
    children: HashMap<String, usize>,
    items: HashSet<String>,
    /// The imports by `use`: the path of each name.
    imports: HashMap<String, Vec<String>>,
    /// Paths of several segments, of `use` or of code.
    paths: Vec<Vec<String>>,
}

#[derive(Clone, Copy)]
enum Place {
    Module(usize),
    /// An item of this module, or something in it.
    Item(usize),
}

/// From one file to another, and the paths of the imports.
pub(crate) type Imports = BTreeMap<(usize, usize), BTreeSet<String>>;

impl<'a> Crate<'a> {
    /// Reads the crate with this root file.
    pub(crate) fn read(root: &Path, tree: &'a Tree) -> Self {
        let mut this = Self { tree, files: Vec::new(), modules: Vec::new() };
        this.add_file(root, root.parent().expect("the path of a file"), 0);
        this
    }

    /// Adds a file whose children are in `directory`.
    fn add_file(&mut self, path: &Path, directory: &Path, parent: usize) {
        let text = self.tree.get(path).unwrap_or_else(|| panic!("no file {}", path.display()));
        let tokens = shipped(&parse(text));
        let file = self.files.len();
        let module = self.modules.len();
        self.files.push(File { path: path.into(), tokens: tokens.clone(), module });
        self.add_module(&tokens, directory, Module { file, parent, ..Module::default() });
    }

    fn add_module(&mut self, mut tokens: &[TokenTree], directory: &Path, module: Module) {
        let (id, file) = (self.modules.len(), module.file);
        self.modules.push(module);
        while !tokens.is_empty() {
            let (item, behind) = tokens.split_at(item_length(tokens));
            tokens = behind;
            let [keyword, name, body @ ..] = after_modifiers(item) else { continue };
            match keyword.to_string().as_str() {
                "mod" => {
                    let child = self.modules.len();
                    self.modules[id].children.insert(name.to_string(), child);
                    let below = directory.join(name.to_string());
                    if let [body @ TokenTree::Group(_)] = body {
                        let module = Module { file, parent: id, ..Module::default() };
                        self.add_module(&inside(body), &below, module);
                    } else if let Some(path) = path_attribute(item) {
                        let path = beside(&self.files[file].path, &path);
                        let directory = path.parent().expect("the path of a file");
                        self.add_file(&path, directory, id);
                    } else {
                        let files = [below.with_extension("rs"), below.join("mod.rs")];
                        let found = files.iter().find(|file| self.tree.contains_key(*file));
                        self.add_file(found.unwrap_or(&files[0]), &below, id);
                    }
                    continue;
                }
                "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" => {
                    self.modules[id].items.insert(name.to_string());
                }
                "macro_rules" => {
                    self.modules[id].items.extend(body.first().map(ToString::to_string));
                }
                _ => {}
            }
            self.modules[id].note_paths(after_modifiers(item));
        }
    }

    /// The imports between files, without those of a child by its parent: parent and child may import each
    /// other.
    pub(crate) fn imports(&self) -> Imports {
        let parent = |file: usize| self.modules[self.modules[self.files[file].module].parent].file;
        let mut imports = Imports::new();
        for (id, module) in self.modules.iter().enumerate() {
            for path in &module.paths {
                let (Place::Module(other) | Place::Item(other)) = self.resolve(id, path, 32);
                let (from, to) = (module.file, self.modules[other].file);
                if from != to && parent(to) != from {
                    imports.entry((from, to)).or_default().insert(path.join("::"));
                }
            }
        }
        imports
    }

    /// The file that declares a name that a file uses.
    pub(crate) fn declared(&self, file: usize, name: &str) -> Option<usize> {
        match self.resolve(self.files[file].module, &[name.to_string()], 32) {
            Place::Module(_) => None,
            Place::Item(module) => Some(self.modules[module].file),
        }
    }

    /// Resolves a path in a module, through re-exports. Items of another crate or a macro count as declared
    /// where the path leaves the known modules. `depth` ends the search if an import names itself.
    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Place {
        let mut place = Place::Module(from);
        for (at, segment) in path.iter().enumerate() {
            let last = at + 1 == path.len();
            let Place::Module(id) = place else { break };
            place = match segment.as_str() {
                "crate" => Place::Module(0),
                "self" => Place::Module(id),
                "super" => Place::Module(self.modules[id].parent),
                name => self.lookup(id, name, last, depth).unwrap_or(Place::Item(id)),
            };
        }
        place
    }

    /// Resolves a name in a module. A function may have the name of a module; it is meant at the end of a
    /// path.
    fn lookup(&self, id: usize, name: &str, last: bool, depth: usize) -> Option<Place> {
        let depth = depth.checked_sub(1)?;
        let module = &self.modules[id];
        let child = module.children.get(name).map(|&child| Place::Module(child));
        let import = || module.imports.get(name).map(|path| self.resolve(id, path, depth));
        let item = || module.items.contains(name).then_some(Place::Item(id));
        if last { import().or_else(item).or(child) } else { child.or_else(import).or_else(item) }
    }
}

/// The file that a path names, relative to another file.
fn beside(file: &Path, path: &str) -> PathBuf {
    let mut named = file.parent().expect("the path of a file").to_path_buf();
    for part in Path::new(path) {
        if part == ".." {
            named.pop();
        } else {
            named.push(part);
        }
    }
    named
}

impl Module {
    fn note_paths(&mut self, tokens: &[TokenTree]) {
        let is_separator = |at: usize| {
            tokens.get(at..at + 2).is_some_and(|two| two.iter().all(|mark| is(mark, ":")))
        };
        let mut at = 0;
        while at < tokens.len() {
            let (first, rest) = (&tokens[at], &tokens[at + 1..]);
            if is(first, "pub") && matches!(rest, [TokenTree::Group(_), ..]) {
                at += 2; // the path in `pub(in path)` imports nothing
                continue;
            }
            if is(first, "use") && !rest.first().is_some_and(|next| is(next, "<")) {
                let tree = rest.split(|token| is(token, ";")).next().unwrap_or_default();
                self.note_use(&[], tree);
                at += tree.len();
            } else if let TokenTree::Ident(word) = first {
                let mut path = vec![word.to_string()];
                while let (true, Some(TokenTree::Ident(next))) =
                    (is_separator(at + 1), tokens.get(at + 3))
                {
                    path.push(next.to_string());
                    at += 3;
                }
                if path.len() > 1 {
                    self.paths.push(path);
                }
            }
            self.note_paths(&inside(first));
            at += 1;
        }
    }

    /// Records the imports of a tree of `use` under `prefix`. `*` imports only the module.
    fn note_use(&mut self, prefix: &[String], tree: &[TokenTree]) {
        for branch in tree.split(|token| is(token, ",")).filter(|branch| !branch.is_empty()) {
            let mut words = branch.split(|token| is(token, "as"));
            let mut path = prefix.to_vec();
            for token in words.next().unwrap_or_default() {
                match token {
                    TokenTree::Ident(word) if word != "self" || path.is_empty() => {
                        path.push(word.to_string());
                    }
                    TokenTree::Group(_) => self.note_use(&path, &inside(token)),
                    _ => {}
                }
            }
            if !matches!(branch.last(), Some(TokenTree::Group(_))) {
                let alias = words.next().and_then(<[_]>::first).map(ToString::to_string);
                let name = alias.or_else(|| path.last().cloned());
                self.imports.extend(name.map(|name| (name, path.clone())));
                self.paths.push(path);
            }
        }
    }
}
