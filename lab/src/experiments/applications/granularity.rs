//! One filter per block, per table, or for everything.

use criba::filter::Bloom;
use criba_cli::Result;
use criba_cli::page::figure::{Axis, Figure, Series};

use crate::check::{Check, Sample};
use crate::experiment::{Notes, Setting, key};
use crate::{shown, theory};

const BITS: u64 = 6;
const PROBES: u32 = 4;
/// Of a filter's bytes, in bits.
const HEADER: f64 = 1024.0;

pub(super) fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let keys: u64 = 1 << setting.pick(18, 21);
    let lookups: u64 = setting.pick(300_000, 4_000_000);
    let sizes: [(&str, u64); 4] = [
        ("a block of 256 keys", 256),
        ("8 blocks", 2048),
        ("a table of 16,384 keys", 1 << 14),
        ("everything", keys),
    ];
    let measured = setting.each("filters for more or less", &sizes, |&(_, of_keys)| {
        let (filters, m) = (keys / of_keys, BITS * of_keys);
        let (rate, spread) = (theory::rate(m, PROBES, of_keys), theory::spread(m, PROBES, of_keys));
        let (mut samples, mut bytes) = (Vec::new(), 0);
        for number in 0..filters {
            let hashing = setting.hashing("granularity", of_keys << 32 | number);
            let mut filter = Bloom::with_geometry(m, PROBES)?.with_hashing(hashing)?;
            filter.extend((number * of_keys..(number + 1) * of_keys).map(|i| key(0, i)));
            // An index says in which block or table a key would be: one filter is asked.
            let asked = number * lookups / filters..(number + 1) * lookups / filters;
            let trials = asked.end - asked.start;
            let passed = asked.filter(|&i| filter.contains(key(1, i))).count() as u64;
            samples.push(Sample::of_filter(trials, passed, rate, spread));
            bytes += filter.to_bytes().len();
        }
        Ok((samples.into_iter().sum::<Sample>(), bytes))
    })?;
    let mut marks = Vec::new();
    for ((name, of_keys), (sample, bytes)) in sizes.iter().zip(measured) {
        let quantity = format!("FPR, {BITS} bits a key, a filter for {name}");
        let formula = "(1 − e^(−kn/m))^k, with the terms that it leaves out";
        notes.check(Check::share(quantity, formula, sample).at("granularity").if_enough());
        let with_headers = 8.0 * bytes as f64 / keys as f64;
        marks.push((*of_keys as f64, with_headers));
        let ours =
            format!("{:.3} %, {with_headers:.2} bits a key with headers", 100.0 * sample.rate());
        notes.compare(&format!("a filter for {name}"), "–", ours, "of 6 bits a key");
    }
    let line = (8..=21).map(|power| 1_u64 << power);
    let line = line.map(|n| (n as f64, BITS as f64 + HEADER / n as f64));
    notes.figure(Figure {
        id: "granularity",
        title: "What a filter takes, by how many keys it is for".into(),
        asked: "Is one filter wanted for a block, for a table, or for everything?".into(),
        theory: "At the same bits a key the rate is the same whatever the number of keys, but for what \
                 double hashing adds to very small filters; each filter has a header of 1024 bits beside."
            .into(),
        measured: format!(
            "{} keys in filters of {BITS} bits a key, asked {} absent keys; each in one filter, as an index \
             would choose it.",
            shown(keys as f64),
            shown(lookups as f64)
        ),
        x: Axis::log("keys in a filter", ""),
        y: Axis::linear("filter, header included", "bits a key"),
        series: vec![Series::line("theory", 0, line.collect()), Series::marks("measured", 0, marks)],
    });
    notes.remark(
        "A filter for each block needs the index first, and a header and a read of its own for each; one for \
         everything must be made anew when any table is. One for each table is made when the table is \
         written and dropped when it goes, and is asked before the index: so criba has it.",
    );
    Ok(())
}
