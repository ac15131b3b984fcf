//! The tables of `docs/performance.md`.

use std::fmt::Write;
use std::path::Path;

use crate::compare::group;
use crate::digits::digits;
use crate::lines::{Line, median, newest, read};

/// A table of the page, and the raw lines that it is made of.
struct Table {
    title: &'static str,
    files: &'static [&'static str],
    print: fn(&[Line]) -> String,
}

const TABLES: &[Table] = &[
    Table { title: "Transfers", files: &["2026-11-28-transfers.jsonl"], print: transfers },
    Table {
        title: "Ingest",
        files: &["2026-11-29-ingest.jsonl", "2026-11-28-ingest.jsonl"],
        print: ingest,
    },
    Table { title: "Compressed blocks", files: &["2026-11-29-lz4.jsonl"], print: compression },
];

/// Title and Markdown of each table of the page, from the directory of the raw lines.
///
/// # Errors
/// As [`read`].
pub fn tables(results: &Path) -> Result<Vec<(&'static str, String)>, String> {
    let mut all = Vec::new();
    for Table { title, files, print } in TABLES {
        let mut lines = Vec::new();
        for file in *files {
            lines.append(&mut read(&results.join(file))?);
        }
        all.push((*title, print(&lines)));
    }
    Ok(all)
}

const MILLION: u64 = 1_000_000;

fn header(columns: &[&str]) -> String {
    format!("|{}|\n|---|{}\n", columns.join("|"), "--:|".repeat(columns.len() - 1))
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
    for Line { job, .. } in lines {
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
