//! The program `criba-lab`, which `criba lab` starts: repeats the experiments of five texts on Bloom filters
//! with criba's filters and tables, and compares the results.
//!
//! An experiment is a file in [`experiments`]. It gets a [`Setting`](experiment::Setting) and fills
//! [`Notes`](experiment::Notes) with [checks](check::Check), [figures](criba_report::figure::Figure) and
//! measurements. [`claims`] has what the texts say. [`run`](mod@run) runs them and computes the bounds,
//! `report` and `print` show the results, and [`output`](criba_report::output) writes them.

pub mod check;
pub mod claims;
pub mod experiment;
pub mod experiments;
pub mod input;
pub mod kinds;
pub mod layered;
mod print;
pub mod report;
pub mod run;
pub mod source;
pub mod theory;
pub mod trial;

use std::io::Write;
use std::path::PathBuf;

use criba_cli::{Answer, Failure, Result, print_error};
use criba_report::numbers::thousands;
use criba_report::output::Output;

use self::experiment::{Experiment, Size};
use self::input::Keys;
use self::run::Run;

/// Make the experiments of the literature on Bloom filters again, and check what theory says
///
/// Writes report.html, a page with figures; each figure as .svg and its points as .csv; and
/// checks.csv. Exit code 1 if a check does not hold.
#[derive(Debug, clap::Parser)]
#[command(max_term_width = 80)]
pub struct Args {
    /// Which experiments; all of them if none is named
    #[arg(value_name = "EXPERIMENT")]
    experiments: Vec<String>,
    /// A directory for what is written: new, empty, or written by an earlier run
    #[arg(long, value_name = "DIR", default_value = "criba-lab")]
    out: PathBuf,
    /// All experiments within two minutes; the default
    #[arg(long)]
    quick: bool,
    /// The large cases too, in half an hour
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Fixes everything random; the same seed gives the same counts
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Real keys for hash-families instead of the sample of paths: a key, or key TAB value, a line,
    /// plain or gzipped
    #[arg(long, value_name = "FILE", requires = "absent")]
    present: Option<PathBuf>,
    /// Others that are not among them, one a line
    #[arg(long, value_name = "FILE", requires = "present")]
    absent: Option<PathBuf>,
    /// List the experiments, and make none
    #[arg(long)]
    list: bool,
}

impl Args {
    fn size(&self) -> Size {
        if self.full { Size::Full } else { Size::Quick }
    }

    fn real_keys(&self) -> Result<Keys> {
        match (&self.present, &self.absent) {
            (Some(present), Some(absent)) => Keys::read(present, absent),
            _ => Ok(input::real_paths()),
        }
    }
}

/// Runs a command line.
///
/// # Errors
/// The error of the first failing experiment, or of the output directory.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let chosen = chosen(&args.experiments)?;
    if args.list {
        list(&chosen, out)?;
        return Ok(Answer::Yes);
    }
    let real_keys = args.real_keys()?;
    let output = Output::in_directory(&args.out, "criba lab")?;
    let run = Run::new(&chosen, args.size(), args.seed, real_keys)?;
    print::print(&run, out)?;
    out.flush()?;
    output.replace(&files(&run))?;
    writeln!(out, "The report: {}", args.out.join("report.html").display())?;
    out.flush()?; // so that the summary stands before what follows
    for (experiment, check) in run.failed() {
        print_error(&format!("{experiment}: {} is out of bounds", check.quantity));
    }
    let stale = run.stale(&claims::all());
    for row in &stale {
        print_error(row);
    }
    let holds = stale.is_empty() && run.failed().next().is_none();
    Ok(if holds { Answer::Yes } else { Answer::No })
}

/// The experiments of these names, in the order of the registry; all without names.
fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>> {
    let all = experiments::ALL;
    if let Some(name) = names.iter().find(|name| all.iter().all(|other| other.name != **name)) {
        let known: Vec<_> = all.iter().map(|experiment| experiment.name).collect();
        let known = known.join(", ");
        return Err(Failure::Usage(format!("there is no experiment {name}; there are {known}")));
    }
    let is_chosen = |experiment: &&Experiment| {
        names.is_empty() || names.iter().any(|name| name == experiment.name)
    };
    Ok(all.iter().filter(is_chosen).collect())
}

fn list(experiments: &[&Experiment], out: &mut dyn Write) -> Result<()> {
    for experiment in experiments {
        let sources: Vec<_> = experiment.sources.iter().map(|source| source.name()).collect();
        writeln!(out, "{:<14}  {} ({})", experiment.name, experiment.title, sources.join(", "))?;
    }
    Ok(())
}

fn files(run: &Run) -> Vec<(String, Vec<u8>)> {
    let mut files = vec![
        ("report.html".to_owned(), report::report(run).into_bytes()),
        ("checks.csv".to_owned(), run.csv()),
    ];
    for outcome in &run.outcomes {
        for figure in &outcome.notes.figures {
            files.extend(criba_report::files(figure, &figure.file_stem(outcome.experiment.name)));
        }
    }
    files
}

/// A number with five significant digits.
pub fn shown(number: f64) -> String {
    let size = number.abs();
    if number.fract() == 0.0 && size < 1e15 {
        let sign = if number < 0.0 { "−" } else { "" };
        return format!("{sign}{}", thousands(size as u64));
    }
    match size {
        1e5.. => format!("{number:.4e}"),
        1e-3.. => {
            let digits = 4 - size.log10().floor() as i32;
            let text = format!("{number:.*}", digits.max(0) as usize);
            if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.').into()
            } else {
                text
            }
        }
        _ => format!("{number:.4e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_five_digits_that_count() {
        let shown =
            [0.0, 4_792_530.0, 0.092_012_34, 3.321_987, 1234.567, 0.000_123_456, 0.5].map(shown);
        assert_eq!(shown, ["0", "4,792,530", "0.092012", "3.322", "1234.6", "1.2346e-4", "0.5"]);
    }

    #[test]
    fn an_unknown_experiment_is_refused_with_the_list_of_all() {
        let refusal = chosen(&["toy".into(), "tou".into()]).expect_err("there is none");
        assert!(matches!(&refusal, Failure::Usage(text) if text.contains("toy")), "{refusal}");
    }

    #[test]
    fn names_are_distinct_and_fit_for_files() {
        for (place, experiment) in experiments::ALL.iter().enumerate() {
            let name = experiment.name;
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{name}");
            assert!(experiments::ALL[..place].iter().all(|other| other.name != name), "{name}");
        }
    }
}
