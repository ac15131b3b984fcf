//! Running the command.

#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod page;
mod run;
#[path = "../../../tests/common/skip.rs"]
mod skip;
pub(crate) mod terminal;

use std::ffi::OsStr;
use std::process::{Command, Stdio};

pub(crate) use run::Run;
#[allow(unused_imports, reason = "each test file uses a part")]
pub(crate) use skip::skip;

/// The command, not yet started.
pub(crate) fn criba<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_criba"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs a command line without quoted parts.
pub(crate) fn run(line: &str) -> Run {
    Run::new(criba(line.split_whitespace()).output().expect("the command starts"))
}
