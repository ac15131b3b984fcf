//! The operating system's file system.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, pread};

use super::{AccessHint, FileKind, FileLock, Vfs, VfsFile};
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

impl RealFile {
    fn open(options: &OpenOptions, path: &Path) -> io::Result<Arc<dyn VfsFile>> {
        Ok(Arc::new(Self { file: options.open(path)?, end: AtomicU64::new(0) }))
    }
}

impl VfsFile for RealFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn read_new(&self, length: usize, offset: u64) -> io::Result<Vec<u8>> {
        let mut buffer = Vec::with_capacity(length);
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

    fn hint(&self, hint: AccessHint) -> io::Result<()> {
        let (offset, length, advice) = match hint {
            AccessHint::Random => (0, 0, Advice::Random),
            AccessHint::WillNeed { offset, length } => (offset, length, Advice::WillNeed),
        };
        // A length of 0 means up to the end.
        fadvise(&self.file, offset, NonZeroU64::new(length), advice).map_err(Into::into)
    }
}

/// An `flock` on an open file: it ends with the process, and two opens conflict within one process, too.
#[derive(Debug)]
struct RealLock {
    file: File,
    birth: Birth,
}

impl FileLock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child that is just being spawned holds a copy of the
        // descriptor until it runs its program, and the lock with it. Unlocking is for all copies, so that of
        // a child must only be closed.
        if self.birth.is_this_process() {
            let _ = self.file.unlock();
        }
    }
}

impl Vfs for RealVfs {
    fn create(&self, path: &Path, _kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        RealFile::open(OpenOptions::new().read(true).write(true).create_new(true), path)
    }

    fn open(&self, path: &Path, _kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        RealFile::open(OpenOptions::new().read(true), path)
    }

    fn rename(&self, from: &Path, to: &Path, _kind: FileKind) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path, kind: FileKind) -> io::Result<()> {
        match kind {
            FileKind::Directory => std::fs::remove_dir(path),
            _ => std::fs::remove_file(path),
        }
    }

    fn hard_link(&self, from: &Path, to: &Path, _kind: FileKind) -> io::Result<()> {
        std::fs::hard_link(from, to)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        std::fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let parent = parent_of(dir);
        let made = match std::fs::create_dir(dir) {
            // Once more with the parent there, and no more often: "not found" may mean other things.
            Err(e) if e.kind() == io::ErrorKind::NotFound && parent != dir => {
                self.create_dir(parent)?;
                std::fs::create_dir(dir)
            }
            made => made,
        };
        match made {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
            Err(e) => Err(e),
            Ok(()) => self.sync_dir(parent),
        }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        locked(file.try_lock(), file)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let file = File::open(path)?;
        locked(file.try_lock_shared(), file)
    }
}

fn locked(taken: Result<(), TryLockError>, file: File) -> io::Result<Box<dyn FileLock>> {
    match taken {
        Ok(()) => Ok(Box::new(RealLock { file, birth: Birth::now() })),
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
        Err(TryLockError::Error(e)) => Err(e),
    }
}

/// The directory that holds the name `path`.
fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_go_on_after_a_cut() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("f");
        let file = RealVfs.create(&path, FileKind::Wal)?;
        file.append(b"abcdef")?;
        file.set_length(2)?;
        file.append(b"XY")?;
        file.append(b"!")?;
        assert_eq!(std::fs::read(&path)?, b"abXY!");
        let mut past_the_end = [0; 3];
        let error = file.read_exact_at(&mut past_the_end, 4).expect_err("only one byte is there");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        Ok(())
    }

    #[test]
    fn a_new_buffer_has_the_bytes_at_the_offset() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let file = RealVfs.create(&dir.path().join("f"), FileKind::Table)?;
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
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("f");
        RealVfs.create(&path, FileKind::Table)?.append(b"kept")?;
        let error = RealVfs.create(&path, FileKind::Table).expect_err("it exists");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path)?, b"kept");
        Ok(())
    }

    #[test]
    fn a_lock_excludes_a_second_one_in_the_same_process() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("LOCK");
        let first = RealVfs.lock(&path)?;
        let error = RealVfs.lock(&path).expect_err("it is held");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        drop(first);
        RealVfs.lock(&path).map(drop)
    }

    /// Between fork and exec a child has a copy of every descriptor.
    #[test]
    fn a_lock_is_released_while_other_threads_spawn_processes() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("LOCK");
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let _ = std::process::Command::new("true").status();
                }
            });
            let locked = (0..20_000).try_for_each(|_| RealVfs.lock(&path).map(drop));
            done.store(true, Ordering::Relaxed);
            locked
        })
    }

    #[test]
    fn directories_are_made_with_their_parents() -> io::Result<()> {
        let dir = tempfile::tempdir()?;
        let deep = dir.path().join("a/b/c");
        RealVfs.create_dir(&deep)?;
        RealVfs.create_dir(&deep)?;
        assert!(deep.is_dir());
        let file = deep.join("file");
        std::fs::write(&file, b"")?;
        assert!(RealVfs.create_dir(&file).is_err());
        // A file system that has no place for it says "not found", whatever is there.
        #[cfg(target_os = "linux")]
        assert!(RealVfs.create_dir(Path::new("/proc/criba/store")).is_err());
        Ok(())
    }
}
