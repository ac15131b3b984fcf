//! The `criba` command; the library has all of it.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(criba_cli::run(std::env::args_os()))
}
