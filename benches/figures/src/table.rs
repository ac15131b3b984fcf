//! All results of some files as Markdown: a table of medians, then each workload.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::compare::{Group, PEERS, best, group, marked, ratio};
use crate::digits::{digits, thousands};
use crate::lines::{Line, Machine, median};
use crate::rows::ROWS;
use crate::wins::wins;

/// Stores, in the order of the columns.
const COLUMNS: [&str; 12] = [
    "criba",
    "criba-ribbon",
    "criba-classic",
    "criba-blocked",
    "rocksdb",
    "fjall",
    "leveldb",
    "leveldb-verified",
    "lsm-db",
    "coordinode",
    "redb",
    "lmdb",
];

/// All results, for each number and kind of keys.
///
/// # Panics
/// Never: a string can be written to.
pub fn markdown(lines: &[Line]) -> String {
    let mut text = String::new();
    for machine in lines.iter().map(|line| &line.machine).collect::<BTreeSet<_>>() {
        let Machine { cpu, cores, memory_gib, kernel } = machine;
        writeln!(text, "Machine: {cpu}, {cores} cores, {memory_gib} GiB of memory, {kernel}.")
            .expect("a string");
    }
    let mut loads: Vec<f64> = lines.iter().map(|line| line.load).collect();
    loads.sort_by(f64::total_cmp);
    if let (Some(least), Some(most)) = (loads.first(), loads.last()) {
        let middle = loads[loads.len() / 2];
        writeln!(text, "\nLoad of the machine meanwhile, this program included: {least} to {most}, median {middle}.")
            .expect("a string");
    }
    let sets: BTreeSet<_> = lines.iter().map(|line| (line.job.keys.as_str(), line.job.n)).collect();
    let numbers = sets.iter().filter(|(keys, n)| *keys == "names" && *n >= 1_000_000);
    let numbers: Vec<u64> = numbers.map(|(_, n)| *n).collect();
    if !numbers.is_empty() {
        write!(text, "\n## Wins and losses\n{}", wins(lines, &numbers)).expect("a string");
    }
    for (keys, n) in sets {
        let group = group(lines, n, keys);
        write!(text, "\n## {} keys: {keys}\n\n", thousands(n)).expect("a string");
        text += &summary(&group);
        text += &details(&group);
        text += &settings(&group);
    }
    text
}

fn summary(group: &Group<'_>) -> String {
    let here = |store: &&str| group.keys().any(|(_, name, _)| name == store);
    let columns: Vec<_> = COLUMNS.into_iter().filter(here).collect();
    let mut text = String::from("| | |");
    for store in &columns {
        write!(text, " {store} |").expect("a string");
    }
    text += " ratio |\n|---|---|";
    text += &"--:|".repeat(columns.len() + 1);
    text.push('\n');
    for row in ROWS {
        let cells: Vec<_> = columns.iter().map(|store| best(group, row, store)).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        write!(text, "| {} | {} |", row.workload.to_uppercase(), row.words).expect("a string");
        for cell in cells {
            write!(text, " {} |", cell.map(marked).unwrap_or_default()).expect("a string");
        }
        let ratio = ratio(group, row, "criba").map(|ratio| format!("{ratio:.2}"));
        writeln!(text, " {} |", ratio.unwrap_or_default()).expect("a string");
    }
    text + "\nMedians. \\*: set as its documentation recommends (best); otherwise set like the others (alike). \
        Ratio: how many times better criba is than the better of RocksDB and fjall; in disk reads, \
        of those two what has no more filter bytes than it, by 2 % at most.\n"
}

/// Each workload with all figures, settings and omissions.
fn details(group: &Group<'_>) -> String {
    let mut text = String::new();
    for workload in group.keys().map(|&(workload, ..)| workload).collect::<BTreeSet<_>>() {
        let rows: Vec<_> = group.iter().filter(|(key, _)| key.0 == workload).collect();
        let figures: BTreeSet<&str> = rows
            .iter()
            .flat_map(|(_, lines)| lines.iter().flat_map(|line| line.findings.figures.keys()))
            .map(String::as_str)
            .collect();
        write!(text, "\n### {}\n\n| | n |", workload.to_uppercase()).expect("a string");
        for figure in &figures {
            write!(text, " {figure} |").expect("a string");
        }
        text += " runs | filter MiB |\n|---|--:|";
        text += &"--:|".repeat(figures.len() + 2);
        text.push('\n');
        for ((_, store, setting), lines) in rows {
            let Some(findings) = lines.last().map(|line| &line.findings) else { continue };
            write!(text, "| {} | {} |", full_name(store, setting), lines.len()).expect("a string");
            if let Some(why) = findings.error.as_ref().or(findings.left_out.as_ref()) {
                writeln!(text, " {why} {}", "|".repeat(figures.len() + 2)).expect("a string");
                continue;
            }
            for figure in &figures {
                let cell = median(lines, figure).map(|[middle, least, most]| {
                    let range = format!(" ({}–{})", digits(least), digits(most));
                    digits(middle) + if lines.len() > 1 { &range } else { "" }
                });
                write!(text, " {} |", cell.unwrap_or_default()).expect("a string");
            }
            let runs = findings.runs.map(|runs| runs.to_string()).unwrap_or_default();
            let bytes = findings.filter_bytes.map(|it| digits(it as f64 / f64::from(1 << 20)));
            writeln!(text, " {runs} | {} |", bytes.unwrap_or_default()).expect("a string");
        }
    }
    text
}

fn settings(group: &Group<'_>) -> String {
    let mut said = BTreeMap::new();
    for ((workload, store, setting), lines) in group {
        let Some(line) = lines.last() else { continue };
        // Most are set as for W2; its row is the one to show.
        let first = said.entry((*store, *setting)).or_insert(*line);
        if *workload == "w2" {
            *first = line;
        }
    }
    let mut text = String::from("\n### Versions and settings\n\n");
    for ((store, setting), line) in said {
        let settings = line.findings.settings.iter().map(|(name, value)| format!("{name} {value}"));
        let settings = settings.collect::<Vec<_>>().join(", ");
        writeln!(text, "- **{}** {}: {settings}", full_name(store, setting), line.job.version)
            .expect("a string");
    }
    text
}

fn full_name(store: &str, setting: &str) -> String {
    if PEERS.contains(&store) && !setting.is_empty() {
        format!("{store}, {setting}")
    } else {
        store.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::tests::line;

    fn three(store: &str, setting: &str, values: [f64; 3]) -> Vec<Line> {
        let one = |value: &f64| {
            let mut line = line(store, setting, "w2", &[("absent_ns", *value)]);
            line.findings.runs = Some(3);
            line
        };
        values.iter().map(one).collect()
    }

    #[test]
    fn the_ratio_is_of_medians_to_the_better_peer() {
        let mut lines = three("criba", "alike", [20.0, 90.0, 10.0]);
        lines.extend(three("rocksdb", "alike", [300.0, 310.0, 290.0]));
        lines.extend(three("rocksdb", "best", [200.0, 210.0, 190.0]));
        lines.extend(three("fjall", "alike", [400.0, 400.0, 400.0]));
        lines.extend(three("lsm-db", "alike", [50.0, 50.0, 50.0]));
        let text = markdown(&lines);
        assert!(text.contains("| | | criba | rocksdb | fjall | lsm-db | ratio |"), "{text}");
        assert!(
            text.contains("| W2 | absent keys, ns | 20.0 | 200\\* | 400 | 50.0 | 10.00 |"),
            "{text}"
        );
        assert!(text.contains("| rocksdb, best | 3 | 200 (190–210) | 3 |  |"), "{text}");
        assert!(text.contains("a processor, 2 cores, 24 GiB of memory, Linux 6.1"));
    }

    #[test]
    fn reads_are_compared_at_equal_filter_bytes() {
        let of = |store, setting, reads, bytes| {
            let mut line = line(store, setting, "w2ru", &[("reads", reads)]);
            line.findings.filter_bytes = Some(bytes);
            line
        };
        let lines = [
            of("criba", "alike", 0.02, 1000),
            of("fjall", "alike", 0.1, 1010),
            of("fjall", "best", 0.001, 1900),
        ];
        let text = markdown(&lines);
        assert!(text.contains("L0 full | 0.0200 | 0.1000 | 5.00 |"), "{text}");
    }

    #[test]
    fn more_is_better_where_speed_is_counted() {
        let of = |store, value| line(store, "alike", "w1", &[("puts_per_s", value)]);
        let lines = [of("criba", 600_000.0), of("rocksdb", 300_000.0), of("fjall", 400_000.0)];
        let text = markdown(&lines);
        assert!(text.contains("| 600,000 | 300,000 | 400,000 | 1.50 |"), "{text}");
    }

    #[test]
    fn an_older_version_does_not_count() {
        let mut lines = three("criba", "alike", [100.0; 3]);
        let mut new = line("criba", "alike", "w2", &[("absent_ns", 50.0)]);
        new.job.version = "1.1".to_owned();
        new.at = 7;
        lines.insert(0, new);
        let text = markdown(&lines);
        assert!(text.contains("| W2 | absent keys, ns | 50.0 |"), "{text}");
    }

    #[test]
    fn what_was_left_out_says_why() {
        let mut out = line("lmdb", "alike", "w2u", &[]);
        out.findings.left_out = Some("compactions cannot be turned off".to_owned());
        let text = markdown(&[out]);
        assert!(text.contains("| lmdb | 1 | compactions cannot be turned off ||"), "{text}");
    }
}
