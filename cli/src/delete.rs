//! `criba delete`: makes a key absent.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::compression::SettingArgs;
use crate::failure::Result;
use crate::store::ClockArgs;
use crate::{Answer, store, text};

/// Make a key absent; one that is absent already is no error
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// The key
    #[arg(allow_hyphen_values = true)]
    key: OsString,
    #[command(flatten)]
    settings: SettingArgs,
    #[command(flatten)]
    clock: ClockArgs,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let db = store::to_change(&args.dir, &args.settings, args.clock)?;
    db.delete(text::of_argument(&args.key)?)?;
    db.close()?; // which syncs
    Ok(Answer::Yes)
}
