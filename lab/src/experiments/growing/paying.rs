//! When a rebuild pays, which reads all keys.

use criba_cli::Result;
use criba_report::figure::{Axis, Series};

use super::{Batch, RATE, made_anew};
use crate::check::{Check, Sample};
use crate::experiment::{Notes, Setting, drawn};
use crate::experiments::stored::{Lookups, Stored};
use crate::shown;
use crate::trial::{FORMULA, of_shape};

const PASSED: f64 = 6000.0;
/// About what a lookup reads: a block.
const BLOCK: u64 = 4096;
const ABSENT: u64 = 1 << 40;

/// A table with a filter for fewer keys, which is then rebuilt.
struct Paying {
    factor: f64,
    before: Sample,
    after: Sample,
    /// The reads of the rebuild, in blocks: it reads many of them at once.
    cost: u64,
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
    let ask = |from: u64, rate: f64| -> Result<(Sample, Lookups)> {
        let met = store.look_up(from..from + (PASSED / rate).ceil() as u64)?;
        Ok((of_shape(met.made, met.counts.disk_reads, store.shape().0, keys), met))
    };
    let (before, old) = ask(ABSENT, batch.rate(keys))?;
    let earlier = store.db.stats();
    store.db.rebuild_filters(&made_anew())?;
    let cost = (store.db.stats() - earlier).rebuild_reads.bytes.div_ceil(BLOCK);
    let (after, new) = ask(2 * ABSENT, RATE)?;
    Ok(Paying { factor, before, after, cost, met: [old, new].into_iter().sum() })
}

pub(super) fn run(setting: &Setting, notes: &mut Notes, batch: Batch) -> Result<()> {
    let measured =
        setting.each("new filters for old tables", &[1.2, 1.5, 2.0, 3.0, 4.0], |&f| {
            measure(setting, batch, f)
        })?;
    for paying in &measured {
        let factor = paying.factor;
        for (when, sample) in [("before", paying.before), ("after", paying.after)] {
            let quantity = format!("FPR {when} its new filter, {factor} times the keys");
            notes.check(Check::share(quantity, FORMULA, sample).at("paying"));
        }
        let quantity = format!("absent lookups that pay a new filter, {factor} times the keys");
        let note = format!("{} blocks read to make it", shown(paying.cost as f64));
        notes.measured(&quantity, shown(paying.pays_after().round()), &note);
    }
    let met: Lookups = measured.iter().map(|paying| paying.met).sum();
    notes.check(met.agree("old filters and new ones").at("paying"));
    notes.remark(
        "A compaction reads and writes all the keys anyway, and makes their filter on the way: that \
         costs no read more, so it has paid before the first lookup. It is a table that stays as it \
         is whose new filter has to be earned, by reads saved.",
    );
    let blocks = measured[0].cost as f64 / measured[0].factor;
    let theory = (12..=40).map(|tenths| f64::from(tenths) / 10.0).map(|factor| {
        let rate = batch.rate((batch.keys as f64 * factor) as u64);
        (factor, blocks * factor / (rate - RATE))
    });
    let marks = measured.iter().map(|paying| (paying.factor, paying.pays_after()));
    notes.figure(drawn(
        "paying",
        [
            "Absent lookups after which a new filter has paid",
            "When does a new filter pay?",
            "After r/(p − p') absent lookups, if making it reads r blocks and the rate comes down \
             from p to p'.",
            &format!(
                "Tables of 1.2 to 4 times the {} keys that their filter was made for; a lookup \
                 reads one block, and what making the filter reads is counted in blocks as well.",
                shown(batch.keys as f64)
            ),
        ],
        [
            Axis::linear("keys, in parts of those planned", ""),
            Axis::log("absent lookups until the reads are saved", ""),
        ],
        vec![
            Series::line("theory", 0, theory.collect()),
            Series::marks("counted", 0, marks.collect()),
        ],
    ));
    Ok(())
}
