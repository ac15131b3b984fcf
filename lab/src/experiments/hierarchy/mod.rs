//! A small filter before a large one: of one table, and of all tables of a store.

mod levels;

use std::time::Instant;

use criba::filter::Bloom;
use criba_cli::Result;
use criba_cli::page::figure::{Axis, Figure, Series};

use crate::check::{Check, Sample};
use crate::experiment::{Experiment, Notes, Setting, key};
use crate::source::Source;
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

fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    one_table(setting, notes)?;
    levels::run(setting, notes)?;
    notes.remark(
        "Times are this machine's. In false positives a small filter before a large one gains nothing; \
         in time it could gain where only the small one lies in a near cache, which is not tried here.",
    );
    Ok(())
}

/// A filter of these bits per key with the best number of probes. A second one for the same keys has another
/// hash.
fn filter(setting: &Setting, second: bool, bits_per_key: u64, keys: u64) -> Result<Bloom> {
    let (m, k) = shape(bits_per_key, keys);
    let hashing = setting.hashing("filters", u64::from(second));
    let mut filter = Bloom::with_geometry(m, k)?.with_hashing(hashing)?;
    filter.extend((0..keys).map(|i| key(0, i)));
    Ok(filter)
}

fn shape(bits_per_key: u64, keys: u64) -> (u64, u32) {
    let k = (bits_per_key as f64 * std::f64::consts::LN_2).round().max(1.0);
    (bits_per_key * keys, k as u32)
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

fn one_table(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let keys: u64 = setting.pick(500_000, 10_000_000);
    let lookups: u64 = setting.pick(600_000, 3_000_000);
    let (mut rates, mut reached, mut times) = (vec![], vec![], vec![]);
    setting.begin("two filters", BITS / 2 + 1);
    for small in 0..=BITS / 2 {
        let first = if small > 0 { Some(filter(setting, false, small, keys)?) } else { None };
        let second = filter(setting, true, BITS - small, keys)?;
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
    notes.figure(Figure {
        id: "split",
        title: "False positives of two filters, one before the other".into(),
        asked: "Do two filters pass fewer absent keys than one of as many bits?".into(),
        theory: "Under two hashes p₁ · p₂. With p = 2^(−b·ln 2) at b bits a key that is \
                 2^(−(b₁ + b₂)·ln 2), the rate of one filter: what differs comes of whole numbers of \
                 probes."
            .into(),
        measured: format!(
            "{} keys in both, {} absent keys asked.",
            shown(keys as f64),
            shown(lookups as f64)
        ),
        x: Axis::linear("bits a key of the first filter, of 10", ""),
        y: Axis::log("share of the absent keys", ""),
        series: vec![
            Series::line("pass both, theory", 0, along(&|small| {
                expected(small, keys).0 * expected(BITS - small, keys).0
            })),
            Series::marks("pass both, measured", 0, rates),
            Series::line("pass the first, theory", 1, along(&|small| expected(small, keys).0)),
            Series::marks("pass the first, measured", 1, reached),
        ],
    });
    notes.figure(Figure {
        id: "time",
        title: "Time of an absent lookup in two filters".into(),
        asked: "Is it faster to ask a small filter first?".into(),
        theory:
            "t₁ + p₁ · t₂: both parts are about two probes, since an absent key meets an unset bit \
                 after two in the mean wherever half of the bits are set."
                .into(),
        measured: format!(
            "One thread, {} lookups for each mark, in {PARTS} parts; the median of the parts.",
            shown(lookups as f64)
        ),
        x: Axis::linear("bits a key of the first filter, of 10", ""),
        y: Axis::linear("time of an absent lookup", "ns"),
        series: vec![Series::marked("measured", 0, times)],
    });
    Ok(())
}

fn rates_at(points: &[(f64, f64)], x: f64) -> f64 {
    points.iter().find(|(at, _)| (at - x).abs() < 0.5).map_or(f64::NAN, |(_, y)| *y)
}
