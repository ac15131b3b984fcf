//! Checks: a figure of theory, the measured one, and the allowed difference.
//!
//! An experiment names the [`Law`] by which its figure scatters. The bounds follow when all checks of the run
//! are known, since it is the whole run that must not fail by chance.

use std::iter::Sum;

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, Normal};

/// The probability that a sound run fails: all checks, both sides.
const DOUBT: f64 = 0.001;

/// A fifth of this many successes is nine standard deviations: five for the bounds of a run of about a
/// hundred checks, four for the measurement.
const ENOUGH: f64 = 2200.0;

/// How a measured figure scatters around theory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Law {
    /// Not at all: a count that must be right, or a formula's value up to rounding.
    Exact,
    /// A share of independent trials with theory's chance.
    ///
    /// The false-positive rate of a Bloom filter is itself random: the hash determines how many bits are set.
    /// Absent keys are independent trials at the rate of *their* filter, which scatters around theory with
    /// the standard deviation `spread` ([`theory::spread`](super::theory::spread)). Half of the doubt is for
    /// that rate, taken for normal, and half for the binomial at the edge; by the union bound both together
    /// exceed the bounds with at most the whole doubt.
    ///
    /// A `spread` of 0 says that the chance is exact: one trial per filter, or a rate computed from the
    /// finished bits.
    Share {
        /// The number of trials.
        trials: u64,
        /// The standard deviation of the chance itself.
        spread: f64,
    },
    /// A mean of many independent draws, normal by the central limit theorem.
    Mean {
        /// The number of draws: at least a hundred, or the normal distribution is too narrow.
        trials: u64,
        /// The standard deviation of one draw, from theory or from the draws.
        sd: f64,
    },
}

impl Law {
    /// How many trials there were.
    pub fn trials(self) -> u64 {
        match self {
            Self::Exact => 1,
            Self::Share { trials, .. } | Self::Mean { trials, .. } => trials,
        }
    }

    /// The bounds of a measurement, exceeded with a probability of `doubt`, both sides together.
    pub fn bounds(self, theory: f64, doubt: f64) -> (f64, f64) {
        match self {
            Self::Exact => {
                let rounding = if theory.fract() == 0.0 { 0.0 } else { theory.abs() * 1e-12 };
                (theory - rounding, theory + rounding)
            }
            Self::Share { trials, spread: 0.0 } => shares(trials, theory, theory, doubt),
            Self::Share { trials, spread } => {
                let off = spread * deviations(doubt / 2.0);
                shares(trials, theory - off, theory + off, doubt / 2.0)
            }
            Self::Mean { trials, sd } => {
                let off = sd / (trials as f64).sqrt() * deviations(doubt);
                (theory - off, theory + off)
            }
        }
    }
}

/// The number of standard deviations that a normal variable exceeds with this probability, on either side.
fn deviations(doubt: f64) -> f64 {
    Normal::standard().inverse_cdf(1.0 - doubt / 2.0)
}

/// The bounds of the share of successes if their chance is between `low` and `high`.
fn shares(trials: u64, low: f64, high: f64, doubt: f64) -> (f64, f64) {
    let quantile = |chance: f64, at: f64| match Binomial::new(chance.clamp(0.0, 1.0), trials) {
        Ok(successes) if trials > 0 => successes.inverse_cdf(at) as f64 / trials as f64,
        _ => f64::NAN, // nothing was tried, or the chance is no number: no measurement is within
    };
    (quantile(low, doubt / 2.0), quantile(high, 1.0 - doubt / 2.0))
}

/// One figure, twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// The figure that shows it; "" for none.
    pub figure: &'static str,
    /// What was measured, in words.
    pub quantity: String,
    /// How theory comes by it.
    pub formula: String,
    /// What theory says.
    pub theory: f64,
    /// What was measured.
    pub measured: f64,
    /// How the one scatters about the other.
    pub law: Law,
    /// Whether the exit code depends on it. If not, it is an illustration: it could not fail, or theory is
    /// only an approximation.
    pub decides: bool,
}

impl Check {
    /// A figure that must be exact.
    pub fn exact(
        quantity: impl Into<String>,
        formula: impl Into<String>,
        theory: f64,
        measured: f64,
    ) -> Self {
        Self {
            figure: "",
            quantity: quantity.into(),
            formula: formula.into(),
            theory,
            measured,
            law: Law::Exact,
            decides: true,
        }
    }

    /// A share of trials.
    pub fn share(quantity: impl Into<String>, formula: impl Into<String>, sample: Sample) -> Self {
        let Sample { trials, passed, expected, spread } = sample;
        let (theory, measured) = (expected / trials as f64, passed as f64 / trials as f64);
        let law = Law::Share { trials, spread: spread / trials as f64 };
        Self { law, ..Self::exact(quantity, formula, theory, measured) }
    }

    /// A mean of draws, with their own standard deviation.
    pub fn mean(
        quantity: impl Into<String>,
        formula: impl Into<String>,
        theory: f64,
        draws: &[f64],
    ) -> Self {
        let (mean, sd) = mean_and_sd(draws);
        let law = Law::Mean { trials: draws.len() as u64, sd };
        Self { law, ..Self::exact(quantity, formula, theory, mean) }
    }

    /// The same, shown at a figure.
    #[must_use]
    pub fn at(self, figure: &'static str) -> Self {
        Self { figure, ..self }
    }

    /// The same, but it decides nothing.
    #[must_use]
    pub fn as_illustration(self) -> Self {
        Self { decides: false, ..self }
    }

    /// The same, but as an illustration if so few successes are expected that a value a fifth off could be
    /// within the bounds.
    #[must_use]
    pub fn if_enough(self) -> Self {
        let expected = self.theory * self.law.trials() as f64;
        if expected < ENOUGH { self.as_illustration() } else { self }
    }

    /// The same with another value for theory, which the check must reject.
    #[must_use]
    pub fn shifted(&self, factor: f64) -> Self {
        Self { theory: self.theory * factor, ..self.clone() }
    }

    /// The bounds, and whether the measured figure is within.
    pub fn verdict(&self, doubt: f64) -> Verdict {
        let (low, high) = self.law.bounds(self.theory, doubt);
        Verdict { low, high, ok: (low..=high).contains(&self.measured) }
    }
}

/// What came of a check.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// The lowest figure that would do.
    pub low: f64,
    /// The highest.
    pub high: f64,
    /// Whether the measured one does.
    pub ok: bool,
}

/// Trials at one chance, or summed over several.
///
/// The tails of a sum of trials at several chances are not heavier than those of as many trials at the mean
/// chance (Hoeffding, *On the distribution of the number of successes in independent trials*, 1956).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Sample {
    /// How many trials.
    pub trials: u64,
    /// How many came out as "yes".
    pub passed: u64,
    /// How many theory expects.
    pub expected: f64,
    /// The standard deviation of that expectation between filters.
    pub spread: f64,
}

impl Sample {
    /// Trials of one filter with the expected rate `chance` ± `spread`.
    pub fn of_filter(trials: u64, passed: u64, chance: f64, spread: f64) -> Self {
        let all = trials as f64;
        Self { trials, passed, expected: all * chance, spread: all * spread }
    }

    /// Trials with a known chance.
    pub fn of_chance(trials: u64, passed: u64, chance: f64) -> Self {
        Self::of_filter(trials, passed, chance, 0.0)
    }

    /// The share that came out as "yes".
    pub fn rate(&self) -> f64 {
        self.passed as f64 / self.trials as f64
    }
}

impl Sum for Sample {
    /// Of different filters, which are independent.
    fn sum<I: Iterator<Item = Self>>(samples: I) -> Self {
        samples.fold(Self::default(), |sum, next| Self {
            trials: sum.trials + next.trials,
            passed: sum.passed + next.passed,
            expected: sum.expected + next.expected,
            spread: sum.spread.hypot(next.spread),
        })
    }
}

/// The mean of draws, and the standard deviation of one.
pub fn mean_and_sd(draws: &[f64]) -> (f64, f64) {
    let n = draws.len() as f64;
    let mean = draws.iter().sum::<f64>() / n;
    let squares: f64 = draws.iter().map(|draw| (draw - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0)).sqrt())
}

/// The doubt of each check of a run: an equal part (Bonferroni).
pub fn doubt_of_each(checks: usize) -> f64 {
    DOUBT / checks.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(passed: u64, spread: f64) -> Check {
        Check::share("q", "f", Sample::of_filter(200_000, passed, 0.01, spread))
    }

    #[test]
    fn a_share_is_bounded_as_the_binomial_distribution_says() {
        let verdict = filter(2000, 0.0).verdict(0.001);
        assert_eq!((verdict.low, verdict.high), (0.009_275, 0.010_74)); // 1855 and 2148
        for (passed, ok) in [(1854, false), (1855, true), (2148, true), (2149, false)] {
            assert_eq!(filter(passed, 0.0).verdict(0.001).ok, ok, "{passed}");
        }
    }

    /// Filters with rates that scatter by 5 %: of 200,000 the binomial bounds would fail a fifth at 99.9 %.
    #[test]
    fn the_spread_between_filters_widens_the_bounds() {
        let verdict = filter(2250, 0.0005).verdict(0.001);
        assert!(verdict.ok && !filter(2250, 0.0).verdict(0.001).ok);
        // 3.48 deviations of 0.0005, and 3.48 of the binomial there: more than both in quadrature.
        assert!((0.0074..0.0078).contains(&verdict.low), "{verdict:?}");
        assert!((0.0125..0.0129).contains(&verdict.high), "{verdict:?}");
    }

    #[test]
    fn a_mean_is_bounded_by_its_standard_error() {
        let draws: Vec<f64> = (0..400).map(|i| if i % 2 == 0 { 9.0 } else { 11.0 }).collect();
        let verdict = Check::mean("q", "f", 10.1, &draws).verdict(0.05);
        assert!((verdict.low - (10.1 - 1.96 * 1.001_25 / 20.0)).abs() < 1e-5, "{verdict:?}");
        assert!(!verdict.ok);
        assert!(Check::mean("q", "f", 10.09, &draws).verdict(0.05).ok);
    }

    #[test]
    fn an_exact_figure_has_no_room_but_for_rounding() {
        let of = |measured| Check::exact("q", "f", 7.0, measured).verdict(0.001).ok;
        assert!(of(7.0) && !of(7.000_001) && !of(8.0) && !of(f64::NAN));
        assert!(Check::exact("q", "f", 0.1 + 0.2, 0.3).verdict(0.001).ok);
    }

    #[test]
    fn what_was_not_tried_does_not_hold() {
        assert!(!Check::share("q", "f", Sample::default()).verdict(0.001).ok);
    }

    #[test]
    fn the_doubt_is_shared_out_among_all_checks() {
        let (low, high) = Law::Share { trials: 10_000, spread: 0.0 }.bounds(0.5, doubt_of_each(1));
        let (lower, higher) =
            Law::Share { trials: 10_000, spread: 0.0 }.bounds(0.5, doubt_of_each(200));
        assert!(lower < low && high < higher);
    }

    #[test]
    fn filters_are_pooled_with_their_spreads_in_quadrature() {
        let parts =
            [Sample::of_filter(100, 10, 0.1, 0.03), Sample::of_filter(300, 20, 0.2, 0.04 / 3.0)];
        let sum: Sample = parts.into_iter().sum();
        assert_eq!((sum.trials, sum.passed), (400, 30));
        assert!((sum.expected - 70.0).abs() < 1e-9 && (sum.spread - 5.0).abs() < 1e-9);
    }
}
