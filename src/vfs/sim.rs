//! A disk in memory that can lose its power.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::{FileKind, FileLock, Operation, Vfs, VfsFile};
use crate::sync::{Arc, Mutex};

/// A file system in memory that does the same each time, remembers what was not synced, and can come
/// back from a power failure in any state that POSIX allows.
///
/// Clones are the same disk. [`disk`](Self::disk) is all that is on it at this moment, a value of its
/// own; [`SimDisk::power_failure`] is what a failure at this moment might leave of it, and
/// [`on`](Self::on) a disk to open that with. A program that is killed loses nothing but its
/// [locks](Self::unlock).
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
    /// How many handles each open file has: it stays as long as it has one.
    open: BTreeMap<usize, usize>,
    moments: Option<Vec<Moment>>,
    lying: bool,
}

/// One operation that changed something, and the disk after it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Moment {
    /// What was done.
    pub operation: Operation,
    /// To what kind of file.
    pub kind: FileKind,
    /// To which one, by the last name that it was given.
    pub path: PathBuf,
    /// What was on the disk then.
    pub disk: SimDisk,
}

/// All that is on a [`SimVfs`] at one moment: the files as programs see them, and what of them is not
/// synced. A clone shares its bytes.
#[derive(Debug, Clone, Default)]
pub struct SimDisk {
    directories: BTreeSet<PathBuf>,
    /// What each name stood for when its directory was last synced, and after each change since.
    names: BTreeMap<PathBuf, Vec<Option<usize>>>,
    files: BTreeMap<usize, File>,
    created: usize,
    /// The bytes of the file of each kind that was removed last: its sectors may be given to another.
    removed: BTreeMap<FileKind, Arc<Vec<u8>>>,
}

#[derive(Debug, Clone)]
struct File {
    path: PathBuf,
    kind: FileKind,
    /// At the last sync.
    durable: Arc<Vec<u8>>,
    /// As programs see it.
    seen: Arc<Vec<u8>>,
    /// What lies between the two.
    changes: Arc<Vec<Change>>,
}

#[derive(Debug, Clone)]
enum Change {
    Write { offset: usize, data: Arc<[u8]> },
    Length(usize),
}

/// What a disk writes as a whole, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// 512 bytes.
    Sector,
    /// 4,096 bytes, as file systems write back.
    Page,
}

/// Something that a power failure may lose on its own: it is in the first state if all that happened
/// to it since the last sync is lost, in the last one if nothing is, and perhaps in one between.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unsynced {
    /// A [`Unit`] of a file.
    #[non_exhaustive]
    Bytes {
        /// The file, by the last name that it was given.
        path: PathBuf,
        /// Where in the file the unit starts.
        offset: u64,
        /// In how many states it may be: at least two.
        states: usize,
        /// Whether the synced file reaches so far. If not, the first state is zeros.
        is_new: bool,
    },
    /// The length of a file.
    #[non_exhaustive]
    Length {
        /// The file, by the last name that it was given.
        path: PathBuf,
        /// The lengths that it may have: at least two.
        lengths: Vec<u64>,
    },
    /// A name in a directory: a creation, a renaming or a removal. A renaming changes two names, each
    /// on its own: more than a journal would allow.
    #[non_exhaustive]
    Name {
        /// The name.
        path: PathBuf,
        /// How many files, or none, it may stand for: at least two.
        states: usize,
    },
}

/// Which state something [`Unsynced`] is in after a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Keep {
    /// The state of this number; the last one, if it has not so many.
    State(usize),
    /// For bytes: so many of the state of this number, and the rest as in the state before it. For
    /// the others, the state itself.
    Torn(usize, usize),
    /// For bytes that the synced file did not reach: what another file held there that was removed
    /// before. For the others, the first state.
    Stale,
}

impl Keep {
    /// The first state: nothing since the last sync is left.
    pub const OLD: Self = Self::State(0);
    /// The last state: nothing is lost.
    pub const NEW: Self = Self::State(usize::MAX);
}

impl Unit {
    /// Its length in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::Sector => 512,
            Self::Page => 4096,
        }
    }
}

impl Unsynced {
    /// In how many states it may be: at least two.
    pub fn states(&self) -> usize {
        match self {
            Self::Bytes { states, .. } | Self::Name { states, .. } => *states,
            Self::Length { lengths, .. } => lengths.len(),
        }
    }
}

impl SimVfs {
    /// An empty disk, without a directory but the root.
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

    /// A disk that lies: a sync succeeds without making anything durable. No store can keep its
    /// promises on one; what it may not do even there is to panic or to give a value that was never
    /// written.
    #[must_use]
    pub fn lying(self) -> Self {
        self.0.lock().lying = true;
        self
    }

    /// Lets go of every lock, as an operating system does for a process that was killed.
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

    /// The moments that were remembered, oldest first, which are forgotten.
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

    fn open_as(&self, path: &Path, writable: bool) -> io::Result<Arc<dyn VfsFile>> {
        let mut machine = self.0.lock();
        let number = machine.disk.find(path)?;
        Ok(self.handle(&mut machine, number, writable))
    }
}

impl Machine {
    /// Remembers an operation that has just changed something.
    fn remember(&mut self, operation: Operation, kind: FileKind, path: &Path) {
        if let Some(moments) = &mut self.moments {
            let (path, disk) = (path.to_owned(), self.disk.clone());
            moments.push(Moment { operation, kind, path, disk });
        }
    }
}

impl SimDisk {
    /// The files as programs see them, by name.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.names.iter().filter_map(|(path, states)| {
            let file = self.files.get(&(*states.last()?)?)?;
            Some((path.as_path(), file.seen.as_slice()))
        })
    }

    /// The bytes of a file as programs see it.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<&[u8]> {
        self.find(path.as_ref()).ok().map(|number| self.files[&number].seen.as_slice())
    }

    /// Puts a file there with other bytes, or a new one, durably: the work of a bad disk, or of a hand.
    pub fn write(&mut self, path: impl AsRef<Path>, bytes: impl Into<Vec<u8>>) {
        let path = path.as_ref();
        let kind = self.find(path).map_or(FileKind::Table, |number| self.files[&number].kind);
        let number = self.create(path, kind);
        let bytes = Arc::new(bytes.into());
        if let Some(file) = self.files.get_mut(&number) {
            (file.durable, file.seen) = (Arc::clone(&bytes), bytes);
        }
        self.names.insert(path.to_owned(), vec![Some(number)]);
    }

    /// Takes a file away, durably.
    pub fn remove(&mut self, path: impl AsRef<Path>) {
        self.names.remove(path.as_ref());
    }

    /// All that a power failure at this moment may lose, each on its own, in a fixed order.
    pub fn unsynced(&self, unit: Unit) -> Vec<Unsynced> {
        let mut all = Vec::new();
        let _ = self.power_failure(unit, |unsynced| {
            all.push(unsynced.clone());
            Keep::NEW
        });
        all
    }

    /// The disk after a power failure at this moment, on which everything is durable. `keep` is asked
    /// once for everything that may be lost, in the order of [`unsynced`](Self::unsynced).
    #[must_use]
    pub fn power_failure(&self, unit: Unit, mut keep: impl FnMut(&Unsynced) -> Keep) -> Self {
        let mut names = BTreeMap::new();
        for (path, states) in &self.names {
            let state = match states.as_slice() {
                [only] => *only,
                _ => {
                    states[Self::choose(
                        keep(&Unsynced::Name { path: path.clone(), states: states.len() }),
                        states.len(),
                    )]
                }
            };
            names.extend(state.map(|number| (path.clone(), vec![Some(number)])));
        }
        let mut disk = self.clone();
        disk.forget_all_but(&BTreeMap::new());
        let mut files = BTreeMap::new();
        for (&number, file) in &disk.files {
            let stale = self.removed.get(&file.kind).map_or(&[][..], |bytes| bytes);
            let bytes = file.after_power_failure(unit, stale, &mut keep);
            files.insert(number, File::durable(file.path.clone(), file.kind, bytes));
        }
        disk = Self { names, files, ..disk };
        disk.forget_all_but(&BTreeMap::new());
        disk
    }

    fn choose(keep: Keep, states: usize) -> usize {
        match keep {
            Keep::State(state) | Keep::Torn(state, _) => state.min(states - 1),
            Keep::Stale => 0,
        }
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        let now = self.names.get(path).and_then(|states| *states.last()?);
        now.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Lets a name stand for a file, or for none, from now on.
    fn name(&mut self, path: &Path, file: Option<usize>) {
        let before = self.find(path);
        self.names.entry(path.to_owned()).or_insert_with(|| vec![None]).push(file);
        if let Some(file) = file.and_then(|number| self.files.get_mut(&number)) {
            path.clone_into(&mut file.path);
        }
        if let Ok(number) = before
            && !self.names.values().any(|states| states.last() == Some(&Some(number)))
            && let Some(file) = self.files.get(&number)
        {
            self.removed.insert(file.kind, Arc::clone(&file.seen));
        }
    }

    fn create(&mut self, path: &Path, kind: FileKind) -> usize {
        let number = self.created;
        self.created += 1;
        self.files.insert(number, File::durable(path.to_owned(), kind, Arc::default()));
        self.name(path, Some(number));
        number
    }

    fn sync_dir(&mut self, dir: &Path) {
        self.names.retain(|path, states| {
            if path.parent() == Some(dir) {
                states.drain(..states.len() - 1);
            }
            states.iter().any(Option::is_some)
        });
    }

    /// Forgets the files that no name can stand for, even after a power failure, but for these.
    fn forget_all_but(&mut self, open: &BTreeMap<usize, usize>) {
        let named: BTreeSet<usize> = self.names.values().flatten().flatten().copied().collect();
        self.files.retain(|number, _| named.contains(number) || open.contains_key(number));
    }

    /// The place of a name: its directory must be there.
    fn check_parent(&self, path: &Path) -> io::Result<()> {
        let there = path.parent().is_some_and(|dir| self.has_dir(dir));
        if there { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn has_dir(&self, dir: &Path) -> bool {
        dir.parent().is_none() || self.directories.contains(dir)
    }
}

impl File {
    fn durable(path: PathBuf, kind: FileKind, bytes: Arc<Vec<u8>>) -> Self {
        Self { path, kind, durable: Arc::clone(&bytes), seen: bytes, changes: Arc::default() }
    }

    fn change(&mut self, change: Change) {
        change.apply(Arc::make_mut(&mut self.seen));
        Arc::make_mut(&mut self.changes).push(change);
    }

    fn sync(&mut self) {
        self.durable = Arc::clone(&self.seen);
        self.changes = Arc::default();
    }

    fn after_power_failure(
        &self,
        unit: Unit,
        stale: &[u8],
        keep: &mut impl FnMut(&Unsynced) -> Keep,
    ) -> Arc<Vec<u8>> {
        if self.changes.is_empty() {
            return Arc::clone(&self.seen);
        }
        let (lengths, units) = self.history(unit.bytes());
        let mut length = lengths[0];
        if lengths.len() > 1 {
            let path = self.path.clone();
            let lengths_64 = lengths.iter().map(|&length| length as u64).collect();
            let keep = keep(&Unsynced::Length { path, lengths: lengths_64 });
            length = lengths[SimDisk::choose(keep, lengths.len())];
        }
        let mut bytes = self.durable.to_vec();
        bytes.resize(length, 0);
        for (number, states) in units {
            let offset = number * unit.bytes();
            let is_new = offset >= self.durable.len();
            let unsynced = Unsynced::Bytes {
                path: self.path.clone(),
                offset: offset as u64,
                states: states.len(),
                is_new,
            };
            let keep = keep(&unsynced);
            let mut kept = states[SimDisk::choose(keep, states.len())].clone();
            match keep {
                Keep::Torn(state, torn) if state > 0 => {
                    let before = &states[state.min(states.len() - 1) - 1];
                    let torn = torn.min(kept.len());
                    kept[torn..].copy_from_slice(&before[torn..]);
                }
                Keep::Stale if is_new => {
                    let stale = stale.get(place(offset, unit.bytes(), stale.len()));
                    let stale = stale.unwrap_or_default();
                    kept[..stale.len()].copy_from_slice(stale);
                }
                _ => {}
            }
            let place = place(offset, unit.bytes(), length);
            if let Some(to) = bytes.get_mut(place) {
                to.copy_from_slice(&kept[..to.len()]);
            }
        }
        Arc::new(bytes)
    }

    /// The lengths that the file had since the last sync; and of each unit that changed, what was in
    /// it, zeros beyond the end.
    fn history(&self, unit: usize) -> (Vec<usize>, BTreeMap<usize, Vec<Vec<u8>>>) {
        let image = |bytes: &[u8], number: usize| {
            let mut image =
                bytes.get(place(number * unit, unit, bytes.len())).unwrap_or(&[]).to_vec();
            image.resize(unit, 0);
            image
        };
        let mut bytes = self.durable.to_vec();
        let mut lengths = vec![bytes.len()];
        let mut units = BTreeMap::<usize, Vec<Vec<u8>>>::new();
        for change in self.changes.iter() {
            let touched = change.touched(bytes.len());
            change.apply(&mut bytes);
            if lengths.last() != Some(&bytes.len()) {
                lengths.push(bytes.len());
            }
            for number in touched.start / unit..touched.end.div_ceil(unit) {
                let states =
                    units.entry(number).or_insert_with(|| vec![image(&self.durable, number)]);
                let now = image(&bytes, number);
                if states.last() != Some(&now) {
                    states.push(now);
                }
            }
        }
        units.retain(|_, states| states.len() > 1);
        (lengths, units)
    }
}

/// The part of a unit that lies before the end.
fn place(offset: usize, unit: usize, end: usize) -> Range<usize> {
    offset..(offset + unit).min(end).max(offset)
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write { offset, data } => {
                let end = offset + data.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset..end].copy_from_slice(data);
            }
            Self::Length(length) => bytes.resize(*length, 0),
        }
    }

    /// The bytes that it may have changed in a file of this length.
    fn touched(&self, length: usize) -> Range<usize> {
        match self {
            Self::Write { offset, data } => *offset..offset + data.len(),
            Self::Length(new) => length.min(*new)..length.max(*new),
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
        self.open_as(path, false)
    }

    fn open_writable(&self, path: &Path, _: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        self.open_as(path, true)
    }

    fn rename(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()> {
        self.change(Operation::Rename, kind, to, |machine| {
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
        let SimDisk { directories, names, .. } = self.disk();
        if dir.parent().is_some() && !directories.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let files = names.iter().filter(|(_, states)| states.last().is_some_and(Option::is_some));
        let paths = files.map(|(path, _)| path).chain(&directories);
        let here = paths.filter(|path| path.parent() == Some(dir));
        Ok(here.filter_map(|path| Some(path.file_name()?.to_owned())).collect())
    }

    fn length(&self, path: &Path, _: FileKind) -> io::Result<u64> {
        let machine = self.0.lock();
        let number = machine.disk.find(path)?;
        Ok(machine.disk.files[&number].seen.len() as u64)
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

/// An open file. It stays what it is when its name goes to another.
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

    /// Changes the file, which is told its bytes as they are now to say how.
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
