//! The study's experiment: lookups of names in a file behind a filter, with disk accesses counted.

mod directory;
mod figures;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criba_cli::Result;

use self::directory::{Directory, Lookups};
use crate::check::{Check, Sample};
use crate::experiment::{Experiment, Notes, Setting, key};
use crate::source::Source;
use crate::trial::bloom;
use crate::{shown, theory};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "disk-accesses",
    title: "Disk accesses behind a filter",
    question: "User names with e-mail addresses lie in a file, and half of the names asked for are \
               not there. How many disk accesses does a filter of m bits save?",
    sources: &[Source::Study],
    run,
};

/// Queries, half of them for present names.
const QUERIES: [u64; 5] = [2000, 5000, 10_000, 15_000, 20_000];
/// Bits a key, ρ = m/n.
const RATIOS: [f64; 14] =
    [0.001, 0.01, 0.02, 0.1, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0];
/// Where a million keys are looked at.
const MILLION_RATIOS: [f64; 4] = [1.0, 3.0, 7.0, 10.0];

/// How k follows from m/n · ln 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probes {
    /// Upwards, as the study has it.
    Ceiling,
    /// To the nearest, as in the other sources.
    Rounding,
}

impl Probes {
    fn of(self, ratio: f64) -> u32 {
        let exactly = ratio * std::f64::consts::LN_2;
        let whole = match self {
            Self::Ceiling => exactly.ceil(),
            Self::Rounding => exactly.round(),
        };
        whole.max(1.0) as u32
    }
}

/// The shape of a filter in terms of the number of keys.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shape {
    ratio: f64,
    k: u32,
}

impl Shape {
    /// All shapes: k by ceiling, and by rounding where it differs.
    fn all() -> impl Iterator<Item = Self> {
        RATIOS.into_iter().flat_map(|ratio| {
            let mut probes = vec![Probes::Ceiling.of(ratio), Probes::Rounding.of(ratio)];
            probes.dedup();
            probes.into_iter().map(move |k| Self { ratio, k })
        })
    }

    fn is_by_ceiling(self) -> bool {
        self.k == Probes::Ceiling.of(self.ratio)
    }

    fn m(self, n: u64) -> u64 {
        (self.ratio * n as f64).ceil().max(1.0) as u64
    }

    fn rate(self, n: u64) -> f64 {
        theory::rate(self.m(n), self.k, n)
    }

    /// Repetitions with other names and hashes, until all sizes have about 3000 false positives: a difference
    /// of 20 % shows then.
    fn repetitions(self) -> u64 {
        let absent: u64 = QUERIES.iter().map(|queries| queries / 2).sum();
        let rate = theory::rate_at_ratio(self.ratio, self.k);
        (3000.0 / (absent as f64 * rate)).ceil() as u64
    }
}

#[derive(Debug, Clone, Copy)]
struct Case {
    n: u64,
    shape: Shape,
    filter_bytes: usize,
    has_shape: bool,
    lookups: Lookups,
    /// Of all queries in a filter of this shape alone, where times are taken.
    filter_time: Duration,
}

impl Case {
    fn measure(directory: &Directory, shape: Shape, n: u64, asked: u64) -> Result<Self> {
        let (filter_bytes, has_shape) = directory.set_filter(shape.m(n), shape.k)?;
        let lookups = directory.look_up(asked as usize, asked as usize)?;
        Ok(Self { n, shape, filter_bytes, has_shape, lookups, filter_time: Duration::ZERO })
    }

    fn sample(&self) -> Sample {
        let Self { n, shape, lookups, .. } = self;
        let spread = theory::spread(shape.m(*n), shape.k, *n);
        Sample::of_filter(lookups.absent, lookups.absent_reads, shape.rate(*n), spread)
    }
}

struct Cases(Vec<Case>);

impl Cases {
    fn sum<'a>(&'a self, of: impl Fn(&Case) -> bool + 'a) -> Sample {
        self.0.iter().filter(|case| of(case)).map(Case::sample).sum()
    }
}

fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let cases = repeated(setting)?;
    let million = million(setting)?;
    let timed = timed(setting)?;
    check(notes, &cases, &million);
    compare(notes, &timed);
    figures::all(notes, &cases, &million, &timed);
    Ok(())
}

fn repeated(setting: &Setting) -> Result<Cases> {
    let most = Shape::all().map(Shape::repetitions).max().unwrap_or_default();
    let mut stores: Vec<(u64, u64)> =
        QUERIES.into_iter().flat_map(|queries| (0..most).map(move |i| (queries / 2, i))).collect();
    stores.reverse(); // the large ones first, so that no thread is left with one at the end
    let measured = setting.each("tables and their filters", &stores, |&(n, repetition)| {
        let name = format!("{n}-{repetition}");
        let dir = setting.directory(&name)?;
        let directory = Directory::new(&dir, n, n, setting.seed(&name))?;
        Shape::all()
            .filter(|shape| repetition < shape.repetitions())
            .map(|shape| Case::measure(&directory, shape, n, n))
            .collect::<Result<Vec<_>>>()
    })?;
    Ok(Cases(measured.concat()))
}

/// A table of a million names, of which a part is looked up.
fn million(setting: &Setting) -> Result<Vec<Case>> {
    let n: u64 = setting.pick(1_000_000, 10_000_000);
    let asked = n / 2;
    setting.begin("a million names", MILLION_RATIOS.len() as u64);
    let dir = setting.directory("million")?;
    let directory = Directory::new(&dir, n, asked, setting.seed("million"))?;
    MILLION_RATIOS
        .into_iter()
        .map(|ratio| {
            let shape = Shape { ratio, k: Probes::Ceiling.of(ratio) };
            let case = Case::measure(&directory, shape, n, asked);
            setting.step(1);
            case
        })
        .collect()
}

/// One size again with nothing else running, for the times.
fn timed(setting: &Setting) -> Result<Vec<Case>> {
    let n: u64 = 10_000;
    let dir = setting.directory("timed")?;
    let directory = Directory::new(&dir, n, n, setting.seed("timed"))?;
    let shapes: Vec<_> = Shape::all().filter(|shape| shape.is_by_ceiling()).collect();
    setting.begin("times", shapes.len() as u64);
    let fastest_of_three = |shape: Shape| {
        let mut cases = Vec::new();
        let hashing = setting.hashing("filter alone", 0);
        let filter = bloom(hashing, (shape.m(n), shape.k), n)?;
        let alone = || {
            let start = Instant::now();
            black_box(
                (0..n).filter(|&i| filter.contains(key(0, i)) & filter.contains(key(1, i))).count(),
            );
            start.elapsed()
        };
        let filter_time = (0..3).map(|_| alone()).min().unwrap_or_default();
        for _ in 0..3 {
            cases.push(Case::measure(&directory, shape, n, n)?);
        }
        cases.sort_by_key(|case| case.lookups.present_time + case.lookups.absent_time);
        setting.step(1);
        Ok(Case { filter_time, ..cases[0] })
    };
    shapes.into_iter().map(fastest_of_three).collect()
}

fn check(notes: &mut Notes, cases: &Cases, million: &[Case]) {
    let formula = "(1 − e^(−kn/m))^k, with the terms that it leaves out";
    for shape in Shape::all() {
        let how = if shape.is_by_ceiling() { "ceiling" } else { "rounding" };
        let quantity =
            format!("reads per absent name, ρ = {}, k = {} by {how}", shape.ratio, shape.k);
        let sample = cases.sum(|case| case.shape == shape);
        notes.check(Check::share(quantity, formula, sample).at("accesses"));
    }
    for n in QUERIES.map(|queries| queries / 2) {
        let quantity = format!("reads per absent name, n = {n}, all ρ of 1 and more");
        let sample = cases.sum(|case| case.n == n && case.shape.ratio >= 1.0);
        notes.check(Check::share(quantity, formula, sample).at("by-size"));
    }
    for case in million {
        let quantity = format!(
            "reads per absent name, n = {}, ρ = {}",
            shown(case.n as f64),
            case.shape.ratio
        );
        notes.check(Check::share(quantity, formula, case.sample()).at("theory"));
    }
    let all = || cases.0.iter().chain(million);
    let total = |of: fn(&Lookups) -> u64| all().map(|case| of(&case.lookups)).sum::<u64>() as f64;
    for (quantity, formula, theory, measured) in [
        ("right answers", "all", total(|l| l.queries), total(|l| l.right)),
        (
            "disk reads of present names",
            "one each",
            total(|l| l.present),
            total(|l| l.present_reads),
        ),
        (
            "disk reads that the file layer counts",
            "as many as the store counts",
            total(Lookups::reads),
            total(|l| l.file_reads),
        ),
    ] {
        notes.check(Check::exact(quantity, formula, theory, measured).at("accesses"));
    }
    let with_shape = all().filter(|case| case.has_shape).count();
    let shapes = all().count() as f64;
    let quantity = "filters of the m and k asked for";
    notes.check(Check::exact(quantity, "all", shapes, with_shape as f64).at("size"));
    let bytes = all().map(|case| case.filter_bytes).sum::<usize>() as f64;
    let expected: u64 = all().map(|case| figures::bytes(case.shape.m(case.n))).sum();
    let formula = "128 of header + 8 · ⌈m/64⌉, summed";
    notes.check(Check::exact("bytes of all filters", formula, expected as f64, bytes).at("size"));
    notes.remark(format!(
        "{} of {} absent names were outside of the table's key range, cost nothing, and are not in \
         the rates.",
        shown(total(|l| l.out_of_range)),
        shown(total(|l| l.absent + l.out_of_range))
    ));
}

fn compare(notes: &mut Notes, timed: &[Case]) {
    let (slope, r_squared) = line_through(timed);
    let fit = format!("{:.2} µs a read more, R² = {r_squared:.3}", slope * 1e6);
    let note = "the page cache holds the table, so a read is a system call";
    notes.measured("total time against accesses", fit, note);
}

/// Total lookup time by reads: seconds per read, and R² of the line.
fn line_through(cases: &[Case]) -> (f64, f64) {
    let points: Vec<_> = cases.iter().map(|case| (case.reads(), case.seconds())).collect();
    let n = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / n, y + point.1 / n));
    let sum = |of: fn(f64, f64) -> f64| points.iter().map(|p| of(p.0 - x, p.1 - y)).sum::<f64>();
    let (xx, xy, yy) = (sum(|x, _| x * x), sum(|x, y| x * y), sum(|_, y| y * y));
    (xy / xx, xy * xy / (xx * yy))
}

impl Case {
    fn reads(&self) -> f64 {
        self.lookups.reads() as f64
    }

    fn seconds(&self) -> f64 {
        (self.lookups.present_time + self.lookups.absent_time).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probes_are_the_studys_and_everybody_elses() {
        let of = |ratio| [Probes::Ceiling, Probes::Rounding].map(|probes| probes.of(ratio));
        let all = [0.001, 1.0, 2.0, 3.0, 6.0, 7.0, 10.0].map(of);
        assert_eq!(all, [[1, 1], [1, 1], [2, 1], [3, 2], [5, 4], [5, 5], [7, 7]]);
        assert_eq!(Shape { ratio: 0.001, k: 1 }.m(1000), 1);
        assert_eq!(Shape { ratio: 0.001, k: 1 }.m(2500), 3);
    }
}
