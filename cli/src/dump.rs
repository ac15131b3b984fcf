//! `criba dump`: a store as text, between two lines that say whether all of it arrived.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use crate::failure::Result;
use crate::text::escaped;
use crate::{Answer, framing, scan, store};

/// Print a whole store for `load`, between a first and a last line: `load` notices if a part is missing
///
/// The other lines are key TAB value. The first line has the version of this form and its fields; the last one
/// the number of lines between. No key is written as one of the two.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// Only keys that start with this
    #[arg(long)]
    prefix: Option<OsString>,
    /// Leave out the first and the last line, for a program that sorts or edits the others
    #[arg(long)]
    plain: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let range = scan::bounds(args.prefix.as_deref(), None, None)?;
    let db = store::to_read(&args.dir)?;
    if !args.plain {
        writeln!(out, "{}", framing::first_line())?;
    }
    let mut lines: u64 = 0;
    for item in db.range(range) {
        let (key, value) = item?;
        writeln!(out, "{}\t{}", escaped(&key), escaped(&value))?;
        lines += 1;
    }
    if !args.plain {
        writeln!(out, "{}", framing::last_line(lines))?;
    }
    Ok(Answer::Yes)
}
