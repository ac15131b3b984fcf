//! Applications of filters: short simulations, with a store where one is involved.

mod blocklist;
mod cache;
mod crawler;
mod dos;
mod granularity;
mod shifting;
mod site;
mod speller;

use std::path::Path;

use criba::{Batch, Db, FilterKind, FilterPolicy, Options};
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

/// A store without caches, with Bloom filters of 1 %.
fn store(setting: &Setting, dir: &Path, ignore_filters: bool) -> Result<Db> {
    Ok(options(setting).ignore_filters(ignore_filters).open(dir)?)
}

fn options(setting: &Setting) -> Options {
    Options::new()
        .filter(FilterPolicy::rate(0.01).with_kind(FilterKind::Bloom))
        .background_threads(0)
        .seed(setting.seed("store"))
        .cache_bytes(0)
}

/// Writes many keys with one value, in batches of a thousand.
fn put_all(db: &Db, keys: impl Iterator<Item = String>, value: &str) -> Result<()> {
    let mut keys = keys.peekable();
    while keys.peek().is_some() {
        let mut batch = Batch::new();
        for key in keys.by_ref().take(1000) {
            batch.put(key, value);
        }
        db.write(batch)?;
    }
    Ok(())
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
