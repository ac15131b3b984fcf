//! Applications of filters: short simulations, with a store where one is involved.

mod blocklist;
mod cache;
mod crawler;
mod dos;
mod granularity;
mod shifting;
mod site;
mod speller;

use criba::{FilterKind, FilterPolicy};
use criba_cli::Result;

use crate::experiment::{Experiment, Notes, Setting};
use crate::source::Source;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "applications",
    title: "Caches, crawlers, routers, spellers, files, and workloads that change",
    question: "What does a filter do for a cache most of whose requests come once, for crawlers, for a \
               router's block list and its alarms, for a speller, and for files; and how is it kept fit?",
    sources: &[Source::Notebook],
    run,
};

fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    cache::run(setting, notes)?;
    crawler::run(setting, notes)?;
    site::run(setting, notes)?;
    blocklist::run(setting, notes)?;
    dos::run(setting, notes)?;
    speller::run(setting, notes)?;
    granularity::run(setting, notes)?;
    shifting::run(setting, notes)
}

fn one_percent() -> FilterPolicy {
    FilterPolicy::rate(0.01).with_kind(FilterKind::Bloom)
}

/// The i-th of a hundred million distinct words of four syllables.
fn word(i: u64) -> String {
    const ONSETS: &[u8; 20] = b"bcdfghjklmnpqrstvwxz";
    const VOWELS: &[u8; 5] = b"aeiou";
    let mut rest = i * 58_129_469 % 100_000_000; // no factor of ten, so that no two meet
    let mut word = String::with_capacity(8);
    for _ in 0..4 {
        let syllable = (rest % 100) as usize;
        word.push(char::from(ONSETS[syllable / 5]));
        word.push(char::from(VOWELS[syllable % 5]));
        rest /= 100;
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_distinct() {
        let words: std::collections::HashSet<_> = (0..100_000).map(word).collect();
        assert_eq!(words.len(), 100_000);
    }
}
