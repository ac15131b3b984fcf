//! The results as Markdown: a table of medians, then each workload.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::job::Workload;
use crate::keys::KeyKind;
use crate::results::Line;
use crate::settings::Setting;
use crate::stores::Name;

/// Which of two figures is the better.
#[derive(Clone, Copy, PartialEq)]
enum Better {
    Less,
    More,
}
use Better::{Less, More};

/// A row of the first table.
struct Row {
    workload: Workload,
    figure: &'static str,
    words: &'static str,
    better: Better,
    /// The least ratio of criba to the better of RocksDB and fjall.
    target: Option<f64>,
}

const fn row(
    workload: Workload,
    figure: &'static str,
    words: &'static str,
    better: Better,
    target: f64,
) -> Row {
    let target = if target > 0.0 { Some(target) } else { None };
    Row { workload, figure, words, better, target }
}

/// Rows without such a target have 0.
const ROWS: &[Row] = &[
    row(Workload::W1, "puts_per_s", "load until flushed, puts/s", More, 1.5),
    row(Workload::W1, "settled_s", "load until settled, s", Less, 1.0),
    row(Workload::W2, "absent_ns", "absent keys, ns", Less, 5.0),
    row(Workload::W2, "absent_p99_ns", "absent keys, p99, ns", Less, 0.0),
    row(Workload::W2, "absent_2_threads_ns", "absent keys, two threads, ns", Less, 5.0),
    row(Workload::W2, "threads_gain", "two threads, times one", More, 0.0),
    row(Workload::W2c, "absent_ns", "absent keys, one run, ns", Less, 3.0),
    row(Workload::W2u, "absent_ns", "absent keys, L0 full, ns", Less, 10.0),
    row(Workload::W2m, "batch_ns", "absent keys, batches of 16, ns", Less, 8.0),
    row(Workload::W2m, "batch_gain", "batches, times single", More, 0.0),
    row(Workload::W2r, "reads", "reads per absent key, four levels", Less, 8.0),
    row(Workload::W2rc, "reads", "reads per absent key, one run", Less, 4.0),
    row(Workload::W2ru, "reads", "reads per absent key, L0 full", Less, 4.0),
    row(Workload::W3, "present_ns", "present keys, ns", Less, 1.7),
    row(Workload::W3, "present_p99_ns", "present keys, p99, ns", Less, 0.0),
    row(Workload::W3, "peak_mib", "present keys, peak memory, MiB", Less, 0.8),
    row(Workload::W4, "zipfian_ns", "present keys, zipfian, ns", Less, 1.5),
    row(Workload::W5, "half_ns", "half absent, ns", Less, 1.5),
    row(Workload::W6, "open_ms", "cold: open and 1,000 absent keys, ms", Less, 1.0),
    row(Workload::W6, "absent_ns", "cold: absent keys, ns", Less, 4.0),
    row(Workload::W6, "present_ns", "cold: present keys, ns", Less, 1.0),
    row(Workload::W6m, "batch_ns", "cold: present keys, batches of 64, ns", Less, 1.0),
    row(Workload::W7, "one_us", "synced put, one thread, µs", Less, 1.15),
    row(Workload::W7, "eight_us", "synced put, eight threads, µs", Less, 0.0),
    row(Workload::W7, "threads_gain", "eight threads, times one", More, 0.0),
    row(Workload::W8, "full_ns", "full scan, ns a pair", Less, 1.5),
    row(Workload::W8, "short_us", "50-key scan, µs", Less, 1.5),
    row(Workload::W8, "prefix_us", "empty prefix scan, µs", Less, 4.0),
    row(Workload::W9, "puts_per_s", "overwrite half, puts/s", More, 1.5),
    row(Workload::W9, "write_amp", "overwrite half: bytes written a byte", Less, 0.0),
    row(Workload::W9, "space_settled", "space, settled", Less, 0.0),
    row(Workload::W9, "space_compacted", "space, compacted", Less, 0.0),
    row(Workload::W9, "absent_settled_ns", "then absent keys, ns", Less, 0.0),
    row(Workload::W9, "present_settled_ns", "then present keys, ns", Less, 0.0),
    row(Workload::W10, "absent_p99_ns", "beside a writer: absent, p99, ns", Less, 2.0),
    row(Workload::W10, "absent_p999_ns", "beside a writer: absent, p99.9, ns", Less, 2.0),
    row(Workload::W10, "present_p99_ns", "beside a writer: present, p99, ns", Less, 2.0),
    row(Workload::W10, "present_p999_ns", "beside a writer: present, p99.9, ns", Less, 2.0),
    row(Workload::W10, "puts_per_s", "beside readers: puts/s", More, 0.0),
    row(Workload::W11, "threads_1_per_s", "any accounts, one thread, transfers/s", More, 1.5),
    row(Workload::W11, "threads_2_per_s", "any accounts, two threads, transfers/s", More, 1.5),
    row(Workload::W11, "threads_4_per_s", "any accounts, four threads, transfers/s", More, 1.5),
    row(Workload::W11, "threads_8_per_s", "any accounts, eight threads, transfers/s", More, 1.5),
    row(Workload::W11c, "threads_1_per_s", "ten accounts, one thread, transfers/s", More, 1.0),
    row(Workload::W11c, "threads_2_per_s", "ten accounts, two threads, transfers/s", More, 1.0),
    row(Workload::W11c, "threads_4_per_s", "ten accounts, four threads, transfers/s", More, 1.0),
    row(Workload::W11c, "threads_8_per_s", "ten accounts, eight threads, transfers/s", More, 1.0),
    row(Workload::W12, "settled_ns", "ingest, empty store, ns a key", Less, 0.0),
    row(Workload::W12, "write_amp", "ingest, empty store: bytes written a byte", Less, 0.0),
    row(Workload::W12, "peak_mib", "ingest, empty store: peak memory, MiB", Less, 0.0),
    row(Workload::W12p, "settled_ns", "the same keys put, ns a key", Less, 0.0),
    row(Workload::W12p, "write_amp", "the same keys put: bytes written a byte", Less, 0.0),
    row(Workload::W12f, "settled_ns", "ingest, free range, ns a key", Less, 0.0),
    row(Workload::W12f, "write_amp", "ingest, free range: bytes written a byte", Less, 0.0),
    row(Workload::W12f, "peak_mib", "ingest, free range: peak memory, MiB", Less, 0.0),
    row(Workload::W12fp, "settled_ns", "the same keys put, ns a key", Less, 0.0),
    row(Workload::W12fp, "write_amp", "the same keys put: bytes written a byte", Less, 0.0),
    row(Workload::W12o, "settled_ns", "ingest, between keys, ns a key", Less, 0.0),
    row(Workload::W12o, "write_amp", "ingest, between keys: bytes written a byte", Less, 0.0),
    row(Workload::W12o, "peak_mib", "ingest, between keys: peak memory, MiB", Less, 0.0),
    row(Workload::W12op, "settled_ns", "the same keys put, ns a key", Less, 0.0),
    row(Workload::W12op, "write_amp", "the same keys put: bytes written a byte", Less, 0.0),
];

/// Stores, in the order of the columns.
const COLUMNS: [Name; 12] = [
    Name::Criba,
    Name::CribaRibbon,
    Name::CribaClassic,
    Name::CribaBlocked,
    Name::RocksDb,
    Name::Fjall,
    Name::LevelDb,
    Name::LevelDbVerified,
    Name::LsmDb,
    Name::Coordinode,
    Name::Redb,
    Name::Lmdb,
];
const PEERS: [Name; 2] = [Name::RocksDb, Name::Fjall];

/// All repetitions of one measurement.
type Group<'l> = BTreeMap<(Workload, Name, Setting), Vec<&'l Line>>;

/// All results, for each number and kind of keys.
pub fn markdown(lines: &[Line], command: &str) -> String {
    let mut text = String::new();
    for machine in lines.iter().map(|line| line.machine.to_string()).collect::<BTreeSet<_>>() {
        writeln!(text, "Machine: {machine}.").expect("a string");
    }
    writeln!(text, "\nCommand: `{command}`.").expect("a string");
    let mut loads: Vec<f64> = lines.iter().map(|line| line.load).collect();
    loads.sort_by(f64::total_cmp);
    if let (Some(least), Some(most)) = (loads.first(), loads.last()) {
        let middle = loads[loads.len() / 2];
        writeln!(text, "\nLoad of the machine meanwhile, this program included: {least} to {most}, median {middle}.")
            .expect("a string");
    }
    let sets: BTreeSet<_> =
        lines.iter().map(|line| (line.job.keys == KeyKind::Paths, line.job.n)).collect();
    for (paths, n) in sets {
        let of_set = |line: &&Line| (line.job.keys == KeyKind::Paths, line.job.n) == (paths, n);
        let group = newest(lines.iter().filter(of_set));
        let kind = if paths { "paths" } else { "user names of 16 bytes" };
        write!(text, "\n## {} keys: {kind}\n\n", thousands(n)).expect("a string");
        text += &summary(&group);
        text += &details(&group);
        text += &settings(&group);
    }
    text
}

/// The lines of each measurement, of the newest version and budget.
fn newest<'l>(lines: impl Iterator<Item = &'l Line>) -> Group<'l> {
    let mut group = Group::new();
    for line in lines {
        let job = &line.job;
        group.entry((job.workload, job.store, job.setting)).or_default().push(line);
    }
    for lines in group.values_mut() {
        let last = lines.iter().max_by_key(|line| line.at).expect("not empty").job.clone();
        lines.retain(|line| {
            let job = &line.job;
            job.version == last.version && (job.lookups, job.seed) == (last.lookups, last.seed)
        });
    }
    group
}

/// The median of a figure, and its extremes.
fn median(lines: &[&Line], figure: &str) -> Option<(f64, f64, f64)> {
    let mut values: Vec<f64> =
        lines.iter().filter_map(|line| line.findings.figures.get(figure).copied()).collect();
    values.sort_by(f64::total_cmp);
    let (least, most) = (*values.first()?, *values.last()?);
    let at = values.len() / 2;
    let middle =
        if values.len() % 2 == 1 { values[at] } else { f64::midpoint(values[at - 1], values[at]) };
    Some((middle, least, most))
}

/// The better of a store's settings.
fn best(group: &Group<'_>, row: &Row, store: Name) -> Option<(f64, Setting)> {
    let medians = store.settings().iter().filter_map(|&setting| {
        let lines = group.get(&(row.workload, store, setting))?;
        let like = !counts_reads(row.workload)
            || !PEERS.contains(&store)
            || !has_larger_filters(group, row.workload, lines);
        if !like {
            return None;
        }
        Some((median(lines, row.figure)?.0, setting))
    });
    medians.reduce(|a, b| if (b.0 < a.0) == (row.better == Less) { b } else { a })
}

fn summary(group: &Group<'_>) -> String {
    let here = |store: &Name| group.keys().any(|(_, name, _)| name == store);
    let columns: Vec<Name> = COLUMNS.into_iter().filter(here).collect();
    let mut text = String::from("| | |");
    for store in &columns {
        write!(text, " {store} |").expect("a string");
    }
    text += " ratio | to reach |\n|---|---|";
    text += &"--:|".repeat(columns.len() + 2);
    text.push('\n');
    for row in ROWS {
        let cells: Vec<_> = columns.iter().map(|&store| best(group, row, store)).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        write!(text, "| {} | {} |", row.workload.to_string().to_uppercase(), row.words)
            .expect("a string");
        for cell in cells {
            let mark = |setting| if setting == Setting::Best { "\\*" } else { "" };
            let cell = cell.map(|(value, setting)| format!("{}{}", digits(value), mark(setting)));
            write!(text, " {} |", cell.unwrap_or_default()).expect("a string");
        }
        let ratio = ratio(group, row).map(|ratio| format!("{ratio:.2}"));
        let target = row.target.map(|target| format!("≥ {target}"));
        writeln!(text, " {} | {} |", ratio.unwrap_or_default(), target.unwrap_or_default())
            .expect("a string");
    }
    text + "\nMedians. \\*: set as its documentation recommends (best); otherwise set like the others (alike). \
        Ratio: how many times better criba is than the better of RocksDB and fjall; in disk reads, \
        of those two what has no more filter bytes than it, by 2 % at most.\n"
}

fn counts_reads(workload: Workload) -> bool {
    matches!(workload, Workload::W2r | Workload::W2rc | Workload::W2ru)
}

/// Whether a store has over 2 % more filter bytes than criba, which explains fewer reads.
fn has_larger_filters(group: &Group<'_>, workload: Workload, lines: &[&Line]) -> bool {
    let bytes = |lines: &[&Line]| lines.last()?.findings.filter_bytes;
    let ours = group.get(&(workload, Name::Criba, Setting::Alike));
    match (ours.and_then(|lines| bytes(lines)), bytes(lines)) {
        (Some(ours), Some(theirs)) => theirs as f64 > ours as f64 * 1.02,
        _ => false,
    }
}

/// How many times better criba is than the better of its peers.
fn ratio(group: &Group<'_>, row: &Row) -> Option<f64> {
    let ours = best(group, row, Name::Criba)?.0;
    let peers = PEERS.iter().filter_map(|&peer| Some(best(group, row, peer)?.0));
    Some(match row.better {
        Less => peers.reduce(f64::min)? / ours,
        More => ours / peers.reduce(f64::max)?,
    })
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
        write!(text, "\n### {}\n\n| | n |", workload.to_string().to_uppercase()).expect("a string");
        for figure in &figures {
            write!(text, " {figure} |").expect("a string");
        }
        text += " runs | filter MiB |\n|---|--:|";
        text += &"--:|".repeat(figures.len() + 2);
        text.push('\n');
        for ((_, store, setting), lines) in rows {
            let findings = &lines.last().expect("not empty").findings;
            write!(text, "| {} | {} |", full_name(*store, *setting), lines.len())
                .expect("a string");
            if let Some(why) = findings.error.as_ref().or(findings.left_out.as_ref()) {
                writeln!(text, " {why} {}", "|".repeat(figures.len() + 2)).expect("a string");
                continue;
            }
            for figure in &figures {
                let cell = median(lines, figure).map(|(middle, least, most)| {
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
    let mut told = BTreeMap::new();
    for ((workload, store, setting), lines) in group {
        let line = lines.last().expect("not empty");
        // Most are set as for W2; its row is the one to show.
        let first = told.entry((*store, *setting)).or_insert(*line);
        if *workload == Workload::W2 {
            *first = line;
        }
    }
    let mut text = String::from("\n### Versions and settings\n\n");
    for ((store, setting), line) in told {
        let name = full_name(store, setting);
        writeln!(text, "- **{name}** {}: {}", line.job.version, line.findings.settings)
            .expect("a string");
    }
    text
}

pub fn full_name(store: Name, setting: Setting) -> String {
    match (store.settings().len(), setting) {
        (1, _) => store.to_string(),
        (_, Setting::Alike) => format!("{store}, alike"),
        (_, Setting::Best) => format!("{store}, best"),
    }
}

/// Three digits that count.
fn digits(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 9999.5 => thousands(value.round() as u64),
        _ if size >= 99.95 => format!("{value:.0}"),
        _ if size >= 9.995 => format!("{value:.1}"),
        _ if size >= 0.9995 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn thousands(value: u64) -> String {
    let plain = value.to_string();
    let mut text = String::new();
    for (at, digit) in plain.chars().enumerate() {
        if at > 0 && (plain.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Workload;
    use crate::results::tests::line;

    fn three(store: Name, setting: Setting, values: [f64; 3]) -> Vec<Line> {
        let one = |(repetition, value): (usize, &f64)| {
            let mut line = line(store, setting, Workload::W2, &[("absent_ns", *value)]);
            line.job.repetition = repetition as u32;
            line.findings.runs = Some(3);
            line
        };
        values.iter().enumerate().map(one).collect()
    }

    #[test]
    fn the_ratio_is_of_medians_to_the_better_peer() {
        let mut lines = three(Name::Criba, Setting::Alike, [20.0, 90.0, 10.0]);
        lines.extend(three(Name::RocksDb, Setting::Alike, [300.0, 310.0, 290.0]));
        lines.extend(three(Name::RocksDb, Setting::Best, [200.0, 210.0, 190.0]));
        lines.extend(three(Name::Fjall, Setting::Alike, [400.0, 400.0, 400.0]));
        lines.extend(three(Name::LsmDb, Setting::Alike, [50.0, 50.0, 50.0]));
        let text = markdown(&lines, "the command");
        assert!(
            text.contains("| | | criba | rocksdb | fjall | lsm-db | ratio | to reach |"),
            "{text}"
        );
        assert!(
            text.contains("| W2 | absent keys, ns | 20.0 | 200\\* | 400 | 50.0 | 10.00 | ≥ 5 |"),
            "{text}"
        );
        assert!(text.contains("| rocksdb, best | 3 | 200 (190–210) | 3 |  |"), "{text}");
        assert!(text.contains("a processor, 2 cores, 24 GiB of memory, Linux 6.1"));
        assert!(text.contains("`the command`"));
    }

    #[test]
    fn reads_are_compared_at_equal_filter_bytes() {
        let of = |store, setting, reads, bytes| {
            let mut line = line(store, setting, Workload::W2ru, &[("reads", reads)]);
            line.findings.filter_bytes = Some(bytes);
            line
        };
        let lines = [
            of(Name::Criba, Setting::Alike, 0.02, 1000),
            of(Name::Fjall, Setting::Alike, 0.1, 1010),
            of(Name::Fjall, Setting::Best, 0.001, 1900),
        ];
        let text = markdown(&lines, "");
        assert!(text.contains("L0 full | 0.0200 | 0.1000 | 5.00 | ≥ 4 |"), "{text}");
    }

    #[test]
    fn more_is_better_where_speed_is_counted() {
        let of = |store, value| line(store, Setting::Alike, Workload::W1, &[("puts_per_s", value)]);
        let lines =
            [of(Name::Criba, 600_000.0), of(Name::RocksDb, 300_000.0), of(Name::Fjall, 400_000.0)];
        let text = markdown(&lines, "");
        assert!(text.contains("| 600,000 | 300,000 | 400,000 | 1.50 | ≥ 1.5 |"), "{text}");
    }

    #[test]
    fn an_older_version_does_not_count() {
        let mut lines = three(Name::Criba, Setting::Alike, [100.0; 3]);
        let mut new = line(Name::Criba, Setting::Alike, Workload::W2, &[("absent_ns", 50.0)]);
        new.job.version = "1.1".to_owned();
        new.at = 7;
        lines.insert(0, new);
        let text = markdown(&lines, "");
        assert!(text.contains("| W2 | absent keys, ns | 50.0 |"), "{text}");
    }

    #[test]
    fn what_was_left_out_says_why() {
        let mut out = line(Name::Lmdb, Setting::Alike, Workload::W2u, &[]);
        out.findings.left_out = Some("compactions cannot be turned off".to_owned());
        let text = markdown(&[out], "");
        assert!(text.contains("| lmdb | 1 | compactions cannot be turned off ||"), "{text}");
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        let shown = [0.0, 0.012_34, 1.0, 12.34, 99.99, 123.4, 99_999.0, 1_234_567.0].map(digits);
        assert_eq!(shown, ["0.00", "0.0123", "1.00", "12.3", "100", "123", "99,999", "1,234,567"]);
    }
}
