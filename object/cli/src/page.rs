//! A report as a page with three plots.

use criba_report::figure::{Axis, Figure, Series};
use criba_report::numbers::thousands;
use maud::html;

use crate::print::{money, setup};
use crate::report::{Pass, Report};

/// The page and its plots, by name.
pub(crate) fn files(report: &Report) -> Vec<(String, Vec<u8>)> {
    let figures = figures(report);
    let mut files = vec![("report.html".to_owned(), page(report, &figures).into_bytes())];
    for figure in &figures {
        files.extend(criba_report::files(figure, &figure.file_stem("bucket")));
    }
    files
}

fn figures(report: &Report) -> [Figure; 3] {
    let requests = Figure {
        id: "requests",
        title: "Requests of a lookup".to_owned(),
        asked: "How many GETs does a lookup make?".to_owned(),
        theory: "An absent key: one for each sorted run without filters, else one for each false positive. A present \
                 key: one more."
            .to_owned(),
        measured: "Without a block cache; each disk read of the ledger is one GET.".to_owned(),
        x: Axis::named("keys", &["absent keys", "present keys"]),
        y: Axis::linear("GETs per lookup", ""),
        series: series(report, |pass| pass.gets_each),
    };
    let dollars = Figure {
        id: "money",
        title: "Money of a month, in thousands of dollars".to_owned(),
        asked: "What do the requests of lookups cost?".to_owned(),
        theory: "GETs per lookup times lookups times the price.".to_owned(),
        measured: money(report),
        y: Axis::linear("thousand dollars a month", ""),
        series: series(report, |pass| pass.dollars_a_month / 1000.0),
        ..requests.clone()
    };
    let slowest = Figure {
        id: "p99",
        title: "p99 of lookups, in milliseconds".to_owned(),
        asked: "How long does a lookup take that 99 of 100 do not exceed?".to_owned(),
        theory: "Each GET takes the time of one request. If fewer than one of a hundred lookups makes one, p99 is that of \
                 memory."
            .to_owned(),
        measured: format!("{} threads; {} ms added to a request.", report.threads, report.delay_ms),
        y: Axis::linear("p99", "ms"),
        series: series(report, |pass| pass.p99_ms),
        ..requests.clone()
    };
    [requests, dollars, slowest]
}

fn series(report: &Report, value: fn(&Pass) -> f64) -> Vec<Series> {
    let mut series = Vec::new();
    for (hue, run) in [1, 0, 2].into_iter().zip(&report.runs) {
        let points = vec![(1.0, value(&run.absent)), (2.0, value(&run.present))];
        series.push(Series::rows(run.name, hue, points));
    }
    series
}

fn page(report: &Report, figures: &[Figure]) -> String {
    let numbers = ["filters", "opening GETs", "GETs", "ledger", "p50 ms", "p99 ms", "$ a month"];
    let [filters, opening, gets, ledger, p50, p99, dollars] = numbers;
    let head = ["run", "keys", filters, opening, gets, ledger, p50, p99, dollars];
    let mut rows = Vec::new();
    for run in &report.runs {
        for (keys, pass) in [("absent", &run.absent), ("present", &run.present)] {
            rows.push(vec![
                html! { (run.name) },
                html! { (thousands(pass.lookups)) " " (keys) },
                html! { (thousands(run.filter_bytes)) },
                html! { (thousands(run.opening.gets)) },
                html! { (thousands(pass.requests.gets)) },
                html! { (thousands(pass.disk_reads)) },
                html! { (format!("{:.3}", pass.p50_ms)) },
                html! { (format!("{:.3}", pass.p99_ms)) },
                html! { (format!("{:.2}", pass.dollars_a_month)) },
            ]);
        }
    }
    let body = html! {
        header {
            h1 { "criba-object readamp" }
            p {
                (setup(report)) ". "
                @if report.checks_hold {
                    strong.good { "Each disk read of the ledger is one GET." }
                } @else {
                    strong.bad { "A check does not hold." }
                }
            }
        }
        main {
            @for figure in figures {
                (criba_report::shown(figure, &figure.file_stem("bucket"), &html! {}))
            }
            section {
                h2 { "Runs" }
                (criba_report::table("", &head, &numbers, rows))
                p.quiet { (money(report)) }
            }
        }
    };
    criba_report::page("criba-object readamp", &body, &[])
}
