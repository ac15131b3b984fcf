//! A simulated disk that can lose power: the file system is here, the content in `disk` and `file`, the
//! effects of a power failure in `power`.

mod disk;
mod file;
mod power;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::sync::{Arc, Mutex, MutexGuard};
use crate::vfs::{
    AccessHint, EntryType, FileKind, FileLock, Identity, Operation, Vfs, VfsDir, VfsFile,
    check_name,
};
use disk::ROOT;
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
    /// The numbers of locked files and directories.
    locked: BTreeSet<usize>,
    /// The number of handles of each open file.
    open: BTreeMap<usize, usize>,
    moments: Option<Vec<Moment>>,
    lying: bool,
    during_sync: Option<DuringSync>,
}

/// What a test does between the begin and the end of a sync.
#[derive(Clone)]
struct DuringSync(Arc<dyn Fn(FileKind) + Send + Sync>);

impl fmt::Debug for DuringSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DuringSync")
    }
}

/// An operation that changed something, and the disk after it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Moment {
    /// What was done.
    pub operation: Operation,
    /// The kind of the file.
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

    /// Calls `action` during each sync of a file or directory, with its kind, on the thread that syncs.
    ///
    /// A sync makes durable what was there when it began. What happens in `action`, or in other threads until
    /// the sync ends, becomes durable with a later one.
    #[must_use]
    pub fn during_sync(self, action: impl Fn(FileKind) + Send + Sync + 'static) -> Self {
        self.0.lock().during_sync = Some(DuringSync(Arc::new(action)));
        self
    }

    /// Begins a sync. Returns the time up to which it makes changes durable.
    fn begin_sync(&self, kind: FileKind) -> u64 {
        let machine = self.0.lock();
        let begun = if machine.lying { 0 } else { machine.disk.now() };
        let during = machine.during_sync.clone();
        drop(machine);
        if let Some(DuringSync(action)) = during {
            action(kind);
        }
        begun
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

    /// Changes the disk under the programs that use it, as an administrator does. Open files and directories
    /// stay open.
    pub fn edit(&self, change: impl FnOnce(&mut SimDisk)) {
        change(&mut self.0.lock().disk);
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
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn VfsDir>> {
        let machine = self.0.lock();
        if machine.disk.find(path).is_ok() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let number = match machine.disk.directories.get(path) {
            Some(number) => *number,
            None if path.parent().is_none() => ROOT,
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Arc::new(SimDir { vfs: self.clone(), number }))
    }

    fn is_simulated(&self) -> bool {
        true
    }
}

/// An open directory, independent of its name.
#[derive(Debug)]
struct SimDir {
    vfs: SimVfs,
    number: usize,
}

impl SimDir {
    /// Passes the path of a name to an operation that changes something.
    fn change<T>(
        &self,
        operation: Operation,
        kind: FileKind,
        name: &OsStr,
        change: impl FnOnce(&mut Machine, &Path) -> io::Result<T>,
    ) -> io::Result<T> {
        let (mut machine, path) = self.find(name)?;
        let done = change(&mut machine, &path)?;
        machine.remember(operation, kind, &path);
        Ok(done)
    }

    /// The path of a name, with the machine.
    fn find(&self, name: &OsStr) -> io::Result<(MutexGuard<'_, Machine>, PathBuf)> {
        let machine = self.vfs.0.lock();
        let path = machine.disk.path_of_dir(self.number)?.join(check_name(name)?);
        Ok((machine, path))
    }
}

impl VfsDir for SimDir {
    fn open(&self, name: &OsStr, _: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        let (mut machine, path) = self.find(name)?;
        let number = machine.disk.find(&path)?;
        Ok(self.vfs.handle(&mut machine, number, false))
    }

    fn create(&self, name: &OsStr, kind: FileKind, _mode: u32) -> io::Result<Arc<dyn VfsFile>> {
        self.change(Operation::Create, kind, name, |machine, path| {
            if machine.disk.find(path).is_ok() || machine.disk.has_dir(path) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            let number = machine.disk.create(path, kind);
            Ok(self.vfs.handle(machine, number, true))
        })
    }

    fn rename(&self, from: &OsStr, to: &OsStr, kind: FileKind) -> io::Result<()> {
        self.change(Operation::Rename, kind, to, |machine, to| {
            let from = to.with_file_name(check_name(from)?);
            if kind == FileKind::Directory {
                return machine.disk.move_dir(&from, Some(to));
            }
            let number = machine.disk.find(&from)?;
            if from != to {
                machine.disk.name(to, Some(number));
                machine.disk.name(&from, None);
            }
            Ok(())
        })
    }

    fn remove(&self, name: &OsStr, kind: FileKind) -> io::Result<()> {
        self.change(Operation::Remove, kind, name, |machine, path| {
            if kind == FileKind::Directory {
                return machine.disk.move_dir(path, None);
            }
            machine.disk.find(path)?;
            machine.disk.name(path, None);
            Ok(())
        })
    }

    fn link_to(
        &self,
        name: &OsStr,
        to: &dyn VfsDir,
        to_name: &OsStr,
        kind: FileKind,
    ) -> io::Result<()> {
        let Some(to) = (to as &dyn Any).downcast_ref::<Self>() else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let number = {
            let (machine, path) = self.find(name)?;
            machine.disk.find(&path)?
        };
        to.change(Operation::HardLink, kind, to_name, |machine, to| {
            if machine.disk.find(to).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            machine.disk.name(to, Some(number));
            Ok(())
        })
    }

    fn list(&self) -> io::Result<Vec<OsString>> {
        let disk = self.vfs.disk();
        let dir = disk.path_of_dir(self.number)?;
        let files = disk
            .names
            .iter()
            .filter(|(_, states)| states.last().is_some_and(|state| state.file.is_some()));
        let paths = files.map(|(path, _)| path).chain(disk.directories.keys());
        let here = paths.filter(|path| path.parent() == Some(&dir));
        Ok(here.filter_map(|path| Some(path.file_name()?.to_owned())).collect())
    }

    fn sync(&self) -> io::Result<()> {
        let begun = self.vfs.begin_sync(FileKind::Directory);
        let mut machine = self.vfs.0.lock();
        // As on Linux, a removed directory can be synced.
        let Ok(dir) = machine.disk.path_of_dir(self.number) else { return Ok(()) };
        if !machine.lying {
            let Machine { disk, open, .. } = &mut *machine;
            disk.sync_dir(&dir, begun);
            disk.forget_all_but(open);
        }
        machine.remember(Operation::SyncDir, FileKind::Directory, &dir);
        Ok(())
    }

    fn lock(&self, name: &OsStr, _mode: u32) -> io::Result<Box<dyn FileLock>> {
        self.change(Operation::Lock, FileKind::Lock, name, |machine, path| {
            let file = match machine.disk.find(path) {
                Ok(file) => file,
                Err(_) => machine.disk.create(path, FileKind::Lock),
            };
            let numbers = [file, self.number];
            if numbers.iter().any(|number| machine.locked.contains(number)) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            machine.locked.extend(numbers);
            Ok(Box::new(SimLock { vfs: self.vfs.clone(), numbers }) as Box<dyn FileLock>)
        })
    }

    fn lock_shared(&self, name: &OsStr) -> io::Result<Box<dyn FileLock>> {
        self.identity_of(name, FileKind::Lock)?;
        self.lock(name, 0)
    }

    fn create_dir(&self, name: &OsStr, _mode: u32) -> io::Result<()> {
        self.change(Operation::CreateDir, FileKind::Directory, name, |machine, path| {
            machine.disk.create_dir(path)
        })
    }

    fn open_dir(&self, name: &OsStr) -> io::Result<Arc<dyn VfsDir>> {
        let (machine, path) = self.find(name)?;
        drop(machine);
        self.vfs.open_dir(&path)
    }

    fn identity(&self) -> io::Result<Identity> {
        let links = u64::from(self.vfs.0.lock().disk.path_of_dir(self.number).is_ok());
        Ok(identity(self.number, links, EntryType::Directory))
    }

    fn identity_of(&self, name: &OsStr, _kind: FileKind) -> io::Result<Identity> {
        let (machine, path) = self.find(name)?;
        if let Some(number) = machine.disk.directories.get(&path) {
            return Ok(identity(*number, 1, EntryType::Directory));
        }
        let number = machine.disk.find(&path)?;
        Ok(identity(number, machine.disk.links(number), EntryType::File))
    }
}

fn identity(number: usize, links: u64, entry_type: EntryType) -> Identity {
    Identity { device: 0, inode: number as u64, links, entry_type }
}

#[derive(Debug)]
struct SimLock {
    vfs: SimVfs,
    /// The lock file and its directory.
    numbers: [usize; 2],
}

impl FileLock for SimLock {
    fn identity(&self) -> io::Result<Identity> {
        let [file, _] = self.numbers;
        Ok(identity(file, self.vfs.0.lock().disk.links(file), EntryType::File))
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut machine = self.vfs.0.lock();
        for number in self.numbers {
            machine.locked.remove(&number);
        }
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
        self.done(operation, |file, time| file.change(time, how(&file.seen)))
    }

    fn done(&self, operation: Operation, action: impl FnOnce(&mut File, u64)) -> io::Result<()> {
        let mut machine = self.vfs.0.lock();
        let time = machine.disk.tick();
        let file = machine.disk.files.get_mut(&self.number).ok_or(io::ErrorKind::NotFound)?;
        action(file, time);
        let (kind, path) = (file.kind, file.path.clone());
        machine.remember(operation, kind, &path);
        Ok(())
    }
}

impl VfsFile for SimFile {
    /// A simulated disk takes no hint: equal runs have equal counts.
    fn hint(&self, _: AccessHint) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

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
        let kind = self.vfs.0.lock().disk.files.get(&self.number).map(|file| file.kind);
        let begun = self.vfs.begin_sync(kind.ok_or(io::ErrorKind::NotFound)?);
        self.done(Operation::Sync, |file, _| file.sync(begun))
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes().len() as u64)
    }

    fn identity(&self) -> io::Result<Identity> {
        Ok(identity(self.number, self.vfs.0.lock().disk.links(self.number), EntryType::File))
    }
}
