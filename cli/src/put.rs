//! `criba put`: sets a key's value.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::failure::Result;
use crate::policy::FilterArgs;
use crate::{Answer, store, text};

/// Set a key's value; makes the store if there is none
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// The key; \xNN stands for a byte
    #[arg(allow_hyphen_values = true)]
    key: OsString,
    /// The value; \xNN stands for a byte
    #[arg(allow_hyphen_values = true)]
    value: OsString,
    #[command(flatten)]
    filters: FilterArgs,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let db = store::to_fill(&args.dir, &args.filters)?;
    db.put(text::of_argument(&args.key), text::of_argument(&args.value))?;
    db.close()?; // which syncs: when the command ends well, the write survives a power failure
    Ok(Answer::Yes)
}
