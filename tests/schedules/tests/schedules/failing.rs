//! A disk on which one sync fails.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use criba_schedules::vfs::{FileKind, FileLock, SimVfs, Vfs, VfsFile};

/// No sync fails until [`begin`](FailingVfs::begin), and then the one after so many others.
#[derive(Debug, Clone)]
pub(crate) struct FailingVfs {
    inner: SimVfs,
    after: usize,
    left: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct FailingFile {
    inner: Arc<dyn VfsFile>,
    left: Arc<AtomicUsize>,
}

impl FailingVfs {
    pub(crate) fn new(inner: SimVfs, after: usize) -> Self {
        Self { inner, after, left: Arc::new(AtomicUsize::new(usize::MAX)) }
    }

    pub(crate) fn begin(&self) {
        self.left.store(self.after, Ordering::Relaxed);
    }

    fn file(&self, inner: Arc<dyn VfsFile>) -> Arc<dyn VfsFile> {
        Arc::new(FailingFile { inner, left: Arc::clone(&self.left) })
    }
}

fn count(left: &AtomicUsize) -> io::Result<()> {
    match left.fetch_sub(1, Ordering::Relaxed) {
        0 => Err(io::Error::other("the disk failed")),
        _ => Ok(()),
    }
}

impl Vfs for FailingVfs {
    fn create(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        Ok(self.file(self.inner.create(path, kind)?))
    }

    fn open(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        self.inner.open(path, kind)
    }

    fn open_writable(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        Ok(self.file(self.inner.open_writable(path, kind)?))
    }

    fn rename(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()> {
        self.inner.rename(from, to, kind)
    }

    fn remove(&self, path: &Path, kind: FileKind) -> io::Result<()> {
        self.inner.remove(path, kind)
    }

    fn hard_link(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()> {
        self.inner.hard_link(from, to, kind)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.inner.list(dir)
    }

    fn length(&self, path: &Path, kind: FileKind) -> io::Result<u64> {
        self.inner.length(path, kind)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        count(&self.left)?;
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }
}

impl VfsFile for FailingFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_exact_at(buffer, offset)
    }

    fn append(&self, data: &[u8]) -> io::Result<()> {
        self.inner.append(data)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(data, offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.inner.set_length(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        count(&self.left)?;
        self.inner.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        count(&self.left)?;
        self.inner.sync_all()
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }
}
