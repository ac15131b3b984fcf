//! The report as a page with figures.

use maud::{Markup, html};

use super::report::{Level, Report};
use super::state::State;
use super::words::NONE;
use crate::page::figure::{Axis, Figure, Scale, Series};
use crate::page::{self, output};
use crate::text::{counted, percent, ratio};

/// What `readamp --report` writes, by name.
pub(super) fn files(report: &Report) -> Vec<(String, Vec<u8>)> {
    let figures = figures(report);
    let mut files = vec![
        ("report.html".to_owned(), page(report, &figures).into_bytes()),
        ("checks.csv".to_owned(), checks_csv(report)),
    ];
    for figure in &figures {
        files.extend(page::files(figure, &figure.file_stem("readamp")));
    }
    files
}

fn checks_csv(report: &Report) -> Vec<u8> {
    let rows = report.states().into_iter().flat_map(|(state, _, checks)| {
        checks.0.iter().map(move |(name, check)| {
            [*name, state, check.verdict(), &check.said].map(str::to_owned)
        })
    });
    output::csv(["check", "state", "verdict", "what was compared"], rows)
}

fn page(report: &Report, figures: &[Figure]) -> String {
    let setup = report.setup_lines();
    let body = html! {
        header {
            h1 { "criba readamp" }
            p {
                "The disk reads of lookups in one store, with its filters and with every filter \
                 answering “maybe”."
            }
            ul { @for (name, line) in report.headlines() { li { (name) ": " (line) } } }
            @if report.failed().next().is_none() {
                p { strong.good { "No check fails." } }
            } @else {
                p { strong.bad { "A check does not hold." } }
            }
            dl { @for (name, text) in &setup { dt { (name) } dd { (text) } } }
        }
        main {
            section {
                h2 { "Reads" }
                @for figure in figures {
                    (page::shown(figure, &figure.file_stem("readamp"), &html! {}))
                }
            }
            section { h2 { "Levels" } (levels(report)) (reads(report)) }
            (acts(report))
            section { h2 { "Checks" } (checks(report)) (passes(report)) }
            section { h2 { "Times" } (times(report)) }
        }
    };
    page::page("criba readamp", &body)
}

/// The figures with something to plot: not without levels or reads.
fn figures(report: &Report) -> Vec<Figure> {
    let figures = [
        reads_by_level(report, "absent", [0, 2]),
        reads_by_level(report, "present", [1, 3]),
        rates_by_level(report),
        reads_by_state(report),
    ];
    figures.into_iter().filter(|figure| !figure.series.is_empty()).collect()
}

/// The reads of two passes, with filters and without.
fn reads_by_level(report: &Report, keys: &'static str, passes: [usize; 2]) -> Figure {
    let reads = |pass: usize| {
        by_level(report, |level| report.per_lookup(level)[pass].filter(|reads| *reads > 0.0))
    };
    let [with, without] = passes.map(reads);
    let (id, label) = match keys {
        "absent" => ("absent", "disk reads per absent lookup"),
        _ => ("present", "disk reads per present lookup"),
    };
    let total = report.per_lookup(&report.total());
    let reads_of =
        |pass: usize| total[pass].map_or("none".to_owned(), |reads| format!("{reads:.4}"));
    Figure {
        id,
        title: format!("Where lookups of {keys} keys read"),
        asked: format!("On which levels do lookups of {keys} keys read from disk?"),
        theory: match keys {
            "absent" => {
                "Without a cache and without filters a read for each table whose keys reach the one \
                 asked for; with filters p of those, p the filter's false-positive rate."
            }
            _ => {
                "Without a cache one read where the key is, with filters or without. Above it as for an \
                 absent key; below it none: the search ends where the key is found."
            }
        }
        .to_owned(),
        measured: format!(
            "{} reads a lookup without filters, {} with them, all levels together. A level without \
             a read has no mark.",
            reads_of(passes[1]),
            reads_of(passes[0])
        ),
        x: LEVEL_AXIS,
        y: Axis::log(label, ""),
        series: plotted([
            Series::marks("without filters", 1, without),
            Series::marks("with filters", 0, with),
        ]),
    }
}

fn rates_by_level(report: &Report) -> Figure {
    let above_zero = |rate: Option<f64>| rate.filter(|rate| *rate > 0.0);
    let measured = by_level(report, |level| above_zero(level.fpr_measured));
    let predicted = by_level(report, |level| above_zero(level.fpr_predicted));
    Figure {
        id: "rates",
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
        x: LEVEL_AXIS,
        y: Axis::log("false-positive rate", ""),
        series: plotted([
            Series::marks("predicted", 1, predicted),
            Series::marks("measured", 0, measured),
        ]),
    }
}

/// The reads of absent lookups as the store was loaded, changed and compacted, and with other filters.
fn reads_by_state(report: &Report) -> Figure {
    let states = report.compaction.iter().flat_map(|act| [&act.before, &act.after]);
    let states = states.chain(report.other_filters.iter().map(|act| &act.state));
    let per_lookup = |reads: fn(&State) -> u64, loaded: usize| -> Vec<(f64, f64)> {
        let states = states.clone().map(|state| ratio(reads(state) as f64, state.absent));
        let loaded = report.per_lookup(&report.total())[loaded];
        let places = (1..).map(f64::from).zip([loaded].into_iter().chain(states));
        // Without the second act there is nothing to compare.
        let places = places.filter(|_| report.compaction.is_some());
        places
            .filter_map(|(place, reads)| Some((place, reads.filter(|reads| *reads > 0.0)?)))
            .collect()
    };
    Figure {
        id: "states",
        title: "What compaction and other filters change".to_owned(),
        asked: "What does a lookup of an absent key read before and after a compaction, and with filters \
                of another kind in the same bytes?"
            .to_owned(),
        theory: "A deleted key passes the filter of each table that holds it or its tombstone. The \
                 compaction builds filters of the keys that are left, so it passes by mistake only."
            .to_owned(),
        measured: report.act_lines().join("; "),
        x: Axis::named("state of the store", &["loaded", "changed", "compacted", "other filters"]),
        y: Axis::log("disk reads per absent lookup", ""),
        series: plotted([
            Series::marks("without filters", 1, per_lookup(|s| s.disk_reads_unfiltered, 2)),
            Series::marks("with filters", 0, per_lookup(|s| s.disk_reads, 0)),
        ]),
    }
}

const LEVEL_AXIS: Axis = Axis {
    label: "level",
    unit: "",
    scale: Scale::Named(&["L0", "L1", "L2", "L3", "L4", "L5", "L6"]),
};

/// The place of each level with tables on the axis, with its number if there is one.
fn by_level(report: &Report, of: impl Fn(&Level) -> Option<f64>) -> Vec<(f64, f64)> {
    let points = report.levels.iter().filter_map(|level| Some((level.level, of(level)?)));
    points.map(|(level, value)| ((level + 1) as f64, value)).collect()
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
    page::table("Tables, filters and probes", &head, &head[1..], rows)
}

fn reads(report: &Report) -> Markup {
    let head = ["level", "absent, without", "absent, with", "present, without", "present, with"];
    let rows = report.named_levels();
    let rows = rows.map(|(name, level)| cells(name, report.reads_as_text(&level)));
    page::table("Disk reads a lookup, without filters and with them", &head, &head[1..], rows)
}

/// The second and the third act.
fn acts(report: &Report) -> Markup {
    let mut rows = report.state_rows().into_iter();
    let Some((caption, states)) = rows.next() else { return html! {} };
    let head: Vec<&str> = [""].into_iter().chain(states.iter().map(String::as_str)).collect();
    let rows = rows.map(|(name, texts)| std::iter::once(name).chain(texts));
    let rows = rows.map(|texts| texts.map(|text| html! { (text) }).collect());
    html! {
        section {
            h2 { "Compaction, and other filters" }
            ul { @for line in report.act_lines() { li { (line) } } }
            (page::table(&caption, &head, &head[1..], rows))
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
        (page::table("", &head, &head[1..], rows))
        ul { @for (name, text) in report.check_notes() { li { code { (name) } ": " (text) } } }
        p.quiet { "What each compared: " code { "checks.csv" } }
    }
}

fn passes(report: &Report) -> Markup {
    let head = ["pass", "lookups", "cache hits", "by engine", "by files", "by kernel"];
    let rows = report.passes.iter().map(|pass| cells(pass.title(), pass.as_text()));
    page::table("Disk reads, counted three times", &head, &head[1..], rows)
}

fn times(report: &Report) -> Markup {
    let rows = report.passes.iter().map(|pass| {
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
        (page::table("", &["pass", "s", "µs a lookup"], &["s", "µs a lookup"], rows))
    }
}
