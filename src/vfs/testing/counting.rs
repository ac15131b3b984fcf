//! A file layer that counts operations and bytes, by operation and kind of file.

use std::io;
use std::ops::Sub;
use std::path::Path;
use std::sync::Arc;

use crate::sync::{AtomicU64, Ordering};
use crate::vfs::{Call, FileKind, Layer, LayeredVfs, Operation, Vfs, VfsDir};

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

impl Layer for Counters {
    fn call(&self, call: &Call<'_>, next: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let cell = &self.0[call.kind as usize][call.operation as usize];
        cell.calls.fetch_add(1, Ordering::Relaxed);
        cell.bytes.fetch_add(call.bytes as u64, Ordering::Relaxed);
        next()
    }
}

/// Counts all operations and passes them to another file layer. It knows nothing of the engine's own counts,
/// so the two can be compared.
#[derive(Debug, Clone)]
pub struct CountingVfs(LayeredVfs<Counters>);

impl CountingVfs {
    /// Counts the operations on `inner` from now on. Clones share their counts.
    pub fn new(inner: Arc<dyn Vfs>) -> Self {
        Self(LayeredVfs::new(inner, Counters::default()))
    }

    /// The counts so far.
    pub fn counts(&self) -> FileCounts {
        let mut counts = FileCounts([[Tally::default(); OPERATIONS]; KINDS]);
        let cells = self.0.layer().0.iter().flatten();
        for (tally, cell) in counts.0.iter_mut().flatten().zip(cells) {
            tally.calls = cell.calls.load(Ordering::Relaxed);
            tally.bytes = cell.bytes.load(Ordering::Relaxed);
        }
        counts
    }
}

impl Vfs for CountingVfs {
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn VfsDir>> {
        self.0.open_dir(path)
    }

    fn is_simulated(&self) -> bool {
        self.0.is_simulated()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::RealVfs;

    #[test]
    fn counts_by_kind_and_operation_and_subtracts() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let vfs = CountingVfs::new(Arc::new(RealVfs));
        let file = vfs.open_dir(dir.path())?.create("t".as_ref(), FileKind::Table, 0o600)?;
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
