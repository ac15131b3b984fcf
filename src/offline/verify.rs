//! Verifies a store: each block, each filter with each key, and that the files agree with each other.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::db::ReadOnlyDb;
use crate::directory::{Listing, is_foreign, open_to_read};
use crate::error::{Error, Result};
use crate::names::FileName;
use crate::recovery::read_only_state::ReadOnlyState;
use crate::sstable::{Checked, FilterMeta, Table, TableEnv, TableMeta};
use crate::store_dir::StoreDir;
use crate::version::{Manifest, TableSet, read_current};
use crate::vfs::{RealVfs, Vfs};
use crate::wal::{LostTail, replay};
use criba_filter::store::{HashKey, shown};

/// A defect or a note that [`verify`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Finding {
    /// The file or directory.
    pub path: PathBuf,
    /// The offset in the file, if known.
    pub offset: Option<u64>,
    /// What was found.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", shown(&self.path))?;
        if let Some(offset) = self.offset {
            write!(f, "offset {offset}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// A verification under way.
#[derive(Debug, Default)]
pub(crate) struct Search {
    pub(crate) found: Verification,
    /// The first file that could not be judged.
    refused: Option<Error>,
}

impl Search {
    /// Adds a defect. A file of another version is none, nor one that this process may not read.
    pub(crate) fn find(&mut self, dir: &Path, error: Error) {
        let is_unread = error.is_io(io::ErrorKind::PermissionDenied);
        if is_unread || matches!(error, Error::Unsupported { .. }) {
            self.refused.get_or_insert(error);
        } else {
            self.found.findings.push(Finding::of_error(dir, error));
        }
    }

    pub(crate) fn end(self) -> Result<Verification> {
        self.refused.map_or(Ok(self.found), Err)
    }
}

/// The result of [`verify`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Verification {
    /// Defects. A sound store has none.
    pub findings: Vec<Finding>,
    /// Harmless facts: files that nothing refers to, writes that a crash cut short, a damaged filter that another
    /// one has replaced.
    pub notes: Vec<Finding>,
    /// Tables that the manifest names. Without a sound manifest, tables in the directory.
    pub tables: u64,
    /// Data blocks read.
    pub blocks: u64,
    /// Entries of tables, tombstones included.
    pub entries: u64,
    /// The sum of the distinct user keys of each table.
    pub keys: u64,
    /// Sound filters. Each was probed with every key of its table and with the prefixes of these keys.
    pub filters: u64,
    /// Keys with which filters were probed.
    pub probed_keys: u64,
    /// Keys that the filter of their table denies: lookups miss them.
    pub denied_keys: u64,
    /// Distinct prefixes with which filters were probed ([`Options::prefix`](crate::Options::prefix)).
    pub probed_prefixes: u64,
    /// Prefixes that the filter of their table denies: scans miss the keys with these prefixes.
    pub denied_prefixes: u64,
    /// Logs read.
    pub logs: u64,
    /// Entries in logs that are not in tables yet.
    pub changes: u64,
}

/// A line for each note and defect, then what was verified, and whether it is sound.
impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        for finding in &self.findings {
            writeln!(f, "defect: {finding}")?;
        }
        let Self { tables, blocks, entries, filters, logs, changes, .. } = self;
        writeln!(
            f,
            "verified: {tables} tables with {blocks} blocks and {entries} entries, {logs} logs with \
             {changes} changes"
        )?;
        writeln!(
            f,
            "filters: {filters}, probed with {} keys and {} prefixes, {} denied",
            self.probed_keys,
            self.probed_prefixes,
            self.denied_keys + self.denied_prefixes,
        )?;
        match self.findings.len() {
            0 => f.write_str("sound"),
            defects => write!(f, "defects: {defects}"),
        }
    }
}

impl Finding {
    /// What an error says; of `dir`, if of no file.
    pub(crate) fn of_error(dir: &Path, error: Error) -> Self {
        let (path, offset, what) = match error {
            Error::Corrupt { path, offset, expected, found } => {
                (path, Some(offset), format!("expected {expected}, found {found}"))
            }
            Error::Io { action, path, source } => {
                (path, None, format!("cannot {action}: {source}"))
            }
            Error::Missing { path, named_by } => {
                (path, None, format!("expected this file, named by {named_by}, found none"))
            }
            Error::Unsupported { path, supported, found } => {
                (path, None, format!("expected {supported}, found {found}"))
            }
            other => (dir.to_owned(), None, other.to_string()),
        };
        Self { path, offset, what }
    }
}

impl Verification {
    /// Whether there are no defects.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    fn note(&mut self, path: PathBuf, offset: Option<u64>, what: impl Into<String>) {
        self.notes.push(Finding { path, offset, what: what.into() });
    }

    fn note_lost(&mut self, lost: Option<LostTail>) {
        if let Some(LostTail { path, offset, bytes, records, found }) = lost {
            let what = match records {
                0 => format!("a crash cut short what was not synced, {bytes} bytes: {found}"),
                _ => {
                    let records =
                        if records == 1 { "a record".into() } else { format!("{records} records") };
                    format!(
                        "{bytes} bytes that were not synced do not count, with the end of {records}, after damage \
                         or a power failure: {found}; before the next write, a repair can salvage what is whole"
                    )
                }
            };
            self.note(path, Some(offset), what);
        }
    }

    fn count(&mut self, dir: &Path, checked: Checked) {
        let Checked { blocks, entries, keys, of_keys, of_prefixes, unused_filter, old_filter } =
            checked;
        if let Some(error) = unused_filter {
            let Finding { path, offset, what } = Finding::of_error(dir, error);
            self.note(
                path,
                offset,
                what + "; no lookup uses it, because another filter is in its place",
            );
        }
        if let Some(error) = old_filter {
            let Finding { path, offset, what } = Finding::of_error(dir, error);
            self.note(path, offset, what);
        }
        self.blocks += blocks;
        self.entries += entries;
        self.keys += keys;
        self.filters += u64::from(of_keys.probed > 0);
        self.probed_keys += of_keys.probed;
        self.denied_keys += of_keys.denied;
        self.probed_prefixes += of_prefixes.probed;
        self.denied_prefixes += of_prefixes.denied;
    }
}

/// Verifies a store that is not open: checksums, filters (with every key and prefix), indexes, properties,
/// the manifest, the logs. Changes nothing. Continues after a defect.
///
/// Cost: reads every file once, block by block. Memory: the index and filter of one table.
///
/// # Errors
/// [`Error::NotAStore`]; [`Error::Locked`]; [`Error::Unsupported`]: a file of another version;
/// [`Error::Io`]: the directory, or a file that this process may not read. A defect of a file is no error.
pub fn verify(dir: impl AsRef<Path>) -> Result<Verification> {
    verify_with(dir, &(Arc::new(RealVfs) as Arc<dyn Vfs>), |_, _| {})
}

/// As [`verify`], with any file layer. Before each table and at the end, calls `progress` with the bytes of
/// the verified tables and the bytes of the remaining tables.
///
/// # Errors
/// As [`verify`].
pub fn verify_with(
    dir: impl AsRef<Path>,
    vfs: &Arc<dyn Vfs>,
    mut progress: impl FnMut(u64, u64),
) -> Result<Verification> {
    let of_a_store = |name: &FileName| matches!(name, FileName::Table(_) | FileName::Current);
    let (dir, listing, _lock) = open_to_read(vfs, dir.as_ref(), |listing| {
        let any = listing.ours.iter().any(of_a_store);
        if any { Ok(()) } else { Err("neither CURRENT nor a table") }
    })?;
    let (dir, path) = (&dir, dir.path());
    let mut search = Search::default();
    for name in &listing.foreign {
        search.found.note(path.join(name), None, "not a file of the store");
    }
    match read_manifest(dir, &mut search) {
        Ok((number, store, set)) => {
            let env = TableEnv::standalone(dir, store, set.hash_key);
            if let Err(error) = listing.check_numbers(dir, set.next_file) {
                search.find(path, error);
            }
            let tables: Vec<TableMeta> =
                set.tables.values().map(|(_, meta)| meta.clone()).collect();
            verify_tables(&env, &tables, &mut search, &mut progress);
            verify_logs(&env, &set, &listing, &mut search);
            for &name in listing.ours.iter().filter(|&&name| !set.refers_to(name, number)) {
                let fate = match is_foreign(&env, name) {
                    Ok(true) => "of another store, number or version; it stays",
                    _ => "the next opening removes it",
                };
                let what = format!("nothing refers to it; {fate}");
                search.found.note(dir.path_of(name), None, what);
            }
        }
        Err(error @ Error::NotAStore { .. }) => return Err(error),
        Err(error) => {
            search.find(path, error);
            verify_without_manifest(dir, &listing, &mut search, &mut progress);
        }
    }
    search.end()
}

fn read_manifest(dir: &StoreDir, search: &mut Search) -> Result<(u64, u64, TableSet)> {
    let number = read_current(dir)?.ok_or_else(|| {
        let path = dir.path_of(FileName::Current);
        Error::Missing { path, named_by: "the presence of tables".into() }
    })?;
    let (set, store, lost, wrong_rest) = Manifest::read_all(dir, number)?;
    search.found.note_lost(lost);
    if let Some(error) = wrong_rest {
        search.find(dir.path(), error);
    }
    Ok((number, store, set))
}

fn verify_tables(
    env: &Arc<TableEnv>,
    tables: &[TableMeta],
    search: &mut Search,
    progress: &mut dyn FnMut(u64, u64),
) {
    // The sizes in the manifest: those of damaged files may differ.
    let sizes = tables.iter().map(|meta| meta.size);
    let (mut done, mut left) = (0_u64, sizes.fold(0_u64, u64::saturating_add));
    for meta in tables {
        progress(done, left);
        search.found.tables += 1;
        match Table::open(env, meta.clone()) {
            Ok(open) => {
                let checked = open.check(&mut |error| search.find(env.dir.path(), error));
                search.found.count(env.dir.path(), checked);
            }
            Err(error) => search.find(env.dir.path(), error),
        }
        done = done.saturating_add(meta.size);
        left = left.saturating_sub(meta.size);
    }
    progress(done, left);
}

impl ReadOnlyDb {
    /// Verifies the tables and filters that this handle shows, as [`verify`](crate::verify) does, also beside the
    /// writer; and what the last reading of the logs found. Calls `progress` as
    /// [`verify_with`](crate::verify_with) does.
    ///
    /// Cost: reads every table once, block by block.
    ///
    /// # Errors
    /// [`Io`](crate::Error::Io): a file may not be read; [`Forked`](crate::Error::Forked).
    pub fn verify(&self, progress: impl FnMut(u64, u64)) -> Result<Verification> {
        verify_loaded(&*self.loaded()?, progress)
    }
}

/// Verifies the tables of an open store.
fn verify_loaded(
    loaded: &ReadOnlyState,
    mut progress: impl FnMut(u64, u64),
) -> Result<Verification> {
    let mut search = Search::default();
    let dir = loaded.env.dir.path();
    let report = &loaded.report;
    search.found.logs = report.logs as u64;
    search.found.changes = report.changes;
    search.found.note_lost(report.lost_tail.clone());
    search.found.note_lost(report.lost_edit.clone());
    let sizes = loaded.view.version.tables().map(|(_, live)| live.table.meta().size);
    let (mut done, mut left) = (0_u64, sizes.sum::<u64>());
    for (_, live) in loaded.view.version.tables() {
        progress(done, left);
        search.found.tables += 1;
        let checked = live.open().check(&mut |error| search.find(dir, error));
        search.found.count(dir, checked);
        done += live.table.meta().size;
        left -= live.table.meta().size;
    }
    progress(done, left);
    search.end()
}

fn verify_logs(env: &TableEnv, set: &TableSet, listing: &Listing, search: &mut Search) {
    let logs = listing.logs(env, set.log, set.flushed_seq + 1);
    search.found.logs = logs.numbers.len() as u64;
    let replayed = replay(&logs, |record| {
        let entries = record.for_each_entry(|_| {})?;
        search.found.changes += entries;
        Ok(entries)
    });
    match replayed {
        Ok(replayed) => search.found.note_lost(replayed.lost),
        Err(error) => search.find(env.dir.path(), error),
    }
}

fn verify_without_manifest(
    dir: &StoreDir,
    listing: &Listing,
    search: &mut Search,
    progress: &mut dyn FnMut(u64, u64),
) {
    search.found.note(dir.path().to_owned(), None, "without the manifest, no filter was probed");
    for name in &listing.ours {
        let FileName::Table(id) = *name else { continue };
        let env = TableEnv::standalone(dir, 0, HashKey::new([0; HashKey::BYTES]));
        match Table::meta_of_file(&env, id) {
            Ok((meta, store)) => {
                // With generation 1 the filter block is not read: without the hash key it cannot be probed.
                let filter = FilterMeta { generation: 1, ..FilterMeta::default() };
                let meta = TableMeta { id, filter, ..meta };
                let env = TableEnv::standalone(dir, store, env.hash_key);
                verify_tables(&env, &[meta], search, progress);
            }
            Err(error) => {
                search.found.tables += 1;
                search.find(dir.path(), error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::FilterPolicy;
    use crate::sstable::OpenTable;
    use crate::{Db, FilterKind, Options, PrefixExtractor};

    /// Installs a filter without one of the hashes of the store's only table. Its checksum and its record in
    /// the manifest are right; only a probe with that hash finds the error. Returns the filter's file.
    fn install_false_negative(db: &Db, kind: FilterKind, left_out: usize) -> Result<String> {
        let inner = db.inner()?;
        let table = Arc::clone(&inner.views.load().version.level(0)[0].table);
        let recipe = FilterPolicy::bits_per_key(20.0).with_kind(kind).recipe().expect("one");
        let mut hashes = table.key_hashes(&recipe, inner.filters.extractor(), &|| false)?;
        let right = hashes.replace(left_out, 7); // the number of hashes stays right
        let meta = table.write_filter(&recipe, &hashes, 0)?;
        let filter = Arc::new(table.load_filter(meta));
        let wrong = OpenTable { table: Arc::clone(&table), filter: Arc::clone(&filter) };
        hashes.replace(left_out, right);
        match wrong.verify_filter(&hashes) {
            Err(Error::FilterLies { key, .. }) => assert_eq!(key, left_out as u64),
            other => panic!("the proof passed: {other:?}"),
        }
        drop(wrong);
        assert!(inner.install_filter(table.id(), &filter)?);
        Ok(meta.file_of(table.id()).expect("a file").to_string())
    }

    #[test]
    fn a_key_left_out_of_a_filter_is_found() -> Result<()> {
        for kind in FilterPolicy::KINDS {
            let dir = crate::tempdir::tempdir();
            let db = Options::new().background_threads(0).open(dir.path())?;
            for number in 0..500 {
                db.put(format!("key {number:03}"), "value")?;
            }
            db.flush()?;
            let name = install_false_negative(&db, kind, 123)?;
            assert_eq!(db.get("key 123")?, None, "the filter has a false negative");
            db.close()?;

            let found = verify(dir.path())?;
            assert_eq!((found.probed_keys, found.denied_keys), (500, 1));
            assert_eq!((found.probed_prefixes, found.denied_prefixes), (0, 0));
            let [finding] = &found.findings[..] else { panic!("{found:?}") };
            assert!(finding.path.ends_with(name), "{finding}");
            assert!(finding.what.contains("denies 1 of 500 keys"), "{finding}");
            assert!(finding.what.contains("key 123"), "{finding}");

            let db = Options::new().strict_filters(true).open(dir.path())?;
            db.rebuild_filters(&FilterPolicy::default())?;
            assert!(db.get("key 123")?.is_some());
            db.close()?;
            assert!(verify(dir.path())?.is_sound());
        }
        Ok(())
    }

    #[test]
    fn a_prefix_left_out_of_a_filter_is_found() -> Result<()> {
        for kind in FilterPolicy::KINDS {
            let dir = crate::tempdir::tempdir();
            let options = Options::new().background_threads(0).prefix(PrefixExtractor::until(b'/'));
            let db = options.clone().open(dir.path())?;
            for number in 0..500 {
                db.put(format!("row {:03}/{}", number / 5, number % 5), "value")?;
            }
            db.put("no row", "value")?; // has no prefix, and counts as a key alone
            db.flush()?;
            let name = install_false_negative(&db, kind, 501 + 57)?;
            assert_eq!(db.prefix("row 057/").count(), 0, "the filter has a false negative");
            assert!(db.get("row 057/0")?.is_some());
            db.close()?;

            let found = verify(dir.path())?;
            assert_eq!((found.probed_keys, found.denied_keys), (501, 0));
            assert_eq!((found.probed_prefixes, found.denied_prefixes), (100, 1));
            let [finding] = &found.findings[..] else { panic!("{found:?}") };
            assert!(finding.path.ends_with(name), "{finding}");
            assert!(finding.what.contains("denies 1 of 100 prefixes"), "{finding}");
            assert!(finding.what.contains("row 057/"), "{finding}");

            let db = options.open(dir.path())?;
            db.rebuild_filters(&FilterPolicy::default())?;
            assert_eq!(db.prefix("row 057/").count(), 5);
            db.close()?;
            let found = verify(dir.path())?;
            assert!(found.is_sound() && found.probed_prefixes == 100, "{found:?}");
        }
        Ok(())
    }
}
