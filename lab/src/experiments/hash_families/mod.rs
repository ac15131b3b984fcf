//! One filter over seven hashes: any good hash will do, and a poor one ruins it.

pub(super) mod hashes;
pub(super) mod plain;

use std::collections::HashSet;

use criba_cli::Result;
use criba_report::figure::{Axis, Figure, Series};
use rand::RngExt;

use self::hashes::{Family, byte_sum};
use self::plain::Plain;
use crate::check::{Check, Sample};
use crate::experiment::{Experiment, Notes, Setting, drawn};
use crate::input::{Keys, random_names, sequential_names};
use crate::source::Source;
use crate::trial::FORMULA;
use crate::{shown, theory};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "hash-families",
    title: "Seven hashes for one filter",
    question: "m, k and n are fixed. How much does the false-positive rate depend on the hash, and on \
               what the keys look like?",
    sources: &[Source::Notebook, Source::Guide],
    run,
};

const M: u64 = 10_000;
const K: u32 = 7;
/// The number of real paths in the sample, and of absent ones.
const N: u64 = 1000;

/// Measurements of the filters over one hash with one kind of keys.
struct Measured {
    filters: u64,
    found: u64,
    passed: u64,
    /// The sum of the filters' shares of set bits.
    fill: f64,
}

fn measure(family: Family, keys: &Keys, seeds: &[u64]) -> Measured {
    let seeds = if family.has_seeds() { seeds } else { &seeds[..1] };
    let mut measured = Measured { filters: seeds.len() as u64, found: 0, passed: 0, fill: 0.0 };
    for &seed in seeds {
        let mut filter = Plain::new(M, K);
        keys.present.iter().for_each(|key| filter.insert(family.hashes(seed, key)));
        let passes = |key: &&Vec<u8>| filter.contains(family.hashes(seed, key));
        measured.found += keys.present.iter().filter(passes).count() as u64;
        measured.passed += keys.absent.iter().filter(passes).count() as u64;
        measured.fill += filter.fill();
    }
    measured
}

fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let mut random = setting.random("seeds of the hashes");
    let seeds: Vec<u64> = (0..setting.pick(500, 10_000)).map(|_| random.random()).collect();
    let inputs = [random_names(N, setting.seed("names")), sequential_names(N), setting.real_keys()];
    let cases: Vec<(Family, usize)> = Family::ALL
        .into_iter()
        .flat_map(|family| (0..3).map(move |input| (family, input)))
        .collect();
    let measured = setting.each("filters of each hash", &cases, |&(family, input)| {
        Ok(measure(family, &inputs[input], &seeds))
    })?;

    let (rate, spread) = (theory::rate(M, K, N), theory::spread(M, K, N));
    let mut marks = [const { Vec::new() }; 3];
    for (place, (family, of_inputs)) in Family::ALL.into_iter().zip(measured.chunks(3)).enumerate()
    {
        for (input, measured) in of_inputs.iter().enumerate() {
            let what = format!("{}, {}", family.name(), inputs[input].name);
            let each = (0..measured.filters).map(|_| Sample::of_filter(N, 0, rate, spread));
            let filters = Sample { passed: measured.passed, ..each.sum() };
            let check = Check::share(format!("FPR, {what}"), FORMULA, filters).at("rates");
            notes.check(if family.has_seeds() { check } else { check.as_illustration() });
            let inserted = (measured.filters * N) as f64;
            let quantity = format!("keys found, {what}");
            notes.check(Check::exact(quantity, "all of them", inserted, measured.found as f64));
            let beside = place as f64 + 1.0 + 0.22 * (input as f64 - 1.0);
            marks[input].push((beside, filters.rate()));
        }
    }
    equal_sums(notes, &inputs);
    remarks(notes, &measured);
    notes.figure(figure(rate, seeds.len(), inputs.each_ref().map(|input| input.name), marks));
    Ok(())
}

/// Keys with equal sums are one key to a filter over sums, whatever its size.
fn equal_sums(notes: &mut Notes, inputs: &[Keys; 3]) {
    for keys in inputs {
        let name = keys.name;
        let mut filter = Plain::new(M, K);
        keys.present.iter().for_each(|key| filter.insert(Family::Sum.hashes(0, key)));
        let sums: HashSet<u64> = keys.present.iter().map(|key| byte_sum(key)).collect();
        let alike: Vec<_> =
            keys.absent.iter().filter(|key| sums.contains(&byte_sum(key))).collect();
        let passed = alike.iter().filter(|key| filter.contains(Family::Sum.hashes(0, key))).count();
        let quantity = format!("absent {name} with the sum of a key that pass a filter by the sum");
        let formula = "all that have one";
        notes.check(Check::exact(quantity, formula, alike.len() as f64, passed as f64).at("rates"));
    }
}

fn remarks(notes: &mut Notes, measured: &[Measured]) {
    let poor = &measured[measured.len() - 3..];
    let fills: Vec<_> = poor.iter().map(|poor| format!("{:.1} %", 100.0 * poor.fill)).collect();
    notes.remark(format!(
        "How full a filter is does not betray a poor hash: by the sums of the bytes {} of the bits are \
         set, where theory expects {:.1} %, so the filter takes itself for better than it is. Keys \
         that hash alike set the same bits.",
        fills.join(", "),
        100.0 * theory::fill(M, K, N)
    ));
    notes.remark(
        "A hash cut in two halves of 32 bits is as good here as two hashes. It ends where m comes \
         near 2^32 bits; criba takes 64 bits for each of the two. A hash without a key, however \
         even, lets whoever chooses the keys choose some that pass: a store hashes with SipHash-1-3 \
         under a key of its own unless told otherwise.",
    );
}

fn figure(rate: f64, filters: usize, inputs: [&str; 3], marks: [Vec<(f64, f64)>; 3]) -> Figure {
    let last = Family::LABELS.len() as f64 + 0.5;
    let mut series = vec![Series::line("theory", 5, vec![(0.5, rate), (last, rate)])];
    for (hue, (name, marks)) in inputs.into_iter().zip(marks).enumerate() {
        series.push(Series::marks(name, hue, marks));
    }
    let named: Vec<_> = Family::LABELS
        .iter()
        .zip(Family::ALL)
        .map(|(label, family)| format!("{label}: {}", family.name()))
        .collect();
    drawn(
        "rates",
        [
            "False-positive rates over seven hashes",
            "Does it matter which hash a filter has?",
            &format!(
                "(1 − e^(−kn/m))^k, with the terms that it leaves out, is {:.3} % for m = {}, k = \
                 {K} and n = {}, whatever the keys, if their hashes are even.",
                100.0 * rate,
                shown(M as f64),
                shown(N as f64)
            ),
            &format!(
                "{} filters for each hash and kind of keys, under different seeds, each asked {} \
                 absent keys; one of the sum, which has no seed. {}.",
                shown(filters as f64),
                shown(N as f64),
                named.join("; ")
            ),
        ],
        [Axis::named("hash", Family::LABELS), Axis::log("false-positive rate", "")],
        series,
    )
}
