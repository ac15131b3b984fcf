//! Running the command.

pub(crate) mod page;
mod run;
#[path = "../../../../tests/common/skip.rs"]
mod skip;
pub(crate) mod terminal;

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

pub(crate) use run::Run;
pub(crate) use skip::skip;

/// The command, not yet started.
pub(crate) fn criba<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_criba"));
    command.args(args).stdin(Stdio::null());
    command
}

/// A command line for a shell that finds the command, not yet started.
pub(crate) fn shell(line: &str, directory: &Path) -> Command {
    let programs = Path::new(env!("CARGO_BIN_EXE_criba")).parent().expect("a directory").display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).env("PATH", path).current_dir(directory).stdin(Stdio::null());
    shell
}

/// Runs a command line without quoted parts.
pub(crate) fn run(line: &str) -> Run {
    Run::new(criba(line.split_whitespace()).output().expect("the command starts"))
}

/// Runs a command with this standard input.
pub(crate) fn output<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>, input: &[u8]) -> Output {
    let mut command = criba(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut pipe = child.stdin.take().expect("piped");
    let input = input.to_vec();
    // A command that fails reads no more.
    let writer = std::thread::spawn(move || drop(pipe.write_all(&input)));
    let output = child.wait_with_output().expect("an end");
    writer.join().expect("no panic");
    output
}

pub(crate) fn with_input<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>, input: &[u8]) -> Run {
    Run::new(output(args, input))
}
