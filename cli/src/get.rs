//! `criba get`: the values of keys.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::failure::Result;
use crate::store::ClockArgs;
use crate::text::escaped;
use crate::{Answer, json, print_error, store, text};

/// Print the value of a key; exit code 1 if the key is absent
///
/// With several keys, prints key TAB value a line for those that are present, and an error line for each absent
/// one.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// The key
    #[arg(allow_hyphen_values = true)]
    key: OsString,
    /// More keys; after -- if they begin with a hyphen
    #[arg(value_name = "KEY")]
    more: Vec<OsString>,
    /// Print the bytes of one value as they are, without a newline after them
    #[arg(long, conflicts_with_all = ["more", "json"])]
    raw: bool,
    /// Print a JSON object a line: `key`, and `value` or `"absent": true`; `key_base64`, `value_base64` if they
    /// are no UTF-8
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    clock: ClockArgs,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let keys = std::iter::once(&args.key).chain(&args.more);
    let keys: Vec<_> = keys.map(|key| text::of_argument(key)).collect::<Result<_>>()?;
    let values = store::to_read(&args.dir, args.clock)?.get_many(&keys)?;
    let mut answer = Answer::Yes;
    for (key, value) in keys.iter().zip(values) {
        if value.is_none() {
            answer = Answer::No;
        }
        match value {
            value if args.json => {
                let mut object = Map::new();
                json::insert_bytes(&mut object, "key", key);
                match value {
                    Some(value) => json::insert_bytes(&mut object, "value", &value),
                    None => drop(object.insert("absent".into(), true.into())),
                }
                writeln!(out, "{}", Value::Object(object))?;
            }
            Some(value) if args.raw => out.write_all(&value)?,
            Some(value) if args.more.is_empty() => writeln!(out, "{}", escaped(&value))?,
            Some(value) => writeln!(out, "{}\t{}", escaped(key), escaped(&value))?,
            None if args.more.is_empty() => print_error("absent"),
            None => print_error(&format!("absent: {}", escaped(key))),
        }
    }
    Ok(answer)
}
