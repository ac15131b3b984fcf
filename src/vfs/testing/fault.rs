//! A wrapper that makes chosen operations fail.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use crate::sync::{Arc, Mutex, MutexGuard, sleep};
use crate::vfs::{Call, FileKind, Layer, LayeredVfs, Operation, Vfs, VfsDir};

/// What goes wrong with an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing is done; an input/output error (`EIO`).
    Io,
    /// Nothing is done; the disk is full (`ENOSPC`).
    NoSpace,
    /// Nothing is done; a signal interrupts (`EINTR`).
    Interrupted,
    /// Half of the bytes are read, then the file ends. Only [`Operation::Read`].
    ShortRead,
    /// Half of the bytes are written, then the disk is full; they stay until
    /// [`VfsFile::set_length`](crate::vfs::VfsFile::set_length) cuts
    /// them off. Only [`Operation::Append`] and [`Operation::Write`].
    ShortWrite,
    /// The operation succeeds with one wrong bit: the bit of this number, modulo the length. Only operations
    /// that move bytes.
    FlippedBit(u64),
    /// It takes so much longer, and succeeds.
    Delay(Duration),
}

impl Fault {
    fn can_befall(self, operation: Operation, bytes: usize) -> bool {
        let writes = matches!(operation, Operation::Append | Operation::Write);
        match self {
            Self::ShortRead => operation == Operation::Read && bytes > 0,
            Self::ShortWrite => writes && bytes > 0,
            Self::FlippedBit(_) => (writes || operation == Operation::Read) && bytes > 0,
            Self::Io | Self::NoSpace | Self::Interrupted | Self::Delay(_) => true,
        }
    }
}

/// Selects the operations that have a [`Fault`]: by default the first possible one.
#[derive(Debug, Clone)]
#[must_use]
pub struct FaultRule {
    fault: Fault,
    operations: Vec<Operation>,
    kinds: Vec<FileKind>,
    skip: u64,
    lasting: bool,
}

impl FaultRule {
    /// The next operation, whatever it is.
    pub fn new(fault: Fault) -> Self {
        Self { fault, operations: Vec::new(), kinds: Vec::new(), skip: 0, lasting: false }
    }

    /// Only these operations.
    pub fn operations(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        self.operations = operations.into_iter().collect();
        self
    }

    /// Only operations on files of these kinds.
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = FileKind>) -> Self {
        self.kinds = kinds.into_iter().collect();
        self
    }

    /// Skips this many matching operations.
    pub fn skip(mut self, matches: u64) -> Self {
        self.skip = matches;
        self
    }

    /// All matching operations from then on, not only one.
    pub fn from_then_on(mut self) -> Self {
        self.lasting = true;
        self
    }

    /// Whether an operation fails. Counts it if it matches.
    fn befalls(&mut self, operation: Operation, kind: FileKind, bytes: usize) -> bool {
        let matches = (self.operations.is_empty() || self.operations.contains(&operation))
            && (self.kinds.is_empty() || self.kinds.contains(&kind))
            && self.fault.can_befall(operation, bytes);
        if !matches {
            return false;
        }
        match self.skip.checked_sub(1) {
            Some(left) => {
                self.skip = left;
                false
            }
            None if self.lasting => true,
            None => {
                self.skip = u64::MAX; // that was it
                true
            }
        }
    }
}

/// A fault that took place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Injected {
    /// The number of the operation, counted from 0.
    pub number: u64,
    /// The operation.
    pub operation: Operation,
    /// The kind of the file.
    pub kind: FileKind,
    /// The file or directory; of two names, the new one.
    pub path: PathBuf,
    /// The bytes it was to move; 0 if it moves none.
    pub bytes: u64,
    /// What went wrong.
    pub fault: Fault,
}

/// Passes operations to another file layer, except those that a rule makes fail.
///
/// Rules can be added and removed while files are open. Each counts its matching operations; the first rule
/// that applies wins. Clones share rules and counts.
///
/// To fail every operation of a program in turn, run it with a rule that skips 0, 1, 2 … operations, until no
/// fault is injected:
///
/// ```
/// use std::sync::Arc;
/// use criba::vfs::{Fault, FaultRule, FaultVfs, SimVfs};
/// use criba::Options;
///
/// for number in 0.. {
///     let disk = SimVfs::new();
///     let faults = FaultVfs::new(Arc::new(disk.clone()));
///     faults.add(FaultRule::new(Fault::Io).skip(number));
///     let options = Options::new().background_threads(0);
///     let open = || options.clone().vfs(Arc::new(faults.clone())).open("/store");
///     let acknowledged = open().and_then(|db| db.put("key", "value")).is_ok();
///
///     faults.clear(); // the disk works again
///     let found = open()?.get("key")?;
///     assert_eq!(found.is_some(), acknowledged);
///     if faults.injected().is_empty() {
///         break;
///     }
/// }
/// # Ok::<(), criba::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct FaultVfs(LayeredVfs<Faults>);

#[derive(Debug, Default)]
struct Faults(Mutex<Plan>);

#[derive(Debug, Default)]
struct Plan {
    rules: Vec<FaultRule>,
    operations: u64,
    injected: Vec<Injected>,
}

impl FaultVfs {
    /// A layer over `inner` without rules.
    pub fn new(inner: Arc<dyn Vfs>) -> Self {
        Self(LayeredVfs::new(inner, Faults::default()))
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.layer().0.lock()
    }

    /// Adds a rule, which counts from now on.
    pub fn add(&self, rule: FaultRule) {
        self.plan().rules.push(rule);
    }

    /// Removes all rules. Counts stay.
    pub fn clear(&self) {
        self.plan().rules.clear();
    }

    /// The number of operations so far, with failed ones.
    pub fn operations(&self) -> u64 {
        self.plan().operations
    }

    /// The injected faults, oldest first.
    pub fn injected(&self) -> Vec<Injected> {
        self.plan().injected.clone()
    }
}

impl Vfs for FaultVfs {
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn VfsDir>> {
        self.0.open_dir(path)
    }

    fn is_simulated(&self) -> bool {
        self.0.is_simulated()
    }
}

impl Faults {
    /// Counts an operation and fails it, unless its fault lies in the bytes, which is returned.
    fn meet(&self, call: &Call<'_>) -> io::Result<Option<Fault>> {
        let Call { operation, kind, path, bytes } = *call;
        let fault = {
            let mut plan = self.0.lock();
            let number = plan.operations;
            plan.operations += 1;
            // Every rule counts, also after one that has its way.
            let mut fault = None;
            for rule in &mut plan.rules {
                if rule.befalls(operation, kind, bytes) {
                    fault = fault.or(Some(rule.fault));
                }
            }
            if let Some(fault) = fault {
                let (path, bytes) = (path.to_owned(), bytes as u64);
                plan.injected.push(Injected { number, operation, kind, path, bytes, fault });
            }
            fault
        };
        match fault {
            Some(Fault::Io) => Err(Errno::IO.into()),
            Some(Fault::NoSpace) => Err(Errno::NOSPC.into()),
            Some(Fault::Interrupted) => Err(Errno::INTR.into()),
            Some(Fault::Delay(time)) => {
                sleep(time);
                Ok(None)
            }
            other => Ok(other),
        }
    }
}

fn flip(bytes: &mut [u8], bit: u64) {
    let bit = bit % (bytes.len() as u64 * 8);
    bytes[bit as usize / 8] ^= 1 << (bit % 8);
}

impl Layer for Faults {
    fn call(&self, call: &Call<'_>, next: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.meet(call)?;
        next()
    }

    fn read(
        &self,
        call: &Call<'_>,
        buffer: &mut [u8],
        next: &mut dyn FnMut(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        match self.meet(call)? {
            Some(Fault::ShortRead) => {
                let half = buffer.len() / 2;
                next(&mut buffer[..half])?;
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Some(Fault::FlippedBit(bit)) => {
                next(buffer)?;
                flip(buffer, bit);
                Ok(())
            }
            _ => next(buffer),
        }
    }

    fn write(
        &self,
        call: &Call<'_>,
        data: &[u8],
        next: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        match self.meet(call)? {
            Some(Fault::ShortWrite) => {
                next(&data[..data.len() / 2])?;
                Err(Errno::NOSPC.into())
            }
            Some(Fault::FlippedBit(bit)) => {
                let mut wrong = data.to_vec();
                flip(&mut wrong, bit);
                next(&wrong)
            }
            _ => next(data),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::{CountingVfs, RealVfs, SimVfs, VfsFile};

    const FILE: &str = "file";

    fn create(vfs: &FaultVfs, name: &str, kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        vfs.open_dir(Path::new("/"))?.create(name.as_ref(), kind, 0o600)
    }

    fn file() -> io::Result<(FaultVfs, Arc<dyn VfsFile>)> {
        let vfs = FaultVfs::new(Arc::new(SimVfs::new()));
        let file = create(&vfs, FILE, FileKind::Wal)?;
        file.append(b"0123456789")?;
        Ok((vfs, file))
    }

    fn read(file: &dyn VfsFile, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, 0).map(|()| bytes)
    }

    #[test]
    fn what_wraps_a_simulated_disk_is_one_too() {
        let wrapped = |vfs| FaultVfs::new(Arc::new(CountingVfs::new(vfs))).is_simulated();
        assert!(wrapped(Arc::new(SimVfs::new())));
        assert!(!wrapped(Arc::new(RealVfs)));
    }

    #[test]
    fn a_rule_befalls_the_operations_that_it_says_once_or_from_then_on() -> io::Result<()> {
        let (vfs, file) = file()?;
        let rule = FaultRule::new(Fault::Io).operations([Operation::Sync]).kinds([FileKind::Wal]);
        vfs.add(rule.clone().skip(1));
        file.append(b"x")?;
        file.sync_data()?;
        vfs.open_dir(Path::new("/"))?.sync()?;
        let error = file.sync_all().expect_err("the second sync");
        assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
        for _ in 0..3 {
            file.sync_data()?;
        }
        vfs.add(rule.from_then_on());
        for _ in 0..3 {
            assert!(file.sync_data().is_err());
        }
        vfs.add(FaultRule::new(Fault::NoSpace).kinds([FileKind::Table]).from_then_on());
        file.append(b"y")?;
        let error = create(&vfs, "t", FileKind::Table).expect_err("another rule");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        vfs.clear();
        file.sync_data()?;
        assert_eq!(vfs.operations(), 18);
        let injected = vfs.injected();
        let numbers: Vec<u64> = injected.iter().map(|injected| injected.number).collect();
        assert_eq!(numbers, [7, 11, 12, 13, 16]);
        assert_eq!(injected[0].path, Path::new("/file"));
        assert_eq!((injected[0].operation, injected[0].kind), (Operation::Sync, FileKind::Wal));
        Ok(())
    }

    #[test]
    fn short_reads_and_writes_move_half_of_the_bytes() -> io::Result<()> {
        let (vfs, file) = file()?;
        vfs.add(FaultRule::new(Fault::ShortRead));
        file.sync_data()?; // not for this
        let mut bytes = [b'-'; 8];
        let error = file.read_exact_at(&mut bytes, 0).expect_err("short");
        assert_eq!((error.kind(), &bytes), (io::ErrorKind::UnexpectedEof, b"0123----"));
        vfs.add(FaultRule::new(Fault::ShortWrite));
        let error = file.append(b"abcd").expect_err("short");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(read(file.as_ref(), 12)?, b"0123456789ab");
        file.set_length(10)?;
        file.append(b"ABCD")?;
        assert_eq!(read(file.as_ref(), 14)?, b"0123456789ABCD");
        Ok(())
    }

    #[test]
    fn a_flipped_bit_is_the_same_each_time_and_its_status_is_right() -> io::Result<()> {
        let (vfs, file) = file()?;
        vfs.add(FaultRule::new(Fault::FlippedBit(17)).from_then_on());
        for _ in 0..2 {
            assert_eq!(read(file.as_ref(), 4)?, b"0103");
            assert_eq!(read(file.as_ref(), 2)?, b"21", "round and round");
        }
        file.write_at(b"abcd", 0)?;
        vfs.clear();
        assert_eq!(read(file.as_ref(), 6)?, b"abad45");
        Ok(())
    }

    #[test]
    fn what_fails_does_not_reach_the_layer_within() -> io::Result<()> {
        let counting = CountingVfs::new(Arc::new(SimVfs::new()));
        let vfs = FaultVfs::new(Arc::new(counting.clone()));
        vfs.add(FaultRule::new(Fault::Interrupted).operations([Operation::Create]));
        let error = create(&vfs, FILE, FileKind::Wal).expect_err("interrupted");
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        assert_eq!(counting.counts().of(FileKind::Wal, Operation::Create).calls, 0);
        vfs.add(FaultRule::new(Fault::Delay(Duration::from_millis(2))));
        let start = std::time::Instant::now();
        create(&vfs, FILE, FileKind::Wal)?;
        assert!(start.elapsed() >= Duration::from_millis(2));
        assert_eq!(counting.counts().of(FileKind::Wal, Operation::Create).calls, 1);
        Ok(())
    }
}
