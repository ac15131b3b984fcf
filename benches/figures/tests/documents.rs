//! The tables of the documents are those that the raw lines make.

use std::fs;
use std::path::Path;

#[test]
fn the_page_has_each_table_as_the_raw_lines_make_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/performance.md")).expect("the page");
    let tables = criba_figures::page::tables(&root.join("benches/peers/results"));
    for (title, table) in tables.expect("the raw lines that the page names") {
        let (_, section) = page
            .split_once(&format!("## {title}\n"))
            .unwrap_or_else(|| panic!("the page has no section {title}"));
        assert!(section.contains(&table), "the page's table of {title} should be:\n{table}");
    }
}
