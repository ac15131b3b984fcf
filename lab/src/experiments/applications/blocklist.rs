//! A block list: no listed address may pass, and a removed one must.

use criba::{Db, FilterInfo};
use criba_cli::Result;
use criba_cli::page::figure::{Axis, Figure, Series};

use super::{put_all, store, word};
use crate::check::{Check, Sample};
use crate::experiment::{Notes, Setting};
use crate::{shown, theory};

/// The store's answers for a range of addresses.
#[derive(Default)]
struct Answers {
    blocked: u64,
    reads: u64,
    probes: u64,
    mistakes: u64,
}

fn ask(db: &Db, numbers: std::ops::Range<u64>) -> Result<Answers> {
    let mut answers = Answers::default();
    for number in numbers {
        let explained = db.explain(word(number))?;
        let counts = explained.counts();
        answers.blocked += u64::from(explained.value.is_some());
        answers.reads += counts.disk_reads;
        answers.probes += counts.true_negatives + counts.false_positives;
        answers.mistakes += counts.false_positives;
    }
    Ok(answers)
}

pub(super) fn run(setting: &Setting, notes: &mut Notes) -> Result<()> {
    let blocked: u64 = setting.pick(500_000, 2_000_000);
    let (off, on) = (0..blocked / 2, blocked / 2..blocked); // what is taken off the list, and what stays
    setting.begin("a block list", 3);
    let dir = setting.directory("block-list")?;
    let db = store(setting, &dir, false)?;
    put_all(&db, (0..blocked).map(word), "")?;
    db.compact()?;
    let filter_bytes = || db.tables().iter().map(|table| table.filter.bytes()).sum::<usize>();
    let before = filter_bytes();
    let mut reads = Vec::new();
    let mut stage = |name: &str, expected: u64| -> Result<Answers> {
        let (answers_on, answers_off) = (ask(&db, on.clone())?, ask(&db, off.clone())?);
        let quantity =
            format!("blocked, of {} that are to be, {name}", shown((blocked / 2) as f64));
        let all = (blocked / 2) as f64;
        let check = Check::exact(quantity, "all of them", all, answers_on.blocked as f64);
        notes.check(check.at("block-list"));
        let quantity = format!("blocked, of those taken off, {name}");
        let found = answers_off.blocked as f64;
        let check =
            Check::exact(quantity, "all before they are, none after", expected as f64, found);
        let check = check.at("block-list");
        notes.check(if expected == 0 { check.as_illustration() } else { check });
        reads.push((reads.len() as f64, answers_off.reads as f64 / all));
        setting.step(1);
        Ok(answers_off)
    };
    stage("with all on the list", blocked / 2)?;
    for number in off.clone() {
        db.delete(word(number))?;
    }
    db.flush()?;
    stage("with tombstones", 0)?;
    db.compact()?;
    let after = stage("after compaction", 0)?;

    if let [table] = &db.tables()[..]
        && let FilterInfo::Active { geometry, .. } = table.filter
    {
        let rate = theory::rate(geometry.m, geometry.k, table.keys);
        let spread = theory::spread(geometry.m, geometry.k, table.keys);
        let sample = Sample::of_filter(after.probes, after.mistakes, rate, spread);
        let formula = "(1 − e^(−kn/m))^k";
        let quantity = "addresses taken off that the filter still passes, after compaction";
        notes.check(Check::share(quantity, formula, sample).at("block-list").if_enough());
        let quantity = "keys in the table, after compaction";
        let check =
            Check::exact(quantity, "those that stay", (blocked / 2) as f64, table.keys as f64);
        notes.check(check.at("block-list"));
    }
    let ours = format!("{} → {} bytes", shown(before as f64), shown(filter_bytes() as f64));
    notes.measured(
        "block list: the filter, when half is taken off",
        ours,
        "made anew at compaction",
    );
    notes.remark(
        "A filter alone cannot forget: with half of the list taken off it would pass those as before, and \
         bits cleared for them would be missing from others, a false negative. Here a tombstone is an \
         entry like any other, the filter passes it, and the compaction that drops it makes a filter \
         that never knew the key.",
    );
    notes.figure(Figure {
        id: "block-list",
        title: "Reads for an address that is taken off a block list".into(),
        asked: "What does a removal cost, and when is it over?".into(),
        theory: "One read while it is on the list, one for its tombstone, p after the compaction.".into(),
        measured: format!(
            "{} addresses, half of them taken off; each of these asked once at each stage: 0 on the list, \
             1 with a tombstone, 2 after compaction.",
            shown(blocked as f64)
        ),
        x: Axis::linear("stage", ""),
        y: Axis::linear("disk reads an address", ""),
        series: vec![Series::bars("measured", 0, reads)],
    });
    Ok(())
}
