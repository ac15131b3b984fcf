//! Filters in files: saved atomically, loaded or mapped.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use memmap2::Mmap;

use super::format::{Saved, decode};
use super::hashing::random_bytes;
use super::part::Array;
use crate::error::{Error, IoContext, Result};

/// A read-only filter in a mapped file, shared by all processes that map it. A clone of the filter has its
/// own memory.
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

/// Opens a regular file. Fails for a device, from which reads may never end.
fn open(path: &Path) -> Result<File> {
    // Before: the opening of a FIFO waits for a writer.
    check_is_file(path, &fs::metadata(path).context("open", path)?)?;
    let file = File::open(path).context("open", path)?;
    check_is_file(path, &file.metadata().context("read the length of", path)?)?;
    Ok(file)
}

fn check_is_file(path: &Path, metadata: &Metadata) -> Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    Err(Error::corrupt(path, 0, "a file", "a directory or device"))
}

/// # Safety
/// No process may change or truncate the file as long as the filter lives.
#[expect(unsafe_code, reason = "other processes can change a mapped file: the caller excludes it")]
pub(super) unsafe fn map<T: Saved>(path: &Path) -> Result<Mapped<T>> {
    let file = open(path)?;
    if file.metadata().context("read the length of", path)?.len() == 0 {
        return Err(Error::corrupt(path, 0, "a filter", "an empty file"));
    }
    // SAFETY: the caller ensures that no process changes or truncates the file.
    let map = unsafe { Mmap::map(&file) }.context("map", path)?;
    let map = Bytes::from_owner(map);
    decode(path, &map, |range| Ok(Array::Shared(map.slice(range)))).map(Mapped)
}

pub(super) fn save(path: &Path, bytes: &[u8]) -> Result<()> {
    // The rename would replace a device or FIFO. It fails for a directory.
    if let Ok(old) = fs::symlink_metadata(path)
        && !old.is_symlink()
        && !old.is_dir()
    {
        check_is_file(path, &old)?;
    }
    let temporary = temporary_beside(path)?;
    write_synced(&temporary, bytes)
        .and_then(|()| fs::rename(&temporary, path).context("rename", path))
        .inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })?;
    let dir = directory_of(path);
    File::open(dir).and_then(|dir| dir.sync_all()).context("sync", dir)
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = file.context("create", path)?;
    file.write_all(bytes).context("write", path)?;
    file.sync_all().context("sync", path)
}

fn temporary_beside(path: &Path) -> Result<PathBuf> {
    let no_name = || io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file");
    let name = path.file_name().ok_or_else(no_name).context("save", path)?;
    let random = random_bytes().context("find a temporary name", path)?;
    let mut temporary = OsString::from(".");
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

    #[test]
    fn the_directory_of_a_bare_name_is_the_current_one() {
        for (path, dir) in [("filter", "."), ("a/filter", "a"), ("/a/b/filter", "/a/b")] {
            assert_eq!(directory_of(Path::new(path)), Path::new(dir));
        }
    }

    #[cfg(unix)]
    #[test]
    fn save_replaces_no_special_file() {
        use std::os::unix::fs::FileTypeExt;

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(matches!(save(&path, b"a filter"), Err(Error::Corrupt { .. })));
        assert!(fs::metadata(&path).unwrap().file_type().is_socket());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
