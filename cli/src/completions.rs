//! `criba completions`: what a shell needs to complete the command line.

use std::io::Write;

use clap_complete::{Shell, generate};

use crate::Answer;
use crate::failure::Result;

/// Print the completions of a shell
///
/// bash: `source <(criba completions bash)` in ~/.bashrc; zsh: a file _criba in a directory of $fpath; fish:
/// ~/.config/fish/completions/criba.fish.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    shell: Shell,
}

pub(crate) fn run(args: &Args, mut command: clap::Command, out: &mut dyn Write) -> Result<Answer> {
    let mut script = Vec::new();
    generate(args.shell, &mut command, "criba", &mut script);
    out.write_all(&script)?;
    Ok(Answer::Yes)
}
