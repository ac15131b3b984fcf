use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::failure::{Failure, Result};
use crate::shell::quoted;
use crate::text::counted;
use crate::{Answer, json, store};

/// Copy a store as it is now into a new directory, as a store of its own
///
/// Opens the store to write, as every command that changes it: no other process may have it open. A program
/// that has it open calls Db::checkpoint. On the same file system both stores have the same files of tables, by
/// hard links: against a damaged disk, copy the backup to another one. To restore it, close the store in every
/// program first.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// The directory of the copy, which must not exist
    to: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let Args { dir, to, .. } = args;
    if fs::symlink_metadata(to).is_ok() {
        return Err(Failure::unfit(to, "a new name for the backup", "a file or directory"));
    }
    let db = store::without_compactions(dir)?;
    db.checkpoint(to)?;
    db.close()?;
    let tables = store::to_read(to)?.tables().len() as u64;
    let bytes = bytes_in(to).map_err(|error| Failure::file("list", to, error))?;
    if args.json {
        let object = json!({ "path": to.display().to_string(), "tables": tables, "bytes": bytes });
        json::print(&object, out)?;
        return Ok(Answer::Yes);
    }
    let (dir, to) = (quoted(dir), quoted(to));
    writeln!(
        out,
        "{}, {}, in {to}\n\
         On the same disk these are the files of {dir}: copy {to} to another one.\n\
         To check it:   criba verify {to}\n\
         To restore it: close {dir} in every program, and run\n\
         mv {dir} {dir}.old && cp -r {to} {dir} && criba verify {dir}",
        counted(tables, "table"),
        counted(bytes, "byte"),
    )?;
    Ok(Answer::Yes)
}

fn bytes_in(dir: &Path) -> std::io::Result<u64> {
    fs::read_dir(dir)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
}
