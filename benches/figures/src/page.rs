//! The tables of the documents.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::compare::{PEERS, best, group, marked};
use crate::digits::digits;
use crate::lines::{Line, median, newest, read};
use crate::objects::objects;
use crate::rows::ROWS;
use crate::sentences::sentences;
use crate::sizes::{SIZES, at_size, plot};
use crate::wins::wins;

/// The documents' figures are of one day. Raw lines of other days are kept where `docs/decisions.md` cites them.
const DAY: &str = "2026-11-29";

/// A table of a document, in its section of this title.
pub struct Table {
    /// The path of the document in the repository.
    pub document: &'static str,
    /// The heading, without `## `.
    pub title: &'static str,
    print: fn(&[Line]) -> String,
}

const PAGE: &str = "docs/performance.md";

/// All tables, in the order of the documents.
pub const TABLES: &[Table] = &[
    Table { document: PAGE, title: "Wins and losses", print: wins_and_losses },
    Table { document: PAGE, title: "Insertions", print: insertions },
    Table { document: PAGE, title: "Transfers", print: transfers },
    Table { document: PAGE, title: "Ingest", print: ingest },
    Table { document: PAGE, title: "Paths as keys", print: paths },
    Table { document: PAGE, title: "Compressed blocks", print: compression },
    Table { document: "docs/beyond.md", title: "Cost over size", print: sizes },
    Table { document: "docs/objects.md", title: "Wins and losses", print: objects },
];

impl Table {
    /// The table in Markdown.
    #[must_use]
    pub fn markdown(&self, lines: &[Line]) -> String {
        (self.print)(lines)
    }
}

/// The raw lines of the day, from their directories in the repository.
///
/// # Errors
/// As [`read`]; or a directory cannot be read.
pub fn lines_of_the_day(root: &Path) -> Result<Vec<Line>, String> {
    let mut files = Vec::new();
    for program in ["peers", "object"] {
        let results = root.join("benches").join(program).join("results");
        let failed = |error| format!("{}: {error}", results.display());
        for entry in fs::read_dir(&results).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name().to_string_lossy().starts_with(DAY) {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    let mut lines = Vec::new();
    for file in files {
        lines.append(&mut read(&file)?);
    }
    Ok(lines)
}

const MILLION: u64 = 1_000_000;

fn header(columns: &[&str]) -> String {
    format!("|{}|\n|---|{}\n", columns.join("|"), "--:|".repeat(columns.len() - 1))
}

/// All tables and sentences of the documents, each with its document. Draws their plot, too.
///
/// # Errors
/// As [`lines_of_the_day`]; a figure was not measured; the plot cannot be written.
///
/// # Panics
/// Never: a string can be written to.
pub fn of_documents(root: &Path) -> Result<String, String> {
    let lines = lines_of_the_day(root)?;
    let mut text = String::new();
    for table in TABLES {
        let Table { document, title, .. } = table;
        writeln!(text, "## {title}, in {document}\n{}", table.markdown(&lines)).expect("a string");
    }
    for (document, sentence) in sentences(&lines)? {
        writeln!(text, "{document}: {sentence}").expect("a string");
    }
    let (name, picture) = plot(&lines)?;
    let path = root.join("docs/figures/peers").join(name);
    fs::write(&path, picture).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text)
}

fn wins_and_losses(lines: &[Line]) -> String {
    wins(lines, &[MILLION, 10 * MILLION])
}

/// Checks of keys a second, one by one and in batches.
fn insertions(lines: &[Line]) -> String {
    const COLUMNS: [(&str, &str, &str); 4] = [
        ("criba", "", "criba"),
        ("fjall", "single-writer", "fjall, single writer"),
        ("fjall", "optimistic", "fjall, optimistic"),
        ("redb", "", "redb"),
    ];
    let mut columns = vec!["checks of one call"];
    columns.extend(COLUMNS.map(|(.., words)| words));
    let mut text = header(&columns);
    let group = group(lines, 2_000_000, "names");
    for batch in ["1", "64"] {
        write!(text, "|{batch}|").expect("a string");
        let workload = format!("insertions-{batch}-buffered");
        let of = |(store, setting, _): (&str, &str, &str)| {
            let lines = group.get(&(workload.as_str(), store, setting))?;
            Some(median(lines, "checks_per_s")?[0])
        };
        let ours = of(COLUMNS[0]);
        for (number, column) in COLUMNS.into_iter().enumerate() {
            let rate = of(column);
            let times = ours.zip(rate).filter(|_| number > 0);
            let times = times.map(|(ours, theirs)| format!(" ({:.2})", ours / theirs));
            let rate = rate.map_or("–".to_owned(), digits);
            write!(text, "{rate}{}|", times.unwrap_or_default()).expect("a string");
        }
        text.push('\n');
    }
    text
}

/// The main rows, with paths as keys.
fn paths(lines: &[Line]) -> String {
    const STORES: [&str; 4] = ["criba", "criba-ribbon", PEERS[0], PEERS[1]];
    let group = group(lines, MILLION, "paths");
    let mut text = header(&["", "criba", "ribbon", "rocksdb", "fjall"]);
    for row in ROWS {
        let cells = STORES.map(|store| best(&group, row, store));
        if row.figure.contains("p99") || cells.iter().any(Option::is_none) {
            continue;
        }
        let cells = cells.map(|cell| cell.map(marked).unwrap_or_default()).join("|");
        writeln!(text, "|{} {}|{cells}|", row.workload.to_uppercase(), row.words)
            .expect("a string");
    }
    text
}

/// A store that grows: each cell has Bloom filters and ribbons.
fn sizes(lines: &[Line]) -> String {
    const ROWS: [(&str, &str); 12] = [
        ("absent_ns", "absent key, ns"),
        ("absent_reads", "absent key, disk reads"),
        ("present_ns", "present key, ns"),
        ("present_reads", "present key, disk reads"),
        ("open_ms", "opening, ms"),
        ("open_mib", "memory after opening, bytes a key"),
        ("ingest_ns", "ingest, ns a key"),
        ("ingest_peak_mib", "ingest, peak memory, MiB"),
        ("puts_per_s", "a million puts, puts/s"),
        ("longest_put_ms", "the longest of them, ms"),
        ("puts_settled_s", "until merged, s"),
        ("puts_peak_mib", "their peak memory, MiB"),
    ];
    let mut columns = vec!["Bloom, ribbon".to_owned()];
    columns.extend(SIZES.map(|n| format!("{}M keys", n / MILLION)));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut text = header(&columns);
    for (figure, words) in ROWS {
        write!(text, "|{words}|").expect("a string");
        for n in SIZES {
            let cells = ["criba", "criba-ribbon"]
                .map(|store| at_size(lines, n, store, figure).map_or("–".to_owned(), digits));
            write!(text, "{}|", cells.join(", ")).expect("a string");
        }
        text.push('\n');
    }
    text
}

/// Transfers a second between accounts.
fn transfers(lines: &[Line]) -> String {
    let group = group(lines, 10_000, "names");
    let mut text = header(&["accounts, threads", "criba", "fjall", "redb", "criba / fjall"]);
    for (workload, accounts) in [("w11", "any"), ("w11c", "of ten")] {
        for threads in ["1", "2", "8"] {
            let figure = |store, name| {
                let lines = group.get(&(workload, store, "alike"))?;
                Some(median(lines, &format!("threads_{threads}_{name}"))?[0])
            };
            write!(text, "|{accounts}, {threads}|").expect("a string");
            for store in ["criba", "fjall", "redb"] {
                let rate = figure(store, "per_s").map_or("–".to_owned(), digits);
                let conflicts = figure(store, "conflicts").filter(|rate| *rate > 0.0);
                let conflicts = conflicts.map(|rate| format!(" ({rate:.4})")).unwrap_or_default();
                write!(text, "{rate}{conflicts}|").expect("a string");
            }
            let ratio = figure("criba", "per_s").zip(figure("fjall", "per_s"));
            let ratio =
                ratio.map_or("–".to_owned(), |(ours, theirs)| format!("{:.2}", ours / theirs));
            writeln!(text, "{ratio}|").expect("a string");
        }
    }
    text
}

/// An ingest beside puts of the same pairs.
fn ingest(lines: &[Line]) -> String {
    let columns = [
        "new keys, store",
        "ns a key: ingest, puts",
        "ratio",
        "bytes written a byte: ingest, puts",
        "peak memory, MiB: ingest, puts",
    ];
    let mut text = header(&columns);
    for n in [MILLION, 10 * MILLION] {
        let group = group(lines, n, "names");
        for (ingest, puts, place) in [
            ("w12", "w12p", "in an empty store"),
            ("w12f", "w12fp", "above all keys"),
            ("w12o", "w12op", "between the keys"),
        ] {
            for store in ["criba", "rocksdb", "fjall"] {
                let both = |figure| {
                    let of = |workload| {
                        Some(median(group.get(&(workload, store, "alike"))?, figure)?[0])
                    };
                    Some([of(ingest)?, of(puts)?])
                };
                let cell = |figure| {
                    both(figure).map_or("–".to_owned(), |both| both.map(digits).join(", "))
                };
                let Some([fast, slow]) = both("settled_ns") else { continue };
                let ratio = digits(slow / fast);
                writeln!(
                    text,
                    "|{}M {place}, {store}|{}|{ratio}|{}|{}|",
                    n / MILLION,
                    cell("settled_ns"),
                    cell("write_amp"),
                    cell("peak_mib")
                )
                .expect("a string");
            }
        }
    }
    text
}

/// With LZ4 over without, in three stores, for each kind of rows and size of blocks.
fn compression(lines: &[Line]) -> String {
    const STORES: [&str; 3] = ["criba", "rocksdb", "fjall"];
    const FIGURES: [(&str, &str); 7] = [
        ("bytes_a_row", "bytes"),
        ("absent_ns", "absent"),
        ("hits_ns", "hits"),
        ("misses_ns", "misses"),
        ("cold_us", "cold"),
        ("scan_ns", "scan"),
        ("load_s", "load"),
    ];
    let mut columns = vec!["rows, blocks"];
    columns.extend(FIGURES.map(|(_, words)| words));
    let mut text = header(&columns);
    let mut sets: Vec<_> = Vec::new();
    for Line { job, .. } in lines.iter().filter(|line| line.job.workload == "lz4") {
        let set = (job.n, job.rows.as_str(), job.block_bytes);
        if !sets.contains(&set) {
            sets.push(set);
        }
    }
    sets.sort_by_key(|&(n, ..)| n);
    for set @ (n, rows, block_bytes) in sets {
        write!(text, "|{}M {rows}, {} KiB|", n / MILLION, block_bytes >> 10).expect("a string");
        for (figure, _) in FIGURES {
            let median_of = |store: &str, setting: &str| {
                let of_set = lines.iter().filter(|Line { job, .. }| {
                    (job.n, job.rows.as_str(), job.block_bytes) == set
                        && (job.store.as_str(), job.setting.as_str()) == (store, setting)
                });
                Some(median(&newest(of_set), figure)?[0])
            };
            let cells = STORES.map(|store| {
                let ratio = median_of(store, "lz4").zip(median_of(store, "plain"));
                ratio.map_or("–".to_owned(), |(lz4, plain)| format!("{:.2}", lz4 / plain))
            });
            write!(text, "{}|", cells.join(", ")).expect("a string");
        }
        text.push('\n');
    }
    text
}
