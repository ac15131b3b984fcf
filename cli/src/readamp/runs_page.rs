//! The report of several runs: their rows, and a figure.

use criba_report::figure::{Axis, Figure, Series};
use maud::html;

use super::compare::{Comparison, Row};
use super::provenance;
use crate::text::thousands;

/// What `readamp --compare` or `--sweep` writes with `--report`, by name.
pub(super) fn files(figure: &Figure, rows: &[&Row], seed: u64) -> Vec<(String, Vec<u8>)> {
    let stem = figure.file_stem("readamp");
    let mut files = vec![("report.html".to_owned(), page(figure, &stem, rows, seed).into_bytes())];
    files.extend(criba_report::files(figure, &stem));
    files
}

fn page(figure: &Figure, stem: &str, rows: &[&Row], seed: u64) -> String {
    let numbers =
        ["bytes of filters", "bits a key", "sorted runs", "wasted reads", "per absent key"];
    let [bytes, bits, runs, wasted, each] = numbers;
    let head = ["policy", bytes, bits, runs, wasted, each, "checks"];
    let cells = rows.iter().map(|row| {
        let or_dash = |number: Option<f64>, decimals| {
            number.map_or("–".to_owned(), |number| format!("{number:.decimals$}"))
        };
        let checks = if row.failed_checks.is_empty() {
            "hold".to_owned()
        } else {
            row.failed_checks.join(", ")
        };
        vec![
            html! { (row.filter) },
            html! { (thousands(row.filter_bytes)) },
            html! { (or_dash(row.bits_per_key, 2)) },
            html! { (thousands(row.sorted_runs)) },
            html! { (thousands(row.wasted_reads)) },
            html! { (or_dash(row.wasted_per_lookup, 6)) },
            html! { (checks) },
        ]
    });
    let body = html! {
        header {
            h1 { "criba readamp" }
            p {
                "The same keys and lookups with each policy. "
                @if rows.iter().all(|row| row.failed_checks.is_empty()) {
                    strong.good { "No check fails." }
                } @else {
                    strong.bad { "A check does not hold." }
                }
            }
        }
        main {
            (criba_report::shown(figure, stem, &html! {}))
            section { h2 { "Runs" } (criba_report::table("", &head, &numbers, cells)) }
            section {
                h2 { "This measurement" }
                dl { @for (name, text) in provenance::lines(seed) { dt { (name) } dd { (text) } } }
            }
        }
    };
    criba_report::page("criba readamp", &body, &[])
}

impl Comparison {
    /// Reads per absent key of each policy.
    pub(super) fn figure(&self) -> Figure {
        let names: Vec<&str> = self.rows.iter().map(|row| row.name.as_str()).collect();
        let reads = (1..).map(f64::from).zip(&self.rows);
        let reads = reads.filter_map(|(place, row)| Some((place, row.wasted_per_lookup?)));
        Figure {
            id: "compare",
            title: "Disk reads of absent keys, in as many bytes of filters".to_owned(),
            asked: "How many disk reads does an absent key cost with each policy?".to_owned(),
            theory: "The rate of a Bloom filter is 0.6185 to the power of its bits a key, that of a ribbon half to \
                     that power. Balanced bits are fewer where more keys are."
                .to_owned(),
            measured: "All filters of one policy take as many bytes as those of another, within 2 %.".to_owned(),
            x: Axis::named("policy", &names),
            y: Axis::linear("disk reads per absent key", ""),
            series: vec![Series::rows("reads", 0, reads.collect())],
        }
    }
}
