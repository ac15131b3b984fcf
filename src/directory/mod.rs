//! The directory of a store: its files, its lock, and the log records in it.

mod lock_holder;
pub(crate) mod staged;

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use self::lock_holder::holder_of;
use crate::error::{Error, IoContext, Result};
use crate::key::Seq;
use crate::names::{FileName, MAX_FOUND_NUMBER, Origin};
use crate::sstable::{Table, TableEnv, is_under_another_key};
use crate::store_dir::StoreDir;
use crate::vfs::{FileLock, Vfs};
use crate::wal::{LogKind, LogReader, Logs};

/// A file number may be ahead of the manifest's counter by this much. So a stray file cannot exhaust the
/// counter.
const MAX_AHEAD: u64 = 1 << 40;
/// How often an opening begins again.
const ATTEMPTS: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) ours: Vec<FileName>,
    pub(crate) foreign: Vec<OsString>,
}

impl Listing {
    pub(crate) fn read(dir: &StoreDir) -> Result<Self> {
        let mut names = dir.list()?;
        names.sort_unstable();
        let mut listing = Self::default();
        for name in names {
            match name.to_str().and_then(FileName::parse) {
                Some(ours) => listing.ours.push(ours),
                None => listing.foreign.push(name),
            }
        }
        Ok(listing)
    }

    /// Refuses files with numbers that the store cannot have given yet.
    pub(crate) fn check_numbers(&self, dir: &StoreDir, next_file: u64) -> Result<()> {
        let limit = next_file.saturating_add(MAX_AHEAD).min(MAX_FOUND_NUMBER);
        match self.ours.iter().find(|name| name.number() > Some(limit)) {
            None => Ok(()),
            Some(name) => {
                let expected = format!("a number up to {limit}");
                Err(Error::corrupt(&dir.path_of(*name), 0, expected, "a greater one"))
            }
        }
    }

    pub(crate) fn logs_from(&self, first: u64) -> Vec<u64> {
        self.numbers(|name| match name {
            FileName::Log(number) => Some(number).filter(|&number| number >= first),
            _ => None,
        })
    }

    /// The logs for a replay.
    pub(crate) fn logs<'a>(&self, env: &'a TableEnv, first: u64, first_seq: Seq) -> Logs<'a> {
        let (dir, store, hash_key) = (&env.dir, env.store, &env.hash_key);
        Logs { dir, store, hash_key, numbers: self.logs_from(first), first, first_seq }
    }

    pub(crate) fn manifests(&self) -> Vec<u64> {
        self.numbers(|name| if let FileName::Manifest(number) = name { Some(number) } else { None })
    }

    /// Some of the files' numbers, ascending.
    fn numbers(&self, of: impl Fn(FileName) -> Option<u64>) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.ours.iter().copied().filter_map(of).collect();
        numbers.sort_unstable();
        numbers
    }
}

/// The bytes of all files of a store. A file that is removed meanwhile has none.
pub(crate) fn disk_bytes(dir: &StoreDir) -> Result<u64> {
    let mut bytes = 0;
    for name in Listing::read(dir)?.ours {
        match dir.open_file(name).and_then(|file| file.length()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            length => bytes += length.context("find the length", &dir.path_of(name))?,
        }
    }
    Ok(bytes)
}

pub(crate) fn not_a_store(dir: &Path, found: impl Into<String>) -> Error {
    Error::NotAStore { path: dir.to_owned(), found: found.into() }
}

type Lock = Arc<dyn FileLock>;
type Take = fn(&StoreDir) -> io::Result<Box<dyn FileLock>>;

/// Opens and locks a directory. Begins again if another process replaces the directory or its lock file
/// before the lock is taken: a lock of a file without a name excludes no later opening.
pub(crate) fn open_locked(
    open: impl Fn() -> Result<StoreDir>,
    take: Take,
) -> Result<(StoreDir, Lock)> {
    for _ in 0..ATTEMPTS {
        let dir = open()?;
        if let Some(lock) = lock(&dir, take)? {
            return Ok((dir, lock));
        }
    }
    let dir = open()?;
    let error = io::Error::other("another process replaces it again and again");
    Err(error).context("lock", &dir.path_of(FileName::Lock))
}

/// Waits for nothing. `None` if the directory or the lock file was replaced meanwhile.
fn lock(dir: &StoreDir, take: Take) -> Result<Option<Lock>> {
    let path = dir.path_of(FileName::Lock);
    let lock = match take(dir) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            let (pid, name) = holder_of(dir).unzip();
            return Err(Error::Locked { path, pid, name: name.unwrap_or_default() });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        taken => taken.context("lock", &path)?,
    };
    let locked = lock.identity().context("identify", &path)?;
    let named = match dir.identity_of(FileName::Lock) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        named => named.context("identify", &path)?,
    };
    let moved = dir.is_elsewhere().context("open", dir.path())?;
    Ok((named.is_same(&locked) && !moved).then(|| Arc::from(lock)))
}

/// Opens a store that no process has open to write, so that its files do not change. Refuses a directory whose
/// files are not as `check` wants them. The lock file exists if the store was ever opened.
pub(crate) fn open_to_read(
    vfs: &Arc<dyn Vfs>,
    path: &Path,
    check: impl Fn(&Listing) -> std::result::Result<(), &'static str>,
) -> Result<(StoreDir, Listing, Option<Lock>)> {
    let open = || {
        let dir = StoreDir::open(vfs, path, 0)?; // no file is made
        dir.ok_or_else(|| not_a_store(path, "nothing"))
    };
    let dir = open()?;
    let listing = Listing::read(&dir)?;
    check(&listing).map_err(|found| not_a_store(path, found))?;
    if !listing.ours.contains(&FileName::Lock) {
        return Ok((dir, listing, None));
    }
    let (dir, lock) = open_locked(open, StoreDir::lock_shared)?;
    let listing = Listing::read(&dir)?;
    Ok((dir, listing, Some(lock)))
}

/// What a file soundly says that it is.
///
/// # Errors
/// [`Error::Io`]: the file cannot be read now.
pub(crate) fn origin(env: &TableEnv, name: FileName) -> Result<Option<Origin>> {
    let log = |kind, number| LogReader::open(&env.dir, kind, number, None)?.origin();
    let origin = match name {
        FileName::Log(number) => log(LogKind::Wal, number),
        FileName::Manifest(number) => log(LogKind::Manifest, number),
        FileName::Table(id) => Table::origin(env, id),
        _ => Ok(None),
    };
    match origin {
        Err(error @ Error::Io { .. }) => Err(error),
        damaged_or_not => Ok(damaged_or_not.unwrap_or_default()),
    }
}

/// Whether a file is of another store, or under another number than it was made for. Only files that this store
/// made under their names are ever removed.
///
/// # Errors
/// [`Error::Io`]: the file cannot be read now.
pub(crate) fn is_foreign(env: &TableEnv, name: FileName) -> Result<bool> {
    if let FileName::Filter { table, generation } = name {
        return is_under_another_key(env, table, generation);
    }
    let origin = origin(env, name)?;
    Ok(origin.is_some_and(|Origin { store, number }| {
        store != env.store || Some(number) != name.number()
    }))
}
