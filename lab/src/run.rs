//! A run of experiments, and the verdicts on their checks.

use std::fmt;
use std::io::{IsTerminal, stderr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use criba_cli::interrupt::TemporaryDir;
use criba_cli::{Failure, Result};
use criba_report::numbers::counted;
use criba_report::output;
use indicatif::{ProgressBar, ProgressStyle};

use super::check::{Check, Verdict, doubt_of_each};
use super::experiment::{Experiment, Notes, Setting, Size};
use super::input::Keys;

/// What came of a run.
#[derive(Debug)]
pub struct Run {
    /// How large the experiments were.
    pub size: Size,
    /// What fixed everything random.
    pub seed: u64,
    /// The experiments, in order.
    pub outcomes: Vec<Outcome>,
}

/// What came of one experiment.
#[derive(Debug)]
pub struct Outcome {
    /// Which.
    pub experiment: &'static Experiment,
    /// What it wrote down.
    pub notes: Notes,
    /// How long it took.
    pub took: Duration,
}

impl Run {
    /// Runs experiments, with these real keys.
    ///
    /// # Errors
    /// The error of the first failing experiment. A check that does not hold is no error.
    pub fn new(
        experiments: &[&'static Experiment],
        size: Size,
        seed: u64,
        real: Keys,
    ) -> Result<Self> {
        let real = Arc::new(real);
        let scratch = TemporaryDir::new("criba-lab-")?;
        let progress = progress_bar();
        let mut outcomes = Vec::new();
        for &experiment in experiments {
            let dir = scratch.path().join(experiment.name);
            std::fs::create_dir(&dir).map_err(|e| Failure::file("make the directory", &dir, e))?;
            let setting = Setting::new(
                size,
                seed,
                Arc::clone(&real),
                experiment.name,
                &dir,
                progress.clone(),
            );
            let mut notes = Notes::default();
            let start = Instant::now();
            (experiment.run)(&setting, &mut notes)?;
            notes.figures.iter().try_for_each(|figure| figure.check(experiment.name))?;
            outcomes.push(Outcome { experiment, notes, took: start.elapsed() });
            // What the experiment left is not to fill the disk while others run.
            std::fs::remove_dir_all(&dir).map_err(|e| Failure::file("remove", &dir, e))?;
        }
        progress.finish_and_clear();
        Ok(Self { size, seed, outcomes })
    }

    /// All checks, with the names of their experiments.
    pub fn checks(&self) -> impl Iterator<Item = (&'static str, &Check)> {
        self.outcomes.iter().flat_map(|outcome| {
            outcome.notes.checks.iter().map(|check| (outcome.experiment.name, check))
        })
    }

    /// The doubt that each check gets.
    pub fn doubt(&self) -> f64 {
        doubt_of_each(self.checks().filter(|(_, check)| check.decides).count())
    }

    /// The verdict on a check in this run.
    pub fn verdict(&self, check: &Check) -> Verdict {
        check.verdict(self.doubt())
    }

    /// The deciding checks that do not hold.
    pub fn failed(&self) -> impl Iterator<Item = (&'static str, &Check)> {
        self.checks().filter(|(_, check)| check.decides && !self.verdict(check).ok)
    }

    pub(super) fn tally(&self, checks: &[Check]) -> Tally {
        let decided = checks.iter().filter(|check| check.decides);
        Tally {
            decided: decided.clone().count() as u64,
            hold: decided.filter(|check| self.verdict(check).ok).count() as u64,
            illustrations: checks.iter().filter(|check| !check.decides).count() as u64,
        }
    }

    /// All checks, one a line.
    pub fn csv(&self) -> Vec<u8> {
        let head = ["experiment", "quantity", "trials", "theory", "measured", "low", "high", "ok"];
        let checks = self.checks().map(|(experiment, check)| {
            let Verdict { low, high, ok } = self.verdict(check);
            let ok = match (check.decides, ok) {
                (false, _) => "illustration",
                (true, true) => "yes",
                (true, false) => "no",
            };
            let trials = check.law.trials().to_string();
            let [theory, measured, low, high] =
                [check.theory, check.measured, low, high].map(|number| number.to_string());
            let quantity = check.quantity.clone();
            [experiment.into(), quantity, trials, theory, measured, low, high, ok.into()]
        });
        output::csv(head, checks)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Tally {
    decided: u64,
    hold: u64,
    illustrations: u64,
}

impl Tally {
    pub(super) fn is_well(self) -> bool {
        self.hold == self.decided
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.hold, counted(self.decided, "check"))?;
        f.write_str(if self.hold == 1 && self.decided == 1 { " holds" } else { " hold" })?;
        if self.illustrations > 0 {
            write!(f, ", {}", counted(self.illustrations, "illustration"))?;
        }
        Ok(())
    }
}

fn progress_bar() -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "{msg:<44} {wide_bar} {human_pos} of {human_len}";
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
