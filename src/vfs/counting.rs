//! A file layer that counts operations and bytes, by operation and kind of file.

use std::ffi::OsString;
use std::io;
use std::ops::Sub;
use std::path::Path;
use std::sync::Arc;

use super::{AccessHint, FileKind, FileLock, Operation, Vfs, VfsFile};
use crate::sync::{AtomicU64, Ordering};

const KINDS: usize = FileKind::ALL.len();
const OPERATIONS: usize = Operation::ALL.len();

/// How often, and how many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Calls, failed ones included.
    pub calls: u64,
    /// Bytes read or written, as requested.
    pub bytes: u64,
}

/// The counts of a [`CountingVfs`] at one moment. The difference of two values counts what happened between
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileCounts([[Tally; OPERATIONS]; KINDS]);

impl FileCounts {
    /// The tally of one operation on one kind of file.
    pub fn of(&self, kind: FileKind, operation: Operation) -> Tally {
        self.0[kind as usize][operation as usize]
    }
}

impl Sub for FileCounts {
    type Output = Self;

    fn sub(mut self, earlier: Self) -> Self {
        for (tally, before) in self.0.iter_mut().flatten().zip(earlier.0.iter().flatten()) {
            tally.calls -= before.calls;
            tally.bytes -= before.bytes;
        }
        self
    }
}

#[derive(Debug, Default)]
struct Cell {
    calls: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Counters([[Cell; OPERATIONS]; KINDS]);

impl Counters {
    fn count(&self, kind: FileKind, operation: Operation, bytes: usize) {
        let cell = &self.0[kind as usize][operation as usize];
        cell.calls.fetch_add(1, Ordering::Relaxed);
        cell.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Counts all operations and passes them to another file layer. It knows nothing of the engine's own counts,
/// so the two can be compared.
#[derive(Debug, Clone)]
pub struct CountingVfs {
    inner: Arc<dyn Vfs>,
    counters: Arc<Counters>,
}

impl CountingVfs {
    /// Counts the operations on `inner` from now on. Clones share their counts.
    pub fn new(inner: Arc<dyn Vfs>) -> Self {
        Self { inner, counters: Arc::default() }
    }

    /// The counts so far.
    pub fn counts(&self) -> FileCounts {
        let mut counts = FileCounts([[Tally::default(); OPERATIONS]; KINDS]);
        for (tally, cell) in counts.0.iter_mut().flatten().zip(self.counters.0.iter().flatten()) {
            tally.calls = cell.calls.load(Ordering::Relaxed);
            tally.bytes = cell.bytes.load(Ordering::Relaxed);
        }
        counts
    }

    fn wrap(&self, file: Arc<dyn VfsFile>, kind: FileKind) -> Arc<dyn VfsFile> {
        Arc::new(CountingFile { inner: file, kind, counters: Arc::clone(&self.counters) })
    }
}

impl Vfs for CountingVfs {
    fn create(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        self.counters.count(kind, Operation::Create, 0);
        Ok(self.wrap(self.inner.create(path, kind)?, kind))
    }

    fn open(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        self.counters.count(kind, Operation::Open, 0);
        Ok(self.wrap(self.inner.open(path, kind)?, kind))
    }

    fn rename(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()> {
        self.counters.count(kind, Operation::Rename, 0);
        self.inner.rename(from, to, kind)
    }

    fn remove(&self, path: &Path, kind: FileKind) -> io::Result<()> {
        self.counters.count(kind, Operation::Remove, 0);
        self.inner.remove(path, kind)
    }

    fn hard_link(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()> {
        self.counters.count(kind, Operation::HardLink, 0);
        self.inner.hard_link(from, to, kind)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.counters.count(FileKind::Directory, Operation::List, 0);
        self.inner.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.counters.count(FileKind::Directory, Operation::CreateDir, 0);
        self.inner.create_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.counters.count(FileKind::Directory, Operation::SyncDir, 0);
        self.inner.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.counters.count(FileKind::Lock, Operation::Lock, 0);
        self.inner.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.counters.count(FileKind::Lock, Operation::Lock, 0);
        self.inner.lock_shared(path)
    }

    fn is_simulated(&self) -> bool {
        self.inner.is_simulated()
    }
}

#[derive(Debug)]
struct CountingFile {
    inner: Arc<dyn VfsFile>,
    kind: FileKind,
    counters: Arc<Counters>,
}

impl CountingFile {
    fn count(&self, operation: Operation, bytes: usize) {
        self.counters.count(self.kind, operation, bytes);
    }
}

impl VfsFile for CountingFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.count(Operation::Read, buffer.len());
        self.inner.read_exact_at(buffer, offset)
    }

    fn read_new(&self, length: usize, offset: u64) -> io::Result<Vec<u8>> {
        self.count(Operation::Read, length);
        self.inner.read_new(length, offset)
    }

    fn append(&self, data: &[u8]) -> io::Result<()> {
        self.count(Operation::Append, data.len());
        self.inner.append(data)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.count(Operation::Write, data.len());
        self.inner.write_at(data, offset)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.count(Operation::SetLength, 0);
        self.inner.set_length(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.count(Operation::Sync, 0);
        self.inner.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.count(Operation::Sync, 0);
        self.inner.sync_all()
    }

    fn length(&self) -> io::Result<u64> {
        self.count(Operation::Length, 0);
        self.inner.length()
    }

    fn hint(&self, hint: AccessHint) -> io::Result<()> {
        self.inner.hint(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::super::RealVfs;
    use super::*;

    #[test]
    fn counts_by_kind_and_operation_and_subtracts() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let vfs = CountingVfs::new(Arc::new(RealVfs));
        let file = vfs.create(&dir.path().join("t"), FileKind::Table)?;
        file.append(b"12345")?;
        let before = vfs.counts();
        file.read_exact_at(&mut [0; 3], 1)?;
        assert!(file.read_exact_at(&mut [0; 9], 1).is_err());
        let since = vfs.counts() - before;
        assert_eq!(since.of(FileKind::Table, Operation::Read), Tally { calls: 2, bytes: 12 });
        assert_eq!(since.of(FileKind::Table, Operation::Append), Tally::default());
        assert_eq!(since.of(FileKind::Wal, Operation::Read), Tally::default());
        assert_eq!(
            vfs.counts().of(FileKind::Table, Operation::Append),
            Tally { calls: 1, bytes: 5 }
        );
        Ok(())
    }
}
