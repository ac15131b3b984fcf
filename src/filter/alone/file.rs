//! Filters in files: saved in one step, read whole, or mapped.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::format::decode;
use super::part::Array;
use super::saved::Saved;
use crate::error::{Error, IoContext, Result};
use crate::sync::Arc;

/// A filter whose bits are in a mapped file, shared with all who map it. It can be asked, not
/// changed; a clone of it is in memory of its own.
#[derive(Debug)]
pub struct Mapped<T>(T);

impl<T> Deref for Mapped<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

pub(super) fn from_bytes<T: Saved>(bytes: &[u8]) -> Result<T> {
    parse(Path::new("the bytes of a filter"), bytes)
}

fn parse<T: Saved>(name: &Path, bytes: &[u8]) -> Result<T> {
    decode(name, bytes, |range| T::array(bytes.get(range).unwrap_or_default()))
}

pub(super) fn load<T: Saved>(path: &Path) -> Result<T> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes).context("read", path)?;
    parse(path, &bytes)
}

/// Opens a file, and nothing that only looks like one: a device may never end.
fn open(path: &Path) -> Result<File> {
    let file = File::open(path).context("open", path)?;
    if !file.metadata().context("ask for the length", path)?.is_file() {
        return Err(Error::corrupt(path, 0, "a file", "a directory or device"));
    }
    Ok(file)
}

/// # Safety
/// As long as the filter lives, nobody may change or truncate the file.
#[expect(unsafe_code, reason = "a mapped file can be changed by others: the caller answers")]
pub(super) unsafe fn map<T: Saved>(path: &Path) -> Result<Mapped<T>> {
    let file = open(path)?;
    if file.metadata().context("ask for the length", path)?.len() == 0 {
        return Err(Error::corrupt(path, 0, "a filter", "an empty file"));
    }
    // SAFETY: the caller promises that nobody changes or truncates the file.
    let map = unsafe { Mmap::map(&file) }.context("map", path)?;
    let map = Arc::new(map);
    decode(path, &map, |range| Ok(Array::Mapped(Arc::clone(&map), range))).map(Mapped)
}

pub(super) fn save(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = temporary_beside(path)?;
    let written = write_synced(&temporary, bytes)
        .and_then(|()| fs::rename(&temporary, path).context("rename", path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary); // the failure that came first is the one to be told
    }
    written?;
    let dir = directory_of(path);
    File::open(dir).and_then(|dir| dir.sync_all()).context("sync", dir)
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = file.context("create", path)?;
    file.write_all(bytes).context("write", path)?;
    file.sync_all().context("sync", path)
}

/// A name in the same directory that no other writer takes.
fn temporary_beside(path: &Path) -> Result<PathBuf> {
    let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file");
    let name = path.file_name().ok_or_else(no_name).context("save", path)?;
    let mut random = [0; 8];
    getrandom::fill(&mut random)
        .map_err(|e| io::Error::other(e.to_string()))
        .context("find a temporary name", path)?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{:016x}.tmp", u64::from_le_bytes(random)));
    Ok(path.with_file_name(temporary))
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|dir| *dir != Path::new("")).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The one that is synced.
    #[test]
    fn a_file_is_in_the_directory_that_its_path_names() {
        for (path, dir) in [("filter", "."), ("a/filter", "a"), ("/a/b/filter", "/a/b")] {
            assert_eq!(directory_of(Path::new(path)), Path::new(dir));
        }
    }
}
