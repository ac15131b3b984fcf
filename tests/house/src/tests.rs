use std::path::Path;

use crate::cycles::cycles;
use crate::fields::count_fields;
use crate::limits::{compare, tighten};
use crate::modules::Crate;
use crate::source::{count, count_tests, parse, shipped};
use crate::tree::Tree;

fn tree(files: &[(&str, &str)]) -> Tree {
    files.iter().map(|&(path, text)| (path.into(), text.into())).collect()
}

#[track_caller]
fn assert_shipped(text: &str, kept: &str) {
    assert_eq!(count(&shipped(&parse(text))), count(&parse(kept)), "{text}");
}

/// The files of each cycle in a crate, as text.
fn cycles_of(files: &[(&str, &str)]) -> Vec<String> {
    let tree = tree(files);
    let this = Crate::read(Path::new("src/lib.rs"), &tree);
    let name = |&file: &usize| this.files[file].path.display().to_string();
    let names = cycles(&this.imports()).into_iter().map(|cycle| cycle.iter().map(name).collect());
    names.map(|names: Vec<_>| names.join(" ")).collect()
}

#[test]
fn tokens_are_leaves_and_delimiters() {
    assert_eq!(count(&parse("fn f(a: &'static str) -> u8 { 1.5; \"two words\" }")), 18);
}

#[test]
fn comments_and_tests_are_not_shipped() {
    assert_shipped("//! Of it.\n\n/// Says.\nfn f() {} // why\n/* why */", "fn f() {}");
    assert_shipped(
        "#[doc(hidden)] #[doc = include_str!(\"a\")] fn f() {}",
        "#[doc(hidden)] #[doc = include_str!(\"a\")] fn f() {}",
    );
    assert_shipped("#[test] #[ignore] fn f() {} fn g() {}", "fn g() {}");
    assert_shipped("fn f() {} #[cfg(test)] mod tests { fn g() {} }", "fn f() {}");
    assert_shipped("#[cfg(test)] mod samples; mod f;", "mod f;");
    assert_shipped("#[cfg(test)] use a::{b, c}; use d;", "use d;");
    assert_shipped("#[cfg(test)] pub(crate) const fn f<A, B>() {} fn g() {}", "fn g() {}");
    assert_shipped("#[cfg(test)] const F: A = A { a: 1 }; fn g() {}", "fn g() {}");
    assert_shipped("struct A { #[cfg(test)] a: u8, b: u8 }", "struct A { b: u8 }");
    assert_shipped("fn f() { #[cfg(test)] g(1); h() }", "fn f() { h() }");
    assert_shipped("#[cfg(not(test))] fn f() {}", "#[cfg(not(test))] fn f() {}");
}

#[test]
fn tests_are_counted_wherever_they_are() {
    assert_eq!(
        count_tests(&parse("#[test] fn f() {} mod t { #[test] #[ignore] fn g() {} fn h() {} }")),
        2
    );
}

#[test]
fn two_files_that_import_each_other_are_a_cycle() {
    let lib = ("src/lib.rs", "mod a; mod b;");
    let a = ("src/a.rs", "use crate::b::B; pub struct A;");
    for b in [
        "use crate::{a::{A}, c};",
        "fn f() { let x: super::a::A = g(); }",
        "mod inner { use super::super::a::A as Renamed; }",
        "fn f() -> impl Sized + use<> { g(); super::a::A }",
        "macro_rules! f { () => { $crate::a::A } }",
    ] {
        assert_eq!(cycles_of(&[lib, a, ("src/b.rs", b)]), ["src/a.rs src/b.rs"], "{b}");
    }
    for b in
        ["use std::a::A;", "#[cfg(test)] use super::a::A;", "struct B { pub(in crate::a) b: u8 }"]
    {
        assert!(cycles_of(&[lib, a, ("src/b.rs", b)]).is_empty(), "{b}");
    }
}

#[test]
fn an_import_leads_to_the_file_that_declares_the_name() {
    let lib = ("src/lib.rs", "mod a; mod b; pub use a::inner::{self, A as Renamed};");
    let a = ("src/a/mod.rs", "pub mod inner; pub mod f; pub use inner::f;");
    let inner = ("src/a/inner.rs", "use crate::b; pub struct A; pub fn f() { b::g() }");
    let f = ("src/a/f.rs", "");
    for path in ["Renamed", "a::f", "a::inner::A", "inner::*", "inner::made_by_macro"] {
        let b = format!("use crate::{path}; pub fn g() {{}}");
        let files = [lib, a, inner, f, ("src/b.rs", &b)];
        assert_eq!(cycles_of(&files), ["src/a/inner.rs src/b.rs"], "{path}");
    }
    // Here the module `f` is meant.
    assert!(cycles_of(&[lib, a, inner, f, ("src/b.rs", "use crate::a::f::x;")]).is_empty());
}

#[test]
fn a_module_may_have_its_file_elsewhere() {
    let lib = ("src/lib.rs", "mod a; #[allow(x)] #[path = \"../b/mod.rs\"] mod b;");
    let a = ("src/a.rs", "use crate::b::g;");
    let b = ("b/mod.rs", "mod c; pub use c::g;");
    let c = ("b/c.rs", "use crate::a; pub fn g() {}");
    assert_eq!(cycles_of(&[lib, a, b, c]), ["src/a.rs b/c.rs"]);
}

#[test]
fn parent_and_child_may_import_each_other() {
    let lib = ("src/lib.rs", "mod a; mod b; use a::A; pub struct B;");
    let a = ("src/a.rs", "mod c; use crate::B; pub use c::C; pub struct A;");
    let b = ("src/b.rs", "");
    let c = ("src/a/c.rs", "use super::A; pub struct C;");
    assert!(cycles_of(&[lib, a, b, c]).is_empty());
    let by_another = [("src/a.rs", "mod c; use crate::b;"), ("src/b.rs", "use crate::a::c;")];
    let [a_to_b, b_to_c] = by_another;
    assert_eq!(cycles_of(&[lib, a_to_b, b_to_c, c]), ["src/a.rs src/a/c.rs src/b.rs"]);
    let [of_grandchild, to_grandparent] = [
        ("src/lib.rs", "mod a; use a::C; pub struct B;"),
        ("src/a/c.rs", "use crate::B; pub struct C;"),
    ];
    assert_eq!(cycles_of(&[of_grandchild, a, to_grandparent]), ["src/lib.rs src/a/c.rs"]);
}

#[test]
fn fields_of_a_struct_that_is_there_for_one_other_count_as_its_own() {
    let lib = "mod shared; use shared::{Open, Shut, Twice};
        pub struct Public { pub a: u8, pub b: u8 }
        struct Part { a: u8, b: std::vec::Vec<(u8, u8)>, c: u8 }
        struct Whole { one: u8, part: Mutex<Part>, #[x] pub(crate) open: Option<Open>, shut: Shut,
            twice: Twice, public: Public, list: Vec<Element> }
        struct Element { a: u8, b: u8 }";
    let shared = "pub(crate) struct Open { pub(crate) a: u8, b: u8 }
        pub(crate) struct Shut { a: u8, b: u8 }
        pub(crate) struct Twice { pub(crate) a: u8, b: u8 }
        struct Other { twice: Twice }";
    let tree = tree(&[("src/lib.rs", lib), ("src/shared.rs", shared)]);
    let this = Crate::read(Path::new("src/lib.rs"), &tree);
    assert_eq!(count_fields("Whole", &this), Some(1 + 3 + 2 + 1 + 1 + 1 + 1));
    assert_eq!(count_fields("Nothing", &this), None);
}

const LIMITS: &str =
    "# name | baseline | limit\nwords | 200 | <= 150\n\ntests | 10 | >= 10\nby the way | 3 |\n";

fn figures(words: usize, tests: usize) -> Vec<(String, usize)> {
    vec![
        ("words".into(), words),
        ("tests".into(), tests),
        ("by the way".into(), 5),
        ("new".into(), 1),
    ]
}

#[test]
fn a_figure_beyond_its_limit_fails() {
    assert!(compare(&figures(150, 10), LIMITS).1);
    assert!(!compare(&figures(151, 10), LIMITS).1);
    assert!(!compare(&figures(150, 9), LIMITS).1);
    assert!(!compare(&figures(150, 10)[..1].to_vec(), LIMITS).1, "what is no more counted");
    let (table, _) = compare(&figures(100, 9), LIMITS);
    assert!(table.contains("-50.0 %  <= 150\n"), "{table}");
    assert!(table.contains("-10.0 %  >= 10  A STEP BACKWARDS\n"), "{table}");
}

#[test]
fn a_limit_is_tightened_and_never_loosened() {
    let better = LIMITS.replace("150", "120").replace(">= 10", ">= 12");
    assert_eq!(tighten(&figures(120, 12), LIMITS), better);
    assert_eq!(tighten(&figures(151, 9), LIMITS), LIMITS);
}

#[test]
fn a_tree_is_measured_package_by_package() {
    let tree = tree(&[
        ("Cargo.toml", "[package]\nname = \"store\"\n"),
        ("README.md", "# Two words\n"),
        ("src/lib.rs", "//! A word.\nmod a;\nstruct DbInner { a: u8 }\n#[cfg(test)] mod b;\n"),
        ("src/a.rs", "    /// And another.\nfn f() {}\n// Not this.\n"),
        ("src/b.rs", "#[test] fn f() {}\n"),
        ("examples/c.rs", "/// Of an example.\nfn main() {}"),
        ("tests/d.rs", "/// Of a test.\n#[test] fn f() {}"),
        ("tests/sabotage/e.patch", ""),
        ("cli/Cargo.toml", "[package]\nname = \"command\"\n"),
        ("cli/src/main.rs", "fn main() {}"),
        ("fuzz/Cargo.toml", "[package]\nname = \"harness\"\n"),
        ("fuzz/src/lib.rs", "fn f() {}"),
        ("tests/f/Cargo.toml", "[package]\nname = \"tool\"\n"),
        ("tests/f/src/main.rs", "/// Of a tool.\nfn main() {}\n#[test] fn f() {}"),
    ]);
    let figures = crate::measure(&tree);
    let expected = [
        ("import cycles", 0),
        ("files in import cycles", 0),
        ("fields of DbInner", 1),
        ("ways from a path to a file", 0),
        ("words of documents", 3),
        ("words of rustdoc", 6),
        ("sabotages", 1),
        ("tokens of code", 28),
        ("tokens of code: store", 22),
        ("tokens of code: command", 6),
        ("tests", 3),
        ("tests: store", 2),
        ("tests: tool", 1),
    ];
    assert_eq!(figures, expected.map(|(name, figure)| (name.to_string(), figure)));
}
