//! Filters small enough to draw, and the two sizes that the sources compute by hand.

use criba::FilterKind;
use criba_cli::Result;
use criba_filter::{FilterSize, StaticFilter};
use criba_report::figure::{Axis, Series};

use crate::check::{Check, Sample, mean_and_sd};
use crate::experiment::{Experiment, Notes, Setting, drawn, key};
use crate::experiments::hash_families::plain::Plain;
use crate::source::Source;
use crate::trial::{FORMULA, asked, bloom};
use crate::{shown, theory};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "toy",
    title: "Filters small enough to be drawn",
    question: "What becomes of a filter of four bits, and of one of eight, as keys come in; and how \
               large is the filter that a rate asks for?",
    sources: &[Source::Notebook, Source::Guide],
    run,
};

fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    picture(notes);
    four_bits(setting, notes)?;
    eight_bits(setting, notes)?;
    sizes(setting, notes)?;
    probes(setting, notes)
}

/// The notebook's example, with its hashes: 1 has the places 0 and 2, 2 has 1 and 2, 3 has 1 and 0, or else 3
/// and 0.
fn picture(notes: &mut Notes) {
    let mut filter = Plain::new(4, 2);
    let mut states = vec![0];
    for hashes in [(0, 2), (1, 1)] {
        filter.insert(hashes);
        states.push(filter.word());
    }
    let quantity = "the four bits after the notebook's two keys, as a number";
    notes.check(Check::exact(quantity, "2⁰ + 2¹ + 2²", 7.0, states[2] as f64).at("picture"));
    let passed = [(1, 3), (3, 1)].map(|hashes| f64::from(u8::from(filter.contains(hashes))));
    let [third, otherwise] = passed;
    let quantity = "key 3 passes, with other hashes it does not";
    notes.check(Check::exact(quantity, "1 − 0", 1.0, third - otherwise).at("picture"));
    let rows = |is_set: bool| {
        let bits = states.iter().enumerate().flat_map(move |(row, state)| {
            let of = (0..4).filter(move |bit| (state >> bit & 1 == 1) == is_set);
            of.map(move |bit| (f64::from(bit) + 1.0, row as f64))
        });
        bits.collect()
    };
    let asked = |name: &str, hue, places: [f64; 2], at: f64| {
        Series::marked(name, hue, places.map(|bit| (bit + 1.0, at)).to_vec())
    };
    notes.figure(drawn(
        "picture",
        [
            "Four bits, two probes a key",
            "How does a filter pass a key that it never had?",
            "Key 1 sets the bits 0 and 2, key 2 the bits 1 and 2. The places of key 3, 1 and 0, \
             are both set by then: a false positive. With the places 3 and 0 it would be denied, \
             as bit 3 is unset.",
            "The notebook's example, with its places.",
        ],
        [
            Axis::named("bit", &["0", "1", "2", "3"]),
            Axis::linear("0, 1, 2 keys inserted; 3, 4 questions", ""),
        ],
        vec![
            Series::marks("bit set", 0, rows(true)),
            Series::marks("bit unset", 5, rows(false)),
            asked("key 3 with places 1 and 0: passes", 1, [1.0, 0.0], 3.0),
            asked("key 3 with places 3 and 0: denied", 2, [3.0, 0.0], 4.0),
        ],
    ));
}

/// The rate of four bits, by the exact formula: one absent key per filter, so that trials are binomial.
fn four_bits(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let filters: u64 = setting.pick(20_000, 400_000);
    let mut series = Vec::new();
    for (hue, k) in [1, 2].into_iter().enumerate() {
        let keys: Vec<u64> = (1..=8).collect();
        let measured = setting.each("filters of four bits", &keys, |&n| {
            let mut passed = 0;
            for number in 0..filters {
                let hashing = setting.hashing("filters", u64::from(k) << 48 | n << 24 | number);
                let filter = bloom(hashing, (4, k), n)?;
                passed += u64::from(filter.contains(key(1, 0)));
            }
            Ok(Sample::of_chance(filters, passed, theory::exact_rate(4, k, n)))
        })?;
        for (n, sample) in keys.iter().zip(&measured) {
            let formula = if k == 1 { "1 − (3/4)^n" } else { "counted over all pairs of steps" };
            let quantity = format!("FPR of 4 bits, k = {k}, n = {n}");
            notes.check(Check::share(quantity, formula, *sample).at("four-bits"));
        }
        let along = |of: &dyn Fn(u64) -> f64| keys.iter().map(|&n| (n as f64, of(n))).collect();
        let rates = keys.iter().zip(&measured).map(|(&n, sample)| (n as f64, sample.rate()));
        series.extend([
            Series::line(
                format!("(1 − e^(−{k}n/4))^{k}, for large filters"),
                hue + 4,
                along(&|n| theory::classic_rate(4, k, n)),
            ),
            Series::line(format!("exact, k = {k}"), hue, along(&|n| theory::exact_rate(4, k, n))),
            Series::marks(format!("measured, k = {k}"), hue, rates.collect()),
        ]);
    }
    notes.figure(drawn(
        "four-bits",
        [
            "False positives of a filter of four bits",
            "How soon does a filter of four bits say yes to everything?",
            "With one probe 1 − (1 − 1/m)^n; with two, counted over all pairs of steps. The \
             formula for large filters is off here.",
            &format!(
                "{} filters for each point, each under a hash of its own and asked one absent key.",
                shown(filters as f64)
            ),
        ],
        [Axis::linear("keys inserted, n", ""), Axis::linear("false-positive rate", "")],
        series,
    ));
    Ok(())
}

/// The chance that all of 8 bits are set after this many hashes.
fn full_after(hashes: u32) -> f64 {
    let mut choose = 1.0;
    (0..=8)
        .map(|unset| {
            let term = choose * (1.0 - f64::from(unset) / 8.0).powi(hashes as i32);
            choose *= -f64::from(8 - unset) / f64::from(unset + 1);
            term
        })
        .sum()
}

fn eight_bits(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let filters: u64 = setting.pick(20_000, 400_000);
    let numbers: Vec<u64> = (0..filters).collect();
    let blocks: Vec<&[u64]> = numbers.chunks(1000).collect();
    let hashes = setting.each("filters of eight bits", &blocks, |numbers| {
        let until_full = |&number: &u64| {
            let mut filter = bloom(setting.hashing("eight bits", number), (8, 1), 0)?;
            let mut hashes = 0_u32;
            while filter.bits_set() < 8 {
                filter.insert(key(0, u64::from(hashes)));
                hashes += 1;
            }
            Ok(hashes)
        };
        numbers.iter().map(until_full).collect::<Result<Vec<_>>>()
    })?;
    let counts: Vec<u32> = hashes.concat();
    let hashes: Vec<f64> = counts.iter().copied().map(f64::from).collect();
    let expected: f64 = (1..=8).map(|unset| 8.0 / f64::from(unset)).sum();
    let by_twenty = counts.iter().filter(|&&hashes| hashes <= 20).count() as u64;
    let by_twenty = Sample::of_chance(filters, by_twenty, full_after(20));
    let (mean, _) = mean_and_sd(&hashes);
    let formula = "8 · (1 + 1/2 + … + 1/8)";
    notes.check(
        Check::mean("hashes until 8 bits are full", formula, expected, &hashes).at("eight-bits"),
    );
    let formula = "Σ (−1)^j · C(8, j) · (1 − j/8)^20";
    notes.check(
        Check::share("filters of 8 bits full by 20 hashes", formula, by_twenty).at("eight-bits"),
    );

    let share = |count: u32| {
        let equal = counts.iter().filter(|&&hashes| hashes == count).count();
        equal as f64 / filters as f64
    };
    let along = |of: &dyn Fn(u32) -> f64| (8..=60).map(|i| (f64::from(i), of(i))).collect();
    let theory = along(&|count| full_after(count) - full_after(count - 1));
    notes.figure(drawn(
        "eight-bits",
        [
            "How many hashes fill a filter of eight bits",
            "After how many hashes is every bit set, and every answer yes?",
            &format!(
                "The collector's problem: 8 · (1 + 1/2 + … + 1/8) = {} in the mean; half of all \
                 filters are full by 20.",
                shown(expected)
            ),
            &format!(
                "{} filters under different hashes, one probe a key; {} hashes in the mean. Beyond \
                 60 hashes there are few.",
                shown(filters as f64),
                shown(mean)
            ),
        ],
        [
            Axis::linear("hashes until all bits are set", ""),
            Axis::linear("share of the filters", ""),
        ],
        vec![Series::bars("measured", 0, along(&share)), Series::line("theory", 1, theory)],
    ));
    notes.measured(
        "hashes that fill 8 bits",
        format!("{mean:.2}, theory {expected:.2}"),
        "in the mean",
    );
    Ok(())
}

/// The sizes of criba's filters for a rate, beside the formulas'.
fn sizes(setting: &Setting, notes: &mut Notes) -> Result<()> {
    for (n, rate) in [(1_000_000_u64, 0.1), (1_000_000, 0.001)] {
        setting.begin("the textbook's sizes", 1);
        let keys = (0..n).map(|i| key(0, i));
        let hashing = setting.hashing("sizes", 0);
        let filter = StaticFilter::build(FilterKind::Bloom, FilterSize::Rate(rate), hashing, keys)?;
        let (m, k) = theory::classic_shape(n, rate);
        let shape = filter.geometry();
        let of = format!("n = {}, p = {rate}", shown(n as f64));
        let formula = "⌈−n ln p / (ln 2)²⌉";
        notes.check(Check::exact(format!("bits m, {of}"), formula, m as f64, shape.m as f64));
        let formula = "round(m/n · ln 2)";
        let probes = f64::from(shape.k);
        notes.check(Check::exact(format!("probes k, {of}"), formula, f64::from(k), probes));
        let bytes = m.div_ceil(64) * 8;
        let measured = filter.bytes() as f64;
        notes.check(Check::exact(format!("bytes, {of}"), "8 · ⌈m/64⌉", bytes as f64, measured));
        setting.step(1);
    }
    Ok(())
}

/// Why 0.1 % takes ten probes: fewer or more pass more keys.
fn probes(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let n: u64 = setting.pick(100_000, 1_000_000);
    let lookups: u64 = 3_000_000;
    let (m, _) = theory::classic_shape(n, 0.001);
    let measured = setting.each("a filter for each k", &[3_u32, 5, 7, 10, 13, 16], |&k| {
        let filter = bloom(setting.hashing("probes", u64::from(k)), (m, k), n)?;
        Ok((k, asked(&filter, n, 0..lookups)))
    })?;
    for (k, sample) in &measured {
        let quantity = format!("FPR of 14.38 bits a key, k = {k}");
        notes.check(Check::share(quantity, FORMULA, *sample).at("probes"));
    }
    let line = (2..=18).map(|k| (f64::from(k), theory::classic_rate(m, k, n))).collect();
    let marks = measured.iter().map(|(k, sample)| (f64::from(*k), sample.rate())).collect();
    notes.figure(drawn(
        "probes",
        [
            "How many probes a filter of 14.38 bits a key should make",
            "Why does a rate of 0.1 % ask for ten probes?",
            "(1 − e^(−kn/m))^k is least at k = m/n · ln 2 = 9.97, where half of the bits are set.",
            &format!(
                "A filter of {} keys for each k, asked {} absent keys.",
                shown(n as f64),
                shown(lookups as f64)
            ),
        ],
        [Axis::linear("probes a key, k", ""), Axis::log("false-positive rate", "")],
        vec![Series::line("theory", 0, line), Series::marks("measured", 0, marks)],
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_of_eight_bits_is_not_full_before_eight_hashes() {
        assert!(full_after(7).abs() < 1e-12);
        assert!((full_after(8) - 40_320.0 / 8_f64.powi(8)).abs() < 1e-12); // 8! of 8^8
        assert!((full_after(1000) - 1.0).abs() < 1e-12);
        let mean: f64 = (0..2000).map(|hashes| 1.0 - full_after(hashes)).sum();
        assert!((mean - 21.742_857).abs() < 1e-6, "{mean}");
    }
}
