//! Opens the store of a command.

use std::path::Path;

use criba::{
    Db, Error, FilterPolicy, Finding, LostTail, Options, ReadOnlyDb, RecoveryReport, Verification,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::compression::SettingArgs;
use crate::failure::{Failure, Result};
use crate::policy::FilterArgs;
use crate::shell::quoted;
use crate::{print_error, text};

/// The option for a clock that was set back.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct ClockArgs {
    /// Open the store also if the clock is more than an hour behind the time of its last use: the clock is right
    #[arg(long)]
    accept_clock: bool,
}

impl ClockArgs {
    /// Of a command whose result does not depend on the time.
    pub(crate) const ACCEPTED: Self = Self { accept_clock: true };

    fn options(self) -> Options {
        Options::new().accept_clock(self.accept_clock)
    }
}

/// Opens an existing store without any change to it, also beside a process that has it open.
pub(crate) fn to_read(dir: &Path, clock: ClockArgs) -> Result<ReadOnlyDb> {
    to_read_within(dir, clock, None)
}

/// As [`to_read`], with a budget for filters in memory.
pub(crate) fn to_read_within(
    dir: &Path,
    clock: ClockArgs,
    filter_memory: Option<u64>,
) -> Result<ReadOnlyDb> {
    let mut options = clock.options();
    if let Some(bytes) = filter_memory {
        options = options.filter_memory(bytes);
    }
    // It keeps a file of each table open.
    let _ = raise_file_limit();
    let db = options.max_open_files(usize::MAX).open_read_only(dir).map_err(no_store)?;
    warn_of_losses(&db.recovery(), Some(dir));
    Ok(db)
}

/// Allows this process as many open files as the system lets it have.
fn raise_file_limit() -> std::io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}

/// Opens an existing store to write, without compactions.
pub(crate) fn without_compactions(dir: &Path, clock: ClockArgs) -> Result<Db> {
    existing(dir, clock.options().auto_compaction(false).background_threads(0))
}

/// Opens an existing store to change it, under what `settings` makes of its own.
pub(crate) fn to_change(dir: &Path, settings: &SettingArgs, clock: ClockArgs) -> Result<Db> {
    settings.filters.check()?;
    let db = existing(dir, settings.applied_to(clock.options()))?;
    change_policy(&db, &settings.filters)?;
    Ok(db)
}

/// As [`to_change`], but no compaction begins with the opening, under the old policy.
pub(crate) fn to_compact(dir: &Path, settings: &SettingArgs, clock: ClockArgs) -> Result<Db> {
    settings.filters.check()?;
    let options = clock.options().auto_compaction(false).background_threads(0);
    let db = existing(dir, settings.applied_to(options))?;
    change_policy(&db, &settings.filters)?;
    Ok(db)
}

/// As [`to_change`], but makes the store if there is none.
pub(crate) fn to_fill(dir: &Path, settings: &SettingArgs, clock: ClockArgs) -> Result<Db> {
    let filters = &settings.filters;
    filters.check()?;
    let new = filters.change(FilterPolicy::default()).filter(|_| !dir.join("CURRENT").exists());
    // So that a wrong number makes no store.
    let options = new.map_or_else(|| clock.options(), |policy| clock.options().filter(policy));
    let db = open(dir, settings.applied_to(options))?;
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
    warn_of_losses(db.recovery(), None);
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
    warn_of_losses(db.recovery(), None);
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

fn warn_of_losses(recovery: &RecoveryReport, only_read: Option<&Path>) {
    for lost in recovery.lost_tail.iter().chain(&recovery.lost_edit) {
        print_error(&format!("warning: {}", lost_tail_as_text(lost, only_read)));
    }
    for kept in &recovery.kept_files {
        print_error(&format!(
            "warning: {}: a file of another store, number or version; it stays",
            kept.display()
        ));
    }
}

/// What recovery dropped and where, in a line. `dir`: the store, if it was only read, so that a repair finds all of it.
pub(crate) fn lost_tail_as_text(lost: &LostTail, dir: Option<&Path>) -> String {
    let LostTail { path, offset, found, bytes, .. } = lost;
    let (path, bytes) = (path.display(), text::counted(*bytes, "byte"));
    let place = format!("{path}: offset {offset}: expected a whole record, found {found}");
    if lost.records == 0 {
        return format!(
            "{place}; left out are {bytes} of a write that a crash cut short, or that is under way"
        );
    }
    let records =
        if lost.records == 1 { "a record".into() } else { format!("{} records", lost.records) };
    let repair = dir.map_or(String::new(), |dir| {
        format!(
            "; before the next write, criba repair {} --to NEW can salvage what is whole",
            quoted(dir)
        )
    });
    format!(
        "{place}; left out are {bytes} with the end of {records}, after damage or a power failure{repair}"
    )
}
