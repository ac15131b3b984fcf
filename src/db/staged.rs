//! A directory of a store that appears whole, or not at all.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::directory::{Listing, lock, not_a_store};
use crate::error::{IoContext, Result};
use crate::names::FileName;
use crate::vfs::{FileKind, FileLock, Vfs};

/// Lets `fill` make the files of `path`, all synced, in a directory beside it, and renames that. `fill` gets the
/// directory, which may have files of an earlier attempt, and its lock. `purpose` is part of its name; `within`
/// is a store that `fill` may make in it.
pub(super) fn make<T>(
    vfs: &dyn Vfs,
    path: &Path,
    purpose: &str,
    within: Option<&str>,
    fill: impl FnOnce(&Path, Arc<dyn FileLock>) -> Result<T>,
) -> Result<T> {
    let action = format_args!("make a {purpose}");
    let Some(name) = path.file_name() else {
        return Err(io::ErrorKind::InvalidInput.into()).context(action, path);
    };
    match vfs.list(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if error.kind() != io::ErrorKind::NotADirectory => {
            return Err(error).context("list", path);
        }
        _ => return Err(io::ErrorKind::AlreadyExists.into()).context(action, path),
    }
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let dir = parent.join(format!(".{}.{purpose}-tmp", name.display()));
    vfs.create_dir(&dir).context("create", &dir)?;
    let lock = lock(vfs, &dir).inspect_err(|_| {
        let _ = vfs.remove(&dir, FileKind::Directory); // fails unless it is empty
    })?;
    let discard_all = || {
        if let Some(store) = within {
            discard(vfs, &dir.join(store));
        }
        discard(vfs, &dir);
    };
    let made = fill(&dir, lock)
        .and_then(|made| {
            vfs.rename(&dir, path, FileKind::Directory)
                .context(format_args!("rename to {}", path.display()), &dir)?;
            Ok(made)
        })
        // The next attempt removes what cannot be removed now.
        .inspect_err(|_| discard_all())?;
    vfs.sync_dir(parent).context("sync", parent)?;
    Ok(made)
}

/// Removes a store, as far as it can.
pub(super) fn discard(vfs: &dyn Vfs, dir: &Path) {
    let _ = clear(vfs, dir);
    let _ = vfs.remove(&FileName::Lock.path(dir), FileKind::Lock);
    let _ = vfs.remove(dir, FileKind::Directory);
}

/// Removes the files of a store, except the lock file.
pub(super) fn clear(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let listing = Listing::read(vfs, dir)?.unwrap_or_default();
    if let Some(foreign) = listing.foreign.first() {
        return Err(not_a_store(dir, format!("something else: {}", foreign.display())));
    }
    for name in listing.ours.into_iter().filter(|&name| name != FileName::Lock) {
        let path = name.path(dir);
        vfs.remove(&path, name.kind()).context("remove", &path)?;
    }
    Ok(())
}
