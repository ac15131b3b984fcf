//! The study's experiment: lookups of names in a file behind a filter, with disk accesses counted.

mod figures;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criba::{FilterKind, FilterPolicy};
use criba_cli::Result;

use super::costs::times::Fit;
use super::stored::{Lookups, Stored};
use crate::check::{Check, Sample};
use crate::experiment::{Experiment, Notes, Setting, key};
use crate::source::Source;
use crate::trial::{FORMULA, bloom, of_shape};
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

/// A table of n names, two of them at the edges of its range, and queries for the others and for absent ones.
struct Case {
    n: u64,
    shape: Shape,
    filter_bytes: usize,
    has_shape: bool,
    present: Lookups,
    absent: Lookups,
    /// Of as many absent queries in a filter of this shape alone, where times are taken.
    filter_time: Duration,
}

fn directory(setting: &Setting, name: &str, n: u64) -> Result<Stored> {
    let store = Stored::new(setting, name, FilterPolicy::none())?;
    store.put(2..n)?;
    Ok(store)
}

impl Case {
    fn measure(store: &Stored, shape: Shape, n: u64, asked: u64) -> Result<Self> {
        let (m, k) = (shape.m(n), shape.k);
        let policy = FilterPolicy::rate(0.01).with_kind(FilterKind::Bloom);
        store.db.rebuild_filters(&policy.with_geometry(m, k))?;
        let filter_bytes = store.db.tables()[0].filter.bytes();
        let present = store.look_up(2..asked)?;
        let absent = store.look_up(n..n + asked)?;
        let (has_shape, filter_time) = (store.shape() == ((m, k), n), Duration::ZERO);
        Ok(Self { n, shape, filter_bytes, has_shape, present, absent, filter_time })
    }

    fn sample(&self) -> Sample {
        let Self { n, shape, absent, .. } = self;
        of_shape(absent.made, absent.counts.disk_reads, (shape.m(*n), shape.k), *n)
    }

    fn reads(&self) -> u64 {
        self.present.counts.disk_reads + self.absent.counts.disk_reads
    }

    fn queries(&self) -> u64 {
        self.present.made + self.absent.made
    }

    fn time(&self) -> Duration {
        self.present.time + self.absent.time
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
        let directory = directory(setting, &name, n)?;
        Shape::all()
            .filter(|shape| repetition < shape.repetitions())
            .map(|shape| Case::measure(&directory, shape, n, n))
            .collect::<Result<Vec<_>>>()
    })?;
    Ok(Cases(measured.into_iter().flatten().collect()))
}

/// A table of a million names, of which a part is looked up.
fn million(setting: &Setting) -> Result<Vec<Case>> {
    let n: u64 = setting.pick(1_000_000, 10_000_000);
    let asked = n / 2;
    setting.begin("a million names", MILLION_RATIOS.len() as u64);
    let directory = directory(setting, "million", n)?;
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
    let directory = directory(setting, "timed", n)?;
    let shapes: Vec<_> = Shape::all().filter(|shape| shape.is_by_ceiling()).collect();
    setting.begin("times", shapes.len() as u64);
    let fastest_of_three = |shape: Shape| {
        let mut cases = Vec::new();
        let hashing = setting.hashing("filter alone", 0);
        let filter = bloom(hashing, (shape.m(n), shape.k), n)?;
        let alone = || {
            let start = Instant::now();
            black_box((0..n).filter(|&i| filter.contains(key(1, i))).count());
            start.elapsed()
        };
        let filter_time = (0..3).map(|_| alone()).min().unwrap_or_default();
        for _ in 0..3 {
            cases.push(Case::measure(&directory, shape, n, n)?);
        }
        cases.sort_by_key(Case::time);
        setting.step(1);
        Ok(Case { filter_time, ..cases.swap_remove(0) })
    };
    shapes.into_iter().map(fastest_of_three).collect()
}

fn check(notes: &mut Notes, cases: &Cases, million: &[Case]) {
    for shape in Shape::all() {
        let how = if shape.is_by_ceiling() { "ceiling" } else { "rounding" };
        let quantity =
            format!("reads per absent name, ρ = {}, k = {} by {how}", shape.ratio, shape.k);
        let sample = cases.sum(|case| case.shape == shape);
        notes.check(Check::share(quantity, FORMULA, sample).at("accesses"));
    }
    for n in QUERIES.map(|queries| queries / 2) {
        let quantity = format!("reads per absent name, n = {n}, all ρ of 1 and more");
        let sample = cases.sum(|case| case.n == n && case.shape.ratio >= 1.0);
        notes.check(Check::share(quantity, FORMULA, sample).at("by-size"));
    }
    for case in million {
        let quantity = format!(
            "reads per absent name, n = {}, ρ = {}",
            shown(case.n as f64),
            case.shape.ratio
        );
        notes.check(Check::share(quantity, FORMULA, case.sample()).at("theory"));
    }
    let all = || cases.0.iter().chain(million);
    let total = |of: fn(&Case) -> u64| all().map(of).sum::<u64>() as f64;
    let right = |case: &Case| case.present.found + case.absent.made - case.absent.found;
    let present_reads = |case: &Case| case.present.counts.disk_reads;
    let file_reads = |case: &Case| case.present.file_reads + case.absent.file_reads;
    for (quantity, formula, theory, measured) in [
        ("right answers", "all", total(Case::queries), total(right)),
        (
            "disk reads of present names",
            "one each",
            total(|c| c.present.made),
            total(present_reads),
        ),
        (
            "disk reads that the file layer counts",
            "as many as the store counts",
            total(Case::reads),
            total(file_reads),
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
}

fn compare(notes: &mut Notes, timed: &[Case]) {
    let point = |case: &Case| (case.reads() as f64, 1e6 * case.time().as_secs_f64());
    let Fit { slope, r2, .. } = Fit::of(&timed.iter().map(point).collect::<Vec<_>>());
    let fit = format!("{slope:.2} µs a read more, R² = {r2:.3}");
    let note = "the page cache holds the table, so a read is a system call";
    notes.measured("total time against accesses", fit, note);
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
