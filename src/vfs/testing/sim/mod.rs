//! A simulated disk that can lose power: the file system is here, the content in `disk` and `file`, the
//! effects of a power failure in `power`.

mod disk;
mod file;
mod power;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::sync::{Arc, Mutex};
use crate::vfs::{FileKind, FileLock, Operation, Vfs, VfsFile};
use file::{Change, File};

pub use disk::SimDisk;
pub use power::{Keep, Unit, Unsynced};

/// A deterministic file system in memory that tracks what is not synced, and can return from a power failure
/// in any state that POSIX allows.
///
/// Clones are the same disk. [`disk`](Self::disk) is a copy of its content at this moment;
/// [`SimDisk::power_failure`] is what a power failure might leave of it; [`on`](Self::on) makes a disk of
/// that. A killed program loses only its [locks](Self::unlock).
///
/// ```
/// use std::sync::Arc;
/// use criba::vfs::{Keep, SimVfs, Unit};
/// use criba::Options;
///
/// let options = Options::new().background_threads(0);
/// let vfs = SimVfs::new();
/// let db = options.clone().vfs(Arc::new(vfs.clone())).open("/store")?;
/// db.put("a", "synced")?;
/// db.sync()?;
/// db.put("b", "not synced")?;
///
/// let disk = vfs.disk().power_failure(Unit::Sector, |_| Keep::OLD);
/// let db = options.vfs(Arc::new(SimVfs::on(disk))).open("/store")?;
/// assert_eq!(db.get("a")?.as_deref(), Some(&b"synced"[..]));
/// assert_eq!(db.get("b")?, None);
/// # Ok::<(), criba::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct SimVfs(Arc<Mutex<Machine>>);

/// A disk in use.
#[derive(Debug, Default)]
struct Machine {
    disk: SimDisk,
    locked: BTreeSet<PathBuf>,
    /// The number of handles of each open file.
    open: BTreeMap<usize, usize>,
    moments: Option<Vec<Moment>>,
    lying: bool,
}

/// An operation that changed something, and the disk after it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Moment {
    /// What was done.
    pub operation: Operation,
    /// To what kind of file.
    pub kind: FileKind,
    /// The file, by its last name.
    pub path: PathBuf,
    /// What was on the disk then.
    pub disk: SimDisk,
}

impl SimVfs {
    /// An empty disk with only the root directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk with this on it.
    pub fn on(disk: SimDisk) -> Self {
        Self(Arc::new(Mutex::new(Machine { disk, ..Machine::default() })))
    }

    /// Remembers each moment from now on.
    #[must_use]
    pub fn recording(self) -> Self {
        self.0.lock().moments.get_or_insert_default();
        self
    }

    /// A disk that lies: syncs succeed without effect. No store can keep its promises there, but it must not
    /// panic or return a value that was never written.
    #[must_use]
    pub fn lying(self) -> Self {
        self.0.lock().lying = true;
        self
    }

    /// Releases all locks, as the operating system does for a killed process.
    pub fn unlock(&self) {
        self.0.lock().locked.clear();
    }

    /// What is on the disk now.
    pub fn disk(&self) -> SimDisk {
        self.0.lock().disk.clone()
    }

    /// The number of moments that were remembered.
    pub fn moment_count(&self) -> usize {
        self.0.lock().moments.as_ref().map_or(0, Vec::len)
    }

    /// Takes the recorded moments, oldest first.
    pub fn take_moments(&self) -> Vec<Moment> {
        self.0.lock().moments.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn change<T>(
        &self,
        operation: Operation,
        kind: FileKind,
        path: &Path,
        change: impl FnOnce(&mut Machine) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut machine = self.0.lock();
        let done = change(&mut machine)?;
        machine.remember(operation, kind, path);
        Ok(done)
    }

    fn handle(&self, machine: &mut Machine, number: usize, writable: bool) -> Arc<dyn VfsFile> {
        *machine.open.entry(number).or_default() += 1;
        Arc::new(SimFile { vfs: self.clone(), number, writable })
    }
}

impl Machine {
    /// Records an operation that has changed something.
    fn remember(&mut self, operation: Operation, kind: FileKind, path: &Path) {
        if let Some(moments) = &mut self.moments {
            let (path, disk) = (path.to_owned(), self.disk.clone());
            moments.push(Moment { operation, kind, path, disk });
        }
    }
}

impl Vfs for SimVfs {
    fn create(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        self.change(Operation::Create, kind, path, |machine| {
            machine.disk.check_parent(path)?;
            if machine.disk.find(path).is_ok() || machine.disk.has_dir(path) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let number = machine.disk.create(path, kind);
            Ok(self.handle(machine, number, true))
        })
    }

    fn open(&self, path: &Path, _: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        let mut machine = self.0.lock();
        let number = machine.disk.find(path)?;
        Ok(self.handle(&mut machine, number, false))
    }

    fn rename(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()> {
        self.change(Operation::Rename, kind, to, |machine| {
            if kind == FileKind::Directory {
                return machine.disk.move_dir(from, Some(to));
            }
            let number = machine.disk.find(from)?;
            machine.disk.check_parent(to)?;
            if from != to {
                machine.disk.name(to, Some(number));
                machine.disk.name(from, None);
            }
            Ok(())
        })
    }

    fn remove(&self, path: &Path, kind: FileKind) -> io::Result<()> {
        self.change(Operation::Remove, kind, path, |machine| {
            if kind == FileKind::Directory {
                return machine.disk.move_dir(path, None);
            }
            machine.disk.find(path)?;
            machine.disk.name(path, None);
            Ok(())
        })
    }

    fn hard_link(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()> {
        self.change(Operation::HardLink, kind, to, |machine| {
            let number = machine.disk.find(from)?;
            machine.disk.check_parent(to)?;
            if machine.disk.find(to).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            machine.disk.name(to, Some(number));
            Ok(())
        })
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let disk = self.disk();
        if disk.find(dir).is_ok() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let SimDisk { directories, names, .. } = disk;
        if dir.parent().is_some() && !directories.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let files = names.iter().filter(|(_, states)| states.last().is_some_and(Option::is_some));
        let paths = files.map(|(path, _)| path).chain(&directories);
        let here = paths.filter(|path| path.parent() == Some(dir));
        Ok(here.filter_map(|path| Some(path.file_name()?.to_owned())).collect())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.change(Operation::CreateDir, FileKind::Directory, dir, |machine| {
            if dir.ancestors().any(|dir| machine.disk.find(dir).is_ok()) {
                return Err(io::ErrorKind::AlreadyExists.into()); // a file
            }
            let new = dir.ancestors().filter(|dir| dir.parent().is_some()).map(Path::to_owned);
            machine.disk.directories.extend(new);
            Ok(())
        })
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.change(Operation::SyncDir, FileKind::Directory, dir, |machine| {
            if !machine.disk.has_dir(dir) {
                return Err(io::ErrorKind::NotFound.into());
            }
            if !machine.lying {
                machine.disk.sync_dir(dir);
                machine.disk.forget_all_but(&machine.open);
            }
            Ok(())
        })
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.change(Operation::Lock, FileKind::Lock, path, |machine| {
            machine.disk.check_parent(path)?;
            if !machine.locked.insert(path.to_owned()) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if machine.disk.find(path).is_err() {
                machine.disk.create(path, FileKind::Lock);
            }
            Ok(Box::new(SimLock { vfs: self.clone(), path: path.to_owned() }) as Box<dyn FileLock>)
        })
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct SimLock {
    vfs: SimVfs,
    path: PathBuf,
}

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.vfs.0.lock().locked.remove(&self.path);
    }
}

/// An open file, independent of its name.
#[derive(Debug)]
struct SimFile {
    vfs: SimVfs,
    number: usize,
    writable: bool,
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut machine = self.vfs.0.lock();
        if let Some(handles) = machine.open.get_mut(&self.number) {
            *handles -= 1;
            if *handles == 0 {
                machine.open.remove(&self.number);
            }
        }
    }
}

impl SimFile {
    fn bytes(&self) -> Arc<Vec<u8>> {
        Arc::clone(&self.vfs.0.lock().disk.files[&self.number].seen)
    }

    /// Changes the file by a function of its bytes.
    fn change(&self, operation: Operation, how: impl FnOnce(&[u8]) -> Change) -> io::Result<()> {
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.done(operation, |file| file.change(how(&file.seen)))
    }

    fn done(&self, operation: Operation, action: impl FnOnce(&mut File)) -> io::Result<()> {
        let mut machine = self.vfs.0.lock();
        let file = machine.disk.files.get_mut(&self.number).ok_or(io::ErrorKind::NotFound)?;
        action(file);
        let (kind, path) = (file.kind, file.path.clone());
        machine.remember(operation, kind, &path);
        Ok(())
    }
}

impl VfsFile for SimFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let (bytes, start) = (self.bytes(), offset as usize);
        let from = start.checked_add(buffer.len()).and_then(|end| bytes.get(start..end));
        buffer.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn append(&self, data: &[u8]) -> io::Result<()> {
        self.change(Operation::Append, |bytes| Change::Write {
            offset: bytes.len(),
            data: data.into(),
        })
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.change(Operation::Write, |_| Change::Write {
            offset: offset as usize,
            data: data.into(),
        })
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.change(Operation::SetLength, |_| Change::Length(length as usize))
    }

    fn sync_data(&self) -> io::Result<()> {
        let lying = self.vfs.0.lock().lying;
        self.done(Operation::Sync, |file| {
            if !lying {
                file.sync();
            }
        })
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes().len() as u64)
    }
}
