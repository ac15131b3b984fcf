//! criba-object beside SlateDB.

use std::fmt::Write;

use crate::compare::{Group, group};
use crate::digits::digits;
use crate::lines::{Line, median};

const BLOOM: &str = "criba-bloom";
const RIBBON: &str = "criba-ribbon";
const PEER: &str = "slatedb";

/// A row: less is better.
#[derive(Clone, Copy)]
struct Row {
    words: &'static str,
    workload: &'static str,
    /// One figure, or a sum.
    figures: &'static [&'static str],
    /// The figures are divided by this.
    unit: f64,
    /// The aims, of Bloom filters and of ribbons: at most this fraction of SlateDB's.
    aims: Option<[(f64, &'static str); 2]>,
}

const fn row(
    words: &'static str,
    workload: &'static str,
    figures: &'static [&'static str],
    unit: f64,
) -> Row {
    Row { words, workload, figures, unit, aims: None }
}

const fn aim(row: Row, bloom: (f64, &'static str), ribbon: (f64, &'static str)) -> Row {
    Row { aims: Some([bloom, ribbon]), ..row }
}

const ONE: (f64, &str) = (1.0, "1");
const THIRD: (f64, &str) = (1.0 / 3.0, "1/3");
const FIFTH: (f64, &str) = (1.0 / 5.0, "1/5");
const TENTH: (f64, &str) = (1.0 / 10.0, "1/10");

const ABSENT: &[&str] = &["absent_gets_per_lookup"];
const FIRST: &[&str] = &["open_requests", "first_requests"];
const PRESENT: &[&str] = &["present_gets_per_lookup"];

const ROWS: &[Row] = &[
    aim(row("GETs an absent key: one run", "object-compacted-64", ABSENT, 1.0), ONE, FIFTH),
    aim(row("GETs an absent key: as loaded", "object-loaded-64", ABSENT, 1.0), THIRD, TENTH),
    aim(
        row("GETs an absent key: as loaded, memtables of 8 MiB", "object-loaded-8", ABSENT, 1.0),
        THIRD,
        TENTH,
    ),
    aim(row("emptied machine, one run: requests", "object-compacted-64", FIRST, 1.0), TENTH, TENTH),
    row(
        "emptied machine, one run: requests after opening",
        "object-compacted-64",
        &["first_requests"],
        1.0,
    ),
    row(
        "emptied machine, one run: MiB read",
        "object-compacted-64",
        &["open_bytes_read", "first_bytes_read"],
        MIB,
    ),
    row("emptied machine, one run: s", "object-compacted-64", &["open_s", "first_s"], 1.0),
    aim(
        row(
            "emptied machine, as loaded, memtables of 8 MiB: requests",
            "object-loaded-8",
            FIRST,
            1.0,
        ),
        TENTH,
        TENTH,
    ),
    row(
        "emptied machine, as loaded, memtables of 8 MiB: s",
        "object-loaded-8",
        &["open_s", "first_s"],
        1.0,
    ),
    row(
        "the same machine again, one run: requests",
        "object-compacted-64",
        &["again_requests"],
        1.0,
    ),
    row("the same machine again, one run: s", "object-compacted-64", &["again_s"], 1.0),
    row("GETs a present key: one run", "object-compacted-64", PRESENT, 1.0),
    row("GETs a present key: as loaded", "object-loaded-64", PRESENT, 1.0),
    row("GETs a present key: as loaded, memtables of 8 MiB", "object-loaded-8", PRESENT, 1.0),
    row("opening to read: requests", "object-compacted-64", &["open_requests"], 1.0),
    row("opening to read: s / 50 ms", "object-compacted-64", &["open_round_trips"], 1.0),
    row("opening to write: requests", "object-open-writer-64", &["open_requests"], 1.0),
    row("opening to write: s / 50 ms", "object-open-writer-64", &["open_round_trips"], 1.0),
    row("loading: PUTs", "object-load-64", &["load_puts"], 1.0),
    row("loading: MiB written", "object-load-64", &["load_bytes_written"], MIB),
    row("loading: s", "object-load-64", &["load_s"], 1.0),
    row("absent key: p50, µs", "object-compacted-64", &["absent_p50_us"], 1.0),
    row("absent key: p99, µs", "object-compacted-64", &["absent_p99_us"], 1.0),
    row(
        "100 absent keys at once: p50, ms",
        "object-compacted-64",
        &["absent_batch_p50_us"],
        1000.0,
    ),
    row(
        "100 absent keys at once: p99, ms",
        "object-compacted-64",
        &["absent_batch_p99_us"],
        1000.0,
    ),
    row("present key: p50, ms", "object-compacted-64", &["present_p50_us"], 1000.0),
    row("present key: p99, ms", "object-compacted-64", &["present_p99_us"], 1000.0),
    row(
        "100 present keys at once: p50, ms",
        "object-compacted-64",
        &["present_batch_p50_us"],
        1000.0,
    ),
    row("filters in memory, MiB", "object-compacted-64", &["filter_bytes"], MIB),
    row("filters as loaded, memtables of 8 MiB, MiB", "object-loaded-8", &["filter_bytes"], MIB),
    row("runs as loaded", "object-loaded-64", &["runs"], 1.0),
    row("runs as loaded, memtables of 8 MiB", "object-loaded-8", &["runs"], 1.0),
    row("indexes in memory, MiB", "object-compacted-64", &["index_bytes"], MIB),
    row("local disk, MiB", "object-compacted-64", &["local_bytes"], MIB),
];

const MIB: f64 = (1 << 20) as f64;

impl Row {
    /// The median of a store.
    fn of(&self, group: &Group<'_>, store: &str, setting: &str) -> Option<f64> {
        let lines = group
            .get(&(self.workload, store, setting))
            .or_else(|| group.get(&(self.workload, store, "")))?;
        let medians = self.figures.iter().map(|figure| match *figure {
            "runs" => median_runs(lines),
            figure => Some(median(lines, figure)?[0]),
        });
        Some(medians.sum::<Option<f64>>()? / self.unit)
    }
}

fn median_runs(lines: &[&Line]) -> Option<f64> {
    let mut runs: Vec<_> = lines.iter().filter_map(|line| line.findings.runs).collect();
    runs.sort_unstable();
    runs.get(runs.len() / 2).map(|&runs| runs as f64)
}

/// criba-object with both filters, SlateDB with and without its cache on the local disk, and fractions of SlateDB's
/// figures without it.
///
/// # Panics
/// Never: a string can be written to.
pub(crate) fn objects(lines: &[Line]) -> String {
    let group = group(lines, 1_000_000, "names");
    let mut parts = [String::new(), String::new()];
    for row in ROWS {
        let cell = |value: Option<f64>| value.map_or("–".to_owned(), digits);
        let peer = row.of(&group, PEER, "memory");
        let disk = row.of(&group, PEER, "disk");
        let ours = [BLOOM, RIBBON].map(|store| row.of(&group, store, "memory"));
        let mut is_over = false;
        let mut fractions = String::new();
        for (number, ours) in ours.into_iter().enumerate() {
            let most = row.aims.map_or(1.0, |aims| aims[number].0);
            let fraction = ours.zip(peer).map(|(ours, peer)| ours / peer);
            let shown = match fraction.filter(|fraction| fraction.is_finite()) {
                None => "–".to_owned(),
                // Equal in the digits that are shown.
                Some(fraction) if fraction <= most + 0.005 => format!("{fraction:.2}"),
                Some(fraction) => {
                    is_over = true;
                    format!("**{fraction:.2}**")
                }
            };
            write!(fractions, "{shown}|").expect("a string");
        }
        let [bloom, ribbon] = ours.map(cell);
        let aims = row.aims.map(|aims| aims.map(|(_, words)| words).join(", "));
        let (words, aims) = (row.words, aims.unwrap_or_default());
        writeln!(
            parts[usize::from(is_over)],
            "|{words}|{bloom}|{ribbon}|{}|{}|{fractions}{aims}|",
            cell(peer),
            cell(disk)
        )
        .expect("a string");
    }
    let [won, lost] = parts;
    let empty = "|".repeat(7);
    format!(
        "||Bloom|ribbon|SlateDB|its disk cache|Bloom, fraction|ribbon, fraction|aims|\n|---|{}\n\
         |**criba wins, or is equal**|{empty}\n{won}|**criba loses, or misses an aim**|{empty}\n{lost}",
        "--:|".repeat(7)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::tests::line;

    #[test]
    fn what_is_over_its_aim_is_bold() {
        let of = |store, setting, workload, figures: &[(&str, f64)]| {
            let mut line = line(store, setting, workload, figures);
            line.job.n = 1_000_000;
            line
        };
        let with_runs = |mut line: Line, runs| {
            line.findings.runs = Some(runs);
            line
        };
        let absent = |value| [("absent_gets_per_lookup", value)];
        let first = |open, first| [("open_requests", open), ("first_requests", first)];
        let lines = [
            of(BLOOM, "memory", "object-compacted-64", &absent(0.009)),
            of(RIBBON, "memory", "object-compacted-64", &absent(0.004)),
            of(PEER, "memory", "object-compacted-64", &absent(0.01)),
            of(PEER, "disk", "object-compacted-64", &absent(0.0)),
            of(BLOOM, "memory", "object-loaded-8", &first(4.0, 3.0)),
            of(PEER, "memory", "object-loaded-8", &first(10.0, 90.0)),
            with_runs(of(BLOOM, "memory", "object-loaded-64", &[]), 4),
            with_runs(of(PEER, "memory", "object-loaded-64", &[]), 5),
            of(BLOOM, "", "object-load-64", &[("load_puts", 20.0)]),
            of(PEER, "", "object-load-64", &[("load_puts", 10.0)]),
        ];
        let text = objects(&lines);
        for expected in [
            "|**criba loses, or misses an aim**||||||||\n\
             |GETs an absent key: one run|0.0090|0.0040|0.0100|0.00|0.90|**0.40**|1, 1/5|",
            "|emptied machine, as loaded, memtables of 8 MiB: requests|7.00|–|100|–|0.07|–|1/10, 1/10|",
            "|runs as loaded|4.00|–|5.00|–|0.80|–||",
            "|loading: PUTs|20.0|–|10.0|10.0|**2.00**|–||",
        ] {
            assert!(text.contains(expected), "{expected} in\n{text}");
        }
    }
}
