use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use crate::failure::Result;
use crate::{Answer, store, text};

/// Print what a lookup of a key does, step by step; exit code 1 if the key is absent
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// The key; \xNN stands for a byte
    #[arg(allow_hyphen_values = true)]
    key: OsString,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let db = store::to_read(&args.dir)?;
    let explanation = db.explain(text::of_argument(&args.key)?)?;
    writeln!(out, "{explanation}")?;
    Ok(if explanation.value.is_some() { Answer::Yes } else { Answer::No })
}
