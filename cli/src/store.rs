//! Opens the store of a command.

use std::path::Path;

use criba::{
    Db, Error, FilterPolicy, Finding, LostTail, Options, ReadOnlyDb, RecoveryReport, Verification,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::failure::{Failure, Result};
use crate::policy::FilterArgs;
use crate::{print_error, text};

/// Opens an existing store without any change to it, also beside a process that has it open.
pub(crate) fn to_read(dir: &Path) -> Result<ReadOnlyDb> {
    to_read_with(dir, Options::new())
}

/// As [`to_read`], with these options.
pub(crate) fn to_read_with(dir: &Path, options: Options) -> Result<ReadOnlyDb> {
    // It keeps a file of each table open.
    let _ = raise_file_limit();
    let db = options.max_open_files(usize::MAX).open_read_only(dir).map_err(no_store)?;
    warn_of_losses(&db.recovery());
    Ok(db)
}

/// Allows this process as many open files as the system lets it have.
fn raise_file_limit() -> std::io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}

/// Opens an existing store to write, without compactions.
pub(crate) fn without_compactions(dir: &Path) -> Result<Db> {
    existing(dir, Options::new().auto_compaction(false).background_threads(0))
}

/// Opens an existing store to change it, under the policy that `filters` makes of its own.
pub(crate) fn to_change(dir: &Path, filters: &FilterArgs) -> Result<Db> {
    filters.check()?;
    let db = existing(dir, Options::new())?;
    change_policy(&db, filters)?;
    Ok(db)
}

/// As [`to_change`], but no compaction begins with the opening, under the old policy.
pub(crate) fn to_compact(dir: &Path, filters: &FilterArgs) -> Result<Db> {
    filters.check()?;
    let db = without_compactions(dir)?;
    change_policy(&db, filters)?;
    Ok(db)
}

/// As [`to_change`], but makes the store if there is none.
pub(crate) fn to_fill(dir: &Path, filters: &FilterArgs) -> Result<Db> {
    filters.check()?;
    let new = filters.change(FilterPolicy::default()).filter(|_| !dir.join("CURRENT").exists());
    // So that a wrong number makes no store.
    let options = new.map_or_else(Options::new, |policy| Options::new().filter(policy));
    let db = open(dir, options)?;
    change_policy(&db, filters)?;
    Ok(db)
}

fn change_policy(db: &Db, filters: &FilterArgs) -> Result<()> {
    match filters.change(db.policy()) {
        Some(policy) => Ok(db.set_policy(policy)?),
        None => Ok(()),
    }
}

fn existing(dir: &Path, options: Options) -> Result<Db> {
    let db = options.create_if_missing(false).open(dir).map_err(no_store)?;
    warn_of_losses(db.recovery());
    Ok(db)
}

/// As the error, and of what is no store also what makes one.
pub(crate) fn no_store(error: Error) -> Failure {
    match error {
        // The library would take an empty directory too; these commands would not.
        Error::NotAStore { path, found } => {
            let found = format!("{found}; is the name right? put and load make a store");
            Failure::unfit(&path, "a criba store", found)
        }
        other => other.into(),
    }
}

fn open(dir: &Path, options: Options) -> Result<Db> {
    let db = options.open(dir)?;
    warn_of_losses(db.recovery());
    Ok(db)
}

/// A finding of a verification, at the place where its file is now.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Found {
    path: String,
    offset: Option<u64>,
    what: String,
    #[serde(skip)]
    pub(crate) text: String,
}

/// The findings in a directory that was renamed.
pub(crate) fn findings(found: &Verification, from: &Path, to: &Path) -> Vec<Found> {
    let moved = |finding: &Finding| {
        let mut finding = finding.clone();
        if let Some(name) = finding.path.file_name().filter(|_| finding.path.starts_with(from)) {
            finding.path = to.join(name);
        }
        let path = finding.path.display().to_string();
        Found { path, offset: finding.offset, text: finding.to_string(), what: finding.what }
    };
    found.findings.iter().map(moved).collect()
}

fn warn_of_losses(recovery: &RecoveryReport) {
    for lost in recovery.lost_tail.iter().chain(&recovery.lost_edit) {
        print_error(&format!("warning: {}", lost_tail_as_text(lost)));
    }
    for kept in &recovery.kept_files {
        print_error(&format!(
            "warning: {}: a file of another store, number or version; it stays",
            kept.display()
        ));
    }
}

/// What recovery dropped and where, in a line.
pub(crate) fn lost_tail_as_text(lost: &LostTail) -> String {
    let LostTail { path, offset, found, bytes, .. } = lost;
    let (path, bytes) = (path.display(), text::counted(*bytes, "byte"));
    let place = format!("{path}: offset {offset}: expected a whole record, found {found}");
    if lost.records == 0 {
        return format!(
            "{place}; left out are {bytes} of a write that a crash cut short, or that is under way"
        );
    }
    let records = text::counted(lost.records, "whole record");
    format!(
        "{place}; left out are {bytes} with {records}, after damage or a power failure; before the next write, \
         criba repair DIR --to NEW can salvage them"
    )
}
