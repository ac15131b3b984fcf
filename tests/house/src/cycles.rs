//! Cycles in the imports of files. `cargo modules dependencies --acyclic` compares items instead, and
//! reports a type and its own method that names it.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::modules::{Crate, Imports};

/// The largest sets of files in which imports lead from each file to each other one.
pub(crate) fn cycles(imports: &Imports) -> BTreeSet<BTreeSet<usize>> {
    let cycle = |&(file, _): &(usize, usize)| -> BTreeSet<usize> {
        let ahead = reachable(file, imports).into_iter();
        ahead.filter(|&other| reachable(other, imports).contains(&file)).collect()
    };
    imports.keys().map(cycle).filter(|cycle| !cycle.is_empty()).collect()
}

/// The files that a file imports, directly or not.
fn reachable(file: usize, imports: &Imports) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![file];
    while let Some(from) = open.pop() {
        let next = imports.range((from, 0)..=(from, usize::MAX)).map(|(&(_, to), _)| to);
        open.extend(next.filter(|&to| reached.insert(to)));
    }
    reached
}

/// The imports inside a cycle, a line for each pair of files.
pub(crate) fn lines(cycle: &BTreeSet<usize>, imports: &Imports, this: &Crate) -> String {
    let mut lines = String::new();
    for (&(from, to), paths) in imports {
        if cycle.contains(&from) && cycle.contains(&to) {
            let [from, to] = [from, to].map(|file| this.files[file].path.display());
            let paths: Vec<_> = paths.iter().map(String::as_str).collect();
            let _ = writeln!(lines, "  {from} -> {to}: {}", paths.join(", "));
        }
    }
    lines
}
