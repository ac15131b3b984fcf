//! A mistake: lookups with another number of probes than insertions.

use criba_report::figure::{Axis, Series};

use super::Batch;
use crate::check::{Check, Sample};
use crate::experiment::{Notes, Setting, drawn, key};
use crate::experiments::hash_families::hashes::Family;
use crate::experiments::hash_families::plain::Plain;
use crate::{shown, theory};

const INSERTED_WITH: u32 = 4;
const BITS_PER_KEY: u64 = 10;

pub(super) fn run(setting: &Setting, notes: &mut Notes, batch: Batch) {
    let (n, m) = (batch.keys, batch.keys * BITS_PER_KEY);
    let seed = setting.seed("another number of probes");
    let hashes = |i: u64| Family::SipHash.hashes(seed, &key(0, i));
    let mut filter = Plain::new(m, INSERTED_WITH);
    (0..n).for_each(|i| filter.insert(hashes(i)));
    let fill = theory::fill(m, INSERTED_WITH, n);
    let probes = f64::from(INSERTED_WITH);
    let deviation = theory::spread(m, INSERTED_WITH, n) / (probes * fill.powf(probes - 1.0));
    let denied = |more: i32| 1.0 - fill.powi(more);

    let (mut marks, mut worst) = (Vec::new(), 0.0);
    for asked in 3..=8_u32 {
        let filter = filter.clone().asked_with(asked);
        let missed = (0..n).filter(|&i| !filter.contains(hashes(i))).count() as u64;
        let share = missed as f64 / n as f64;
        marks.push((f64::from(asked), share));
        worst = f64::max(worst, share);
        if asked <= INSERTED_WITH {
            let (quantity, found) = (format!("keys found by {asked} probes"), (n - missed) as f64);
            let formula = "all, as their bits are set";
            notes.check(Check::exact(quantity, formula, n as f64, found).at("probes"));
            continue;
        }
        let quantity = format!("keys denied by {asked} probes");
        let more = (asked - INSERTED_WITH) as i32;
        let spread = f64::from(more) * fill.powi(more - 1) * deviation;
        let sample = Sample::of_filter(n, missed, denied(more), spread);
        let formula = "1 − X^(k' − k), X the share of bits set";
        notes.check(Check::share(quantity, formula, sample).at("probes"));
    }
    let line = (3..=8).map(|k| (f64::from(k), denied((k - INSERTED_WITH as i32).max(0))));
    notes.figure(drawn(
        "probes",
        [
            "Keys that a filter denies when it is asked with another k",
            "May k be changed when the number of keys has changed?",
            "No. A key's further bits are set only if other keys set them, with chance X each: 1 − \
             X^(k' − k) of the keys are denied. With fewer probes none is, but more absent keys \
             pass.",
            &format!(
                "One filter of {} keys, {BITS_PER_KEY} bits and {INSERTED_WITH} probes each, asked \
                 for all of them.",
                shown(n as f64)
            ),
        ],
        [
            Axis::linear("probes when it is asked, k'", ""),
            Axis::linear("share of its own keys that it denies", ""),
        ],
        vec![Series::line("theory", 0, line.collect()), Series::marks("counted", 0, marks)],
    ));
    notes.measured(
        "keys lost by changing k in place",
        format!("{:.0} %", 100.0 * worst),
        "inserted with 4 probes, asked with 8",
    );
}
