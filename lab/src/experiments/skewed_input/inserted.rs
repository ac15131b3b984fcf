//! Keys that are inserted again.

use std::collections::HashSet;

use criba_cli::Result;
use criba_filter::Bloom;
use criba_report::figure::{Axis, Series};

use super::{EXPONENTS, Zipf};
use crate::check::{Check, Sample};
use crate::experiment::{Notes, Setting, drawn, key};
use crate::trial::FORMULA;
use crate::{shown, theory};

struct Inserted {
    distinct: Sample,
    /// Of the distinct keys; and as if all insertions were distinct.
    rate: Sample,
    taken_for_new: f64,
    same_bits: bool,
}

fn insert(setting: &Setting, exponent: f64, keys: u64) -> Result<Inserted> {
    let zipf = Zipf::new(keys, exponent);
    let mut random = setting.random(&format!("inserted {exponent}"));
    // As many insertions as there are keys, into a filter that is small for them, or nothing would
    // pass where few are distinct.
    let (m, k) = (2 * keys, 3);
    let hashing = setting.hashing("inserted", exponent.to_bits());
    let mut filter = Bloom::with_geometry(m, k)?.with_hashing(hashing)?;
    let mut once = filter.empty_like()?;
    let mut seen = HashSet::new();
    for _ in 0..keys {
        let drawn = zipf.draw(&mut random);
        filter.insert(key(0, drawn));
        if seen.insert(drawn) {
            once.insert(key(0, drawn));
        }
    }
    let distinct = seen.len() as u64;
    let chances = zipf.chances().map(|chance| -((-chance).ln_1p() * keys as f64).exp_m1());
    let expected = chances.sum::<f64>() / keys as f64;
    let (rate, spread) = (theory::rate(m, k, distinct), theory::spread(m, k, distinct));
    let lookups = (4000.0 / rate).ceil() as u64;
    let passed = (0..lookups).filter(|&i| filter.contains(key(1, i))).count() as u64;
    Ok(Inserted {
        distinct: Sample::of_chance(keys, distinct, expected),
        rate: Sample::of_filter(lookups, passed, rate, spread),
        taken_for_new: theory::rate(m, k, keys),
        same_bits: filter.to_bytes() == once.to_bytes(),
    })
}

pub(super) fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let keys = setting.pick(50_000, 500_000);
    let measured = setting
        .each("keys inserted again", &EXPONENTS, |&exponent| insert(setting, exponent, keys))?;
    let (mut line, mut marks, mut new) = (Vec::new(), Vec::new(), Vec::new());
    for (exponent, inserted) in EXPONENTS.iter().zip(&measured) {
        let (distinct, rate) = (inserted.distinct, inserted.rate);
        let quantity = format!("distinct keys a key, Zipf {exponent}");
        let formula = "Σ 1 − (1 − p_i)^N, over N keys";
        notes.check(Check::share(quantity, formula, distinct).at("inserted"));
        let quantity = format!("FPR after insertions of Zipf {exponent}");
        notes.check(Check::share(quantity, FORMULA, rate).at("inserted"));
        line.push((*exponent, rate.expected / rate.trials as f64));
        marks.push((*exponent, rate.rate()));
        new.push((*exponent, inserted.taken_for_new));
    }
    let same = measured.iter().filter(|inserted| inserted.same_bits).count() as f64;
    let quantity = "filters that are as if each key had come once, bit by bit";
    notes.check(Check::exact(quantity, "all", EXPONENTS.len() as f64, same).at("inserted"));
    notes.figure(drawn(
        "inserted",
        [
            "False-positive rate after insertions of which many repeat a key",
            "What do keys that are inserted again do to a filter?",
            "Nothing: a key sets the bits that it has set. n in (1 − e^(−kn/m))^k is the number of \
             distinct keys, Σ 1 − (1 − p_i)^N in the mean after N insertions.",
            &format!(
                "{} insertions into a filter of two bits for each and three probes; the key of \
                 rank r comes in proportion to r^−s.",
                shown(keys as f64)
            ),
        ],
        [
            Axis::linear("exponent of the Zipf distribution, s", ""),
            Axis::log("false-positive rate", ""),
        ],
        vec![
            Series::line("theory, of the distinct keys", 0, line),
            Series::marks("measured", 0, marks),
            Series::line("were each insertion a new key", 1, new),
        ],
    ));
    Ok(())
}
