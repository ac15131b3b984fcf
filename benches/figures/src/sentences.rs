//! Sentences of the documents with measured figures.

use crate::compare::{best, group};
use crate::digits::digits;
use crate::lines::{Line, median};
use crate::rows::ROWS;

/// Document and sentence. `{STORE WORKLOAD FIGURE [KEYS]}` is a median, of a million keys unless said otherwise, and
/// of the better of two settings. `{STORE / STORE WORKLOAD FIGURE [KEYS]}` is a quotient. `{µ …}` is divided by a
/// thousand.
const SENTENCES: &[(&str, &str)] = &[
    (
        "README.md",
        "|absent keys|criba|{criba w2 absent_ns} ns; fjall {fjall w2 absent_ns}, RocksDB {rocksdb w2 absent_ns}|",
    ),
    (
        "README.md",
        "|few disk reads for them|criba, ribbon|{criba-ribbon w2r reads} a lookup; RocksDB {rocksdb w2r reads}|",
    ),
    (
        "README.md",
        "|insertions by many threads|criba|{criba insertions-1-buffered checks_per_s 2000000} a second; fjall \
         {fjall:single-writer insertions-1-buffered checks_per_s 2000000}, redb \
         {redb insertions-1-buffered checks_per_s 2000000}|",
    ),
    (
        "README.md",
        "|present keys, scans|LMDB, LevelDB|{µ lmdb w3 present_ns} and {µ leveldb w3 present_ns} µs a key; criba \
         {µ criba w3 present_ns}|",
    ),
    (
        "README.md",
        "|present keys after a cold start|LMDB, criba|{µ lmdb w6 present_ns} and {µ criba w6 present_ns} µs; fjall \
         {µ fjall w6 present_ns}, redb {µ redb w6 present_ns}|",
    ),
    (
        "README.md",
        "|loading with little memory, few bytes written|RocksDB|criba takes {criba / rocksdb w1 peak_mib 10000000} \
         times the memory, writes {criba / rocksdb w1 write_amp 10000000} times the bytes|",
    ),
    (
        "docs/beyond.md",
        "Three nodes on one disk commit {criba raft writes_1_per_s 200000}, {criba raft writes_8_per_s 200000} and \
         {criba raft writes_64_per_s 200000} writes a second for 1, 8 and 64 clients; the same program on RocksDB \
         {rocksdb raft writes_1_per_s 200000}, {rocksdb raft writes_8_per_s 200000} and \
         {rocksdb raft writes_64_per_s 200000} (`results/2026-11-29-raft.jsonl`",
    ),
    (
        "docs/beyond.md",
        "{criba raft absent_per_s 200000} absent keys a second, on RocksDB {rocksdb raft absent_per_s 200000}.",
    ),
    ("docs/beyond.md", "| opening | ten times {criba w13 open_ms 100000000} ms |"),
    ("docs/beyond.md", "| an absent key | {criba w13 absent_ns 100000000} ns or more |"),
];

/// Document and text of each sentence.
///
/// # Errors
/// A figure was not measured; the text names it.
pub fn sentences(lines: &[Line]) -> Result<Vec<(&'static str, String)>, String> {
    SENTENCES.iter().map(|(document, template)| Ok((*document, filled(template, lines)?))).collect()
}

/// The template with its figures.
fn filled(template: &str, lines: &[Line]) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (asked, after) =
            after.split_once('}').ok_or_else(|| format!("no brace ends {after}"))?;
        text += before;
        text += &figure(asked, lines).ok_or_else(|| format!("not measured: {asked}"))?;
        rest = after;
    }
    Ok(text + rest)
}

fn figure(asked: &str, lines: &[Line]) -> Option<String> {
    let (per_thousand, asked) = match asked.strip_prefix("µ ") {
        Some(asked) => (true, asked),
        None => (false, asked),
    };
    let value = match asked.split(' ').collect::<Vec<_>>()[..] {
        [store, "/", other, workload, figure, ref n @ ..] => {
            value(lines, store, workload, figure, n)? / value(lines, other, workload, figure, n)?
        }
        [store, workload, figure, ref n @ ..] => value(lines, store, workload, figure, n)?,
        _ => return None,
    };
    Some(digits(if per_thousand { value / 1000.0 } else { value }))
}

fn value(lines: &[Line], store: &str, workload: &str, figure: &str, n: &[&str]) -> Option<f64> {
    let n = match n {
        [] => 1_000_000,
        [n, ..] => n.parse().ok()?,
    };
    let group = group(lines, n, "names");
    if let Some(row) = ROWS.iter().find(|row| (row.workload, row.figure) == (workload, figure)) {
        return Some(best(&group, row, store)?.0);
    }
    let (store, setting) = store.split_once(':').unwrap_or((store, "alike"));
    let settings = [setting, ""];
    let found = settings.iter().find_map(|setting| group.get(&(workload, store, setting)));
    Some(median(found?, figure)?[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::tests::line;

    #[test]
    fn a_sentence_has_the_better_setting_and_quotients() {
        let of = |store, setting, workload, figure, value| {
            let mut line = line(store, setting, workload, &[(figure, value)]);
            line.job.n = 1_000_000;
            line
        };
        let mut large = of("criba", "alike", "w13", "open_ms", 1234.0);
        large.job.n = 100_000_000;
        let lines = [
            of("criba", "alike", "w3", "present_ns", 5000.0),
            of("rocksdb", "alike", "w3", "present_ns", 7000.0),
            of("rocksdb", "best", "w3", "present_ns", 6000.0),
            large,
        ];
        let filled = |template| filled(template, &lines);
        let text = "{µ criba w3 present_ns} and {rocksdb w3 present_ns} ns, {criba / rocksdb w3 present_ns} times";
        assert_eq!(filled(text).unwrap(), "5.00 and 6000 ns, 0.8333 times");
        assert_eq!(filled("{criba w13 open_ms 100000000} ms").unwrap(), "1234 ms");
        assert_eq!(
            filled("{fjall w3 present_ns}").unwrap_err(),
            "not measured: fjall w3 present_ns"
        );
    }
}
