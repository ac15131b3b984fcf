use std::io::Write;

use criba_cli::Result;

use super::experiment::Notes;
use super::run::{Outcome, Run};

pub(super) fn print(run: &Run, out: &mut dyn Write) -> Result<()> {
    for outcome in &run.outcomes {
        print_outcome(run, outcome, out)?;
    }
    Ok(())
}

fn print_outcome(run: &Run, outcome: &Outcome, out: &mut dyn Write) -> Result<()> {
    let Outcome { experiment, notes, took } = outcome;
    writeln!(out, "{}: {}", experiment.name, experiment.title)?;
    let (tally, seconds) = (run.tally(&notes.checks), took.as_secs_f64());
    writeln!(out, "  {tally}; {seconds:.1} s")?;
    for check in notes.checks.iter().filter(|check| check.decides) {
        let verdict = run.verdict(check);
        if !verdict.ok {
            let [measured, low, high] =
                [check.measured, verdict.low, verdict.high].map(super::shown);
            writeln!(out, "  FAILS: {}: {measured}, not within {low} to {high}", check.quantity)?;
        }
    }
    print_comparison(notes, out)?;
    writeln!(out)?;
    Ok(())
}

fn print_comparison(notes: &Notes, out: &mut dyn Write) -> Result<()> {
    if notes.comparison.is_empty() {
        return Ok(());
    }
    let rows = notes.comparison.iter().map(|row| [&row.quantity[..], &row.theirs, &row.ours]);
    let rows: Vec<_> = std::iter::once(["", "theirs", "ours"]).chain(rows).collect();
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let (first, second) = (width(0), width(1));
    for [quantity, theirs, ours] in rows {
        writeln!(out, "  {quantity:<first$}  {theirs:<second$}  {ours}")?;
    }
    Ok(())
}
