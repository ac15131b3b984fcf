//! The operating system's file system.

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::fs::{
    Advice, AtFlags, CWD, Dir, FileType, Mode, OFlags, RawMode, fadvise, fchown, fstat, linkat,
    mkdirat, openat, renameat, statat, unlinkat,
};
#[cfg(target_os = "linux")]
use rustix::fs::{SeekFrom, StatxFlags, makedev, seek, statx};
use rustix::io::{Errno, pread, retry_on_intr};
use rustix::process::{Gid, Uid, geteuid};

use super::{
    AccessHint, EntryType, FileKind, FileLock, Identity, Vfs, VfsDir, VfsFile, check_name,
};
use crate::fork::Birth;
use crate::sync::{AtomicU64, Ordering};

/// The operating system's file system. A read is one `pread`; no file is mapped.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealVfs;

#[derive(Debug)]
struct RealFile {
    file: File,
    /// The place of the next append. One thread appends at a time; a reopened file is only read.
    end: AtomicU64,
}

fn entry_type(mode: RawMode) -> EntryType {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => EntryType::File,
        FileType::Directory => EntryType::Directory,
        FileType::Symlink => EntryType::Symlink,
        _ => EntryType::Other,
    }
}

/// The identity of the file of a name, not through a symbolic link; of the open file for an empty name.
fn identity_at(file: &File, name: &OsStr) -> io::Result<Identity> {
    #[cfg(target_os = "linux")]
    match identity_without_times(file, name) {
        Err(Errno::NOSYS) => {}
        found => return Ok(found?),
    }
    let stat =
        if name.is_empty() { fstat(file)? } else { statat(file, name, AtFlags::SYMLINK_NOFOLLOW)? };
    // The widths of the fields differ between systems.
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    Ok(Identity {
        device: stat.st_dev as u64,
        inode: stat.st_ino as u64,
        links: stat.st_nlink as u64,
        entry_type: entry_type(stat.st_mode),
    })
}

/// Asks for no times. From Linux 6.13 on, a file whose times were asked for gets finer ones at its next write, and
/// a sync of a log then takes half as long again.
#[cfg(target_os = "linux")]
fn identity_without_times(file: &File, name: &OsStr) -> rustix::io::Result<Identity> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
    let stat = statx(file, name, flags, StatxFlags::TYPE | StatxFlags::INO | StatxFlags::NLINK)?;
    Ok(Identity {
        device: makedev(stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
        links: stat.stx_nlink.into(),
        entry_type: entry_type(stat.stx_mode.into()),
    })
}

#[allow(clippy::useless_conversion, reason = "the width differs between systems")]
fn mode_of(mode: u32) -> io::Result<Mode> {
    Ok(Mode::from_raw_mode(mode.try_into().map_err(|_| Errno::INVAL)?))
}

fn identity_of(file: &File) -> io::Result<Identity> {
    identity_at(file, OsStr::new(""))
}

impl VfsFile for RealFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn read_new(&self, length: usize, offset: u64) -> io::Result<Vec<u8>> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(length)?;
        while buffer.len() < length {
            let at = offset + buffer.len() as u64;
            match pread(&self.file, spare_capacity(&mut buffer), at) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        buffer.truncate(length);
        Ok(buffer)
    }

    fn append(&self, data: &[u8]) -> io::Result<()> {
        let end = self.end.load(Ordering::Acquire);
        self.file.write_all_at(data, end)?;
        self.end.store(end + data.len() as u64, Ordering::Release);
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(data, offset)?;
        self.end.fetch_max(offset + data.len() as u64, Ordering::AcqRel);
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.end.store(length, Ordering::Release);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn identity(&self) -> io::Result<Identity> {
        identity_of(&self.file)
    }

    #[cfg(target_os = "linux")]
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        match seek(&self.file, SeekFrom::Data(offset)) {
            Ok(data) => Ok(Some(data)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn hint(&self, hint: AccessHint) -> io::Result<()> {
        let (offset, length, advice) = match hint {
            AccessHint::Random => (0, 0, Advice::Random),
            AccessHint::WillNeed { offset, length } => (offset, length, Advice::WillNeed),
            AccessHint::Scan { .. } => return Ok(()),
        };
        // A length of 0 means up to the end.
        fadvise(&self.file, offset, NonZeroU64::new(length), advice).map_err(Into::into)
    }
}

/// An `flock` on the lock file and on its directory: it ends with the process, and two opens conflict within
/// one process, too.
#[derive(Debug)]
struct RealLock {
    file: File,
    /// `None` where a directory cannot be locked.
    dir: Option<File>,
    birth: Birth,
}

impl FileLock for RealLock {
    fn identity(&self) -> io::Result<Identity> {
        identity_of(&self.file)
    }
}

impl Drop for RealLock {
    fn drop(&mut self) {
        // Closing the files is not enough: a child that is just being spawned holds copies of the
        // descriptors until it runs its program, and the locks with them. Unlocking is for all copies, so
        // those of a child must only be closed.
        if !self.birth.is_this_process() {
            return;
        }
        let _ = self.file.unlock();
        if let Some(dir) = &self.dir {
            let _ = dir.unlock();
        }
    }
}

impl Vfs for RealVfs {
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn VfsDir>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = retry_on_intr(|| openat(CWD, path, flags, Mode::empty()))?;
        Ok(Arc::new(RealDir(File::from(dir))))
    }
}

/// An open directory.
#[derive(Debug)]
struct RealDir(File);

impl RealDir {
    fn open_at(&self, name: &OsStr, flags: OFlags, mode: u32) -> io::Result<File> {
        let (flags, mode) = (flags | OFlags::CLOEXEC, mode_of(mode)?);
        Ok(File::from(retry_on_intr(|| openat(&self.0, name, flags, mode))?))
    }

    /// A new file. As root, it gets the owner of the directory: the user that owns the store must be able to
    /// open it afterwards.
    fn create_file(&self, name: &OsStr, flags: OFlags, mode: u32) -> io::Result<File> {
        let file = self.open_at(check_name(name)?, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
        if geteuid().is_root() {
            let dir = fstat(&self.0)?;
            let (owner, group) = (Uid::from_raw(dir.st_uid), Gid::from_raw(dir.st_gid));
            // Some file systems refuse it.
            let _ = fchown(&file, Some(owner), Some(group));
        }
        Ok(file)
    }

    /// Opens a regular file. A symbolic link could lead outside the directory, and opening a pipe waits for its
    /// other end.
    fn open_regular(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let not_a_file = |found: &str| {
            let text = format!("expected a regular file, found {found}");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        };
        let file = match self.open_at(check_name(name)?, flags, 0) {
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                return Err(not_a_file("a symbolic link: put the file itself in its place"));
            }
            file => file?,
        };
        match identity_of(&file)?.entry_type {
            EntryType::File => Ok(file),
            EntryType::Directory => Err(not_a_file("a directory")),
            EntryType::Symlink | EntryType::Other => Err(not_a_file("a pipe, socket or device")),
        }
    }

    fn take_lock(
        &self,
        file: File,
        try_lock: impl Fn(&File) -> Result<(), TryLockError>,
    ) -> io::Result<Box<dyn FileLock>> {
        match try_lock(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let mut lock = RealLock { file, dir: None, birth: Birth::now() };
        // Opened anew: a lock belongs to one opening.
        let dir = self.open_at(OsStr::new("."), OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
        match try_lock(&dir) {
            Ok(()) => lock.dir = Some(dir),
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(_)) => {} // on NFS, for example: the lock file counts alone
        }
        Ok(Box::new(lock))
    }
}

impl VfsDir for RealDir {
    fn open(&self, name: &OsStr, _kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        let file = self.open_regular(name, OFlags::RDONLY)?;
        Ok(Arc::new(RealFile { file, end: AtomicU64::new(0) }))
    }

    fn create(&self, name: &OsStr, _kind: FileKind, mode: u32) -> io::Result<Arc<dyn VfsFile>> {
        let file = self.create_file(name, OFlags::RDWR, mode)?;
        Ok(Arc::new(RealFile { file, end: AtomicU64::new(0) }))
    }

    fn rename(&self, from: &OsStr, to: &OsStr, _kind: FileKind) -> io::Result<()> {
        Ok(renameat(&self.0, check_name(from)?, &self.0, check_name(to)?)?)
    }

    fn remove(&self, name: &OsStr, kind: FileKind) -> io::Result<()> {
        let flags = match kind {
            FileKind::Directory => AtFlags::REMOVEDIR,
            _ => AtFlags::empty(),
        };
        Ok(unlinkat(&self.0, check_name(name)?, flags)?)
    }

    fn link_to(
        &self,
        name: &OsStr,
        to: &dyn VfsDir,
        to_name: &OsStr,
        _kind: FileKind,
    ) -> io::Result<()> {
        let Some(to) = (to as &dyn Any).downcast_ref::<Self>() else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let flags = AtFlags::empty();
        Ok(linkat(&self.0, check_name(name)?, &to.0, check_name(to_name)?, flags)?)
    }

    fn list(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.0)? {
            let name = OsString::from_vec(entry?.file_name().to_bytes().to_vec());
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn lock(&self, name: &OsStr, mode: u32) -> io::Result<Box<dyn FileLock>> {
        let file = match self.create_file(name, OFlags::RDWR, mode) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.open_regular(name, OFlags::RDWR)?
            }
            file => file?,
        };
        self.take_lock(file, File::try_lock)
    }

    fn lock_shared(&self, name: &OsStr) -> io::Result<Box<dyn FileLock>> {
        self.take_lock(self.open_regular(name, OFlags::RDONLY)?, File::try_lock_shared)
    }

    fn create_dir(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        Ok(mkdirat(&self.0, check_name(name)?, mode_of(mode)?)?)
    }

    fn open_dir(&self, name: &OsStr) -> io::Result<Arc<dyn VfsDir>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        Ok(Arc::new(Self(self.open_at(check_name(name)?, flags, 0)?)))
    }

    fn identity(&self) -> io::Result<Identity> {
        identity_of(&self.0)
    }

    fn identity_of(&self, name: &OsStr, _kind: FileKind) -> io::Result<Identity> {
        identity_at(&self.0, check_name(name)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODE: u32 = 0o600;

    fn opened() -> io::Result<(tempfile::TempDir, Arc<dyn VfsDir>)> {
        let temp = tempfile::tempdir()?;
        let dir = RealVfs.open_dir(temp.path())?;
        Ok((temp, dir))
    }

    #[test]
    fn appends_go_on_after_a_cut() -> io::Result<()> {
        let (temp, dir) = opened()?;
        let file = dir.create(OsStr::new("f"), FileKind::Wal, MODE)?;
        file.append(b"abcdef")?;
        file.set_length(2)?;
        file.append(b"XY")?;
        file.append(b"!")?;
        assert_eq!(std::fs::read(temp.path().join("f"))?, b"abXY!");
        let mut past_the_end = [0; 3];
        let error = file.read_exact_at(&mut past_the_end, 4).expect_err("only one byte is there");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        Ok(())
    }

    #[test]
    fn a_new_buffer_has_the_bytes_at_the_offset() -> io::Result<()> {
        let (_temp, dir) = opened()?;
        let file = dir.create(OsStr::new("f"), FileKind::Table, MODE)?;
        file.append(b"0123456789")?;
        assert_eq!(file.read_new(4, 3)?, b"3456");
        assert_eq!(file.read_new(10, 0)?, b"0123456789");
        assert_eq!(file.read_new(0, 5)?, b"");
        for (length, offset) in [(2, 9), (11, 0), (1, 10), (1, 99)] {
            let error = file.read_new(length, offset).expect_err("the file ends before");
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{length} at {offset}");
        }
        Ok(())
    }

    #[test]
    fn a_name_is_never_written_over() -> io::Result<()> {
        let (temp, dir) = opened()?;
        let name = OsStr::new("f");
        dir.create(name, FileKind::Table, MODE)?.append(b"kept")?;
        let error = dir.create(name, FileKind::Table, MODE).expect_err("it exists");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(temp.path().join(name))?, b"kept");
        Ok(())
    }

    #[test]
    fn a_name_is_one_component() -> io::Result<()> {
        let (temp, dir) = opened()?;
        std::fs::write(temp.path().join("f"), b"")?;
        std::fs::create_dir(temp.path().join("d"))?;
        let good = OsStr::new("f");
        for bad in ["", ".", "..", "/", "/f", "f/", "d/../f", "../f"].map(OsStr::new) {
            let kind = FileKind::Table;
            let results = [
                dir.open(bad, kind).map(drop),
                dir.create(bad, kind, MODE).map(drop),
                dir.rename(bad, good, kind),
                dir.rename(good, bad, kind),
                dir.remove(bad, kind),
                dir.remove(bad, FileKind::Directory),
                dir.link_to(bad, &*dir, OsStr::new("g"), kind),
                dir.link_to(good, &*dir, bad, kind),
                dir.lock(bad, MODE).map(drop),
                dir.lock_shared(bad).map(drop),
                dir.create_dir(bad, 0o700),
                dir.open_dir(bad).map(drop),
                dir.identity_of(bad, kind).map(drop),
            ];
            for (number, result) in results.into_iter().enumerate() {
                let error = result.expect_err("a name that is not one");
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{bad:?}, {number}: {error}");
            }
        }
        assert_eq!(dir.list()?.len(), 2);
        Ok(())
    }

    #[test]
    fn a_directory_stays_open_under_another_name_and_without_one() -> io::Result<()> {
        let (temp, _) = opened()?;
        let (first, second) = (temp.path().join("first"), temp.path().join("second"));
        std::fs::create_dir(&first)?;
        let dir = RealVfs.open_dir(&first)?;
        std::fs::rename(&first, &second)?;
        std::fs::create_dir(&first)?;
        dir.create(OsStr::new("f"), FileKind::Table, MODE)?.append(b"here")?;
        assert_eq!(std::fs::read(second.join("f"))?, b"here");
        assert!(!dir.identity()?.is_same(&RealVfs.open_dir(&first)?.identity()?));
        assert!(dir.identity()?.is_same(&RealVfs.open_dir(&second)?.identity()?));
        std::fs::remove_dir_all(&second)?;
        assert_eq!(dir.identity()?.links, 0);
        let error = dir.create(OsStr::new("g"), FileKind::Table, MODE).expect_err("no directory");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        Ok(())
    }

    #[test]
    fn a_lock_excludes_a_second_one_in_the_same_process() -> io::Result<()> {
        let (temp, dir) = opened()?;
        let lock = || RealVfs.open_dir(temp.path())?.lock(OsStr::new("LOCK"), MODE);
        let first = dir.lock(OsStr::new("LOCK"), MODE)?;
        assert!(first.identity()?.is_same(&dir.identity_of(OsStr::new("LOCK"), FileKind::Lock)?));
        assert_eq!(lock().expect_err("it is held").kind(), io::ErrorKind::WouldBlock);
        // The directory is locked, too.
        std::fs::remove_file(temp.path().join("LOCK"))?;
        assert_eq!(lock().expect_err("it is held").kind(), io::ErrorKind::WouldBlock);
        drop(first);
        lock().map(drop)
    }

    /// Between fork and exec a child has a copy of every descriptor.
    #[test]
    fn a_lock_is_released_while_other_threads_spawn_processes() -> io::Result<()> {
        let (_temp, dir) = opened()?;
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = std::process::Command::new("true").status();
                }
            });
            let locked = (0..20_000).try_for_each(|_| dir.lock(OsStr::new("LOCK"), MODE).map(drop));
            done.store(true, Ordering::Relaxed);
            locked
        })
    }
}
