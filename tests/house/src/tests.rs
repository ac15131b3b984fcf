use std::path::Path;

use proc_macro2::TokenTree;

use crate::code::Code;
use crate::cycles::cycles;
use crate::fields::count_fields;
use crate::modules::Crate;
use crate::packages::packages;
use crate::source::{count_tests, parse, shipped};
use crate::tree::Tree;

fn tree(files: &[(&str, &str)]) -> Tree {
    files.iter().map(|&(path, text)| (path.into(), text.into())).collect()
}

#[track_caller]
fn assert_shipped(text: &str, kept: &str) {
    let text_of = |tokens: &[TokenTree]| tokens.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(text_of(&shipped(&parse(text))), text_of(&parse(kept)), "{text}");
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
fn lines_functions_and_closures_are_counted() {
    let text = "//! Of it.\n\nfn f(a: u8) -> u8 { // why\n    let g = |x: u8| x | 1;\n\n    a.map(move || g(1) || g(2))\n}\n";
    let mut code = Code::default();
    code.add(&shipped(&parse(text)));
    assert_eq!(code, Code { lines: 4, functions: 1, long: 0, closures: 2 });
    let mut code = Code::default();
    code.add(&shipped(&parse("fn f() { match a { 1 | 2 => |x| g(|y| x), _ => g(|| 1, |_| 2) } }")));
    assert_eq!(code, Code { lines: 1, functions: 1, long: 0, closures: 4 });
    for (lines, long) in [(48, 0), (49, 1)] {
        let mut code = Code::default();
        code.add(&shipped(&parse(&format!("fn f() {{{}\n}}", "\n    g();".repeat(lines)))));
        assert_eq!(code, Code { lines: lines + 2, functions: 1, long, closures: 0 });
    }
    let mut code = Code::default();
    code.add(&shipped(&parse(
        "struct A;\n#[cfg(test)]\nmod tests {\n fn f() {}\n}\nconst B: &str = \"\n\n\";\n",
    )));
    assert_eq!(code, Code { lines: 4, ..Code::default() });
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
    let figures = crate::figures(&tree, &packages(&tree));
    let lines: Vec<Vec<_>> =
        figures.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [["store", "4", "2", "0", "0.0"], ["command", "1", "1", "0", "0.0"]] {
        assert!(lines.iter().any(|line| *line == row), "{row:?}: {figures}");
    }
    for row in ["words of documents 3", "words of rustdoc 6", "tests 3", "sabotages 1"] {
        assert!(lines.iter().any(|line| line.join(" ") == row), "{row}: {figures}");
    }
}

#[test]
fn benchmarks_have_no_cycles_either() {
    let tree = tree(&[
        ("benches/peers/Cargo.toml", "[package]\nname = \"peers\"\n"),
        ("benches/peers/src/main.rs", "mod a; mod b;"),
        ("benches/peers/src/a.rs", "use crate::b::B;"),
        ("benches/peers/src/b.rs", "use crate::a::A;"),
    ]);
    let found = crate::cycles_of(&packages(&tree)[0]);
    let expected = "peers: a cycle of 2 files
  benches/peers/src/a.rs -> benches/peers/src/b.rs: crate::b::B
  benches/peers/src/b.rs -> benches/peers/src/a.rs: crate::a::A
";
    assert_eq!(found, [expected]);
}
