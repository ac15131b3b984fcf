//! Keys that are asked again, of a store that remembers its mistakes.

use std::collections::HashSet;

use criba::{FilterInfo, FilterKind, FilterPolicy};
use criba_cli::Result;
use criba_cli::page::figure::{Axis, Figure, Series};

use super::{EXPONENTS, FORMULA, Zipf};
use crate::check::{Check, Sample};
use crate::experiment::{Notes, Setting};
use crate::experiments::stored::{Lookups, Stored};
use crate::{shown, theory};

/// Many mistakes, so that it can be counted how they are remembered.
const RATE: f64 = 0.1;
const ABSENT: u64 = 1 << 40;
/// A memo with room for all mistakes.
const AMPLE: u64 = 8 << 20;
/// Sizes of a memo, in bytes, that are tried at the exponent in the place [`SHOWN`].
const MEMOS: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, AMPLE];
const SHOWN: usize = 3;

/// The same lookups without a memo and with one.
struct Remembered {
    /// One trial for each distinct key: with an ample memo only the first mistake about it is read.
    first: Sample,
    without: Lookups,
    /// By the memo's bytes; the last is ample.
    with: Vec<(u64, Lookups)>,
}

impl Remembered {
    fn rate(&self) -> f64 {
        self.first.expected / self.first.trials as f64
    }

    fn ample(&self) -> Lookups {
        self.with.last().map_or_else(Lookups::default, |(_, met)| *met)
    }
}

fn measure(setting: &Setting, place: usize) -> Result<Remembered> {
    let exponent = EXPONENTS[place];
    let keys = setting.pick(50_000, 500_000);
    let zipf = Zipf::new(4 * keys, exponent);
    let mut random = setting.random(&format!("asked {exponent}"));
    let drawn: Vec<u64> = (0..8 * keys).map(|_| zipf.draw(&mut random)).collect();
    let distinct = drawn.iter().copied().collect::<HashSet<_>>().len() as u64;
    let policy = FilterPolicy::rate(RATE).with_kind(FilterKind::Bloom);
    let mut store = Stored::new(setting, &exponent.to_string(), policy, 0)?;
    store.put(2..keys)?; // and the two at the edges
    let (rate, spread) = match store.db.tables().first().map(|table| &table.filter) {
        Some(FilterInfo::Active { geometry: shape, .. }) => {
            (theory::rate(shape.m, shape.k, keys), theory::spread(shape.m, shape.k, keys))
        }
        _ => (1.0, 0.0),
    };
    let ask = |store: &Stored| store.look_up(drawn.iter().map(|number| ABSENT + number));
    let without = ask(&store)?;
    let mut with = Vec::new();
    for &memo in if place == SHOWN { &MEMOS[..] } else { &[AMPLE] } {
        store = store.opened_again(memo * setting.pick(1, 10))?;
        with.push((memo * setting.pick(1, 10), ask(&store)?));
    }
    let mut all = Remembered { first: Sample::default(), without, with };
    all.first = Sample::of_filter(distinct, all.ample().counts.disk_reads, rate, spread);
    Ok(all)
}

pub(super) fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let places: Vec<usize> = (0..EXPONENTS.len()).collect();
    let measured = setting.each("mistakes remembered", &places, |&s| measure(setting, s))?;
    for ((place, exponent), of) in EXPONENTS.iter().enumerate().zip(&measured) {
        let quantity = format!("keys for which a block was read, memo, Zipf {exponent}");
        notes.check(Check::share(quantity, FORMULA, of.first).at("remembered"));
        let (without, with) = (of.without.counts, of.ample().counts);
        let quantity = format!("reads and remembered mistakes, memo, Zipf {exponent}");
        let formula = "the reads of the same lookups without a memo";
        let both = (with.disk_reads + with.remembered) as f64;
        notes.check(
            Check::exact(quantity, formula, without.disk_reads as f64, both).at("remembered"),
        );
        if place == SHOWN {
            notes.compare(
                "disk reads an absent lookup, skewed questions",
                "–",
                format!("{:.4}; with a memo {:.4}", of.without.reads(), of.ample().reads()),
                "Zipf 1, a filter of 10 %",
            );
        }
    }
    let met =
        measured.iter().flat_map(|of| of.with.iter().map(|(_, met)| *met).chain([of.without]));
    notes.check(met.sum::<Lookups>().agree("without a memo and with it").at("remembered"));
    notes.figure(by_exponent(&measured));
    notes.figure(by_memory(&measured[SHOWN]));
    Ok(())
}

fn by_exponent(measured: &[Remembered]) -> Figure {
    let along = |of: &dyn Fn(&Remembered) -> f64| {
        EXPONENTS.iter().zip(measured).map(|(&exponent, found)| (exponent, of(found))).collect()
    };
    let lookups = measured.first().map_or(0, |of| of.without.made);
    Figure {
        id: "remembered",
        title: "Disk reads of absent lookups of which many repeat a key".into(),
        asked: "What does a memo of mistakes make of keys that are asked again?".into(),
        theory: "p a lookup without it, whatever the skew, give or take the luck of the frequent keys;                  p a distinct key with it, since a mistake about a key is read once."
            .into(),
        measured: format!(
            "{} lookups of absent keys in one table, without a cache; the key of rank r is asked in              proportion to r^−s. The memo has room for all mistakes.",
            shown(lookups as f64)
        ),
        x: Axis::linear("exponent of the Zipf distribution, s", ""),
        y: Axis::linear("disk reads an absent lookup", ""),
        series: vec![
            Series::line("without a memo, theory", 0, along(&Remembered::rate)),
            Series::marks("without a memo, counted", 0, along(&|of| of.without.reads())),
            Series::line(
                "with a memo, theory",
                1,
                along(&|of| of.first.expected / of.without.made as f64),
            ),
            Series::marks("with a memo, counted", 1, along(&|of| of.ample().reads())),
        ],
    }
}

fn by_memory(of: &Remembered) -> Figure {
    let kibibytes = |bytes: u64| bytes as f64 / 1024.0;
    let marks: Vec<_> =
        of.with.iter().map(|(bytes, met)| (kibibytes(*bytes), met.reads())).collect();
    let level = |reads: f64| marks.iter().map(|&(memory, _)| (memory, reads)).collect();
    Figure {
        id: "memo",
        title: "Disk reads of absent lookups by the size of the memo".into(),
        asked: "How large a memo does it take?".into(),
        theory: "Between p, with none, and p a distinct key, with room for all. A small one keeps the                  keys that are asked most, which are most of the lookups."
            .into(),
        measured: format!("The lookups of Zipf {}, once for each size.", EXPONENTS[SHOWN]),
        x: Axis::log("size of the memo", "KiB"),
        y: Axis::linear("disk reads an absent lookup", ""),
        series: vec![
            Series::line("without a memo, counted", 0, level(of.without.reads())),
            Series::line("room for all, theory", 1, level(of.first.expected / of.without.made as f64)),
            Series::marked("with a memo, counted", 2, marks.clone()),
        ],
    }
}
