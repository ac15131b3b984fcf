//! A directory of a store that appears whole, or not at all.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::{Listing, not_a_store, open_locked};
use crate::descriptors::with_descriptor;
use crate::error::{Error, IoContext, Result};
use crate::names::FileName;
use crate::random::{Purpose, RandomSource};
use crate::store_dir::{StoreDir, absolute};
use crate::vfs::{FileLock, Vfs};
use criba_filter::store::shown;

/// The longest name of a file.
const MAX_NAME_BYTES: usize = 255;

/// Errors of what is not the directory of an open store.
const IS_NO_STORE: [io::ErrorKind; 3] =
    [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory, io::ErrorKind::PermissionDenied];

/// The directory that is to appear.
pub(crate) struct Staged<'a> {
    /// The store whose files it gets. It must not be in its directory.
    pub(crate) source: &'a StoreDir,
    pub(crate) vfs: &'a Arc<dyn Vfs>,
    pub(crate) path: &'a Path,
    pub(crate) mode: u32,
    pub(crate) random: RandomSource,
    /// A part of the names of temporary directories.
    pub(crate) purpose: &'static str,
    /// A store that is made in it.
    pub(crate) within: Option<&'static str>,
}

/// Lets `fill` make the files of a new directory, all synced, beside its place, and renames that. `fill` gets the
/// directory and its lock. Also returns the directories that earlier attempts left, and which were removed.
pub(crate) fn make<T>(
    staged: &Staged<'_>,
    fill: impl FnOnce(&StoreDir, Arc<dyn FileLock>) -> Result<T>,
) -> Result<(T, Vec<PathBuf>)> {
    let path = &absolute(staged.path)?;
    let action = format_args!("make a {}", staged.purpose);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into()).context(action, path);
    };
    let start = start_of_temporary_names(path, name, staged.purpose)?;
    refuse_within(staged.source, staged.vfs, path)?;
    let parent = StoreDir::make(staged.vfs, parent, staged.mode)?;
    if parent.has(name)? {
        return Err(io::ErrorKind::AlreadyExists.into()).context(action, path);
    }
    let removed = remove_leftovers(&parent, &start, staged.within)?;
    let temporary = make_temporary(&parent, &start, staged.random)?;
    let locked = open_locked(|| parent.open_child(&temporary), StoreDir::lock);
    let (dir, lock) = locked.inspect_err(|_| drop(parent.remove_child(&temporary)))?;
    let made = fill(&dir, lock).and_then(|made| {
        // Another process may have moved it, and put another directory there.
        check_child(&parent, &temporary, &dir)?;
        parent.rename_child(&temporary, name)?;
        Ok(made)
    });
    if made.is_err() {
        discard(&parent, &temporary, &dir, staged.within);
    }
    let made = made?;
    // From here on it is whole, and stays, also after an error.
    check_child(&parent, name, &dir)?;
    parent.sync()?;
    Ok((made, removed))
}

/// The digits at the end of a temporary name.
const DIGITS: usize = 16;

/// The names of temporary directories begin so.
fn start_of_temporary_names(path: &Path, name: &OsStr, purpose: &str) -> Result<OsString> {
    let mut start = OsString::from(".");
    start.push(name);
    start.push(format!(".{purpose}-tmp."));
    let too_many = (start.len() + DIGITS).saturating_sub(MAX_NAME_BYTES);
    if too_many == 0 {
        return Ok(start);
    }
    let most = name.len().saturating_sub(too_many);
    let reason = format!(
        "its name of {} bytes is too long: {most} leave room for the name of a temporary directory",
        name.len()
    );
    Err(Error::InvalidPath { path: path.to_owned(), reason })
}

/// Makes a directory of a name that no other process can know before.
fn make_temporary(parent: &StoreDir, start: &OsStr, random: RandomSource) -> Result<OsString> {
    for attempt in 0.. {
        let mut name = start.to_owned();
        name.push(format!("{:016x}", random.number(Purpose::NameOfDirectory { attempt })?));
        match parent.make_child(&name) {
            // With a seed, the names are the same again.
            Err(error) if error.is_io(io::ErrorKind::AlreadyExists) && attempt < 100 => {}
            made => return made.map(|()| name),
        }
    }
    unreachable!("the last attempt returns")
}

/// Removes directories that a crash left, unless a process works in them or they have other files.
fn remove_leftovers(
    parent: &StoreDir,
    start: &OsStr,
    within: Option<&str>,
) -> Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for name in parent.list()? {
        let is_temporary = name.as_bytes().strip_prefix(start.as_bytes()).is_some_and(|digits| {
            digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit)
        });
        let has_others = |dir: StoreDir| {
            let listing = Listing::read(&dir)?;
            Ok::<_, Error>(listing.foreign.iter().any(|name| within.is_none_or(|own| name != own)))
        };
        if !is_temporary || !matches!(parent.open_child(&name).and_then(has_others), Ok(false)) {
            continue;
        }
        let Ok((dir, _lock)) = open_locked(|| parent.open_child(&name), StoreDir::lock) else {
            continue;
        };
        if discard(parent, &name, &dir, within) {
            removed.push(parent.path().join(name));
        }
    }
    Ok(removed)
}

/// Fails if a name leads to another directory than the open one.
fn check_child(parent: &StoreDir, name: &OsStr, dir: &StoreDir) -> Result<()> {
    let path = parent.path().join(name);
    let own = dir.identity().context("identify", &path)?;
    if parent.identity_of_child(name).context("identify", &path)?.is_same(&own) {
        return Ok(());
    }
    let (expected, found) = ("the directory that was made here", "another directory");
    Err(Error::Moved { path, expected: expected.into(), found: found.into() })
}

/// Removes an open directory with a store, as far as it can, and the store within, unless it has another name by
/// now. Returns whether it is gone.
fn discard(parent: &StoreDir, name: &OsStr, dir: &StoreDir, within: Option<&str>) -> bool {
    if check_child(parent, name, dir).is_err() {
        return false;
    }
    if let Some(within) = within.map(OsStr::new)
        && let Ok(inner) = dir.open_child(within)
    {
        discard(dir, within, &inner, None);
    }
    if clear(dir).is_ok() {
        let _ = dir.remove(FileName::Lock);
    }
    check_child(parent, name, dir).is_ok() && parent.remove_child(name).is_ok()
}

/// Fails if a path is in the directory of a store, also through a symbolic link.
fn refuse_within(store: &StoreDir, vfs: &Arc<dyn Vfs>, path: &Path) -> Result<()> {
    let store = store.identity().context("identify", store.path())?;
    for ancestor in resolved(path).ancestors() {
        let dir = match with_descriptor(|| vfs.open_dir(ancestor)) {
            Err(error) if IS_NO_STORE.contains(&error.kind()) => continue,
            dir => dir.context("open", ancestor)?,
        };
        if dir.identity().context("identify", ancestor)?.is_same(&store) {
            let reason = "it is in the directory of the store itself".into();
            return Err(Error::InvalidPath { path: path.to_owned(), reason });
        }
    }
    Ok(())
}

/// A full path without symbolic links, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|there| Some((there.canonicalize().ok()?, there)));
    let Some((mut full, there)) = there else { return path.to_owned() };
    for part in path.strip_prefix(there).into_iter().flat_map(Path::components) {
        match part {
            Component::ParentDir => drop(full.pop()),
            part => full.push(part),
        }
    }
    full
}

/// Removes the files of a store, except the lock file.
pub(crate) fn clear(dir: &StoreDir) -> Result<()> {
    let listing = Listing::read(dir)?;
    if let Some(foreign) = listing.foreign.first() {
        return Err(not_a_store(dir.path(), format!("another file: {}", shown(foreign))));
    }
    for name in listing.ours.into_iter().filter(|&name| name != FileName::Lock) {
        dir.remove(name)?;
    }
    Ok(())
}
