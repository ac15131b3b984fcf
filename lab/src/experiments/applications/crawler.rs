//! A crawler with its known addresses on disk, behind a filter.

use criba::FilterInfo;
use criba_cli::Result;
use criba_cli::page::figure::{Axis, Figure, Series};
use rand::RngExt;

use super::{put_all, store, word};
use crate::check::{Check, Sample};
use crate::experiment::{Notes, Setting};
use crate::{shown, theory};

fn address(i: u64) -> String {
    format!("https://{}.example/{}", word(i % 1000), word(i))
}

const NEW: [u32; 5] = [5, 25, 50, 75, 95];

pub(super) fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let known: u64 = setting.pick(60_000, 600_000);
    let asked: u64 = setting.pick(100_000, 500_000);
    setting.begin("a crawler's dictionary", 2 * NEW.len() as u64);
    let dir = setting.directory("crawler")?;
    let db = store(setting, &dir, false)?;
    put_all(&db, (0..known).map(address), "seen")?;
    db.compact()?;
    db.close()?;

    let mut read = [Vec::new(), Vec::new()];
    let mut of_new = Vec::new();
    let (mut known_reads, mut known_asked) = (0_u64, 0_u64);
    let mut rate = 0.0;
    for (ignore_filters, read) in [false, true].into_iter().zip(&mut read) {
        let db = store(setting, &dir, ignore_filters)?;
        let mut fresh = known; // no new address is asked twice
        for percent in NEW {
            let mut random = setting.random(&format!("{percent} % new"));
            let (mut reads, mut sample) = (0, Sample::default());
            let tables = db.tables();
            for _ in 0..asked {
                let is_new = random.random_range(0..100) < percent;
                let number = if is_new { fresh } else { random.random_range(0..known) };
                fresh += u64::from(is_new);
                let counts = db.explain(address(number))?.counts();
                reads += counts.disk_reads;
                if is_new {
                    sample.trials += counts.true_negatives + counts.false_positives;
                    sample.passed += counts.false_positives;
                } else if !ignore_filters {
                    (known_asked, known_reads) = (known_asked + 1, known_reads + counts.disk_reads);
                }
            }
            if let [table] = &tables[..]
                && let FilterInfo::Active { geometry, .. } = table.filter
            {
                rate = theory::rate(geometry.m, geometry.k, table.keys);
                let spread = theory::spread(geometry.m, geometry.k, table.keys);
                sample.expected = sample.trials as f64 * rate;
                sample.spread = sample.trials as f64 * spread;
                of_new.push(sample);
            }
            read.push((f64::from(percent), reads as f64 / asked as f64));
            setting.step(1);
        }
    }

    let new = of_new.iter().fold(Sample::default(), |sum, next| Sample {
        trials: sum.trials + next.trials,
        passed: sum.passed + next.passed,
        expected: sum.expected + next.expected,
        spread: sum.spread + next.spread, // it is the same filter throughout
    });
    let formula = "(1 − e^(−kn/m))^k";
    let check = Check::share("new addresses that were read for", formula, new);
    notes.check(check.at("crawler").if_enough());
    let quantity = "reads for known addresses";
    let formula = "one each";
    let check = Check::exact(quantity, formula, known_asked as f64, known_reads as f64);
    notes.check(check.at("crawler"));

    let [filtered, unfiltered] = read;
    let ours = format!("{:.3} reads an address; {:.3} without", filtered[4].1, unfiltered[4].1);
    notes.measured("crawler, 95 % new addresses", ours, "repeated + p · new");
    notes.figure(Figure {
        id: "crawler",
        title: "Reads of a crawler's dictionary, by how many addresses are new".into(),
        asked: "What does a filter avoid, by how many of the addresses are new?".into(),
        theory: "(1 − s) + s · p reads an address if a share s is new; without a filter, one each.".into(),
        measured: format!(
            "Disk reads counted over {} addresses for each mark, against a table of {} known ones. A new \
             address beyond the table's first or last is not asked for even without a filter.",
            shown(asked as f64),
            shown(known as f64)
        ),
        x: Axis::linear("new addresses", "%"),
        y: Axis::linear("disk reads an address", ""),
        series: vec![
            Series::line("with a filter, theory", 0, (0..=100).step_by(5).map(|s| {
                let new = f64::from(s) / 100.0;
                (f64::from(s), 1.0 - new + new * rate)
            }).collect()),
            Series::marks("with a filter of 1 %, measured", 0, filtered),
            Series::marked("without, measured", 1, unfiltered),
        ],
    });
    Ok(())
}
