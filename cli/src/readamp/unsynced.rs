//! A file layer without syncs, for a store that is removed in the end. Loading makes some thousand syncs, and
//! on a slow disk they take longer than all the rest.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;

use criba::vfs::{AccessHint, FileKind, FileLock, RealVfs, Vfs, VfsFile};

/// The operating system's file system; syncs do nothing.
#[derive(Debug)]
pub(super) struct Unsynced;

#[derive(Debug)]
struct File(Arc<dyn VfsFile>);

impl Vfs for Unsynced {
    fn create(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        Ok(Arc::new(File(RealVfs.create(path, kind)?)))
    }

    fn open(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        RealVfs.open(path, kind)
    }

    fn rename(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()> {
        RealVfs.rename(from, to, kind)
    }

    fn remove(&self, path: &Path, kind: FileKind) -> io::Result<()> {
        RealVfs.remove(path, kind)
    }

    fn hard_link(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()> {
        RealVfs.hard_link(from, to, kind)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        RealVfs.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        RealVfs.create_dir(dir)
    }

    fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        RealVfs.lock(path)
    }
}

impl VfsFile for File {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, offset)
    }

    fn append(&self, data: &[u8]) -> io::Result<()> {
        self.0.append(data)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(data, offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_length(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn hint(&self, hint: AccessHint) -> io::Result<()> {
        self.0.hint(hint)
    }
}
