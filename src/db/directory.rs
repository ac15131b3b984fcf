//! The directory of a store: its files, its lock, and the log records in it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::lock_holder::holder_of;
use crate::batch::for_each_entry;
use crate::error::{Error, IoContext, Result};
use crate::filter::HashKey;
use crate::key::{EntryRef, Seq};
use crate::names::FileName;
use crate::version::TableSet;
use crate::vfs::{FileLock, Vfs};

#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) ours: Vec<FileName>,
    pub(super) foreign: Vec<OsString>,
}

impl Listing {
    /// `None` for a directory that does not exist.
    pub(super) fn read(vfs: &dyn Vfs, dir: &Path) -> Result<Option<Self>> {
        let mut names = match vfs.list(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
                return Err(not_a_store(dir, "a file"));
            }
            other => other.context("list", dir)?,
        };
        names.sort_unstable();
        let mut listing = Self::default();
        for name in names {
            match name.to_str().and_then(FileName::parse) {
                Some(ours) => listing.ours.push(ours),
                None => listing.foreign.push(name),
            }
        }
        Ok(Some(listing))
    }

    pub(super) fn logs_from(&self, first: u64) -> Vec<u64> {
        self.numbers(|name| match name {
            FileName::Log(number) => Some(number).filter(|&number| number >= first),
            _ => None,
        })
    }

    pub(super) fn manifests(&self) -> Vec<u64> {
        self.numbers(|name| if let FileName::Manifest(number) = name { Some(number) } else { None })
    }

    /// Some of the files' numbers, ascending.
    fn numbers(&self, of: impl Fn(FileName) -> Option<u64>) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.ours.iter().copied().filter_map(of).collect();
        numbers.sort_unstable();
        numbers
    }
}

pub(super) fn not_a_store(dir: &Path, found: impl Into<String>) -> Error {
    Error::NotAStore { path: dir.to_owned(), found: found.into() }
}

pub(super) fn lock(vfs: &dyn Vfs, dir: &Path) -> Result<Arc<dyn FileLock>> {
    let path = FileName::Lock.path(dir);
    locked(vfs.lock(&path), path)
}

/// Waits for nothing, changes nothing, and excludes only writers. The lock file must exist.
pub(super) fn lock_shared(vfs: &dyn Vfs, dir: &Path) -> Result<Arc<dyn FileLock>> {
    let path = FileName::Lock.path(dir);
    locked(vfs.lock_shared(&path), path)
}

fn locked(taken: io::Result<Box<dyn FileLock>>, path: PathBuf) -> Result<Arc<dyn FileLock>> {
    match taken {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            let (pid, name) = holder_of(&path).unzip();
            Err(Error::Locked { path, pid, name: name.unwrap_or_default() })
        }
        other => Ok(Arc::from(other.context("lock", &path)?)),
    }
}

pub(super) fn hash_key(set: &TableSet, dir: &Path, manifest: u64) -> Result<HashKey> {
    set.hash_key.ok_or_else(|| {
        let path = FileName::Manifest(manifest).path(dir);
        Error::corrupt(&path, 0, "the key of the store's hash", "none")
    })
}

pub(super) fn for_each_logged_entry(
    log: &Path,
    offset: u64,
    seq: Seq,
    payload: &[u8],
    apply: impl FnMut(EntryRef<'_>),
) -> Result<u64> {
    for_each_entry(payload, seq, apply)
        .ok_or_else(|| Error::corrupt(log, offset, "a batch", "something else"))
}
