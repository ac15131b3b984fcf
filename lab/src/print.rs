use std::io::Write;

use criba_cli::Result;

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
    let width = notes.measured.iter().map(|[quantity, ..]| quantity.chars().count()).max();
    for [quantity, value, _] in &notes.measured {
        writeln!(out, "  {quantity:<0$}  {value}", width.unwrap_or_default())?;
    }
    writeln!(out)?;
    Ok(())
}
