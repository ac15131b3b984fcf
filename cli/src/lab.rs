use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::Answer;
use crate::failure::{Failure, Result};

const PROGRAM: &str = "criba-lab";

/// Repeat the experiments of the literature on Bloom filters, and check theory (a program of its own)
///
/// Starts the program criba-lab, beside this one or in PATH, with the same arguments; see criba lab --help.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// The arguments of criba-lab
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Replaces this process; returns only if the program does not start.
pub(crate) fn run(args: &Args) -> Result<Answer> {
    let beside = env::current_exe().map(|exe| exe.with_file_name(PROGRAM));
    let beside = beside.ok().filter(|program| program.is_file());
    let program = beside.as_deref().unwrap_or(Path::new(PROGRAM));
    let error = Command::new(program).arg0("criba lab").args(&args.args).exec();
    Err(match error.kind() {
        ErrorKind::NotFound => {
            let expected = "a program beside criba or in PATH, from `cargo install --path lab` in \
                            criba's sources";
            Failure::unfit(program, expected, "none")
        }
        _ => Failure::file("start it", program, error),
    })
}
