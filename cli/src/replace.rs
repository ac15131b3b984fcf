//! A directory takes the place of another one, so that a whole one has the name at any moment.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use criba::vfs::{FileLock, RealVfs, Vfs};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::failure::{Failure, Result};
use crate::interrupt::{self, Guard};
use crate::print_error;
use crate::shell::quoted;

/// A hidden directory beside `target`, in which the new one is made. It is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Stage {
    dir: PathBuf,
    _lock: File,
    _guard: Guard,
}

impl Stage {
    /// Makes the directory. Removes one that a killed command left.
    pub(crate) fn beside(target: &Path, purpose: &str) -> Result<Self> {
        let dir = stage_of(target, purpose)?;
        let parent = dir.parent().unwrap_or(target);
        fs::create_dir_all(parent).map_err(|error| Failure::file("make it", parent, error))?;
        let failed = |action| {
            let dir = dir.clone();
            move |error| Failure::file(action, &dir, error)
        };
        loop {
            match fs::create_dir(&dir) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(failed("make it")(error));
                }
                _ => {}
            }
            // Another user can have made it, to lead elsewhere.
            let found = fs::symlink_metadata(&dir).map_err(failed("examine it"))?;
            if !found.is_dir() || found.uid() != geteuid().as_raw() {
                return Err(Failure::unfit(&dir, "a directory of this user", "something else"));
            }
            let name = dir.join("lock");
            let lock = File::options().create(true).write(true).truncate(false).open(&name);
            let lock = match lock {
                Err(error) if error.kind() == ErrorKind::NotFound => continue, // it was removed
                lock => lock.map_err(failed("lock it"))?,
            };
            match lock.try_lock() {
                Err(TryLockError::WouldBlock) => {
                    let found = format!("{}, in which another command works", dir.display());
                    return Err(Failure::unfit(target, "no other command that makes it", found));
                }
                locked => locked.map_err(|error| failed("lock it")(error.into()))?,
            }
            // Another command can have removed it before it was locked.
            let own = lock.metadata().map_err(failed("lock it"))?.ino();
            if !fs::metadata(&name).is_ok_and(|found| found.ino() == own) {
                continue;
            }
            let left = dir.join("new");
            match fs::remove_dir_all(&left) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Failure::file("remove it", &left, error));
                }
                _ => {}
            }
            let hidden = dir.clone();
            let guard = interrupt::before_end(move || {
                print_error(&format!(
                    "interrupted; left is {}, which the same command removes",
                    hidden.display()
                ));
            });
            return Ok(Self { dir, _lock: lock, _guard: guard });
        }
    }

    /// Where to make the new directory.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join("new")
    }

    /// Gives the new directory the name `target`, of another directory or of none. The other one is removed.
    pub(crate) fn put_at(&self, target: &Path) -> Result<()> {
        let new = self.path();
        let failed = |error: Errno| Failure::file("replace it", target, error.into());
        if fs::symlink_metadata(target).is_err() {
            renameat_with(CWD, &new, CWD, target, RenameFlags::NOREPLACE)
                .or_else(|error| unless_missing(error, || rename(&new, target)))
                .map_err(failed)?;
            return sync_parent(target);
        }
        let exchanged = renameat_with(CWD, &new, CWD, target, RenameFlags::EXCHANGE)
            .or_else(|error| unless_missing(error, || exchange_by_names(&new, target)));
        exchanged.map_err(failed)?;
        sync_parent(target)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // What is left, the next command removes.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Another way, on file systems without the operation.
fn unless_missing(
    error: Errno,
    other: impl FnOnce() -> std::result::Result<(), Errno>,
) -> std::result::Result<(), Errno> {
    match error {
        Errno::INVAL | Errno::NOSYS | Errno::NOTSUP => other(),
        error => Err(error),
    }
}

fn rename(from: &Path, to: &Path) -> std::result::Result<(), Errno> {
    rustix::fs::rename(from, to)
}

/// Between the two steps the old directory is whole, under another name: see [`recover`].
fn exchange_by_names(new: &Path, target: &Path) -> std::result::Result<(), Errno> {
    let old = old_of(target);
    renameat_with(CWD, target, CWD, &old, RenameFlags::NOREPLACE)
        .or_else(|error| unless_missing(error, || rename(target, &old)))?;
    rename(new, target)?;
    // The stage removes it.
    rename(&old, new)
}

/// The name of the replaced directory, while a command without an atomic exchange works.
fn old_of(target: &Path) -> PathBuf {
    let target: PathBuf = target.components().collect(); // without a slash at its end
    let mut name = target.into_os_string();
    name.push(".old");
    name.into()
}

/// The hidden directory in which a command makes the new one.
fn stage_of(target: &Path, purpose: &str) -> Result<PathBuf> {
    let full = std::path::absolute(target);
    let full = full.map_err(|error| Failure::file("find the full path of", target, error))?;
    let (Some(parent), Some(name)) = (full.parent(), full.file_name()) else {
        return Err(Failure::unfit(target, "the name of a directory", "none"));
    };
    Ok(parent.join(format!(".{}.{purpose}-tmp", name.display())))
}

/// Refuses a place in the directory of a store, or that directory.
pub(crate) fn refuse_within(target: &Path, store: &Path, expected: &str) -> Result<()> {
    let full = std::path::absolute(target).unwrap_or_default();
    for place in [Some(&*full), full.parent()].into_iter().flatten() {
        if let [Ok(place), Ok(store)] = [place, store].map(fs::canonicalize)
            && place.starts_with(store)
        {
            return Err(Failure::unfit(target, expected, "a place in the store itself"));
        }
    }
    Ok(())
}

/// Gives a directory its name back that a killed command of this purpose had moved away.
pub(crate) fn recover(target: &Path, purpose: &str) -> Result<()> {
    let old = old_of(target);
    let is_whole = fs::symlink_metadata(target).is_ok();
    if is_whole || !old.join("CURRENT").exists() || !stage_of(target, purpose)?.exists() {
        return Ok(());
    }
    fs::rename(&old, target).map_err(|error| Failure::file("rename it", &old, error))?;
    print_error(&format!(
        "{} is {} again: a command was killed while it replaced it",
        quoted(&old),
        quoted(target)
    ));
    Ok(())
}

/// Locks the store that is to be replaced, as a program that writes to it does. Refuses a directory with anything
/// else: it would be removed.
pub(crate) fn lock(dir: &Path) -> Result<Box<dyn FileLock>> {
    let names = fs::read_dir(dir).map_err(|error| Failure::file("list", dir, error))?;
    let mut is_store = false;
    for name in names {
        let name = name.map_err(|error| Failure::file("list", dir, error))?.file_name();
        is_store |= name == "CURRENT";
        if !is_of_a_store(&name) {
            let found = format!("{} too; move it away first", name.display());
            return Err(Failure::unfit(dir, "the files of a store alone, to replace them", found));
        }
    }
    if !is_store {
        return Err(Failure::unfit(dir, "a store to replace", "no CURRENT"));
    }
    let open = RealVfs.open_dir(dir).map_err(|error| Failure::file("open", dir, error))?;
    open.lock("LOCK".as_ref(), 0o600).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => {
            Failure::unfit(dir, "a store that no program has open", "one that is open to write")
        }
        _ => Failure::file("lock", dir, error),
    })
}

/// Whether a name is that of a file of a store; see format.md, "Files".
fn is_of_a_store(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let is_number = |text: &str| text.len() >= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    match name.rsplit_once('.') {
        Some((number, "sst" | "log")) => is_number(number),
        Some((numbers, "flt")) => numbers
            .split_once('-')
            .is_some_and(|(table, generation)| is_number(table) && is_number(generation)),
        Some(("CURRENT", "tmp")) => true,
        _ => {
            matches!(name, "CURRENT" | "LOCK")
                || name.strip_prefix("MANIFEST-").is_some_and(is_number)
        }
    }
}

fn sync_parent(target: &Path) -> Result<()> {
    let full = std::path::absolute(target).ok();
    let Some(parent) = full.as_deref().and_then(Path::parent) else { return Ok(()) };
    let synced = File::open(parent).and_then(|dir| dir.sync_all());
    match synced {
        // Some file systems sync no directories.
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        synced => synced.map_err(|error| Failure::file("sync it", parent, error)),
    }
}
