//! `criba man`: manual pages.

use std::io::Write;

use clap_mangen::Man;

use crate::Answer;
use crate::failure::{Failure, Result};

/// Print the manual page of the program, or of a command
///
/// To read it: `criba man load | man -l -`. To install it: `criba man load > ~/.local/share/man/man1/criba-load.1`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The command, such as `load`
    command: Option<String>,
}

pub(crate) fn run(args: &Args, mut program: clap::Command, out: &mut dyn Write) -> Result<Answer> {
    program.build();
    let command = match &args.command {
        None => program,
        Some(name) => {
            let found = program.find_subcommand(name).cloned();
            found.ok_or_else(|| {
                Failure::Usage(format!("{name}: no command; criba --help lists all"))
            })?
        }
    };
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    out.write_all(&page)?;
    Ok(Answer::Yes)
}
