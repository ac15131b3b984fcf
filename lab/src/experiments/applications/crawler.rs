//! A crawler with its known addresses on disk, behind a filter.

use criba::FilterPolicy;
use criba_cli::Result;
use criba_report::figure::{Axis, Series};
use rand::RngExt;

use super::one_percent;
use crate::check::Check;
use crate::experiment::{Notes, Setting, drawn};
use crate::experiments::stored::{Lookups, Stored};
use crate::trial::{FORMULA, of_shape};
use crate::{shown, theory};

const NEW: [u32; 5] = [5, 25, 50, 75, 95];

pub(super) fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let known: u64 = setting.pick(60_000, 600_000);
    let asked: u64 = setting.pick(100_000, 500_000);
    let policies = [("behind a filter", one_percent()), ("without", FilterPolicy::none())];
    let stores = setting.each("a crawler's dictionary", &policies, |(name, policy)| {
        let store = Stored::new(setting, name, *policy)?;
        store.put(2..known)?; // and the two at the edges
        let mut fresh = known; // no new address is looked up twice
        let met = NEW.map(|percent| {
            let mut random = setting.random(&format!("{percent} % new"));
            let address = |_| {
                let is_new = random.random_range(0..100) < percent;
                fresh += u64::from(is_new);
                if is_new { fresh } else { random.random_range(2..known) }
            };
            store.look_up((0..asked).map(address).collect::<Vec<_>>())
        });
        Ok((store.shape().0, met.into_iter().collect::<Result<Vec<_>>>()?))
    })?;
    let (shape, behind) = &stores[0];
    let all: Lookups = behind.iter().copied().sum();
    let mistakes = all.counts.false_positives;
    let sample = of_shape(all.made - all.found, mistakes, *shape, known);
    let check = Check::share("new addresses that were read for", FORMULA, sample);
    notes.check(check.at("crawler").if_enough());
    let (quantity, reads) = ("reads for known addresses", all.counts.disk_reads - mistakes);
    let check = Check::exact(quantity, "one each", all.found as f64, reads as f64);
    notes.check(check.at("crawler"));

    let rate = theory::rate(shape.0, shape.1, known);
    let marks = |met: &[Lookups]| {
        let reads = met.iter().map(|met| met.counts.disk_reads as f64 / met.made as f64);
        NEW.into_iter().map(f64::from).zip(reads).collect()
    };
    let line = (0..=100).step_by(5).map(|percent| {
        let new = f64::from(percent) / 100.0;
        (f64::from(percent), 1.0 - new + new * rate)
    });
    notes.figure(drawn(
        "crawler",
        [
            "Reads of a crawler's dictionary, by how many addresses are new",
            "What does a filter avoid, by how many of the addresses are new?",
            "(1 − s) + s · p reads an address if a share s is new; without a filter, one each.",
            &format!(
                "Disk reads counted over {} addresses for each mark, against a table of {} known \
                 ones.",
                shown(asked as f64),
                shown(known as f64)
            ),
        ],
        [Axis::linear("new addresses", "%"), Axis::linear("disk reads an address", "")],
        vec![
            Series::line("with a filter, theory", 0, line.collect()),
            Series::marks("with a filter of 1 %, measured", 0, marks(behind)),
            Series::marked("without, measured", 1, marks(&stores[1].1)),
        ],
    ));
    Ok(())
}
