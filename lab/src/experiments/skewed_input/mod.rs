//! Repeated keys: insertions change nothing, lookups widen the spread of the rate.

mod asked;
mod inserted;

use criba_cli::Result;
use rand::RngExt;

use crate::experiment::{Experiment, Notes, Setting};
use crate::source::Source;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "skewed-input",
    title: "Keys that come again",
    question: "A few keys make up most of what is inserted, or most of what is asked. What becomes of \
               the false-positive rate?",
    sources: &[Source::Notebook],
    run,
};

const EXPONENTS: [f64; 5] = [0.0, 0.5, 0.8, 1.0, 1.2];

fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    inserted::run(setting, notes)?;
    asked::run(setting, notes)
}

/// Numbers from 0 to n − 1, each with a probability in proportion to (number + 1)^−exponent.
struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    fn new(n: u64, exponent: f64) -> Self {
        let weights = (1..=n).map(|rank| (rank as f64).powf(-exponent));
        let sums = weights.scan(0.0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self { sums: sums.collect() }
    }

    fn chances(&self) -> impl Iterator<Item = f64> {
        let total = self.sums.last().copied().unwrap_or(1.0);
        let before = std::iter::once(0.0).chain(self.sums.iter().copied());
        self.sums.iter().zip(before).map(move |(sum, before)| (sum - before) / total)
    }

    fn draw(&self, random: &mut impl RngExt) -> u64 {
        let drawn = random.random::<f64>() * self.sums.last().copied().unwrap_or(1.0);
        self.sums.partition_point(|&sum| sum <= drawn).min(self.sums.len() - 1) as u64
    }
}
