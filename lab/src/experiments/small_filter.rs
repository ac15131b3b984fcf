//! One filter of a thousand bits says little about the next: rates scatter more between filters than the
//! binomial distribution allows.

use criba_cli::Result;
use criba_report::figure::{Axis, Figure, Series};
use statrs::distribution::{Continuous, ContinuousCDF, Normal};

use crate::check::{Check, Sample, mean_and_sd};
use crate::experiment::{Experiment, Notes, Setting, drawn, key};
use crate::source::Source;
use crate::trial::bloom;
use crate::{shown, theory};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "small-filter",
    title: "One small filter, and four thousand like it",
    question: "A filter of 1000 bits and 4 probes holds 200 keys and is asked 10,000 absent ones. How \
               near to the formula must its false-positive rate be?",
    sources: &[Source::Notebook],
    run,
};

const M: u64 = 1000;
const K: u32 = 4;
const N: u64 = 200;
const LOOKUPS: u64 = 10_000;
/// Bounds that one filter in twenty exceeds.
const ONE_IN_TWENTY: f64 = 0.05;

struct Small {
    rate: f64,
    bits_set: f64,
    found: u64,
}

fn measure(setting: &Setting, number: u64) -> Result<Small> {
    let hashing = setting.hashing("filters", number);
    let filter = bloom(hashing, (M, K), N)?;
    let passed = (0..LOOKUPS).filter(|&i| filter.contains(key(1, i))).count();
    let found = (0..N).filter(|&i| filter.contains(key(0, i))).count() as u64;
    let rate = passed as f64 / LOOKUPS as f64;
    Ok(Small { rate, bits_set: filter.bits_set() as f64, found })
}

fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let filters: u64 = setting.pick(4000, 40_000);
    let numbers: Vec<u64> = (0..filters).collect();
    let measured = setting.each("filters of 1000 bits", &numbers, |&i| measure(setting, i))?;
    let rates: Vec<f64> = measured.iter().map(|filter| filter.rate).collect();
    let (mean, sd) = mean_and_sd(&rates);

    let classic = theory::classic_rate(M, K, N);
    let exact = theory::exact_rate(M, K, N);
    let binomial = (exact * (1.0 - exact) / LOOKUPS as f64).sqrt();
    let between = theory::spread(M, K, N);
    let both = binomial.hypot(between);

    let formula = "by inclusion and exclusion over all pairs of steps";
    notes.check(Check::mean("mean rate of the filters", formula, exact, &rates).at("distribution"));
    let bits_set: Vec<f64> = measured.iter().map(|filter| filter.bits_set).collect();
    let expected = M as f64 * theory::fill(M, K, N);
    let formula = "m · (1 − (1 − b/m)^n), b the bits that a key sets in the mean";
    notes.check(
        Check::mean("mean number of bits set", formula, expected, &bits_set).at("distribution"),
    );
    within(notes, &rates, exact, [binomial, both]);
    let found: u64 = measured.iter().map(|filter| filter.found).sum();
    let keys = (filters * N) as f64;
    notes.check(Check::exact("keys found, of those inserted", "all of them", keys, found as f64));

    let value = format!("{mean:.4} ± {sd:.4}; {classic:.4} by the formula");
    notes.measured("rate of all filters", value, "mean and standard deviation");
    notes.figure(figure(&rates, exact, binomial, both));
    Ok(())
}

/// The filters within the bounds that one in twenty should exceed: by the binomial distribution alone, and
/// with the spread between filters.
fn within(notes: &mut Notes, rates: &[f64], exact: f64, [binomial, both]: [f64; 2]) {
    let edge = Normal::standard().inverse_cdf(1.0 - ONE_IN_TWENTY / 2.0);
    for (of, sd) in [("the binomial distribution alone", binomial), ("both", both)] {
        let inside = |rate: &&f64| (**rate - exact).abs() <= edge * sd;
        let inside = rates.iter().filter(inside).count() as u64;
        let chance = 2.0 * Normal::standard().cdf(edge * sd / both) - 1.0;
        let sample = Sample::of_chance(rates.len() as u64, inside, chance);
        let quantity = format!("filters within the 95 % bounds of {of}");
        let formula = "2 Φ(1.96 · σ of the bounds / σ of both) − 1";
        notes.check(Check::share(quantity, formula, sample).at("distribution"));
        if sd < both {
            let share = 100.0 * sample.rate();
            notes.remark(format!(
                "Bounds that know of the binomial distribution alone are meant to hold for 95 of 100 \
                 filters, and hold for {share:.0}. A test that uses them for one small filter fails \
                 sound ones; more questions to the same filter do not help, other hashes do."
            ));
        }
    }
}

fn figure(rates: &[f64], exact: f64, binomial: f64, both: f64) -> Figure {
    let width = 0.002;
    let bar = |rate: f64| (rate / width).round() as i64;
    let (low, high) = rates
        .iter()
        .map(|&rate| bar(rate))
        .fold((i64::MAX, i64::MIN), |(l, h), b| (l.min(b), h.max(b)));
    let bars = (low..=high).map(|place| {
        let equal = rates.iter().filter(|&&rate| bar(rate) == place).count();
        (place as f64 * width, equal as f64 / rates.len() as f64)
    });
    let curve = |sd: f64| {
        let normal = Normal::new(exact, sd).expect("a positive deviation");
        let from = exact - 4.5 * sd;
        let points = (0..=90).map(move |i| from + f64::from(i) * 0.1 * sd);
        points.map(|x| (x, width * normal.pdf(x))).collect()
    };
    drawn(
        "distribution",
        [
            "The measured rates of 1000-bit filters",
            "How far may the rate of one small filter be off?",
            &format!(
                "The number of false positives is binomial about the filter's own rate, σ = √(p(1 \
                 − p)/{}) = {binomial:.4}; that rate is X^k for a share X of bits set, which \
                 scatters with the hash by k·X^(k−1)·σ(X); together σ = {both:.4}.",
                shown(LOOKUPS as f64)
            ),
            &format!(
                "{} filters under different hashes, each with {N} keys and asked {} absent ones.",
                shown(rates.len() as f64),
                shown(LOOKUPS as f64)
            ),
        ],
        [
            Axis::linear("measured false-positive rate", ""),
            Axis::linear("share of the filters", ""),
        ],
        vec![
            Series::bars("measured", 0, bars.collect()),
            Series::line("theory, between filters and binomial", 0, curve(both)),
            Series::line("the binomial distribution alone", 1, curve(binomial)),
        ],
    )
}
