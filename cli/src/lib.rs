//! The `criba` command: a store at the command line, and the benchmark of its disk reads.
//!
//! Each subcommand has a file. This one parses the command line and returns the exit code: 0; 1 for a
//! negative answer (an absent key, a check that does not hold); 2 for wrong usage; 3 for an error, with one
//! line on standard error; 130 if a signal interrupted it.
//!
//! The programs `criba-lab` and `criba-object` use [`run_as`], [`interrupt`], [`Progress`] and the keys of [`readamp`].

mod backup;
mod compact;
mod completions;
mod compression;
mod delete;
mod dump;
mod escaping;
mod expiry;
mod explain;
mod failure;
mod framing;
mod get;
mod inspect;
pub mod interrupt;
mod json;
mod lab;
mod layout;
mod lines;
mod load;
mod man;
mod policy;
mod progress;
mod put;
pub mod readamp;
mod rebuild_filters;
mod repair;
mod replace;
mod restore;
mod scan;
mod shell;
mod stats;
mod store;
mod text;
mod tune;
mod verify;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::sync::{Arc, LazyLock};

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

pub use failure::{Failure, Result};
pub use json::print as print_json;
pub use progress::Progress;

/// An embedded key-value store for lookups that mostly miss, at the command line
///
/// Keys and values are bytes. Arguments, the lines of `load` and what is printed are text: UTF-8 as it is, but
/// \\ for a backslash, \t, \n and \r for TAB, newline and CR, and \xNN for each byte of another control
/// character or of what is no UTF-8. Each key has one such text, and every other one is refused.
#[derive(Debug, Parser)]
#[command(
    name = "criba",
    version = version(),
    max_term_width = 80,
    after_help = "Exit codes: 0; 1 a negative answer (an absent key, a check that does not hold); \
                  2 wrong usage; 3 an error; 130 interrupted."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Get(get::Args),
    Put(put::Args),
    Delete(delete::Args),
    Scan(scan::Args),
    Dump(dump::Args),
    Load(load::Args),
    Compact(compact::Args),
    Stats(stats::Args),
    Tune(tune::Args),
    Explain(explain::Args),
    Inspect(inspect::Args),
    Verify(verify::Args),
    Repair(repair::Args),
    RebuildFilters(rebuild_filters::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    Readamp(readamp::Args),
    #[command(hide = !lab::is_installed())]
    Lab(lab::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// The command's version, and that of the files.
fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        format!("{} (format {})", env!("CARGO_PKG_VERSION"), criba::FORMAT_VERSION)
    });
    &VERSION
}

/// The answer of a command that came to its end. The greatest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// Done, found, or it holds.
    Yes,
    /// Absent, or it does not hold.
    No,
    /// Parts failed. Their errors are printed.
    Failed,
}

impl Command {
    fn run(&self, out: &mut dyn Write) -> Result<Answer> {
        let done = self.run_command(out);
        match self {
            Self::Get(_)
            | Self::Scan(_)
            | Self::Dump(_)
            | Self::Stats(_)
            | Self::Tune(_)
            | Self::Explain(_)
            | Self::Inspect(_)
            | Self::Verify(_) => done.map_err(Failure::of_reading),
            _ => done,
        }
    }

    fn run_command(&self, out: &mut dyn Write) -> Result<Answer> {
        match self {
            Self::Get(args) => get::run(args, out),
            Self::Put(args) => put::run(args),
            Self::Delete(args) => delete::run(args),
            Self::Scan(args) => scan::run(args, out),
            Self::Dump(args) => dump::run(args, out),
            Self::Load(args) => load::run(args, out),
            Self::Compact(args) => compact::run(args, out),
            Self::Stats(args) => stats::run(args, out),
            Self::Tune(args) => tune::run(args, out),
            Self::Explain(args) => explain::run(args, out),
            Self::Inspect(args) => inspect::run(args, out),
            Self::Verify(args) => verify::run(args, out),
            Self::Repair(args) => repair::run(args, out),
            Self::RebuildFilters(args) => rebuild_filters::run(args, out),
            Self::Backup(args) => backup::run(args, out),
            Self::Restore(args) => restore::run(args, out),
            Self::Readamp(args) => readamp::run(args, out),
            Self::Lab(args) => lab::run(args),
            Self::Completions(args) => completions::run(args, Cli::command(), out),
            Self::Man(args) => man::run(args, Cli::command(), out),
        }
    }
}

/// Runs a command line, program name first. Returns the exit code.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    fail_at_the_file_limit();
    run_as(args, |cli: &Cli, out| cli.command.run(out))
}

/// Lets a write beyond the limit of a file's size (`ulimit -f`) fail, as one on a full disk does. By default the signal
/// ends the process without a word.
fn fail_at_the_file_limit() {
    // The flag is not read: what counts is that the signal has a handler.
    let _ = signal_hook::flag::register(rustix::process::Signal::XFSZ.as_raw(), Arc::default());
}

/// Runs a command line, program name first, with `command`. Returns the exit code.
pub fn run_as<C: Parser>(
    args: impl IntoIterator<Item = OsString>,
    command: impl FnOnce(&C, &mut dyn Write) -> Result<Answer>,
) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    let parsed = C::try_parse_from(&args);
    let parsed = match parsed.and_then(|parsed| mistyped::<C>(&args).map_or(Ok(parsed), Err)) {
        Ok(parsed) => parsed,
        Err(refusal) => {
            // Help and version are errors of the parser, too. A failed print cannot be reported.
            let _ = refusal.print();
            return refusal.exit_code() as u8;
        }
    };
    let mut out = BufWriter::new(io::stdout().lock());
    let done = command(&parsed, &mut out);
    // Output before an error is useful.
    let flushed = out.flush().map_err(Failure::from);
    interrupt::wait_if_ending();
    match done.and_then(|answer| flushed.map(|()| answer)) {
        Ok(Answer::Yes) => 0,
        Ok(Answer::No) => 1,
        Ok(Answer::Failed) => 3,
        Err(failure) => {
            if !failure.is_closed_pipe() {
                print_error(&failure.to_string());
            }
            failure.exit_code()
        }
    }
}

/// The refusal of a word that begins as an option and is none, which must not become a key or a value.
fn mistyped<C: CommandFactory>(args: &[OsString]) -> Option<clap::Error> {
    let mut command = C::command();
    command.build();
    let command = command.find_subcommand_mut(args.get(1)?)?;
    if command.get_arguments().any(clap::Arg::is_trailing_var_arg_set) {
        return None; // those of another program
    }
    for word in args.iter().skip(2).take_while(|word| *word != "--") {
        let Some(option) = word.to_str().and_then(|word| word.strip_prefix("--")) else { continue };
        let name = option.split_once('=').map_or(option, |(name, _)| name);
        let is_known = |known: &clap::Arg| {
            known.get_long() == Some(name)
                || known.get_all_aliases().is_some_and(|aliases| aliases.contains(&name))
        };
        if !command.get_arguments().any(is_known) {
            let what =
                format!("{} is no option; to take it as it is, write -- before it", word.display());
            return Some(command.error(ErrorKind::UnknownArgument, what));
        }
    }
    None
}

/// Prints a message to standard error, in one line.
pub fn print_error(message: &str) {
    // If standard error is closed, the exit code still speaks.
    let _ = writeln!(io::stderr(), "criba: {}", shell::visible(message));
}
