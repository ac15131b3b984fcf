//! The program `criba-object`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(criba_cli::run_as(std::env::args_os(), criba_object_cli::run))
}
