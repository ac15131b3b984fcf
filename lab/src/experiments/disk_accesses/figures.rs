//! The study's five figures, and one that it describes in words.

use criba_report::figure::{Axis, Figure, Series};

use super::{Case, Cases, Probes, QUERIES, RATIOS, Shape};
use crate::experiment::{Notes, drawn};
use crate::theory;

/// The bytes of a filter of m bits, with its header.
pub(super) fn bytes(m: u64) -> u64 {
    128 + 8 * m.div_ceil(64)
}

pub(super) fn all(notes: &mut Notes, cases: &Cases, million: &[Case], timed: &[Case]) {
    notes.figure(in_theory(million));
    notes.figure(accesses(cases, true));
    notes.figure(accesses(cases, false));
    notes.figure(size(cases));
    notes.figure(by_size(cases));
    notes.figures.extend(times(timed));
    notes.figure(total_time(timed));
}

fn ratio_axis() -> Axis {
    Axis::linear("filter bits, ρ = m/n", "bits a key")
}

/// Ratios close enough for a curve with the steps of k.
fn curve(of: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    let steps = (1..=400).map(|i| f64::from(i) / 40.0);
    steps.map(|ratio| (ratio, of(ratio))).collect()
}

fn in_theory(million: &[Case]) -> Figure {
    let rate = |probes: Probes| move |ratio| theory::rate_at_ratio(ratio, probes.of(ratio));
    let marks = million.iter().map(|case| (case.shape.ratio, case.sample().rate()));
    let seven = (7.0, theory::rate_at_ratio(7.0, 5));
    drawn(
        "theory",
        [
            "The false-positive rate against bits a key",
            "How many bits a key make the rate small?",
            "(1 − e^(−k/ρ))^k with k = ρ ln 2, rounded up as in the study or to the nearest. At ρ \
             = 7, which the study finds to suffice, 3.5 %.",
            "One SSTable of a million names (ten million in the full run), k rounded up; half as \
             many absent names asked for at each ρ.",
        ],
        [ratio_axis(), Axis::linear("false-positive rate", "")],
        vec![
            Series::line("theory, k rounded up", 0, curve(rate(Probes::Ceiling))),
            Series::line("theory, k to the nearest", 1, curve(rate(Probes::Rounding))),
            Series::stems("ρ = 7: 3.5 %", 4, vec![seven]),
            Series::marks("measured, k rounded up", 0, marks.collect()),
        ],
    )
}

/// The study's figure 2, and the same per query.
fn accesses(cases: &Cases, per_query: bool) -> Figure {
    let expected = |ratio| 0.5 + 0.5 * theory::rate_at_ratio(ratio, Probes::Ceiling.of(ratio));
    let mut series = Vec::new();
    if per_query {
        series.push(Series::line("expected, (n + (N − n)·p) / N", 5, curve(expected)));
    }
    for (hue, queries) in QUERIES.into_iter().enumerate() {
        let whole = if per_query { 1.0 } else { queries as f64 };
        let points = RATIOS.into_iter().map(|ratio| {
            let shape = Shape { ratio, k: Probes::Ceiling.of(ratio) };
            let of_size = |case: &&Case| case.n == queries / 2 && case.shape == shape;
            let of = cases.0.iter().filter(of_size);
            let sum = |what: fn(&Case) -> u64| of.clone().map(what).sum::<u64>() as f64;
            (ratio, whole * sum(Case::reads) / sum(Case::queries))
        });
        series.push(Series::marks(format!("measured, N = {queries}"), hue, points.collect()));
        if !per_query {
            let curve = curve(|ratio| whole * expected(ratio));
            series.push(Series::line(format!("expected, N = {queries}"), hue, curve));
        }
    }
    drawn(
        if per_query { "accesses" } else { "all-accesses" },
        [
            if per_query {
                "Disk accesses against bits a key"
            } else {
                "Disk accesses of N queries against bits a key"
            },
            "How many of N queries, half of them for absent names, go to the disk?",
            "All n for present names, and the false positives: n + (N − n)·p for names in the \
             table's key range, with p by the k of the study, rounded up.",
            "Reads of the table, counted by the store and by the file layer, in several \
             repetitions with other names and hashes. One SSTable a repetition, without a block \
             cache; the filter has the m and k asked for.",
        ],
        [ratio_axis(), Axis::linear("disk reads", if per_query { "a query" } else { "" })],
        series,
    )
}

fn size(cases: &Cases) -> Figure {
    let mut series = Vec::new();
    for (hue, ratio) in [1.0, 2.0, 4.0, 7.0, 10.0].into_iter().enumerate() {
        let shape = Shape { ratio, k: Probes::Ceiling.of(ratio) };
        let sizes = QUERIES.map(|queries| queries / 2);
        let line = sizes.map(|n| (n as f64, shape.m(n) as f64 / 8.0)).to_vec();
        let mut marks: Vec<_> = cases.0.iter().filter(|case| case.shape == shape).collect();
        marks.sort_by_key(|case| case.n);
        marks.dedup_by_key(|case| case.n);
        let marks = marks.iter().map(|case| (case.n as f64, case.filter_bytes as f64)).collect();
        series.push(Series::line(format!("m/8, ρ = {ratio}"), hue, line));
        series.push(Series::marks(format!("in memory, ρ = {ratio}"), hue, marks));
    }
    drawn(
        "size",
        [
            "The filter's size",
            "How large is the filter of n names?",
            "m/8 = ρn/8 bytes.",
            "The table's filter in memory: a header of 128 bytes, and whole words of 64 bits.",
        ],
        [Axis::linear("names, n", ""), Axis::linear("filter", "bytes")],
        series,
    )
}

fn by_size(cases: &Cases) -> Figure {
    let mut series = vec![Series::line("measured = theory", 5, vec![(0.008, 0.008), (1.0, 1.0)])];
    for (hue, queries) in QUERIES.into_iter().enumerate() {
        let n = queries / 2;
        let points = Shape::all().filter_map(|shape| {
            let sample = cases.sum(|case| case.n == n && case.shape == shape);
            (sample.passed > 0).then(|| (shape.rate(n), sample.rate()))
        });
        series.push(Series::marks(format!("n = {n}"), hue, points.collect()));
    }
    drawn(
        "by-size",
        [
            "The rate measured against the rate in theory",
            "Does the formula hold for few names as for many?",
            "(1 − e^(−kn/m))^k, with the terms that it leaves out.",
            "All ρ, k rounded up and to the nearest, all repetitions of a size together. Where the \
             rate is low, few of 1000 absent names pass, and the points scatter.",
        ],
        [
            Axis::log("false-positive rate, theory", ""),
            Axis::log("false-positive rate, measured", ""),
        ],
        series,
    )
}

/// The study's figure 5: on disk, and in the filter alone.
fn times(timed: &[Case]) -> [Figure; 2] {
    let panel = |id, title: &str, measured: &str, time: fn(&Case) -> f64| {
        drawn(
            id,
            [
                title,
                "What does a query take on disk, and in the filter?",
                "None: times are this machine's, and decide nothing.",
                &format!("20,000 names, half of them absent, the fastest of three. {measured}"),
            ],
            [ratio_axis(), Axis::linear("time", "µs a query")],
            vec![Series::marked(
                "measured",
                0,
                timed.iter().map(|case| (case.shape.ratio, 1e6 * time(case))).collect(),
            )],
        )
    };
    [
        panel(
            "disk-time",
            "Time of a query that goes to the disk",
            "Each is a read of one block, which the page cache holds.",
            |case| case.present.time.as_secs_f64() / case.present.made as f64,
        ),
        panel(
            "filter-time",
            "Time of a query in the filter alone",
            "Absent names in a filter of the same shape, without a store.",
            |case| case.filter_time.as_secs_f64() / case.n as f64,
        ),
    ]
}

fn total_time(timed: &[Case]) -> Figure {
    let points =
        timed.iter().map(|case| (case.reads() as f64, case.time().as_secs_f64() * 1e3)).collect();
    drawn(
        "total-time",
        [
            "The total time against disk accesses",
            "Is the total time in proportion to the accesses?",
            "A line; not through zero, for a query that reads nothing takes time as well.",
            "20,000 queries at each ρ, half of them for absent names.",
        ],
        [Axis::linear("disk reads", ""), Axis::linear("time of all queries", "ms")],
        vec![Series::marks("measured", 0, points)],
    )
}
