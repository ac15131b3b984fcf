//! Opens the store of a command.

use std::path::Path;

use criba::{Db, Error, FilterInfo, FilterPolicy, LostTail, Options, PrefixExtractor, TableFile};

use crate::failure::{Failure, Result};
use crate::{print_error, text};

/// The prefixes of the newest table's filter. The store's own program chose them, and these commands keep
/// them.
fn prefixes_of(dir: &Path) -> Option<PrefixExtractor> {
    let names = std::fs::read_dir(dir).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut tables: Vec<_> =
        names.filter(|path| path.extension().is_some_and(|ending| ending == "sst")).collect();
    // By number: the newest last, also where numbers have outgrown their six digits.
    tables.sort_unstable_by_key(|path| (path.as_os_str().len(), path.clone()));
    // A table that cannot be opened is skipped: opening the store reports its error.
    let mut filters =
        tables.iter().rev().filter_map(|path| Some(TableFile::open(path).ok()?.filter()));
    filters.find_map(|filter| match filter {
        FilterInfo::Active { extractor, .. } => Some(extractor),
        _ => None,
    })?
}

/// Opens an existing store without compactions, so that its tables stay as they are.
pub(crate) fn to_read(dir: &Path) -> Result<Db> {
    existing(dir, Options::new().auto_compaction(false).background_threads(0))
}

/// Opens an existing store to change it.
pub(crate) fn to_change(dir: &Path) -> Result<Db> {
    existing(dir, Options::new())
}

/// Opens an existing store to rebuild its filters: new tables have them too, and no compaction starts.
pub(crate) fn to_refilter(dir: &Path, policy: FilterPolicy) -> Result<Db> {
    let options = Options::new().auto_compaction(false).background_threads(0);
    existing(dir, options.filter(policy))
}

pub(crate) fn to_fill(dir: &Path) -> Result<Db> {
    open(dir, Options::new())
}

fn existing(dir: &Path, options: Options) -> Result<Db> {
    open(dir, options.create_if_missing(false)).map_err(|failure| match failure {
        // The library would take an empty directory too; these commands would not.
        Failure::Store(Error::NotAStore { path, found }) => {
            Failure::unfit(&path, "a criba store", found)
        }
        other => other,
    })
}

fn open(dir: &Path, options: Options) -> Result<Db> {
    let options = match prefixes_of(dir) {
        Some(extractor) => options.prefix(extractor),
        None => options,
    };
    let db = options.open(dir)?;
    let recovery = db.recovery();
    for lost in recovery.lost_tail.iter().chain(&recovery.lost_edit) {
        print_error(&format!("warning: {}", lost_tail_as_text(lost)));
    }
    Ok(db)
}

/// What recovery dropped and where, in a line.
pub(crate) fn lost_tail_as_text(lost: &LostTail) -> String {
    format!(
        "{}: offset {}: expected a whole record, found {}; recovery dropped {} that a crash left \
         unsynced",
        lost.path.display(),
        lost.offset,
        lost.found,
        text::counted(lost.bytes, "byte"),
    )
}
