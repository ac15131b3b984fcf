//! The command `criba`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(criba_cli::run(std::env::args_os()))
}
