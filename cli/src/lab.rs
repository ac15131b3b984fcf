use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
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

/// The program beside this one.
fn beside() -> Option<PathBuf> {
    let beside = env::current_exe().ok()?.with_file_name(PROGRAM);
    beside.is_file().then_some(beside)
}

/// Whether the program is beside this one or in PATH. Otherwise `--help` leaves the command out.
pub(crate) fn is_installed() -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    beside().is_some() || env::split_paths(&path).any(|dir| dir.join(PROGRAM).is_file())
}

/// Replaces this process; returns only if the program does not start.
pub(crate) fn run(args: &Args) -> Result<Answer> {
    let program = beside().unwrap_or_else(|| PROGRAM.into());
    let error = Command::new(&program).arg0("criba lab").args(&args.args).exec();
    Err(match error.kind() {
        ErrorKind::NotFound => {
            let expected = "a program beside criba or in PATH, from `cargo install --path lab` in \
                            criba's sources";
            Failure::unfit(&program, expected, "none")
        }
        _ => Failure::file("start it", &program, error),
    })
}
