//! A directory of a store that appears whole, or not at all.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::directory::{Listing, not_a_store, open_locked};
use crate::descriptors::with_descriptor;
use crate::error::{Error, IoContext, Result};
use crate::names::FileName;
use crate::store_dir::{StoreDir, absolute};
use crate::vfs::{FileLock, Vfs};

/// The longest name of a file.
const MAX_NAME_BYTES: usize = 255;

/// Errors of what is not the directory of an open store.
const IS_NO_STORE: [io::ErrorKind; 3] =
    [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory, io::ErrorKind::PermissionDenied];

/// Lets `fill` make the files of `path`, all synced, in a directory beside it, and renames that. `fill` gets the
/// directory, which may have files of an earlier attempt, and its lock. `purpose` is part of its name; `within`
/// is a store that `fill` may make in it. The files are those of `source`, in which `path` must not be.
pub(super) fn make<T>(
    source: &StoreDir,
    vfs: &Arc<dyn Vfs>,
    path: &Path,
    mode: u32,
    purpose: &str,
    within: Option<&str>,
    fill: impl FnOnce(&StoreDir, Arc<dyn FileLock>) -> Result<T>,
) -> Result<T> {
    let path = &absolute(path)?;
    let action = format_args!("make a {purpose}");
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into()).context(action, path);
    };
    let temporary = temporary_name(path, name, purpose)?;
    refuse_within(source, vfs, path)?;
    let parent = StoreDir::make(vfs, parent, mode)?;
    if parent.has(name)? {
        return Err(io::ErrorKind::AlreadyExists.into()).context(action, path);
    }
    let is_new = match parent.make_child(&temporary) {
        Err(error) if error.is_io(io::ErrorKind::AlreadyExists) => false,
        made => made.map(|()| true)?,
    };
    let opened = open_locked(|| parent.open_child(&temporary), StoreDir::lock);
    let (dir, lock) = opened.inspect_err(|error| {
        // Another process may have locked it meanwhile.
        if is_new && !matches!(error, Error::Locked { .. }) {
            discard(&parent, &temporary);
        }
    })?;
    let made = fill(&dir, lock).and_then(|made| {
        parent.rename_child(&temporary, name)?;
        Ok(made)
    });
    if made.is_err() {
        // The next attempt removes what cannot be removed now.
        if let Some(store) = within {
            discard(&dir, OsStr::new(store));
        }
        discard(&parent, &temporary);
    }
    let made = made?;
    parent.sync()?;
    Ok(made)
}

fn temporary_name(path: &Path, name: &OsStr, purpose: &str) -> Result<OsString> {
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{purpose}-tmp"));
    let too_many = temporary.len().saturating_sub(MAX_NAME_BYTES);
    if too_many == 0 {
        return Ok(temporary);
    }
    let most = name.len().saturating_sub(too_many);
    let reason = format!(
        "its name of {} bytes is too long: {most} leave room for the name of a temporary directory",
        name.len()
    );
    Err(Error::InvalidPath { path: path.to_owned(), reason })
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

/// Removes a directory with a store, as far as it can.
pub(super) fn discard(parent: &StoreDir, name: &OsStr) {
    if let Ok(dir) = parent.open_child(name) {
        let _ = clear(&dir);
        let _ = dir.remove(FileName::Lock);
    }
    let _ = parent.remove_child(name);
}

/// Removes the files of a store, except the lock file.
pub(super) fn clear(dir: &StoreDir) -> Result<()> {
    let listing = Listing::read(dir)?;
    if let Some(foreign) = listing.foreign.first() {
        return Err(not_a_store(dir.path(), format!("something else: {}", foreign.display())));
    }
    for name in listing.ours.into_iter().filter(|&name| name != FileName::Lock) {
        dir.remove(name)?;
    }
    Ok(())
}
