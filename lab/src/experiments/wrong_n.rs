//! Filters with another number of keys than planned.

use criba::{FilterKind, FilterPolicy};
use criba_cli::Result;
use criba_filter::{Bloom, FilterSize, StaticFilter};
use criba_report::figure::{Axis, Series};

use super::stored::{Lookups, Stored};
use crate::check::{Check, Sample};
use crate::experiment::{Experiment, Notes, Setting, drawn, key};
use crate::source::Source;
use crate::trial::{FORMULA, asked, bloom, of_shape};
use crate::{shown, theory};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "wrong-n",
    title: "A filter made for the wrong number of keys",
    question: "A filter is made for n keys at 1 %, and gets fewer or more. What does the mistake cost, \
               and how full may a filter be?",
    sources: &[Source::Notebook, Source::Guide],
    run,
};

const RATE: f64 = 0.01;
/// The false positives to measure a rate by.
const PASSED: f64 = 5000.0;

#[derive(Clone, Copy)]
struct Plan {
    n: u64,
    m: u64,
    k: u32,
}

impl Plan {
    fn keys(self, factor: f64) -> u64 {
        (self.n as f64 * factor).round() as u64
    }

    fn rate(self, factor: f64) -> f64 {
        theory::rate(self.m, self.k, self.keys(factor))
    }
}

fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let n = setting.pick(50_000, 300_000);
    let (m, k) = theory::classic_shape(n, RATE);
    let plan = Plan { n, m, k };
    alone(setting, notes, plan)?;
    in_a_store(setting, notes, plan)?;
    until_full(setting, notes)?;
    half_the_memory(setting, notes, n)
}

fn lookups(rate: f64) -> u64 {
    (PASSED / rate).ceil() as u64
}

struct Point {
    factor: f64,
    sample: Sample,
    fill: f64,
}

fn fixed(setting: &Setting, plan: Plan, factor: f64) -> Result<Point> {
    let n = plan.keys(factor);
    let filter = bloom(setting.hashing("fixed", n), (plan.m, plan.k), n)?;
    let sample = asked(&filter, n, 0..lookups(plan.rate(factor)));
    Ok(Point { factor, sample, fill: filter.occupancy() })
}

/// A filter made for its keys, with this rate or these bits.
fn exact(setting: &Setting, size: FilterSize, n: u64) -> Result<Sample> {
    let hashing = setting.hashing("exact", n);
    let keys = (0..n).map(|i| key(0, i));
    let filter = StaticFilter::build(FilterKind::Bloom, size, hashing, keys)?;
    let shape = filter.geometry();
    let lookups = lookups(theory::rate(shape.m, shape.k, n));
    let passed = (0..lookups).filter(|&i| filter.contains(key(1, i))).count() as u64;
    Ok(of_shape(lookups, passed, (shape.m, shape.k), n))
}

fn alone(setting: &Setting, notes: &mut Notes, plan: Plan) -> Result<()> {
    let factors = [0.8, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0];
    let both = setting.each("filters of one size, and of the right one", &factors, |&factor| {
        let size = FilterSize::Rate(RATE);
        Ok((fixed(setting, plan, factor)?, exact(setting, size, plan.keys(factor))?))
    })?;
    for (point, exact) in &both {
        let factor = point.factor;
        let quantity = format!("FPR, {factor} times the keys planned");
        notes.check(Check::share(quantity, FORMULA, point.sample).at("rates"));
        let quantity = format!("FPR, made for {factor} times the keys");
        notes.check(Check::share(quantity, FORMULA, *exact).at("rates"));
    }
    // The guide's call, which makes a filter of fixed size.
    let (n, (m, k)) = (100_000, theory::classic_shape(100_000, 0.001));
    let filter = bloom(setting.hashing("the guide's", 0), (m, k), 2 * n)?;
    let sample = asked(&filter, 2 * n, 0..lookups(theory::rate(m, k, 2 * n)));
    let quantity = "FPR of BloomFilter(100_000, 0.001) with 200,000 keys";
    notes.check(Check::share(quantity, FORMULA, sample).at("rates"));
    let line = (50..=500).step_by(5).map(|percent| f64::from(percent) / 100.0);
    let line = line.map(|factor| (factor, plan.rate(factor))).collect();
    let full = -0.15_f64.ln() * plan.m as f64 / (f64::from(plan.k) * plan.n as f64);
    notes.figure(drawn(
        "rates",
        [
            "The false-positive rate of a filter that gets more keys than planned",
            "What does a wrong estimate of n cost?",
            &format!(
                "(1 − e^(−kn/m))^k with m = {} and k = {}, which were chosen for {} keys; 1 % \
                 where each filter is made for its own number.",
                shown(plan.m as f64),
                plan.k,
                shown(plan.n as f64)
            ),
            "A filter for each point, asked absent keys until some 5,000 should have passed.",
        ],
        [Axis::linear("keys, in parts of those planned", ""), Axis::log("false-positive rate", "")],
        vec![
            Series::line("made for the plan, theory", 0, line),
            Series::marks(
                "made for the plan, measured",
                0,
                both.iter().map(|(point, _)| (point.factor, point.sample.rate())).collect(),
            ),
            Series::line("made for its own keys, theory", 1, vec![(0.5, RATE), (5.0, RATE)]),
            Series::marks(
                "made for its own keys, measured",
                1,
                both.iter().map(|(point, exact)| (point.factor, exact.rate())).collect(),
            ),
            Series::stems("85 % of the bits set", 4, vec![(full, 0.85_f64.powi(plan.k as i32))]),
        ],
    ));
    fullness(
        notes,
        plan,
        both.iter().map(|(point, _)| (point.fill, point.sample.rate())).collect(),
    );
    Ok(())
}

fn fullness(notes: &mut Notes, plan: Plan, marks: Vec<(f64, f64)>) {
    let at = |fill: f64| (fill, fill.powi(plan.k as i32));
    notes.figure(drawn(
        "fullness",
        [
            "The false-positive rate of a filter by the share of its bits that are set",
            "How full may a filter be?",
            &format!(
                "X^{} for a share X of bits set. At the plan X is one half, or as near to it as a \
                 whole number of probes can be. At 85 % the rate is {:.0} %.",
                plan.k,
                100.0 * at(0.85).1
            ),
            "The same filters, by what they say of their occupancy.",
        ],
        [Axis::linear("share of the bits that are set", ""), Axis::log("false-positive rate", "")],
        vec![
            Series::line("theory", 0, (40..=100).map(|i| at(f64::from(i) / 100.0)).collect()),
            Series::marks("measured", 0, marks),
            Series::stems(
                "half full: a little beyond, criba says \"past its design\"",
                2,
                vec![at(0.5)],
            ),
            Series::stems("85 % full: the guide warns, criba says \"overfull\"", 4, vec![at(0.85)]),
        ],
    ));
}

/// The filter of a table is made for its counted keys; here it is made for a wrong number.
fn in_a_store(setting: &Setting, notes: &mut Notes, plan: Plan) -> Result<()> {
    let factors = [1.0, 1.2, 2.0, 5.0];
    let fixed = FilterPolicy::default().with_kind(FilterKind::Bloom).with_geometry(plan.m, plan.k);
    let exact = FilterPolicy::rate(RATE).with_kind(FilterKind::Bloom);
    let policies = [("of the plan", fixed), ("of its own", exact)];
    let cases: Vec<_> =
        policies.into_iter().flat_map(|policy| factors.map(|factor| (policy, factor))).collect();
    let measured = setting.each("tables", &cases, |&((name, policy), factor)| {
        let n = plan.keys(factor);
        let store = Stored::new(setting, &format!("{name} {factor}"), policy)?;
        store.put(2..n)?; // and the two at the edges
        let (shape, _) = store.shape();
        let asked = lookups(theory::rate(shape.0, shape.1, n));
        let present = store.look_up(2..n)?;
        let met = store.look_up(n..n + asked)?;
        let sample = of_shape(asked, met.counts.disk_reads, shape, n);
        Ok(([present, met], sample))
    })?;
    let mut series = Vec::new();
    for (hue, (name, points)) in
        policies.map(|(name, _)| name).into_iter().zip(measured.chunks(factors.len())).enumerate()
    {
        for (factor, (_, sample)) in factors.iter().zip(points) {
            let quantity = format!(
                "disk reads an absent lookup, {factor} times the keys planned, filter {name}"
            );
            notes.check(Check::share(quantity, FORMULA, *sample).at("reads"));
        }
        let rate = |factor: f64| if hue == 0 { plan.rate(factor) } else { RATE };
        let line = (20..=100).map(|place| f64::from(place) / 20.0).map(|x| (x, rate(x)));
        let marks = factors.iter().zip(points).map(|(&x, (_, sample))| (x, sample.rate()));
        series.push(Series::line(format!("a filter {name}, theory"), hue, line.collect()));
        series.push(Series::marks(format!("a filter {name}, counted"), hue, marks.collect()));
    }
    let of = |place: usize| measured.iter().map(move |(met, _)| met[place]).sum::<Lookups>();
    let [present, absent] = [of(0), of(1)];
    let found = present.found as f64 - absent.found as f64;
    let quantity = "keys found in all tables, and no absent one";
    notes.check(Check::exact(quantity, "all of them", present.made as f64, found).at("reads"));
    notes.check(absent.agree("filters of the plan and of their own").at("reads"));
    notes.figure(drawn(
        "reads",
        [
            "Disk reads of absent lookups in one table",
            "What does a wrong estimate of n cost a store?",
            "A read for each false positive, and none besides. criba makes the filter of a table \
             when its keys are known, so there is nothing to estimate.",
            &format!(
                "A table for each point, of {} times so many keys; reads counted by the engine and \
                 by the file layer, without a cache.",
                shown(plan.n as f64)
            ),
        ],
        [
            Axis::linear("keys, in parts of those planned", ""),
            Axis::log("disk reads an absent lookup", ""),
        ],
        series,
    ));
    Ok(())
}

/// The keys that fill half of the bits, and 85 %.
fn until_full(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let (m, k) = (10_000, 7);
    let numbers: Vec<u64> = (0..setting.pick(500, 10_000)).collect();
    let keys = setting.each("filters until they are full", &numbers, |&number| {
        let hashing = setting.hashing("until full", number);
        let mut filter = Bloom::with_geometry(m, k)?.with_hashing(hashing)?;
        let mut next = 0;
        let reached = [0.5, 0.85].map(|fill| {
            while filter.occupancy() < fill {
                filter.insert(key(0, next));
                next += 1;
            }
            next as f64
        });
        Ok(reached)
    })?;
    let ratios: Vec<f64> = keys.iter().map(|[half, full]| full / half).collect();
    let expected = 0.15_f64.ln() / 0.5_f64.ln();
    let quantity = "keys that fill 85 % of the bits, in parts of those that fill half";
    notes.check(Check::mean(quantity, "ln 0.15 / ln 0.5", expected, &ratios).at("fullness"));
    Ok(())
}

/// Half the memory, with the best number of probes for it.
fn half_the_memory(setting: &Setting, notes: &mut Notes, n: u64) -> Result<()> {
    let rates = [0.1, 0.03, 0.01, 0.003, 0.001];
    let measured = setting.each("filters of half the memory", &rates, |&rate| {
        let (m, _) = theory::classic_shape(n, rate);
        exact(setting, FilterSize::BitsPerKey(m as f64 / n as f64 / 2.0), n)
    })?;
    for (rate, sample) in rates.iter().zip(&measured) {
        let quantity = format!("FPR of half the bits that {rate} takes");
        notes.check(Check::share(quantity, FORMULA, *sample));
    }
    Ok(())
}
