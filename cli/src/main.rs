//! The `criba` command; all of it is in the library beside.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(criba_cli::run(std::env::args_os()))
}
