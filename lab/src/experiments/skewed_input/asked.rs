//! Repeated lookups, with many filters.

use criba_cli::Result;
use criba_report::figure::{Axis, Series};

use super::Zipf;
use crate::check::{Check, mean_and_sd};
use crate::experiment::{Notes, Setting, drawn, key};
use crate::trial::{FORMULA, bloom};
use crate::{shown, theory};

/// A filter that one absent key in ten passes, so that the distribution shows.
const OFTEN: (u64, u32, u64) = (4800, 3, 1000);

/// The same lookups with many filters: the scatter of the rate that one filter shows.
pub(super) fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let (m, k, n) = OFTEN;
    let numbers: Vec<u64> = (0..setting.pick(2000, 20_000)).collect();
    let (keys, lookups) = (10_000, 10_000.0);
    let chances: Vec<Vec<f64>> =
        [0.0, 1.0].map(|exponent| Zipf::new(keys, exponent).chances().collect()).into();
    let rates = setting.each("filters asked the same keys", &numbers, |&number| {
        let filter = bloom(setting.hashing("asked", number), (m, k), n)?;
        let mut rates = [0.0; 2];
        for (i, (even, skewed)) in (0..keys).zip(chances[0].iter().zip(&chances[1])) {
            if filter.contains(key(1, i)) {
                rates[0] += even;
                rates[1] += skewed;
            }
        }
        Ok(rates)
    })?;
    let (rate, between) = (theory::rate(m, k, n), theory::spread(m, k, n));
    let mut series = Vec::new();
    let width = 0.01;
    for (hue, name) in ["each key once", "by Zipf's law, exponent 1"].into_iter().enumerate() {
        let shares: Vec<f64> = rates.iter().map(|rates| rates[hue]).collect();
        let (_, sd) = mean_and_sd(&shares);
        let quantity = format!("mean rate of the filters, asked {name}");
        notes.check(Check::mean(quantity, FORMULA, rate, &shares).at("asked"));
        let squares: f64 = chances[hue].iter().map(|chance| chance * chance).sum();
        let expected = (rate * (1.0 - rate) * squares).sqrt().hypot(between);
        let quantity = format!("its standard deviation, asked {name}");
        let formula = "√(p(1 − p) Σ q_i² + σ² between filters)";
        notes.check(Check::exact(quantity, formula, expected, sd).as_illustration().at("asked"));
        let bar = |rate: f64| (rate / width).floor() as i64;
        let most = shares.iter().map(|&share| bar(share)).max().unwrap_or(0);
        let counted = (0..=most).map(|place| {
            let within = shares.iter().filter(|&&share| bar(share) == place).count();
            ((place as f64 + 0.5) * width, within as f64 / shares.len() as f64)
        });
        series.push(Series::marked(format!("asked {name}"), hue, counted.collect()));
        if hue == 1 {
            let binomial = (rate * (1.0 - rate) / lookups).sqrt();
            notes.measured(
                "standard deviation of the rate, skewed questions",
                format!("{sd:.4}, theory {expected:.4}"),
                &format!("binomial of {} lookups: {binomial:.4}", shown(lookups)),
            );
        }
    }
    notes.figure(drawn(
        "asked",
        [
            "The rate that one filter shows, asked evenly and by Zipf's law",
            "What do absent keys that are asked again do to the rate?",
            &format!(
                "The mean stays p = {rate:.3}. But a filter is wrong about a key always or never, \
                 so a key that makes up the share q of the questions is one trial of that weight: \
                 the variance is p(1 − p) Σ q_i² beside that between filters."
            ),
            &format!(
                "{} filters of {} keys under different hashes, asked {} absent keys, each weighted \
                 by its share of the questions.",
                shown(numbers.len() as f64),
                shown(n as f64),
                shown(keys as f64)
            ),
        ],
        [
            Axis::linear("share of the questions that pass", ""),
            Axis::linear("share of the filters, in steps of 0.01", ""),
        ],
        series,
    ));
    Ok(())
}
