//! A speller of a hundred thousand words: a filter, an exact set, and a filter before the set.

use std::collections::HashSet;
use std::time::Instant;

use criba_cli::{Failure, Result};
use criba_filter::Bloom;
use criba_report::figure::{Axis, Series};
use fst::Set;
use rand::RngExt;

use super::word;
use crate::check::Check;
use crate::experiment::{Notes, Setting, drawn};
use crate::trial::{FORMULA, of_shape};
use crate::{shown, theory};

const WORDS: u64 = 100_000;

fn misspelt(setting: &Setting, words: &HashSet<String>, count: usize) -> Vec<String> {
    let mut random = setting.random("misspellings");
    let mut wrong = HashSet::new();
    while wrong.len() < count {
        let mut letters = word(random.random_range(0..WORDS)).into_bytes();
        let place = random.random_range(0..letters.len());
        letters[place] = random.random_range(b'a'..=b'z');
        if let Ok(text) = String::from_utf8(letters)
            && !words.contains(&text)
        {
            wrong.insert(text);
        }
    }
    let mut wrong: Vec<String> = wrong.into_iter().collect();
    wrong.sort_unstable();
    wrong
}

pub(super) fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    setting.begin("a speller", 6);
    let words: HashSet<String> = (0..WORDS).map(word).collect();
    let wrong = misspelt(setting, &words, setting.pick(400_000, 3_000_000));
    let mut sorted: Vec<&String> = words.iter().collect();
    sorted.sort_unstable();
    let set =
        Set::from_iter(&sorted).map_err(|e| Failure::Usage(format!("a set of words: {e}")))?;
    let set_bits = 8.0 * set.as_fst().as_bytes().len() as f64 / WORDS as f64;
    setting.step(1);

    let mut marks = Vec::new();
    for bits in [6_u64, 8, 10, 12, 14] {
        let (m, k) = (bits * WORDS, theory::best_probes(bits as f64));
        let mut filter =
            Bloom::with_geometry(m, k)?.with_hashing(setting.hashing("speller", bits))?;
        filter.extend(&sorted);
        let missed = wrong.iter().filter(|text| filter.contains(text)).count() as u64;
        let sample = of_shape(wrong.len() as u64, missed, (m, k), WORDS);
        let quantity = format!("misspellings that pass a filter of {bits} bits a word");
        notes.check(Check::share(quantity, FORMULA, sample).at("speller").if_enough());
        marks.push((bits as f64, 100.0 * sample.rate()));
        if bits == 10 {
            times(notes, &filter, &set, &wrong, &sorted, set_bits);
        }
        setting.step(1);
    }
    let along = (24..=60).map(|quarter| f64::from(quarter) / 4.0);
    let along =
        along.map(|bits| (bits, 100.0 * theory::rate_at_ratio(bits, theory::best_probes(bits))));
    notes.figure(drawn(
        "speller",
        [
            "Misspellings that a speller misses",
            "How small can a speller be, and how many mistakes does that let through?",
            "A filter misses (1 − e^(−k/b))^k of the misspellings at b bits a word, and never \
             marks a right word; the set misses none.",
            &format!(
                "{} words of four syllables, and {} that differ from one of them in a letter.",
                shown(WORDS as f64),
                shown(wrong.len() as f64)
            ),
        ],
        [Axis::linear("memory", "bits a word"), Axis::linear("misspellings missed", "%")],
        vec![
            Series::line("filter, theory", 0, along.collect()),
            Series::marks("filter, measured", 0, marks),
            Series::marks(
                "fst::Set, and a filter of 10 bits before it",
                1,
                vec![(set_bits, 0.0), (set_bits + 10.0, 0.0)],
            ),
        ],
    ));
    Ok(())
}

/// A filter of ten bits per word, the set, and the filter before the set.
fn times(
    notes: &mut Notes,
    filter: &Bloom,
    set: &Set<Vec<u8>>,
    wrong: &[String],
    words: &[&String],
    set_bits: f64,
) {
    type Knows<'a> = &'a dyn Fn(&str) -> bool;
    let ways: [(&str, f64, Knows); 3] = [
        ("filter of 10 bits", 10.0, &|text| filter.contains(text)),
        ("fst::Set", set_bits, &|text| set.contains(text)),
        ("filter before fst::Set", 10.0 + set_bits, &|text| {
            filter.contains(text) && set.contains(text)
        }),
    ];
    for (name, bits, knows) in ways {
        let start = Instant::now();
        let missed = wrong.iter().filter(|text| knows(text)).count();
        let nanoseconds = start.elapsed().as_secs_f64() * 1e9 / wrong.len() as f64;
        let known = words.iter().filter(|text| knows(text)).count();
        let quantity = format!("speller: right words that pass, {name}");
        notes
            .check(Check::exact(quantity, "all of them", WORDS as f64, known as f64).at("speller"));
        let ours = format!(
            "{bits:.1} bits a word, {:.2} % missed, {nanoseconds:.0} ns",
            100.0 * missed as f64 / wrong.len() as f64
        );
        notes.measured(&format!("speller, {name}"), ours, "misspellings; this machine's time");
    }
}
