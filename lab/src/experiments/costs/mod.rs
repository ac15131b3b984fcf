//! The cost of insertions and lookups, in time and in bits read.

mod probes;
pub(super) mod times;

use criba_cli::Result;

use crate::experiment::{Experiment, Notes, Setting};
use crate::source::Source;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "costs",
    title: "What a filter costs",
    question: "How does the time to build a filter and to ask it depend on m, on k and on the length of \
               the keys, and how many bits does a lookup look at?",
    sources: &[Source::Notebook],
    run,
};

fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    probes::run(setting, notes)?;
    times::run(setting, notes)
}
