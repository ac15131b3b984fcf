//! An experiment, its input and its output.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use criba_cli::{Failure, Result};
use criba_filter::Hashing;
use criba_report::figure::{Axis, Figure, Series};
use indicatif::ProgressBar;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use siphasher::sip::SipHasher13;
use tempfile::TempDir;

use super::check::Check;
use super::input::Keys;
use super::source::Source;

/// One experiment.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// Its name on the command line and in file names.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// What it asks, in a sentence.
    pub question: &'static str,
    /// Where it comes from.
    pub sources: &'static [Source],
    /// Makes it.
    pub run: fn(&Setting, &mut Notes) -> Result<()>,
}

/// What an experiment writes down.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Notes {
    /// Its checks, in order.
    pub checks: Vec<Check>,
    /// Its figures, one at least.
    pub figures: Vec<Figure>,
    /// What was measured beside them: quantity, value, note.
    pub measured: Vec<[String; 3]>,
    /// Remarks: a paragraph each.
    pub remarks: Vec<String>,
}

impl Notes {
    /// Adds a check.
    pub fn check(&mut self, check: Check) {
        self.checks.push(check);
    }

    /// Adds a figure.
    pub fn figure(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    /// Adds a figure of this run; `note` may be empty.
    pub fn measured(&mut self, quantity: &str, value: impl Into<String>, note: &str) {
        self.measured.push([quantity.into(), value.into(), note.into()]);
    }

    /// Adds a paragraph.
    pub fn remark(&mut self, remark: impl Into<String>) {
        self.remarks.push(remark.into());
    }
}

/// How large experiments are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// All experiments within two minutes on two cores.
    Quick,
    /// All experiments with the large cases, within half an hour.
    Full,
}

/// What an experiment is given.
#[derive(Debug)]
pub struct Setting {
    /// How large it is to be.
    pub size: Size,
    seed: u64,
    real: Arc<Keys>,
    experiment: &'static str,
    scratch: PathBuf,
    progress: ProgressBar,
}

impl Setting {
    /// The setting of one experiment, with these real keys and an empty directory for its files.
    pub fn new(
        size: Size,
        seed: u64,
        real: Arc<Keys>,
        experiment: &'static str,
        scratch: &Path,
        progress: ProgressBar,
    ) -> Self {
        Self { size, seed, real, experiment, scratch: scratch.to_owned(), progress }
    }

    /// One of two sizes.
    pub fn pick<T>(&self, quick: T, full: T) -> T {
        match self.size {
            Size::Quick => quick,
            Size::Full => full,
        }
    }

    /// A seed for one purpose. It depends only on the run's seed, the experiment's name and the purpose: an
    /// experiment alone draws what it draws among others.
    pub fn seed(&self, purpose: &str) -> u64 {
        let hasher = SipHasher13::new_with_keys(self.seed, 0);
        hasher.hash(format!("{}: {purpose}", self.experiment).as_bytes())
    }

    /// A random stream for one purpose, see [`seed`](Self::seed).
    pub fn random(&self, purpose: &str) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(self.seed(purpose))
    }

    /// The hash of filter `number` for one purpose, see [`seed`](Self::seed).
    pub fn hashing(&self, purpose: &str, number: u64) -> Hashing {
        let key = u128::from(self.seed(purpose)) << 64 | u128::from(number);
        Hashing::keyed(key.to_le_bytes())
    }

    /// A thousand real keys, and as many absent ones.
    pub fn real_keys(&self) -> Keys {
        self.real.drawn(&mut self.random("real keys"))
    }

    /// A new temporary directory.
    ///
    /// # Errors
    /// [`Failure::File`]: it cannot be created, or exists.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let dir = self.scratch.join(name);
        std::fs::create_dir(&dir).map_err(|e| Failure::file("make the directory", &dir, e))?;
        Ok(dir)
    }

    /// A copy of a directory of files.
    ///
    /// # Errors
    /// [`Failure::File`].
    pub fn copy(&self, of: &Path) -> Result<TempDir> {
        let copied = || {
            let copy = TempDir::new_in(&self.scratch)?;
            for file in std::fs::read_dir(of)? {
                let file = file?;
                std::fs::copy(file.path(), copy.path().join(file.file_name()))?;
            }
            Ok(copy)
        };
        copied().map_err(|e| Failure::file("copy", of, e))
    }

    /// Shows the next part of the work and its number of steps.
    pub fn begin(&self, what: &str, steps: u64) {
        self.progress.set_length(steps);
        self.progress.set_position(0);
        self.progress.set_message(format!("{}: {what}", self.experiment));
    }

    /// Moves the progress bar on.
    pub fn step(&self, steps: u64) {
        self.progress.inc(steps);
    }

    /// Maps items on all processors, in order. Not for timings. Each item is a step of the progress bar.
    ///
    /// # Errors
    /// The first error in the order of the items.
    pub fn each<T: Sync, R: Send>(
        &self,
        what: &str,
        items: &[T],
        work: impl Fn(&T) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        self.begin(what, items.len() as u64);
        let next = AtomicUsize::new(0);
        let done = Mutex::new(Vec::with_capacity(items.len()));
        let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len());
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        let Some(item) = items.get(place) else { break };
                        let result = work(item);
                        done.lock().unwrap_or_else(PoisonError::into_inner).push((place, result));
                        self.step(1);
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_unstable_by_key(|(place, _)| *place);
        done.into_iter().map(|(_, result)| result).collect()
    }
}

/// A figure: its title, what was asked, theory and measurement, the axes, and the series.
pub fn drawn(id: &'static str, texts: [&str; 4], [x, y]: [Axis; 2], series: Vec<Series>) -> Figure {
    let [title, asked, theory, measured] = texts.map(str::to_owned);
    Figure { id, title, asked, theory, measured, x, y, series }
}

/// The i-th of a family of distinct short keys.
pub fn key(family: u32, i: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&family.to_le_bytes());
    key[4..].copy_from_slice(&i.to_le_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::real_paths;

    fn setting(seed: u64, experiment: &'static str) -> Setting {
        let real = Arc::new(real_paths());
        Setting::new(Size::Quick, seed, real, experiment, Path::new("none"), ProgressBar::hidden())
    }

    #[test]
    fn each_purpose_of_each_experiment_has_a_seed_of_its_own() {
        let toy = setting(1, "toy");
        assert_eq!(toy.seed("keys"), setting(1, "toy").seed("keys"));
        for other in [setting(1, "toy").seed("filters"), setting(1, "costs").seed("keys")] {
            assert_ne!(toy.seed("keys"), other);
        }
        assert_ne!(toy.seed("keys"), setting(2, "toy").seed("keys"));
    }

    #[test]
    fn work_on_threads_comes_back_in_order() {
        let items: Vec<u64> = (0..1000).collect();
        let doubled = setting(1, "toy").each("doubling", &items, |i| Ok(i * 2));
        let doubled = doubled.expect("nothing fails");
        assert_eq!(doubled, items.iter().map(|i| i * 2).collect::<Vec<_>>());
        let failed: Result<Vec<u64>> = setting(1, "toy").each("failing", &items, |&i| {
            if i < 500 { Ok(i) } else { Err(Failure::Usage(i.to_string())) }
        });
        assert_eq!(failed.expect_err("half of them fail").to_string(), "500");
    }
}
