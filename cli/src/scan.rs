use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::ops::Bound;
use std::path::PathBuf;

use criba::{Range, Value};

use crate::failure::Result;
use crate::{Answer, store, text};

/// Print keys and values in order, key TAB value a line: the form that `load` reads
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// Only keys that start with this
    #[arg(long, conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
    /// Only this key and later ones
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// Only keys before this one
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// From the last key to the first
    #[arg(long)]
    reverse: bool,
    /// Not more lines than this
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let db = store::to_read(&args.dir)?;
    let bytes = |key: &OsString| text::of_argument(OsStr::new(key));
    let range: Range = if let Some(prefix) = &args.prefix {
        db.prefix(bytes(prefix))?
    } else {
        let from = args.from.as_ref().map_or(Bound::Unbounded, |key| Bound::Included(bytes(key)));
        let to = args.to.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(bytes(key)));
        db.range((from, to))?
    };
    let limit = args.limit.unwrap_or(usize::MAX);
    let mut print = |item: criba::Result<(Value, Value)>| -> Result<()> {
        let (key, value) = item?;
        writeln!(out, "{}\t{}", text::escaped(&key), text::escaped(&value))?;
        Ok(())
    };
    if args.reverse {
        range.rev().take(limit).try_for_each(&mut print)?;
    } else {
        range.take(limit).try_for_each(&mut print)?;
    }
    Ok(Answer::Yes)
}
