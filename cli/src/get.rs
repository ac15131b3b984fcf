//! `criba get`: the value of a key.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use crate::failure::Result;
use crate::{Answer, print_error, store, text};

/// Print the value of a key; exit code 1 if the key is absent
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// The key; \xNN stands for a byte
    #[arg(allow_hyphen_values = true)]
    key: OsString,
    /// Print the value's bytes as they are, without a newline after them
    #[arg(long)]
    raw: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let db = store::to_read(&args.dir)?;
    let Some(value) = db.get(text::of_argument(&args.key))? else {
        print_error("absent");
        return Ok(Answer::No);
    };
    if args.raw {
        out.write_all(&value)?;
    } else {
        writeln!(out, "{}", text::escaped(&value))?;
    }
    Ok(Answer::Yes)
}
