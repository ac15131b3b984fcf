//! `criba get`: the values of keys.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use criba::{ReadOnlyDb, Value};
use serde_json::Map;

use crate::escaping::unescaped;
use crate::failure::{Failure, Result};
use crate::lines::{Input, Lines, check_lengths};
use crate::progress::Progress;
use crate::store::ClockArgs;
use crate::text::escaped;
use crate::{Answer, json, print_error, store, text};

/// Print the value of a key; exit code 1 if the key is absent
///
/// With several keys, prints key TAB value a line for those that are present, and an error line for each whose block is
/// damaged. The key - stands for the keys of standard
/// input: one a line, as text, plain or gzipped. Up to 1,024 that have arrived are looked up together.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// The key; - for the keys of standard input
    #[arg(allow_hyphen_values = true, required_unless_present = "literal")]
    key: Option<OsString>,
    /// More keys
    #[arg(value_name = "KEY")]
    more: Vec<OsString>,
    /// Keys as they are, such as - or --json
    #[arg(value_name = "KEY", last = true)]
    literal: Vec<OsString>,
    /// Print the bytes of one value as they are, without a newline after them
    #[arg(long, conflicts_with_all = ["more", "json"])]
    raw: bool,
    /// What to do about absent keys
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    missing: Missing,
    /// Print a JSON object a line: `key`, and `value` or `"absent": true`; `key_base64`, `value_base64` if they
    /// are no UTF-8
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    clock: ClockArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum Missing {
    /// Print an error line for each, or its JSON object, and end with code 1
    #[default]
    Fail,
    /// Leave them out
    Skip,
    /// Print a line with the key and no TAB, or its JSON object
    Mark,
}

/// So many keys of standard input are looked up together, at most.
const TOGETHER: usize = 1024;

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let keys: Vec<_> = args.key.iter().chain(&args.more).chain(&args.literal).collect();
    let is_input = args.literal.is_empty() && keys == ["-"];
    if args.raw && (is_input || keys.len() > 1) {
        return Err(Failure::Usage("--raw: expected one key".into()));
    }
    if is_input {
        return of_standard_input(args, out);
    }
    let keys: Vec<_> = keys.into_iter().map(|key| text::of_argument(key)).collect::<Result<_>>()?;
    let db = store::to_read(&args.dir, args.clock)?;
    let is_alone = keys.len() == 1 && args.missing != Missing::Mark;
    look_up(&db, &keys, args, is_alone, out)
}

fn of_standard_input(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let db = store::to_read(&args.dir, args.clock)?;
    let input = Input::open(Path::new("-"))?;
    let mut lines = input.lines(&Progress::hidden(), false)?;
    let mut answer = Answer::Yes;
    let mut keys = Vec::new();
    loop {
        keys.clear();
        let read = read_keys(&mut lines, &mut keys);
        // The keys before a wrong line have their answers, wherever a batch ends.
        answer = answer.max(look_up(&db, &keys, args, false, out)?);
        out.flush()?;
        read?;
        if keys.is_empty() {
            return Ok(answer);
        }
    }
}

/// Reads keys as far as they have arrived, at least one: a program may wait for their answers before it writes the next.
fn read_keys(lines: &mut Lines<'_>, keys: &mut Vec<Vec<u8>>) -> Result<()> {
    let path = lines.path();
    while keys.len() < TOGETHER && (keys.is_empty() || lines.has_next_whole()) {
        let Some(line) = lines.next()? else { break };
        let text = line.bytes.strip_suffix(b"\r").unwrap_or(line.bytes);
        let key = unescaped(text).map_err(|misspelt| {
            let expected = format!("text on line {}", line.number);
            Failure::unfit(path, expected, misspelt.to_string())
        })?;
        check_lengths(path, line.number, &key, b"")?;
        keys.push(key.into_owned());
    }
    Ok(())
}

/// Prints what `--missing` says of each key. If the key is alone, it is not printed with its value. Of several keys, one
/// that cannot be looked up has an error line, and the others have their answers.
fn look_up(
    db: &ReadOnlyDb,
    keys: &[Vec<u8>],
    args: &Args,
    is_alone: bool,
    out: &mut dyn Write,
) -> Result<Answer> {
    let mut answer = Answer::Yes;
    let values: Vec<_> = match db.get_many(keys) {
        Ok(values) => values.into_iter().map(Ok).collect(),
        // A damaged block fails the whole batch.
        Err(_) if keys.len() > 1 => keys.iter().map(|key| db.get(key)).collect(),
        Err(error) => return Err(error.into()),
    };
    for (key, value) in keys.iter().zip(values) {
        let value = match value {
            Ok(value) => value,
            Err(error) => {
                print_error(&format!("{}: {error}", escaped(key)));
                answer = answer.max(Answer::Failed);
                continue;
            }
        };
        if value.is_none() && args.missing == Missing::Fail {
            answer = answer.max(Answer::No);
        }
        match value {
            None if args.missing == Missing::Skip => {}
            value if args.json => print_object(key, value.as_ref(), out)?,
            Some(value) if args.raw => out.write_all(&value)?,
            Some(value) if is_alone => writeln!(out, "{}", escaped(&value))?,
            Some(value) => writeln!(out, "{}\t{}", escaped(key), escaped(&value))?,
            None if args.missing == Missing::Mark => writeln!(out, "{}", escaped(key))?,
            None if is_alone => print_error("absent"),
            None => print_error(&format!("absent: {}", escaped(key))),
        }
    }
    Ok(answer)
}

fn print_object(key: &[u8], value: Option<&Value>, out: &mut dyn Write) -> Result<()> {
    let mut object = Map::new();
    json::insert_bytes(&mut object, "key", key);
    match value {
        Some(value) => json::insert_bytes(&mut object, "value", value),
        None => drop(object.insert("absent".into(), true.into())),
    }
    json::print_line(&object, out)?;
    Ok(())
}
