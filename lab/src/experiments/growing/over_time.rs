//! Rates, reads and memory while keys are added.

use criba::{FilterInfo, FilterPolicy};
use criba_cli::Result;
use criba_filter::{Bloom, ScalableBloom};
use criba_report::figure::{Axis, Figure, Series};

use super::{Batch, RATE, made_anew};
use crate::check::{Check, Sample};
use crate::experiment::{Notes, Setting, drawn};
use crate::experiments::stored::{Lookups, Stored, scattered};
use crate::trial::FORMULA;
use crate::{shown, theory};

const STEPS: u64 = 16;
/// The number of batches between merges of all tables.
const MERGED_EVERY: u64 = 4;
/// The false positives to measure a rate by.
const PASSED: f64 = 6000.0;
/// Expected false positives from which a rate has its own check.
const ENOUGH: f64 = 2500.0;
/// Absent keys are numbered from here on.
const ABSENT: u64 = 1 << 40;

/// A way to have a filter of a growing set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Fixed,
    Scalable,
    /// A filter per table, all of one shape, united in merges.
    United,
    /// A filter per table, rebuilt in merges.
    Rebuilt,
}

impl Way {
    const ALL: [Self; 4] = [Self::Fixed, Self::Scalable, Self::United, Self::Rebuilt];

    fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed at the start",
            Self::Scalable => "a series that grows",
            Self::United => "united by OR at compaction",
            Self::Rebuilt => "made anew at compaction, as criba does",
        }
    }

    fn formula(self) -> &'static str {
        match self {
            Self::Scalable => "1 − Π(1 − X^k), X the occupancy of each of the series",
            _ => FORMULA,
        }
    }

    fn policy(self, batch: Batch) -> FilterPolicy {
        match self {
            Self::Fixed | Self::Scalable => FilterPolicy::none(), // the filter stands before the store
            Self::United => batch.one_shape(),
            Self::Rebuilt => made_anew(),
        }
    }
}

/// Measurements of absent keys after some batches.
struct Step {
    batches: u64,
    /// A trial is one probe of one filter or series.
    sample: Sample,
    met: Lookups,
    bits_per_key: f64,
}

/// The rates of the filters that a lookup probes, with their deviations.
type Rates = Vec<(f64, f64)>;

fn sample(asked: u64, reads: u64, rates: &Rates) -> Sample {
    let each = rates.iter().map(|&(rate, spread)| Sample::of_filter(asked, 0, rate, spread));
    Sample { passed: reads, ..each.sum() }
}

/// One filter or series before a store of one unfiltered table.
fn before_a_store(setting: &Setting, way: Way, batch: Batch) -> Result<Vec<Step>> {
    let store = Stored::new(setting, way.name(), way.policy(batch))?;
    let hashing = setting.hashing(way.name(), 0);
    let mut fixed = Bloom::with_geometry(batch.m, batch.k)?.with_hashing(hashing)?;
    let mut series = ScalableBloom::with_rate(batch.keys, RATE)?.with_hashing(hashing)?;
    let mut steps = Vec::new();
    for batches in 1..=STEPS {
        let (from, n) = ((batches - 1) * batch.keys, batches * batch.keys);
        store.put(from..n)?;
        store.db.compact()?;
        let (rate, spread, bytes) = match way {
            Way::Scalable => {
                series.extend((from..n).map(scattered));
                (series.current_rate(), 0.0, series.bytes()) // read off its own bits
            }
            _ => {
                fixed.extend((from..n).map(scattered));
                (batch.rate(n), batch.spread(n), fixed.bytes())
            }
        };
        let passes = |i: &u64| match way {
            Way::Scalable => series.contains(scattered(*i)),
            _ => fixed.contains(scattered(*i)),
        };
        let asked = asked(setting, way, rate);
        let met = store.look_up(fresh(batches, asked).filter(passes))?;
        let sample = sample(asked, met.counts.disk_reads, &vec![(rate, spread)]);
        let bits_per_key = 8.0 * bytes as f64 / n as f64;
        steps.push(Step { batches, sample, met, bits_per_key });
        setting.step(1);
    }
    Ok(steps)
}

fn in_a_store(setting: &Setting, way: Way, batch: Batch) -> Result<Vec<Step>> {
    let store = Stored::new(setting, way.name(), way.policy(batch))?;
    let mut steps = Vec::new();
    for batches in 1..=STEPS {
        store.put((batches - 1) * batch.keys..batches * batch.keys)?;
        if batches % MERGED_EVERY == 0 {
            store.db.compact()?;
        }
        let (mut rates, mut bytes) = (Rates::new(), 0);
        for table in store.db.tables() {
            if let FilterInfo::Active { geometry: shape, bytes: of_filter, .. } = table.filter {
                let rate = theory::rate(shape.m, shape.k, table.keys);
                rates.push((rate, theory::spread(shape.m, shape.k, table.keys)));
                bytes += of_filter;
            }
        }
        let asked = asked(setting, way, rates.iter().map(|(rate, _)| rate).sum());
        let met = store.look_up(fresh(batches, asked))?;
        let sample = sample(asked, met.counts.disk_reads, &rates);
        let bits_per_key = 8.0 * bytes as f64 / (batches * batch.keys) as f64;
        steps.push(Step { batches, sample, met, bits_per_key });
        setting.step(1);
    }
    Ok(steps)
}

fn asked(setting: &Setting, way: Way, expected: f64) -> u64 {
    // Of a series all steps are checked together.
    let most = if way == Way::Scalable { 100_000 } else { 600_000 };
    ((PASSED / expected).ceil() as u64).min(most * setting.pick(1, 4))
}

/// Absent keys that were not looked up before.
fn fresh(batches: u64, asked: u64) -> std::ops::Range<u64> {
    let from = ABSENT + (batches << 24);
    from..from + asked
}

pub(super) fn run(setting: &Setting, notes: &mut Notes, batch: Batch) -> Result<()> {
    let measured = setting.each("keys come in", &Way::ALL, |&way| match way {
        Way::Fixed | Way::Scalable => before_a_store(setting, way, batch),
        Way::United | Way::Rebuilt => in_a_store(setting, way, batch),
    })?;
    for (way, steps) in Way::ALL.into_iter().zip(&measured) {
        check(notes, way, steps);
        if let Some(last) = steps.last() {
            notes.measured(
                &format!("FPR and bits a key, {}", way.name()),
                format!("{:.2} %, {:.1} bits", 100.0 * last.sample.rate(), last.bits_per_key),
                "at the end, sixteen times the keys",
            );
        }
    }
    let met = measured.iter().flatten().map(|step| step.met);
    notes.check(met.sum::<Lookups>().agree("while keys came in").at("rates"));
    notes.figure(figure(batch, &measured));
    Ok(())
}

/// Steps with enough false positives alone, all others together.
fn check(notes: &mut Notes, way: Way, steps: &[Step]) {
    let (alone, together): (Vec<_>, Vec<_>) =
        steps.iter().partition(|step| way != Way::Scalable && step.sample.expected >= ENOUGH);
    for step in alone {
        let quantity = format!("FPR, {}, {} batches", way.name(), step.batches);
        notes.check(Check::share(quantity, way.formula(), step.sample).at("rates"));
    }
    if !together.is_empty() {
        let batches: Vec<_> = together.iter().map(|step| step.batches.to_string()).collect();
        let batches = if together.len() == steps.len() { "all".into() } else { batches.join(", ") };
        let quantity = format!("FPR, {}, {batches} batches", way.name());
        // A filter that is asked in several steps strays to one side in all of them.
        let spread = together.iter().map(|step| step.sample.spread).sum();
        let pooled = Sample { spread, ..together.iter().map(|step| step.sample).sum() };
        notes.check(Check::share(quantity, way.formula(), pooled).at("rates"));
    }
}

fn figure(batch: Batch, measured: &[Vec<Step>]) -> Figure {
    // Theory beside what lies far above 1 %; the others are near it, and their checks say how near.
    let mut series = Vec::new();
    for (hue, (way, steps)) in Way::ALL.into_iter().zip(measured).enumerate() {
        let points = |of: &dyn Fn(&Sample) -> f64| {
            steps.iter().map(|step| (step.batches as f64, of(&step.sample))).collect()
        };
        let counted = points(&Sample::rate);
        if matches!(way, Way::Fixed | Way::United) {
            let expected = points(&|sample| sample.expected / sample.trials as f64);
            series.push(Series::line(format!("{}, theory", way.name()), hue, expected));
            series.push(Series::marks(way.name(), hue, counted));
        } else {
            series.push(Series::marked(way.name(), hue, counted));
        }
    }
    drawn(
        "rates",
        [
            "False-positive rates of filters while keys come in",
            "How is the rate kept below 1 % when n grows?",
            "(1 − e^(−kn/m))^k: a filter that was made for the first batch takes each further one \
             at the price of its rate, and so does the OR of filters of its shape. A series makes \
             its later filters larger and stricter. A filter made anew is made for its keys.",
            &format!(
                "{} keys a batch; tables are merged into one after each {MERGED_EVERY} batches. \
                 The fixed filter and the series stand before a store of one table that has none. \
                 New absent keys at each point; reads counted without a cache. Where there are \
                 several tables, the mean of their filters.",
                shown(batch.keys as f64)
            ),
        ],
        [
            Axis::linear("batches of keys that have come", ""),
            Axis::log("false-positive rate of a filter asked", ""),
        ],
        series,
    )
}
