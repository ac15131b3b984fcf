//! A small filter before a large one.

use std::time::Instant;

use criba_cli::Result;
use criba_report::figure::{Axis, Series};

use crate::check::{Check, Sample};
use crate::experiment::{Experiment, Notes, Setting, drawn, key};
use crate::source::Source;
use crate::trial::bloom;
use crate::{shown, theory};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "hierarchy",
    title: "A small filter before a large one",
    question: "Ten bits a key are there: what does it change to put some of them into a filter that is \
               asked first?",
    sources: &[Source::Notebook],
    run,
};

/// Bits a key, of both filters together.
const BITS: u64 = 10;
/// The shortest of this many times is shown.
const REPEATS: u64 = 3;

fn shape(bits_per_key: u64, keys: u64) -> (u64, u32) {
    (bits_per_key * keys, theory::best_probes(bits_per_key as f64))
}

/// The expected rate, and its relative scatter between filters.
fn expected(bits_per_key: u64, keys: u64) -> (f64, f64) {
    if bits_per_key == 0 {
        return (1.0, 0.0);
    }
    let (m, k) = shape(bits_per_key, keys);
    let rate = theory::rate(m, k, keys);
    (rate, theory::spread(m, k, keys) / rate)
}

fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let keys: u64 = setting.pick(500_000, 10_000_000);
    let lookups: u64 = setting.pick(600_000, 3_000_000);
    let mut rates = vec![];
    setting.begin("two filters", BITS / 2 + 1);
    for small in 0..=BITS / 2 {
        // Of the same keys, under two hashes.
        let filter =
            |number, bits| bloom(setting.hashing("filters", number), shape(bits, keys), keys);
        let first = if small > 0 { Some(filter(0, small)?) } else { None };
        let second = filter(1, BITS - small)?;
        let passes = |key: [u8; 12]| {
            first.as_ref().is_none_or(|first| first.contains(key)) && second.contains(key)
        };
        let (mut passed, mut fastest) = (0, f64::INFINITY);
        for _ in 0..REPEATS {
            let start = Instant::now();
            passed = (0..lookups).filter(|&i| passes(key(1, i))).count() as u64;
            fastest = fastest.min(start.elapsed().as_secs_f64() * 1e9 / lookups as f64);
        }
        let ((p1, off1), (p2, off2)) = (expected(small, keys), expected(BITS - small, keys));
        let both = p1 * p2;
        let sample = Sample::of_filter(lookups, passed, both, both * off1.hypot(off2));
        let quantity = format!("FPR of {small} bits before {}", BITS - small);
        let time = format!("{fastest:.1} ns");
        notes.measured(
            &format!("time of an absent lookup, {small} bits before {}", BITS - small),
            time,
            "",
        );
        notes.check(Check::share(quantity, "p₁ · p₂", sample).at("split"));
        rates.push((small as f64, sample.rate()));
        setting.step(1);
    }
    let along = |of: &dyn Fn(u64) -> f64| (0..=BITS / 2).map(|s| (s as f64, of(s))).collect();
    notes.figure(drawn(
        "split",
        [
            "False positives of two filters, one before the other",
            "Do two filters pass fewer absent keys than one of as many bits?",
            "Under two hashes p₁ · p₂. With p = 2^(−b·ln 2) at b bits a key that is 2^(−(b₁ + \
             b₂)·ln 2), the rate of one filter: what differs comes of whole numbers of probes.",
            &format!(
                "{} keys in both, {} absent keys asked.",
                shown(keys as f64),
                shown(lookups as f64)
            ),
        ],
        [
            Axis::linear("bits a key of the first filter, of 10", ""),
            Axis::log("share of the absent keys", ""),
        ],
        vec![
            Series::line(
                "pass both, theory",
                0,
                along(&|small| expected(small, keys).0 * expected(BITS - small, keys).0),
            ),
            Series::marks("pass both, measured", 0, rates),
            Series::line("pass the first, theory", 1, along(&|small| expected(small, keys).0)),
        ],
    ));
    Ok(())
}
