//! A small filter before a large one.

use std::time::Instant;

use criba_cli::Result;
use criba_cli::page::figure::{Axis, Series};

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
/// The lookups are timed in this many parts; the median is shown.
const PARTS: u64 = 15;

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
    let (mut rates, mut reached, mut times) = (vec![], vec![], vec![]);
    setting.begin("two filters", BITS / 2 + 1);
    for small in 0..=BITS / 2 {
        // Of the same keys, under two hashes.
        let filter =
            |number, bits| bloom(setting.hashing("filters", number), shape(bits, keys), keys);
        let first = if small > 0 { Some(filter(0, small)?) } else { None };
        let second = filter(1, BITS - small)?;
        let (mut went_on, mut passed) = (0_u64, 0_u64);
        let mut parts = Vec::new();
        for part in 0..PARTS {
            let start = Instant::now();
            for i in part * lookups / PARTS..(part + 1) * lookups / PARTS {
                let key = key(1, i);
                if first.as_ref().is_none_or(|first| first.contains(key)) {
                    went_on += 1;
                    passed += u64::from(second.contains(key));
                }
            }
            parts.push(start.elapsed().as_secs_f64() * 1e9 * PARTS as f64 / lookups as f64);
        }
        parts.sort_unstable_by(f64::total_cmp);
        let nanoseconds = parts[parts.len() / 2];
        let ((p1, off1), (p2, off2)) = (expected(small, keys), expected(BITS - small, keys));
        let both = p1 * p2;
        let sample = Sample::of_filter(lookups, passed, both, both * off1.hypot(off2));
        let quantity = format!("FPR of {small} bits before {}", BITS - small);
        notes.check(Check::share(quantity, "p₁ · p₂", sample).at("split"));
        if small > 0 {
            let sample = Sample::of_filter(lookups, went_on, p1, p1 * off1);
            let quantity = format!("absent keys that {small} bits let on to the large filter");
            notes.check(Check::share(quantity, "p₁ = (1 − e^(−kn/m))^k", sample).at("split"));
            reached.push((small as f64, sample.rate()));
        }
        if small == 2 {
            let ours =
                format!("{:.5}; one filter of 10 bits {:.5}", sample.rate(), rates_at(&rates, 0.0));
            notes.measured("false positives, 2 bits before 8", ours, "p₁ · p₂");
        }
        rates.push((small as f64, sample.rate()));
        times.push((small as f64, nanoseconds));
        setting.step(1);
    }
    notes.measured(
        "time of an absent lookup, 2 bits before 8",
        format!(
            "{:.1} ns; one filter of 10 bits {:.1} ns",
            rates_at(&times, 2.0),
            rates_at(&times, 0.0)
        ),
        "this machine's",
    );
    let along = |of: &dyn Fn(u64) -> f64| (0..=BITS / 2).map(|s| (s as f64, of(s))).collect();
    notes.figure(drawn("split", ["False positives of two filters, one before the other", "Do two filters pass fewer absent keys than one of as many bits?", "Under two hashes p₁ · p₂. With p = 2^(−b·ln 2) at b bits a key that is \
                 2^(−(b₁ + b₂)·ln 2), the rate of one filter: what differs comes of whole numbers of \
                 probes.", &format!(
            "{} keys in both, {} absent keys asked.",
            shown(keys as f64),
            shown(lookups as f64)
        )], [Axis::linear("bits a key of the first filter, of 10", ""), Axis::log("share of the absent keys", "")], vec![
            Series::line("pass both, theory", 0, along(&|small| {
                expected(small, keys).0 * expected(BITS - small, keys).0
            })),
            Series::marks("pass both, measured", 0, rates),
            Series::line("pass the first, theory", 1, along(&|small| expected(small, keys).0)),
            Series::marks("pass the first, measured", 1, reached),
        ]));
    notes.figure(drawn(
        "time",
        [
            "Time of an absent lookup in two filters",
            "Is it faster to ask a small filter first?",
            "t₁ + p₁ · t₂: both parts are about two probes, since an absent key meets an unset bit \
                 after two in the mean wherever half of the bits are set.",
            &format!(
                "One thread, {} lookups for each mark, in {PARTS} parts; the median of the parts.",
                shown(lookups as f64)
            ),
        ],
        [
            Axis::linear("bits a key of the first filter, of 10", ""),
            Axis::linear("time of an absent lookup", "ns"),
        ],
        vec![Series::marked("measured", 0, times)],
    ));
    Ok(())
}

fn rates_at(points: &[(f64, f64)], x: f64) -> f64 {
    points.iter().find(|(at, _)| (at - x).abs() < 0.5).map_or(f64::NAN, |(_, y)| *y)
}
