//! `criba put`: sets a key's value.

use std::ffi::OsString;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use criba::MAX_VALUE_BYTES;

use crate::compression::SettingArgs;
use crate::expiry::ExpiryArgs;
use crate::failure::{Failure, Result};
use crate::lines::STANDARD_INPUT;
use crate::store::ClockArgs;
use crate::{Answer, store, text};

/// Set a key's value; makes the store if there is none
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// The key
    #[arg(allow_hyphen_values = true)]
    key: OsString,
    /// The value. - is all bytes of standard input, as they are; so the value - itself is written
    /// `printf - | criba put DIR KEY -`
    #[arg(allow_hyphen_values = true)]
    value: OsString,
    #[command(flatten)]
    expiry: ExpiryArgs,
    #[command(flatten)]
    clock: ClockArgs,
    #[command(flatten)]
    settings: SettingArgs,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let key = text::of_argument(&args.key)?;
    let value = if args.value == "-" { of_input()? } else { text::of_argument(&args.value)? };
    let db = store::to_fill(&args.dir, &args.settings, args.clock)?;
    match args.expiry.expires_in {
        Some(expiry) => db.put_with_expiry(key, value, expiry)?,
        None => db.put(key, value)?,
    }
    db.close()?; // which syncs: when the command ends well, the write survives a power failure
    Ok(Answer::Yes)
}

fn of_input() -> Result<Vec<u8>> {
    let input = Path::new(STANDARD_INPUT);
    let mut value = Vec::new();
    // One byte more than fits, to notice it.
    let read = io::stdin().lock().take(MAX_VALUE_BYTES as u64 + 1).read_to_end(&mut value);
    read.map_err(|source| Failure::file("read it", input, source))?;
    if value.len() > MAX_VALUE_BYTES {
        let expected = format!("a value of at most {MAX_VALUE_BYTES} bytes");
        return Err(Failure::unfit(input, expected, "a longer one"));
    }
    Ok(value)
}
