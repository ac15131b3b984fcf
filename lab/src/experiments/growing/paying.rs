//! When a rebuild pays, which reads all keys.

use criba_cli::Result;
use criba_cli::page::figure::{Axis, Figure, Series};

use super::{Batch, FORMULA, RATE, made_anew};
use crate::check::{Check, Sample};
use crate::experiment::{Notes, Setting};
use crate::experiments::stored::{Lookups, Stored};
use crate::shown;

const PASSED: f64 = 6000.0;
/// About what a lookup reads: a block.
const BLOCK: u64 = 4096;
/// The plot ends at this multiple of the lookups after which a rebuild has paid.
const SHOWN: f64 = 3.0;
const CHUNKS: u64 = 12;
const ABSENT: u64 = 1 << 40;

/// A table with a filter for fewer keys, which is then rebuilt.
struct Paying {
    keys: u64,
    before: Sample,
    after: Sample,
    /// The reads of the rebuild, in blocks: it reads many of them at once.
    cost: u64,
    /// Cumulated reads after some lookups, with the old filter and with the new one.
    kept: Vec<(f64, f64)>,
    renewed: Vec<(f64, f64)>,
    met: Lookups,
}

impl Paying {
    /// The number of absent lookups after which the rebuild has saved its cost.
    fn pays_after(&self) -> f64 {
        self.cost as f64 / (self.before.rate() - self.after.rate())
    }
}

fn measure(setting: &Setting, batch: Batch, factor: f64) -> Result<Paying> {
    let keys = (batch.keys as f64 * factor) as u64;
    let store = Stored::new(setting, &format!("paying {factor}"), batch.one_shape())?;
    store.put(2..keys)?; // and the two at the edges
    let (old, spread) = (batch.rate(keys), batch.spread(keys));
    let asked = |rate: f64| (PASSED / rate).ceil() as u64;
    let absent = |from: u64, count: u64| ABSENT + from..ABSENT + from + count;

    let met = store.look_up(absent(0, asked(old)))?;
    let before = Sample::of_filter(met.made, met.counts.disk_reads, old, spread);
    // As many reads as blocks, about: enough to know how far the figure goes.
    let blocks = store.db.tables().iter().map(|table| table.file_bytes / BLOCK).sum::<u64>();
    let chunk = (SHOWN * blocks as f64 / old) as u64 / CHUNKS + 1;
    let cumulated = |mut reads: u64, all: &mut Lookups| {
        let mut points = vec![(0.0, reads as f64)];
        for i in 0..CHUNKS {
            let met = store.look_up(absent((1 << 30) + i * chunk, chunk))?;
            reads += met.counts.disk_reads;
            points.push((((i + 1) * chunk) as f64, reads as f64));
            *all = [*all, met].into_iter().sum();
        }
        Ok::<_, criba_cli::Failure>(points)
    };
    let mut all = met;
    let kept = cumulated(0, &mut all)?;
    let earlier = store.db.stats();
    store.db.rebuild_filters(&made_anew())?;
    let cost = (store.db.stats() - earlier).rebuild_reads.bytes.div_ceil(BLOCK);
    let renewed = cumulated(cost, &mut all)?;

    let (m, k) = crate::theory::classic_shape(keys, RATE);
    let ours = Batch { keys, m, k };
    let met = store.look_up(absent(1 << 35, asked(RATE)))?;
    let after =
        Sample::of_filter(met.made, met.counts.disk_reads, ours.rate(keys), ours.spread(keys));
    let met = [all, met].into_iter().sum();
    Ok(Paying { keys, before, after, cost, kept, renewed, met })
}

pub(super) fn run(setting: &Setting, notes: &mut Notes, batch: Batch) -> Result<()> {
    let factors = [1.2, 2.0, 4.0];
    let measured =
        setting.each("new filters for old tables", &factors, |&f| measure(setting, batch, f))?;
    for (factor, paying) in factors.iter().zip(&measured) {
        let quantity = |when: &str| format!("FPR {when} its new filter, {factor} times the keys");
        notes.check(Check::share(quantity("before"), FORMULA, paying.before).at("paying"));
        notes.check(Check::share(quantity("after"), FORMULA, paying.after).at("paying"));
        notes.measured(
            &format!("absent lookups after which a new filter pays, {factor} times the keys"),
            shown(paying.pays_after().round()),
            &format!(
                "{} blocks to make it, {:.1} % against {:.2} %",
                shown(paying.cost as f64),
                100.0 * paying.before.rate(),
                100.0 * paying.after.rate()
            ),
        );
    }
    notes.check(
        measured
            .iter()
            .map(|p| p.met)
            .sum::<Lookups>()
            .agree("old filters and new ones")
            .at("paying"),
    );
    notes.remark(
        "A compaction reads and writes all the keys anyway, and makes their filter on the way: that \
         costs no read more, so it has paid before the first lookup. It is a table that stays as it \
         is whose new filter has to be earned, by reads saved.",
    );
    if let [_, twice, _] = &measured[..] {
        notes.figure(figure(twice));
    }
    Ok(())
}

fn figure(paying: &Paying) -> Figure {
    let last = paying.kept.last().map_or(1.0, |(lookups, _)| *lookups);
    let line = |cost: f64, sample: &Sample| {
        let rate = sample.expected / sample.trials as f64;
        vec![(0.0, cost), (last, cost + rate * last)]
    };
    Figure {
        id: "paying",
        title: "Blocks read with an old filter, and with the making of a new one".into(),
        asked: "When does a new filter pay?".into(),
        theory: format!(
            "After r/(p − p') absent lookups, if making it reads r blocks and the rate comes down from \
             p to p': here after {}.",
            shown(paying.pays_after().round())
        ),
        measured: format!(
            "One table of {} keys whose filter was made for half of them; a lookup reads one \
             block, and what making the filter reads is counted in blocks as well.",
            shown(paying.keys as f64)
        ),
        x: Axis::linear("absent lookups", ""),
        y: Axis::linear("blocks read, all together", "of 4 KiB"),
        series: vec![
            Series::line("old filter, theory", 0, line(0.0, &paying.before)),
            Series::marks("old filter, counted", 0, paying.kept.clone()),
            Series::line("new filter, theory", 1, line(paying.cost as f64, &paying.after)),
            Series::marks("new filter, counted", 1, paying.renewed.clone()),
        ],
    }
}
