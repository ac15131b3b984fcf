use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use criba::ReadOnlyDb;
use serde_json::{Map, json};

use crate::expiry;
use crate::failure::{Failure, Result};
use crate::lines::packed;
use crate::progress::{Progress, ProgressArgs};
use crate::store::ClockArgs;
use crate::text::{counted, escaped};
use crate::{Answer, json, print_error, store, text};

/// Print keys and values in order, key TAB value a line: the form that `load` reads
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "one for each flag")]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// Only keys that start with this
    #[arg(long)]
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
    /// Not more keys than this
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = count)]
    limit: Option<usize>,
    /// Print keys without values
    #[arg(long)]
    keys: bool,
    /// Print only the number of keys
    #[arg(long, conflicts_with_all = ["keys", "raw"])]
    count: bool,
    /// Print bytes as they are, for `load --raw`; refuses keys and values that a line cannot hold, and keys that
    /// expire
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    /// Print a JSON object a line: `key`, `value`; `key_base64`, `value_base64` if they are no UTF-8
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    clock: ClockArgs,
    #[command(flatten)]
    progress: ProgressArgs,
}

/// Over the keys of all tables.
pub(crate) fn progress(args: ProgressArgs, db: &ReadOnlyDb, what: &'static str) -> Progress {
    let progress = Progress::over_count(args, what);
    progress.set_length(db.tables().iter().map(|table| table.keys).sum());
    progress
}

/// Reports each so many keys.
pub(crate) fn report(progress: &Progress, keys: u64) {
    if keys.is_multiple_of(1024) {
        progress.set_position(keys);
    }
}

fn count(text: &str) -> std::result::Result<usize, String> {
    text.parse().map_err(|_| "a limit is a count of keys: 0, 1, 2 and so on".to_owned())
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let range = bounds(args.prefix.as_deref(), args.from.as_deref(), args.to.as_deref())?;
    let db = store::to_read(&args.dir, args.clock)?;
    let mut range = db.range(range);
    let limit = args.limit.unwrap_or(usize::MAX) as u64;
    let mut printed: u64 = 0;
    let mut expiring: u64 = 0;
    let progress =
        if args.count { progress(args.progress, &db, "counting") } else { Progress::hidden() };
    while printed < limit {
        let item =
            if args.reverse { range.next_back_with_expiry() } else { range.next_with_expiry() };
        let Some(item) = item else { break };
        let (key, value, expiry) = item?;
        if args.raw && !args.keys && expiry.is_some() {
            return Err(expiry::refused(&args.dir, &key, "--raw"));
        }
        if !args.count {
            print_item(args, printed == 0, &key, &value, out)?;
            expiring += u64::from(expiry.is_some());
        }
        printed += 1;
        report(&progress, printed);
    }
    progress.finish_and_clear();
    if expiring > 0 && !args.keys {
        let keys = counted(expiring, "key");
        print_error(&format!("note: {keys} with an expiry, which only dump prints"));
    }
    match (args.count, args.json) {
        (false, _) => {}
        (true, false) => writeln!(out, "{printed}")?,
        (true, true) => json::print_line(&json!({ "count": printed }), out)?,
    }
    Ok(Answer::Yes)
}

pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The keys that satisfy all of `--prefix`, `--from` and `--to`.
pub(crate) fn bounds(
    prefix: Option<&OsStr>,
    from: Option<&OsStr>,
    to: Option<&OsStr>,
) -> Result<Bounds> {
    let bytes = |key: Option<&OsStr>| key.map(text::of_argument).transpose();
    let (prefix, from, to) = (bytes(prefix)?, bytes(from)?, bytes(to)?);
    let after = prefix.as_deref().and_then(after_prefix);
    let first = prefix.into_iter().chain(from).max();
    let end = after.into_iter().chain(to).min();
    Ok((
        first.map_or(Bound::Unbounded, Bound::Included),
        end.map_or(Bound::Unbounded, Bound::Excluded),
    ))
}

/// The first key after all that start with a prefix.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < 0xff)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

fn print_item(
    args: &Args,
    first: bool,
    key: &[u8],
    value: &[u8],
    out: &mut dyn Write,
) -> Result<()> {
    if args.json {
        let mut object = Map::new();
        json::insert_bytes(&mut object, "key", key);
        if !args.keys {
            json::insert_bytes(&mut object, "value", value);
        }
        json::print_line(&object, out)?;
    } else if args.raw {
        let value = (!args.keys).then_some(value);
        check_raw(&args.dir, first, key, value)?;
        out.write_all(key)?;
        if let Some(value) = value {
            out.write_all(b"\t")?;
            out.write_all(value)?;
        }
        out.write_all(b"\n")?;
    } else if args.keys {
        writeln!(out, "{}", escaped(key))?;
    } else {
        writeln!(out, "{}\t{}", escaped(key), escaped(value))?;
    }
    Ok(())
}

/// Refuses what `load --raw` would read as something else.
fn check_raw(dir: &Path, first: bool, key: &[u8], value: Option<&[u8]>) -> Result<()> {
    let ends_line = |bytes: &[u8]| bytes.contains(&b'\n') || bytes.ends_with(b"\r");
    let expected = if key.contains(&b'\t') || key.contains(&b'\n') {
        "keys without TAB and newline"
    } else if ends_line(value.unwrap_or(key)) {
        "lines without a newline within, and without a CR at their end"
    } else if first && packed(key).is_some() {
        "a first line that does not begin as packed files do"
    } else {
        return Ok(());
    };
    let found = format!("another at the key {}; leave --raw out", escaped(key));
    Err(Failure::unfit(dir, expected, found))
}
