//! `criba dump`: a store as text, between two lines that say whether all of it arrived.

use std::ffi::OsString;
use std::io::{IsTerminal, Write, stdout};
use std::path::PathBuf;

use crate::expiry::{millis, refused};
use crate::failure::Result;
use crate::framing::{self, Fields};
use crate::progress::{Progress, ProgressArgs};
use crate::store::ClockArgs;
use crate::text::escaped;
use crate::{Answer, scan, store};

/// Print a whole store for `load`, between a first and a last line: `load` notices if a part is missing
///
/// The other lines are key TAB value. If keys of the store can expire, they are key TAB value TAB expiry: in
/// milliseconds since 1970, or empty. The first line has the version of this form and its fields; the last one
/// the number of lines between. No key is written as one of the two.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// Only keys that start with this
    #[arg(long)]
    prefix: Option<OsString>,
    /// Leave out the first and the last line, for a program that sorts or edits the others; refuses keys that
    /// expire
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    clock: ClockArgs,
    #[command(flatten)]
    progress: ProgressArgs,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let range = scan::bounds(args.prefix.as_deref(), None, None)?;
    let db = store::to_read(&args.dir, args.clock)?;
    let has_expiries = db.has_expiries() && !args.plain;
    let fields = if has_expiries { Fields::KeyValueExpires } else { Fields::KeyValue };
    if !args.plain {
        writeln!(out, "{}", framing::first_line(fields))?;
    }
    let mut lines: u64 = 0;
    let progress = if stdout().is_terminal() {
        Progress::hidden() // it would be between the lines
    } else {
        scan::progress(args.progress, &db, "dumping")
    };
    let mut range = db.range(range);
    while let Some(item) = range.next_with_expiry() {
        let (key, value, expiry) = item?;
        if !has_expiries && expiry.is_some() {
            return Err(refused(&args.dir, &key, "--plain"));
        }
        write!(out, "{}\t{}", escaped(&key), escaped(&value))?;
        match expiry {
            Some(time) => writeln!(out, "\t{}", millis(time))?,
            None if has_expiries => writeln!(out, "\t")?,
            None => writeln!(out)?,
        }
        lines += 1;
        scan::report(&progress, lines);
    }
    progress.finish_and_clear();
    if !args.plain {
        writeln!(out, "{}", framing::last_line(lines))?;
    }
    Ok(Answer::Yes)
}
