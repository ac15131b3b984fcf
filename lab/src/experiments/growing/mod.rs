//! Growing sets: four ways to have a filter, when a rebuild pays, and what is wrong.

mod over_time;
mod paying;
mod probes;

use criba::{FilterKind, FilterPolicy};
use criba_cli::Result;

use crate::experiment::{Experiment, Notes, Setting};
use crate::source::Source;
use crate::theory;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "growing",
    title: "Keys that keep coming",
    question: "A filter is made at 1 % for the first keys, and more come, sixteen times as many in the \
               end. How is the rate kept, when does a new filter pay, and may the number of probes be \
               changed in place?",
    sources: &[Source::Notebook],
    run,
};

const RATE: f64 = 0.01;

/// The keys of one batch, and the filter made for the first batch.
#[derive(Clone, Copy)]
struct Batch {
    keys: u64,
    m: u64,
    k: u32,
}

impl Batch {
    fn rate(self, keys: u64) -> f64 {
        theory::rate(self.m, self.k, keys)
    }

    fn spread(self, keys: u64) -> f64 {
        theory::spread(self.m, self.k, keys)
    }

    /// The first filter's shape for every table, whatever its keys.
    fn one_shape(self) -> FilterPolicy {
        FilterPolicy::default().with_geometry(self.m, self.k)
    }
}

fn made_anew() -> FilterPolicy {
    FilterPolicy::rate(RATE).with_kind(FilterKind::Bloom)
}

fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let keys = setting.pick(20_000, 100_000);
    let (m, k) = theory::classic_shape(keys, RATE);
    let batch = Batch { keys, m, k };
    over_time::run(setting, notes, batch)?;
    paying::run(setting, notes, batch)?;
    probes::run(setting, notes, batch);
    Ok(())
}
