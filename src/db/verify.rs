//! Verifying a store that is not open: everything is read and held against everything else, and
//! nothing is changed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::batch::for_each_change;
use crate::error::{Error, IoContext, Result};
use crate::filter::HashKey;
use crate::names::{FileName, too_far_ahead};
use crate::sstable::{Checked, FilterMeta, Table, TableEnv, TableMeta};
use crate::version::{Manifest, TableSet, read_current};
use crate::vfs::{FileLock, RealVfs, Vfs};
use crate::wal::{LostTail, replay};

/// Something that [`verify`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The file or directory concerned.
    pub path: PathBuf,
    /// Where in the file, in bytes from its start, if that can be said.
    pub offset: Option<u64>,
    /// What it is.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        if let Some(offset) = self.offset {
            write!(f, "offset {offset}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// What [`verify`] came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Verification {
    /// What is wrong. A sound store has nothing here.
    pub findings: Vec<Finding>,
    /// What is worth knowing, and wrong with nothing: files that nothing refers to, writes that a
    /// crash cut short.
    pub notes: Vec<Finding>,
    /// Tables that the manifest names, or, without one, that are there.
    pub tables: u64,
    /// Data blocks read, in all tables.
    pub blocks: u64,
    /// Changes held by the tables, tombstones included.
    pub entries: u64,
    /// Distinct user keys of each table, added up.
    pub keys: u64,
    /// Filters that were sound, and asked for every key of their tables, and its prefix.
    pub filters: u64,
    /// Keys that were asked of a filter.
    pub asked_keys: u64,
    /// Keys that a table holds and its filter denies: lookups miss them. There is no worse finding.
    pub denied_keys: u64,
    /// Distinct prefixes of keys that were asked of the filters that have prefixes
    /// ([`Options::prefix`](crate::Options::prefix)).
    pub asked_prefixes: u64,
    /// Prefixes of keys that a table holds and its filter denies: scans miss those keys.
    pub denied_prefixes: u64,
    /// Write-ahead logs read.
    pub logs: u64,
    /// Changes in these that are in no table yet.
    pub changes: u64,
}

impl Verification {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    fn find(&mut self, dir: &Path, error: Error) {
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
        self.findings.push(Finding { path, offset, what });
    }

    fn note(&mut self, path: PathBuf, offset: Option<u64>, what: impl Into<String>) {
        self.notes.push(Finding { path, offset, what: what.into() });
    }

    fn note_lost(&mut self, lost: LostTail) {
        let LostTail { path, offset, bytes, found } = lost;
        let what = format!("a crash cut short what was not synced, {bytes} bytes: {found}");
        self.note(path, Some(offset), what);
    }

    fn count(&mut self, checked: Checked) {
        let Checked { blocks, entries, keys, of_keys, of_prefixes } = checked;
        self.blocks += blocks;
        self.entries += entries;
        self.keys += keys;
        self.filters += u64::from(of_keys.asked > 0);
        self.asked_keys += of_keys.asked;
        self.denied_keys += of_keys.denied;
        self.asked_prefixes += of_prefixes.asked;
        self.denied_prefixes += of_prefixes.denied;
    }
}

/// Verifies a store that is not open, and changes nothing: every checksum; every key, and every
/// key's prefix where filters have prefixes, against its table's filter; every table against the
/// manifest, its index, its properties and its neighbours; the logs. Goes on after what it finds, and
/// reports all of it.
///
/// Cost: every file is read once, a block at a time, with one table's index and filter in memory.
///
/// # Errors
/// [`Error::NotAStore`]; [`Error::Locked`] (no lock file is made where there is none); [`Error::Io`] if
/// the directory cannot be listed. Whatever is wrong with a file is no error but a finding.
pub fn verify(dir: impl AsRef<Path>) -> Result<Verification> {
    verify_with(dir, &(Arc::new(RealVfs) as Arc<dyn Vfs>), |_, _| {})
}

/// As [`verify`], through any file layer, and tells before each table, and at the end, how many bytes
/// of tables were verified and how many are left.
///
/// # Errors
/// As [`verify`].
pub fn verify_with(
    dir: impl AsRef<Path>,
    vfs: &Arc<dyn Vfs>,
    mut progress: impl FnMut(u64, u64),
) -> Result<Verification> {
    let dir = dir.as_ref();
    let names = list(vfs.as_ref(), dir)?;
    let _lock = lock(vfs.as_ref(), dir, &names)?;
    let mut found = Verification::default();
    for (name, ours) in &names {
        if ours.is_none() {
            found.note(dir.join(name), None, "not a file of the store");
        }
    }
    let ours: Vec<FileName> = names.into_iter().filter_map(|(_, ours)| ours).collect();
    match read_manifest(vfs.as_ref(), dir, &mut found) {
        Ok((number, store, secret, set)) => {
            let env = TableEnv::alone(vfs, dir, store, secret);
            if let Some((name, limit)) = too_far_ahead(ours.iter().copied(), set.next_file) {
                let expected = format!("a number up to {limit}");
                found.find(dir, Error::corrupt(&name.path(dir), 0, expected, "a greater one"));
            }
            let tables: Vec<TableMeta> =
                set.tables.values().map(|(_, meta)| meta.clone()).collect();
            verify_tables(&env, &tables, &mut found, &mut progress);
            verify_logs(&env, &set, &ours, &mut found);
            note_unreferenced(&env, &set, number, &ours, &mut found);
        }
        Err(error) => {
            found.find(dir, error);
            verify_alone(vfs, dir, &ours, &mut found, &mut progress);
        }
    }
    Ok(found)
}

type Named = (std::ffi::OsString, Option<FileName>);

/// The names in a directory that holds a store, or what is left of one, in order.
fn list(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<Named>> {
    let refuse = |found: &str| Error::NotAStore { path: dir.to_owned(), found: found.into() };
    let mut names = match vfs.list(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(refuse("nothing")),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => return Err(refuse("a file")),
        other => other.context("list", dir)?,
    };
    names.sort();
    let named = names.into_iter().map(|name| {
        let ours = name.to_str().and_then(FileName::parse);
        (name, ours)
    });
    let named: Vec<Named> = named.collect();
    let of_a_store = |name: &FileName| matches!(name, FileName::Table(_) | FileName::Current);
    if named.iter().any(|(_, ours)| ours.as_ref().is_some_and(of_a_store)) {
        Ok(named)
    } else {
        Err(refuse("neither CURRENT nor a table"))
    }
}

/// Takes the store's lock. Opening the store made the file; it is not made here.
fn lock(vfs: &dyn Vfs, dir: &Path, names: &[Named]) -> Result<Option<Box<dyn FileLock>>> {
    if !names.iter().any(|(_, ours)| *ours == Some(FileName::Lock)) {
        return Ok(None);
    }
    let path = FileName::Lock.path(dir);
    match vfs.lock(&path) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(Error::Locked { path }),
        other => other.context("lock", &path).map(Some),
    }
}

/// The manifest in force: its number, the store's id and hash key, and the set of tables.
fn read_manifest(
    vfs: &dyn Vfs,
    dir: &Path,
    found: &mut Verification,
) -> Result<(u64, u64, HashKey, TableSet)> {
    let number = read_current(vfs, dir)?.ok_or_else(|| {
        let path = FileName::Current.path(dir);
        Error::Missing { path, named_by: "the presence of tables".into() }
    })?;
    let (set, store, lost) = Manifest::read(vfs, dir, number)?;
    if let Some(lost) = lost {
        found.note_lost(lost);
    }
    let secret = set.hash_key.ok_or_else(|| {
        let path = FileName::Manifest(number).path(dir);
        Error::corrupt(&path, 0, "the key of the store's hash", "none")
    })?;
    Ok((number, store, secret, set))
}

fn verify_tables(
    env: &Arc<TableEnv>,
    tables: &[TableMeta],
    found: &mut Verification,
    progress: &mut dyn FnMut(u64, u64),
) {
    // As the manifest has them, not yet compared with the files.
    let sizes = tables.iter().map(|meta| meta.size);
    let (mut done, mut left) = (0_u64, sizes.fold(0_u64, u64::saturating_add));
    for meta in tables {
        progress(done, left);
        found.tables += 1;
        match Table::open(env, meta.clone()) {
            Ok(open) => {
                let checked = open.check(&mut |error| found.find(&env.dir, error));
                found.count(checked);
            }
            Err(error) => found.find(&env.dir, error),
        }
        done = done.saturating_add(meta.size);
        left = left.saturating_sub(meta.size);
    }
    progress(done, left);
}

/// Reads the logs as an opening would.
fn verify_logs(env: &TableEnv, set: &TableSet, ours: &[FileName], found: &mut Verification) {
    let mut logs: Vec<u64> = ours
        .iter()
        .filter_map(|name| if let FileName::Log(number) = name { Some(*number) } else { None })
        .filter(|&number| number >= set.log)
        .collect();
    logs.sort_unstable();
    found.logs = logs.len() as u64;
    let first_seq = set.flushed_seq + 1;
    let replayed = replay(
        env.vfs.as_ref(),
        &env.dir,
        env.store,
        &logs,
        set.log,
        first_seq,
        |path, offset, seq, payload| {
            let changes = for_each_change(payload, seq, |_| {});
            let changes =
                changes.ok_or_else(|| Error::corrupt(path, offset, "a batch", "something else"))?;
            found.changes += changes;
            Ok(changes)
        },
    );
    match replayed {
        Ok(replayed) => {
            if let Some(lost) = replayed.lost {
                found.note_lost(lost);
            }
        }
        Err(error) => found.find(&env.dir, error),
    }
}

fn note_unreferenced(
    env: &TableEnv,
    set: &TableSet,
    manifest: u64,
    ours: &[FileName],
    found: &mut Verification,
) {
    for &name in ours {
        if !set.refers_to(name, manifest) {
            let what = "nothing refers to it; the next opening removes it";
            found.note(name.path(&env.dir), None, what);
        }
    }
}

/// Verifies the tables of a store without a manifest, each by its own word.
fn verify_alone(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    ours: &[FileName],
    found: &mut Verification,
    progress: &mut dyn FnMut(u64, u64),
) {
    found.note(dir.to_owned(), None, "without the manifest, no filter was asked for keys");
    for name in ours {
        let FileName::Table(id) = *name else { continue };
        let env = TableEnv::alone(vfs, dir, 0, HashKey::new([0; HashKey::BYTES]));
        match Table::meta_of_file(&env, id) {
            Ok((meta, store)) => {
                // A filter that cannot be asked is not looked for.
                let filter = FilterMeta { generation: 1, ..FilterMeta::default() };
                let meta = TableMeta { id, filter, ..meta };
                let env = TableEnv::alone(vfs, dir, store, env.secret);
                verify_tables(&env, &[meta], found, progress);
            }
            Err(error) => {
                found.tables += 1;
                found.find(dir, error);
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

    /// Gives the one table of a store a filter that lies: sound in every respect, checksum and manifest
    /// included, but made without one of its hashes. Nothing but asking it for that can tell. Returns
    /// the filter's file.
    fn install_lie(db: &Db, kind: FilterKind, left_out: usize) -> Result<String> {
        let inner = db.inner()?;
        let table = Arc::clone(&inner.views.load().version.level(0)[0].table);
        let recipe = FilterPolicy::bits_per_key(20.0).with_kind(kind).recipe().expect("one");
        let mut hashes = table.key_hashes(&recipe, inner.options.prefix, &|| false)?;
        let right = hashes.replace(left_out, 7); // their number stays right
        let meta = table.write_filter(&recipe, &hashes, 0)?;
        let filter = Arc::new(table.load_filter(meta));
        let lying = OpenTable { table: Arc::clone(&table), filter: Arc::clone(&filter) };
        hashes.replace(left_out, right);
        match lying.prove(&hashes) {
            Err(Error::FilterLies { key, .. }) => assert_eq!(key, left_out as u64),
            other => panic!("never to be installed: {other:?}"),
        }
        drop(lying);
        assert!(inner.install_filter(table.id(), &filter)?);
        Ok(meta.file_of(table.id()).expect("a file").to_string())
    }

    #[test]
    fn a_key_left_out_of_a_filter_is_found() -> Result<()> {
        for kind in FilterKind::ALL {
            let dir = tempfile::tempdir().expect("a directory");
            let db = Options::new().background_threads(0).open(dir.path())?;
            for number in 0..500 {
                db.put(format!("key {number:03}"), "value")?;
            }
            db.flush()?;
            let name = install_lie(&db, kind, 123)?;
            assert_eq!(db.get("key 123")?, None, "this is what it would do");
            db.close()?;

            let found = verify(dir.path())?;
            assert_eq!((found.asked_keys, found.denied_keys), (500, 1));
            assert_eq!((found.asked_prefixes, found.denied_prefixes), (0, 0));
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
        for kind in FilterKind::ALL {
            let dir = tempfile::tempdir().expect("a directory");
            let options = Options::new().background_threads(0).prefix(PrefixExtractor::until(b'/'));
            let db = options.clone().open(dir.path())?;
            for number in 0..500 {
                db.put(format!("row {:03}/{}", number / 5, number % 5), "value")?;
            }
            db.put("no row", "value")?; // has no prefix, and is asked for as a key alone
            db.flush()?;
            let name = install_lie(&db, kind, 501 + 57)?;
            assert_eq!(db.prefix("row 057/")?.count(), 0, "this is what it would do");
            assert!(db.get("row 057/0")?.is_some());
            db.close()?;

            let found = verify(dir.path())?;
            assert_eq!((found.asked_keys, found.denied_keys), (501, 0));
            assert_eq!((found.asked_prefixes, found.denied_prefixes), (100, 1));
            let [finding] = &found.findings[..] else { panic!("{found:?}") };
            assert!(finding.path.ends_with(name), "{finding}");
            assert!(finding.what.contains("denies 1 of 100 prefixes"), "{finding}");
            assert!(finding.what.contains("row 057/"), "{finding}");

            let db = options.open(dir.path())?;
            db.rebuild_filters(&FilterPolicy::default())?;
            assert_eq!(db.prefix("row 057/")?.count(), 5);
            db.close()?;
            let found = verify(dir.path())?;
            assert!(found.is_sound() && found.asked_prefixes == 100, "{found:?}");
        }
        Ok(())
    }
}
