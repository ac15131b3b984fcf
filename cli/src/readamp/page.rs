//! The report as a page with figures.

use maud::{Markup, html};

use super::checks::Checks;
use super::pass::PassReport;
use super::provenance;
use super::report::{Level, Report};
use super::sample_table::{SCRIPTS, SampleTable};
use super::words::{NONE, capitalised};
use crate::text::{counted, percent, ratio};
use criba_report::figure::{Axis, Figure, Series};
use criba_report::output;

/// What `readamp --report` writes, by name.
pub(super) fn files(report: &Report, sample: &SampleTable) -> Vec<(String, Vec<u8>)> {
    let figures = figures(report);
    let mut files = vec![
        ("report.html".to_owned(), page(report, &figures, sample).into_bytes()),
        ("checks.csv".to_owned(), checks_csv(report)),
    ];
    for figure in &figures {
        files.extend(criba_report::files(figure, &figure.file_stem("readamp")));
    }
    files
}

fn checks_csv(report: &Report) -> Vec<u8> {
    let rows = report.all_checks();
    let rows = rows.map(|(state, (name, check))| {
        [*name, state, check.verdict(), &check.said].map(str::to_owned)
    });
    output::csv(["check", "state", "verdict", "what was compared"], rows)
}

fn page(report: &Report, figures: &[Figure], sample: &SampleTable) -> String {
    let shown = |ids: &[&str]| {
        let figures = figures.iter().filter(|figure| ids.contains(&figure.id));
        let figures = figures
            .map(|figure| criba_report::shown(figure, &figure.file_stem("readamp"), &html! {}));
        figures.collect::<Vec<_>>()
    };
    let body = html! {
        header {
            h1 { "criba readamp" }
            p {
                "The disk reads of lookups in one store, with its filters and with every filter \
                 answering “maybe”. "
                @if report.failed().next().is_none() {
                    strong.good { "No check fails." }
                } @else {
                    strong.bad { "A check does not hold." }
                }
            }
        }
        main {
            @for figure in shown(&["absent", "present"]) { (figure) }
            section {
                h2 { "This run" }
                ul { @for (name, line) in report.headlines() { li { (name) ": " (line) } } }
                dl {
                    @for (name, text) in provenance::lines(report.setup.seed) {
                        dt { (name) } dd { (text) }
                    }
                    @for (name, text) in report.setup_lines() { dt { (name) } dd { (text) } }
                }
            }
            (sample.shown())
            section {
                h2 { "Levels" }
                @for figure in shown(&["absent-by-level", "present-by-level", "rates-by-level"]) { (figure) }
                (levels(report)) (level_reads(report))
            }
            (batches(report))
            (scans(report))
            (acts(report, &shown(&["states"])))
            section { h2 { "Checks" } (checks(report)) (passes(report)) }
            section { h2 { "Times" } (times(report)) }
        }
    };
    criba_report::page("criba readamp", &body, &SCRIPTS)
}

/// The figures with something to plot.
fn figures(report: &Report) -> Vec<Figure> {
    let figures = [
        reads(report, ABSENT),
        reads(report, PRESENT),
        reads_by_level(report, ABSENT),
        reads_by_level(report, PRESENT),
        rates_by_level(report),
        reads_by_state(report),
    ];
    figures.into_iter().filter(|figure| !figure.series.is_empty()).collect()
}

/// The passes over one kind of keys.
#[derive(Clone, Copy)]
struct Lookups {
    keys: &'static str,
    one: &'static str,
    id: &'static str,
    by_level: &'static str,
    axis: &'static str,
    with: usize,
    without: usize,
}

const ABSENT: Lookups = Lookups {
    keys: "absent",
    one: "an absent",
    id: "absent",
    by_level: "absent-by-level",
    axis: "disk reads per absent lookup",
    with: 0,
    without: 2,
};

const PRESENT: Lookups = Lookups {
    keys: "present",
    one: "a present",
    id: "present",
    by_level: "present-by-level",
    axis: "disk reads per present lookup",
    with: 1,
    without: 3,
};

const WITHOUT: usize = 5;
const OWN: usize = 0;
const OTHER: usize = 2;

fn reads_each(passes: &[PassReport], pass: usize) -> Option<f64> {
    ratio(passes[pass].disk_reads as f64, passes[pass].lookups)
}

/// What a lookup reads in the loaded store: without filters, with its own, and with others.
fn reads(report: &Report, of: Lookups) -> Figure {
    let with_filters = report.filter_bytes > 0;
    let others = report.other_filters_loaded.as_ref();
    let bar = |reads: Option<f64>| reads.map(|reads| (1.0, reads)).into_iter().collect();
    let place = format!(
        "{} on {}",
        counted(report.tables, "table"),
        counted(report.levels.len() as u64, "level")
    );
    let counted_by = match report.checks.get("kernel_agrees").and_then(|check| check.holds) {
        Some(true) => "Engine, file layer and kernel count the same reads.",
        _ => "The engine counts the reads.",
    };
    let lookups = report.passes[of.with].lookups;
    Figure {
        id: of.id,
        title: format!("Disk reads per lookup of {} keys", of.keys),
        asked: format!("How many blocks does {} lookup read from disk?", of.one),
        theory: match of.keys {
            "absent" => {
                "Without a cache and without filters a read for each table whose keys reach the one \
                 asked for; with filters p of those, p the filter's false-positive rate."
            }
            _ => {
                "Without a cache one read where the key is, with filters or without. Before it, on \
                 newer tables, as for an absent key."
            }
        }
        .to_owned(),
        measured: format!("{} of {} keys. {counted_by}", counted(lookups, "lookup"), of.keys),
        x: Axis::named("store", &[place]),
        y: Axis::linear(of.axis, ""),
        series: plotted([
            Series::rows("without filters", WITHOUT, bar(reads_each(&report.passes, of.without))),
            Series::rows(
                own_filters(report),
                OWN,
                bar(reads_each(&report.passes, of.with).filter(|_| with_filters)),
            ),
            Series::rows(
                others.map_or(String::new(), |act| named(&act.kind)),
                OTHER,
                bar(others.and_then(|act| reads_each(&act.state.passes, of.with))),
            ),
        ]),
    }
}

/// The reads of absent lookups as the store was loaded, changed and compacted, and with other filters.
fn reads_by_state(report: &Report) -> Figure {
    let mut states = Vec::new();
    if let Some(act) = &report.compaction {
        states.push(("loaded", report.tables, &report.passes));
        states.push(("changed", act.before.tables, &act.before.passes));
        states.push(("compacted", act.after.tables, &act.after.passes));
    }
    let along = |pass: usize| -> Vec<_> {
        let states = (1..).map(f64::from).zip(&states);
        states
            .filter_map(|(place, (.., passes))| Some((place, reads_each(passes, pass)?)))
            .collect()
    };
    let others = [(1.0, &report.other_filters_loaded), (3.0, &report.other_filters)];
    let others = others.into_iter().filter_map(|(place, act)| Some((place, act.as_ref()?)));
    let other_reads = others.clone();
    let other_reads = other_reads
        .filter_map(|(place, act)| Some((place, reads_each(&act.state.passes, ABSENT.with)?)));
    let other_name = others.clone().next().map_or(String::new(), |(_, act)| named(&act.kind));
    let own = if report.filter_bytes > 0 { along(ABSENT.with) } else { vec![] };
    let place =
        |(name, tables, _): &(&str, u64, _)| format!("{name}: {}", counted(*tables, "table"));
    let places: Vec<_> = states.iter().map(place).collect();
    Figure {
        id: "states",
        title: "What a compaction changes".to_owned(),
        asked: "What does an absent lookup read before and after a compaction?".to_owned(),
        theory:
            "A deleted or expired key passes the filter of each table that holds it or its tombstone. \
                 The compaction builds filters of the keys that are left, so it passes by mistake only."
                .to_owned(),
        measured: report.act_lines().join("; "),
        x: Axis::named("state of the store", &places),
        y: Axis::linear(ABSENT.axis, ""),
        series: plotted([
            Series::rows("without filters", WITHOUT, along(ABSENT.without)),
            Series::rows(own_filters(report), OWN, own),
            Series::rows(other_name, OTHER, other_reads.collect()),
        ]),
    }
}

/// The store's own filters.
fn own_filters(report: &Report) -> String {
    named(report.setup.filter.split(' ').next().unwrap_or_default())
}

/// Filters of a kind.
fn named(kind: &str) -> String {
    format!("{} filters", capitalised(kind))
}

fn reads_by_level(report: &Report, of: Lookups) -> Figure {
    let reads = |pass: usize| by_level(report, |level| report.per_lookup(level)[pass]);
    let own = if report.filter_bytes > 0 { reads(of.with) } else { vec![] };
    Figure {
        id: of.by_level,
        title: format!("Where lookups of {} keys read", of.keys),
        asked: format!("On which levels do lookups of {} keys read from disk?", of.keys),
        theory: "L0 is searched first. The search ends where the key is found.".to_owned(),
        measured: "The store as it was loaded. Levels without tables are left out.".to_owned(),
        x: level_axis(report),
        y: Axis::linear(of.axis, ""),
        series: plotted([
            Series::rows("without filters", WITHOUT, reads(of.without)),
            Series::rows(own_filters(report), OWN, own),
        ]),
    }
}

fn rates_by_level(report: &Report) -> Figure {
    let above_zero = |rate: Option<f64>| rate.filter(|rate| *rate > 0.0);
    let measured = by_level(report, |level| above_zero(level.fpr_measured));
    let predicted = by_level(report, |level| above_zero(level.fpr_predicted));
    Figure {
        id: "rates-by-level",
        title: "False positives, predicted and measured".to_owned(),
        asked: "How often does a filter say “maybe” of a key that its table does not hold?"
            .to_owned(),
        theory:
            "What the header of each filter predicts from its kind, its size and its keys, each \
                 filter as often as it was asked for a key that it does not hold."
                .to_owned(),
        measured: format!(
            "{} in all, {} predicted, of all probes. The check fpr_within_bounds counts a key that is \
             asked for again once.",
            percent(report.fpr_measured),
            percent(report.fpr_predicted)
        ),
        x: level_axis(report),
        y: Axis::log("false-positive rate", ""),
        series: plotted([
            Series::marks("predicted", 1, predicted),
            Series::marks("measured", 0, measured),
        ]),
    }
}

/// The levels with tables.
fn level_axis(report: &Report) -> Axis {
    let names: Vec<_> = report.levels.iter().map(|level| format!("L{}", level.level)).collect();
    Axis::named("level", &names)
}

/// The place of each level with tables on its axis, with its number if there is one.
fn by_level(report: &Report, of: impl Fn(&Level) -> Option<f64>) -> Vec<(f64, f64)> {
    let levels = (1..).map(f64::from).zip(&report.levels);
    levels.filter_map(|(place, level)| Some((place, of(level)?))).collect()
}

fn plotted<const N: usize>(series: [Series; N]) -> Vec<Series> {
    series.into_iter().filter(|series| !series.points.is_empty()).collect()
}

fn cells<const N: usize>(head: String, texts: [String; N]) -> Vec<Markup> {
    [head].into_iter().chain(texts).map(|text| html! { (text) }).collect()
}

fn levels(report: &Report) -> Markup {
    let head = [
        "level",
        "tables",
        "keys",
        "bits a key",
        "probes",
        "range-pruned",
        "true negatives",
        "false positives",
        "FPR measured",
        "FPR predicted",
    ];
    let rows = report.named_levels().map(|(name, level)| cells(name, level.as_text()));
    criba_report::table("Tables, filters and probes", &head, &head[1..], rows)
}

fn level_reads(report: &Report) -> Markup {
    let head = ["level", "absent, without", "absent, with", "present, without", "present, with"];
    let rows = report.named_levels();
    let rows = rows.map(|(name, level)| cells(name, report.reads_as_text(&level)));
    criba_report::table(
        "Disk reads a lookup, without filters and with them",
        &head,
        &head[1..],
        rows,
    )
}

fn batches(report: &Report) -> Markup {
    let Some(batches) = &report.batches else { return html! {} };
    html! {
        section {
            h2 { "Batches" }
            p { (capitalised(&report.batches_line().unwrap_or_default())) "." }
            (verdicts(&batches.checks))
        }
    }
}

fn verdicts(checks: &Checks) -> Markup {
    html! {
        ul {
            @for (name, check) in &checks.0 {
                li { code { (name) } " " (check.verdict()) ": " (check.said) }
            }
        }
    }
}

fn scans(report: &Report) -> Markup {
    let (Some(scans), Some(line)) = (&report.scans, report.scans_line()) else { return html! {} };
    let head =
        ["scans", "number", "keys found", "tables denied", "by engine", "by files", "by kernel"];
    let rows = scans.passes.iter().map(|pass| cells(pass.title(), pass.as_text()));
    html! {
        section {
            h2 { "Scans of prefixes" }
            p { "A copy of the store, " (line) "." }
            (criba_report::table("Disk reads of scans, counted three times", &head, &head[1..], rows))
            (verdicts(&scans.checks))
        }
    }
}

/// The second and the third act.
fn acts(report: &Report, figures: &[Markup]) -> Markup {
    let mut rows = report.state_rows().into_iter();
    let Some((caption, states)) = rows.next() else { return html! {} };
    let head: Vec<&str> = [""].into_iter().chain(states.iter().map(String::as_str)).collect();
    let rows = rows.map(|(name, texts)| std::iter::once(name).chain(texts));
    let rows = rows.map(|texts| texts.map(|text| html! { (text) }).collect());
    html! {
        section {
            h2 { "Compaction, and other filters" }
            @for figure in figures { (figure) }
            (criba_report::table(&caption, &head, &head[1..], rows))
        }
    }
}

fn checks(report: &Report) -> Markup {
    let states = report.states();
    let states = states.iter().map(|(state, ..)| *state);
    let head: Vec<&str> = ["check"].into_iter().chain(states).collect();
    let rows = report.check_rows().into_iter().map(|(name, cells)| {
        let cells = cells.into_iter().map(|text| {
            let class = match &*text {
                "holds" => "good",
                "FAILS" => "bad",
                _ => "quiet",
            };
            html! { span class=(class) { (text) } }
        });
        std::iter::once(html! { code { (name) } }).chain(cells).collect()
    });
    html! {
        (criba_report::table("", &head, &head[1..], rows))
        ul { @for (name, text) in report.check_notes() { li { code { (name) } ": " (text) } } }
        p.quiet { "What each compared: " a href="checks.csv" { "checks.csv" } }
    }
}

fn passes(report: &Report) -> Markup {
    let head = ["pass", "lookups", "cache hits", "by engine", "by files", "by kernel"];
    let rows = report.all_passes().map(|pass| cells(pass.title(), pass.as_text()));
    criba_report::table("Disk reads, counted three times", &head, &head[1..], rows)
}

fn times(report: &Report) -> Markup {
    let rows = report.all_passes().map(|pass| {
        let ns = (pass.end_ns - pass.start_ns) as f64;
        let each = ratio(ns / 1e3, pass.lookups);
        let each = each.map_or(NONE.to_owned(), |each| format!("{each:.2}"));
        cells(pass.title(), [format!("{:.2}", ns / 1e9), each])
    });
    html! {
        p.quiet {
            "Of this machine, whose page cache holds the tables. Loading and settling "
            (counted(report.keys, "key")) " took " (format!("{:.2} s", report.load_ns as f64 / 1e9)) "."
        }
        (criba_report::table("", &["pass", "s", "µs a lookup"], &["s", "µs a lookup"], rows))
    }
}
