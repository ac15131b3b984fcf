use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criba::vfs::{RealVfs, Vfs};
use criba::{CheckpointFiles, ReadOnlyDb, Verification, verify_with};
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::layout::wrapped;
use crate::progress::{Progress, ProgressArgs};
use crate::replace::{Stage, lock, recover, refuse_within};
use crate::shell::quoted;
use crate::store::ClockArgs;
use crate::text::counted;
use crate::{Answer, json, print_error, store, verify};

/// Copy a store into a directory, or bring an earlier copy up to date, and verify the copy
///
/// A program may have the store open, and write. A copy that is there is replaced once the new one is whole: at any
/// moment one of them is there. Files that it has are not copied again. Damage is copied, too, and printed: then the
/// copy gets the name TO.damaged, the earlier one stays, and the exit code is 1. On one file system the files of both are the same, by hard links:
/// against a damaged disk, copy to another one. `criba restore TO DIR` brings it back.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The store's directory
    dir: PathBuf,
    /// The directory of the copy: new, or an earlier copy of the same store
    to: PathBuf,
    /// Make no hard links to the files of the store
    #[arg(long)]
    copy: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    progress: ProgressArgs,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<Answer> {
    let Args { dir, to, .. } = args;
    let db = store::to_read(dir, ClockArgs::ACCEPTED)?;
    let uncertain = dir.join("uncertain");
    if uncertain.join("CURRENT").exists() {
        let uncertain = uncertain.display();
        print_error(&format!("warning: {uncertain}: a store of its own, and not in this backup"));
    }
    recover(to, "backup")?;
    let earlier = earlier(dir, to, &db)?;
    // Held to the end: no program opens what is about to go.
    let _lock = earlier.then(|| lock(to)).transpose()?;
    let stage = Stage::beside(to, "backup")?;
    let new = stage.path();
    let links = !args.copy;
    let progress = Progress::over_bytes(args.progress, "copying");
    let mut found =
        copy(&db, dir, &new, CheckpointFiles { links, earlier: earlier.then_some(to) }, &progress)?;
    if earlier && !found.is_sound() {
        // The earlier copy may be damaged, and the store sound.
        fs::remove_dir_all(&new).map_err(|error| Failure::file("remove it", &new, error))?;
        found = copy(&db, dir, &new, CheckpointFiles { links, earlier: None }, &progress)?;
    }
    progress.finish_and_clear();
    let recovery = db.recovery();
    // Beside a writer the log may end with part of a record. Whole records behind it are a loss.
    let lost = recovery.lost_tail.iter().chain(&recovery.lost_edit).any(|lost| lost.records > 0);
    let is_sound = found.is_sound() && !lost;
    let bytes = bytes_in(&new).map_err(|error| Failure::file("list", &new, error))?;
    let mut target = to.components().collect::<PathBuf>();
    if !is_sound {
        let mut name = target.into_os_string();
        name.push(".damaged");
        target = name.into();
    }
    stage.put_at(&target)?;
    drop(stage);
    if args.json {
        let findings = store::findings(&found, &new, &target);
        let object = json!({
            "path": target.display().to_string(),
            "tables": found.tables,
            "bytes": bytes,
            "sound": is_sound,
            "findings": findings,
        });
        json::print(&object, out)?;
    } else {
        for finding in store::findings(&found, &new, &target) {
            writeln!(out, "{}", wrapped(&finding.text, 4))?;
        }
        let (tables, bytes) = (counted(found.tables, "table"), counted(bytes, "byte"));
        writeln!(out, "{tables}, {bytes}, in {}", quoted(&target))?;
        if is_sound {
            print_next_steps(args, &target, out)?;
        } else {
            if args.to.exists() {
                writeln!(out, "The earlier backup {} was not changed.", quoted(&args.to))?;
            }
            writeln!(out, "{}", verify::advice(dir, &found.findings))?;
        }
    }
    Ok(if is_sound { Answer::Yes } else { Answer::No })
}

/// Whether a copy of the store is there; nothing else may be.
fn earlier(dir: &Path, to: &Path, db: &ReadOnlyDb) -> Result<bool> {
    let expected = "a new name, or an earlier backup of the same store";
    refuse_within(to, dir, expected)?;
    if fs::symlink_metadata(to).is_err() {
        return Ok(false);
    }
    let own = db.store_id();
    match store::to_read(to, ClockArgs::ACCEPTED) {
        Ok(there) if there.store_id() == own => Ok(true),
        Ok(_) => Err(Failure::unfit(to, expected, "another store")),
        Err(Failure::Unfit { .. }) => Err(Failure::unfit(to, expected, "something else")),
        Err(error) => Err(error),
    }
}

/// Copies a store from `dir` into a new directory, and verifies the copy.
pub(crate) fn copy(
    db: &ReadOnlyDb,
    dir: &Path,
    new: &Path,
    files: CheckpointFiles<'_>,
    progress: &Progress,
) -> Result<Verification> {
    progress.begin("copying");
    let total = bytes_in(dir).unwrap_or(0);
    progress.watch(total, || bytes_in(new).unwrap_or(0), || db.checkpoint(new, files))?;
    progress.begin("verifying");
    let vfs: Arc<dyn Vfs> = Arc::new(RealVfs);
    Ok(verify_with(new, &vfs, |done, left| progress.at(done, left))?)
}

fn print_next_steps(args: &Args, to: &Path, out: &mut dyn Write) -> Result<()> {
    let (dir, to) = (quoted(&args.dir), quoted(to));
    if !args.copy {
        writeln!(out, "On the same disk these are the files of {dir}: --copy makes others.")?;
    }
    Ok(writeln!(
        out,
        "To check it:   criba verify {to}\nTo restore it: criba restore {to} {dir} --replace"
    )?)
}

pub(crate) fn bytes_in(dir: &Path) -> std::io::Result<u64> {
    fs::read_dir(dir)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
}
