//! How many bits a lookup looks at.

use criba_cli::Result;
use criba_report::figure::{Axis, Series};

use crate::check::{Check, mean_and_sd};
use crate::experiment::{Notes, Setting, drawn, key};
use crate::experiments::hash_families::hashes::Family;
use crate::experiments::hash_families::plain::Plain;
use crate::shown;

const PROBES: [u32; 7] = [1, 2, 4, 7, 10, 13, 16];

/// The bits read by lookups in a half-full filter.
struct Looked {
    fill: f64,
    absent: Vec<f64>,
    present: u64,
}

impl Looked {
    /// A lookup reads bit i + 1 if the i bits before it are set.
    fn expected(&self, k: u32) -> f64 {
        (0..k).map(|i| self.fill.powi(i as i32)).sum()
    }
}

pub(super) fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let keys: u64 = setting.pick(20_000, 200_000);
    let lookups: u64 = setting.pick(100_000, 1_000_000);
    let measured = setting.each("bits looked at", &PROBES, |&k| {
        let seed = setting.seed("bits looked at") ^ u64::from(k);
        let hashes = |family, i| Family::SipHash.hashes(seed, &key(family, i));
        let half_full = (keys * u64::from(k)) as f64 / std::f64::consts::LN_2;
        let mut filter = Plain::new(half_full as u64, k);
        (0..keys).for_each(|i| filter.insert(hashes(0, i)));
        let absent = (0..lookups).map(|i| f64::from(filter.looked_at(hashes(1, i)))).collect();
        let present = (0..keys).map(|i| u64::from(filter.looked_at(hashes(0, i)))).sum();
        Ok(Looked { fill: filter.fill(), absent, present })
    })?;
    let (mut theory, mut absent, mut present) = (Vec::new(), Vec::new(), Vec::new());
    for (k, looked) in PROBES.into_iter().zip(&measured) {
        let (expected, x) = (looked.expected(k), f64::from(k));
        let quantity = format!("bits looked at, absent key, k = {k}");
        let all = (keys * u64::from(k)) as f64;
        if k == 1 {
            let sum = looked.absent.iter().sum::<f64>();
            let formula = "the only one";
            notes.check(Check::exact(quantity, formula, lookups as f64, sum).at("probes"));
        } else {
            let formula = "1 + X + … + X^(k−1), X the occupancy of the filter";
            notes.check(Check::mean(quantity, formula, expected, &looked.absent).at("probes"));
        }
        let quantity = format!("bits looked at, {} present keys, k = {k}", shown(keys as f64));
        notes.check(Check::exact(quantity, "k each", all, looked.present as f64).at("probes"));
        theory.push((x, expected));
        absent.push((x, mean_and_sd(&looked.absent).0));
        present.push((x, looked.present as f64 / keys as f64));
    }
    notes.figure(drawn(
        "probes",
        [
            "Bits that a lookup looks at",
            "Does a lookup cost k probes?",
            "A present key costs k. An absent one ends at the first bit that is not set: 1 + X + … \
             + X^(k−1) for a share X of bits set, which is just below 2 in a filter that is half \
             full, whatever k.",
            &format!(
                "A filter of {} keys for each k, half full, asked for them and {} absent ones; \
                 each bit looked at is counted.",
                shown(keys as f64),
                shown(lookups as f64)
            ),
        ],
        [Axis::linear("probes a key, k", ""), Axis::linear("bits looked at by a lookup", "")],
        vec![
            Series::line("present keys, theory", 0, present.iter().map(|&(k, _)| (k, k)).collect()),
            Series::marks("present keys, counted", 0, present),
            Series::line("absent keys, theory", 1, theory),
            Series::marks("absent keys, counted", 1, absent),
        ],
    ));
    Ok(())
}
