use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use criba::CheckpointFiles;
use serde_json::json;

use crate::backup::{bytes_in, copy};
use crate::failure::{Failure, Result};
use crate::layout::wrapped;
use crate::progress::{Progress, ProgressArgs};
use crate::replace::{Stage, lock, recover, refuse_within};
use crate::shell::quoted;
use crate::store::ClockArgs;
use crate::text::counted;
use crate::{Answer, json, store};

/// Copy a backup back to where its store was
///
/// Copies every file, makes no hard links, and verifies the copy. The store that is there, if --replace is given,
/// is replaced once the copy is whole; a damaged copy replaces none, and the exit code is 1.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The backup's directory
    backup: PathBuf,
    /// The store's directory: missing, empty, or, with --replace, a store
    dir: PathBuf,
    /// Replace the store that is there. No program may have it open
    #[arg(long)]
    replace: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    progress: ProgressArgs,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let Args { backup, dir, .. } = args;
    recover(backup, "backup")?;
    let db = store::to_read(backup, ClockArgs::ACCEPTED)?;
    refuse_within(dir, backup, "a place outside the backup")?;
    recover(dir, "restore")?;
    let is_empty = is_empty(dir)?;
    if !is_empty && !args.replace {
        let found = "a file or directory; --replace replaces a store";
        return Err(Failure::unfit(dir, "no directory, or an empty one", found));
    }
    // Held to the end: no program opens what is about to go.
    let _lock = if is_empty { None } else { Some(lock(dir)?) };
    let stage = Stage::beside(dir, "restore")?;
    let new = stage.path();
    let progress = Progress::over_bytes(args.progress, "copying");
    let found = copy(&db, backup, &new, CheckpointFiles::default(), &progress)?;
    progress.finish_and_clear();
    let findings = store::findings(&found, &new, backup);
    let replaces = is_empty || found.is_sound();
    if replaces {
        stage.put_at(dir)?;
    }
    let bytes = if replaces { bytes_in(dir) } else { Ok(0) };
    let bytes = bytes.map_err(|error| Failure::file("list", dir, error))?;
    drop(stage);
    if args.json {
        let object = json!({
            "path": dir.display().to_string(),
            "tables": found.tables,
            "bytes": bytes,
            "restored": replaces,
            "sound": found.is_sound(),
            "findings": findings,
        });
        json::print(&object, out)?;
        return Ok(if found.is_sound() { Answer::Yes } else { Answer::No });
    }
    for finding in &findings {
        writeln!(out, "{}", wrapped(&finding.text, 4))?;
    }
    let (from, to) = (quoted(backup), quoted(dir));
    if replaces {
        let (tables, bytes) = (counted(found.tables, "table"), counted(bytes, "byte"));
        writeln!(out, "{tables}, {bytes}, in {to}")?;
    } else {
        writeln!(out, "{from} is damaged, and {to} stays as it is.")?;
    }
    if found.is_sound() {
        return Ok(Answer::Yes);
    }
    writeln!(out, "criba repair {from} --to NEW salvages what is sound into a new store")?;
    Ok(Answer::No)
}

/// Whether nothing is lost if a directory goes.
fn is_empty(dir: &Path) -> Result<bool> {
    match fs::read_dir(dir) {
        Ok(mut names) => Ok(names.next().is_none()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(fs::symlink_metadata(dir).is_err()),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(false),
        Err(error) => Err(Failure::file("list", dir, error)),
    }
}
