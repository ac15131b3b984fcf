//! A filter of a whole store before the filters of its tables.

use std::collections::BTreeMap;

use criba::filter::Bloom;
use criba::{Allocation, FilterKind, FilterPolicy};
use criba_cli::Result;
use criba_cli::page::figure::{Axis, Figure, Series};

use super::{BITS, expected, shape};
use crate::check::{Check, Sample};
use crate::experiment::{Notes, Setting};
use crate::kinds::rate_at;
use crate::layered::{Layered, Met, filter_of, levels, loaded, present_keys};
use crate::shown;

/// The bits, of ten, for the store's filter.
const SPLITS: [u64; 6] = [0, 1, 2, 4, 6, 10];

struct Split {
    front: u64,
    met: Met,
    /// Keys that passed the front filter, with theory.
    let_on: Option<Sample>,
    /// The probes of tables, with the expectation of their finished filters.
    probes: Sample,
    /// The expected share of passed keys with a read, by the finished filters.
    any: f64,
    /// Wasted reads per lookup of a present key, and the probes that could waste one.
    present: f64,
    present_probes: f64,
}

pub(super) fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let loaded = loaded(setting, setting.pick(150_000, 1_500_000))?;
    let lookups: u64 = setting.pick(300_000, 2_000_000);
    let splits = setting.each("a filter before the store", &SPLITS, |&front| {
        let mut store = Layered::open(setting, &loaded, "absent keys")?;
        let policy = FilterPolicy::bits_per_key((BITS - front) as f64).with_kind(FilterKind::Bloom);
        store.db.rebuild_filters(&policy.with_allocation(Allocation::Uniform))?;
        measure(setting, &mut store, front, lookups)
    })?;
    let balanced = setting.each("balanced filters", &[BITS], |&bits| {
        let mut store = Layered::open(setting, &loaded, "absent keys")?;
        store.db.rebuild_filters(
            &FilterPolicy::bits_per_key(bits as f64).with_kind(FilterKind::Bloom),
        )?;
        measure(setting, &mut store, 0, lookups)
    })?;
    checks(notes, &splits);
    figure(notes, &splits, &balanced[0]);
    Ok(())
}

fn measure(setting: &Setting, store: &mut Layered, front: u64, lookups: u64) -> Result<Split> {
    let keys: u64 = levels(&store.db).iter().map(|(_, _, keys)| keys).sum();
    let mut first = None;
    if front > 0 {
        let (m, k) = shape(front, keys);
        let hashing = setting.hashing("before the store", front);
        let mut filter = Bloom::with_geometry(m, k)?.with_hashing(hashing)?;
        filter.extend(present_keys(setting).take(keys as usize));
        first = Some(filter);
    }
    let passes = |key: &[u8]| first.as_ref().is_none_or(|first| first.contains(key));
    let met = store.ask(lookups, passes)?;
    let (rate, off) = expected(front, keys);
    let let_on = first.is_some().then(|| Sample::of_filter(lookups, met.sent, rate, rate * off));

    // What each table was asked, and on each level how likely the one that is asked is to waste a read.
    let tables = store.db.tables();
    let (mut of_tables, mut slots) = (Vec::new(), BTreeMap::new());
    for table in &tables {
        let asked = met.asked.get(&table.id).copied().unwrap_or_default();
        let rate = filter_of(table).unwrap_or(1.0);
        of_tables.push(Sample::of_chance(asked, 0, rate));
        // Below the first level a key comes to one table at most.
        let slot = (table.level, if table.level == 0 { table.id } else { 0 });
        *slots.entry(slot).or_insert(0.0) += asked as f64 * rate / met.sent as f64;
    }
    let none: f64 = slots.values().map(|chance| 1.0 - chance).product();
    let probes = Sample { passed: met.reads, ..of_tables.into_iter().sum() };
    let asked = lookups / 4;
    let (present_probes, wasted) = store.ask_present(setting, asked)?;
    let [present, present_probes] = [wasted, present_probes].map(|n| n as f64 / asked as f64);
    Ok(Split { front, met, let_on, probes, any: 1.0 - none, present, present_probes })
}

fn checks(notes: &mut Notes, splits: &[Split]) {
    for split in splits {
        let of = format!("{} bits before {}", split.front, BITS - split.front);
        if let Some(sample) = split.let_on {
            let quantity = format!("{of}, over the levels: absent keys let on to the store");
            let check = Check::share(quantity, "(1 − e^(−kn/m))^k", sample).at("levels");
            notes.check(check.if_enough());
        }
        let Met { reads, file_reads, sent, passed, .. } = split.met;
        if split.front < BITS {
            let quantity = format!("{of}, over the levels: probes that wasted a read");
            let formula = "Σ probes · the rate that each finished filter has";
            let check = Check::share(quantity, formula, split.probes).at("levels");
            notes.check(check.if_enough());
            let sample = Sample::of_chance(sent, passed, split.any);
            let quantity = format!("{of}, over the levels: keys let on that wasted any");
            let check = Check::share(quantity, "1 − Π (1 − pᵢ) over the levels", sample);
            notes.check(check.at("levels").if_enough());
        }
        let quantity = format!("{of}, over the levels: reads of the tables' files");
        let formula = "the disk reads that the store counted";
        notes.check(Check::exact(quantity, formula, reads as f64, file_reads as f64).at("levels"));
    }
}

fn figure(notes: &mut Notes, splits: &[Split], balanced: &Split) {
    let wasted = |split: &Split| split.met.reads as f64 / split.met.lookups as f64;
    let none = &splits[0];
    let tables = none.probes.trials as f64 / none.met.lookups as f64;
    let along = |of: &dyn Fn(f64) -> f64| -> Vec<(f64, f64)> {
        (0..=20).map(|half| f64::from(half) / 2.0).map(|front| (front, of(front))).collect()
    };
    let bits = BITS as f64;
    let absent = along(&|front| {
        rate_at(FilterKind::Bloom, front) * tables * rate_at(FilterKind::Bloom, bits - front)
    });
    let present = along(&|front| none.present_probes * rate_at(FilterKind::Bloom, bits - front));
    notes.figure(Figure {
        id: "levels",
        title: "One filter of a whole store before those of its tables".into(),
        asked: "Of ten bits a key, how many should a filter of the whole store have?".into(),
        theory: format!(
            "An absent key wastes p₁ · Σ pᵢ reads, over {tables:.2} tables in the mean. The first filter's \
             p₁ counts once whatever the number of tables, but a present key passes it, and meets the \
             mistakes of the {:.2} tables above its own, whose filters have given bits away.",
            none.present_probes
        ),
        measured: format!(
            "Disk reads counted over {} lookups of absent keys, and wasted ones over {} of present keys, \
             on a store of four levels; bloom filters.",
            shown(none.met.lookups as f64),
            shown((none.met.lookups / 4) as f64)
        ),
        x: Axis::linear("bits a key of the store's filter, of 10", ""),
        y: Axis::log("wasted reads a lookup", ""),
        series: vec![
            Series::line("absent, theory", 0, absent),
            Series::marks("absent, measured", 0, points(splits, wasted)),
            Series::line("present, theory", 1, present),
            Series::marks("present, measured", 1, points(splits, |split| split.present)),
            Series::line("absent, ten balanced bits in the tables alone, measured", 2, vec![
                (0.0, wasted(balanced)),
                (bits, wasted(balanced)),
            ]),
        ],
    });
    for (what, split) in
        [("ten uniform bits in the tables", none), ("ten balanced", balanced)].into_iter().chain(
            splits.iter().filter(|split| split.front == 2).map(|split| ("2 bits before 8", split)),
        )
    {
        let quantity = format!("wasted reads over the levels, {what}");
        let ours = format!("{:.5} absent, {:.5} present", wasted(split), split.present);
        notes.measured(&quantity, ours, "a lookup");
    }
    notes.remark(
        "A filter of the whole store must know every key of it: it grows with each write, forgets none that \
         is deleted, and is made anew when it is full. For absent keys it wins nothing that the same bits in \
         the tables would not; for present ones it loses. Balanced filters of tables win more, and are \
         made to size with each table.",
    );
}

fn points(splits: &[Split], of: impl Fn(&Split) -> f64) -> Vec<(f64, f64)> {
    let points = splits.iter().map(|split| (split.front as f64, of(split)));
    points.filter(|(_, wasted)| *wasted > 0.0).collect()
}
