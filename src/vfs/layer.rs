//! The traits of a file layer, with the kinds of files and operations.

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The purpose of a file. Wrappers count and fail by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FileKind {
    /// An SSTable.
    Table,
    /// A write-ahead log.
    Wal,
    /// The record of the live tables.
    Manifest,
    /// `CURRENT`, which names the manifest, and its temporary file.
    Current,
    /// The lock file.
    Lock,
    /// A filter in its own file.
    Filter,
    /// A directory: the store's own, or that of a checkpoint.
    Directory,
}

impl FileKind {
    /// All kinds, in the order of their declaration.
    pub const ALL: [Self; 7] = [
        Self::Table,
        Self::Wal,
        Self::Manifest,
        Self::Current,
        Self::Lock,
        Self::Filter,
        Self::Directory,
    ];
}

/// An operation of the file layer. Wrappers count and fail by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Operation {
    /// [`Vfs::create`].
    Create,
    /// [`Vfs::open`].
    Open,
    /// [`VfsFile::read_exact_at`].
    Read,
    /// [`VfsFile::append`].
    Append,
    /// [`VfsFile::write_at`].
    Write,
    /// [`VfsFile::set_length`].
    SetLength,
    /// [`VfsFile::sync_data`] and [`VfsFile::sync_all`].
    Sync,
    /// [`Vfs::sync_dir`].
    SyncDir,
    /// [`Vfs::rename`].
    Rename,
    /// [`Vfs::remove`].
    Remove,
    /// [`Vfs::hard_link`].
    HardLink,
    /// [`Vfs::list`].
    List,
    /// [`VfsFile::length`].
    Length,
    /// [`Vfs::lock`].
    Lock,
    /// [`Vfs::create_dir`].
    CreateDir,
}

impl Operation {
    /// All operations, in the order of their declaration.
    pub const ALL: [Self; 15] = [
        Self::Create,
        Self::Open,
        Self::Read,
        Self::Append,
        Self::Write,
        Self::SetLength,
        Self::Sync,
        Self::SyncDir,
        Self::Rename,
        Self::Remove,
        Self::HardLink,
        Self::List,
        Self::Length,
        Self::Lock,
        Self::CreateDir,
    ];
}

/// The expected access to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AccessHint {
    /// At unrelated places: readahead would be wasted.
    Random,
    /// These bytes soon: readahead can begin.
    WillNeed {
        /// Where they begin.
        offset: u64,
        /// How many they are.
        length: u64,
    },
}

/// The part of a file system that a store needs.
///
/// Durability follows POSIX: a power failure may lose the content of a file until the file is synced, and a
/// created, renamed or removed name until its directory is synced.
///
/// # Errors
/// All methods return the error of the operating system. A missing file is [`io::ErrorKind::NotFound`].
#[expect(clippy::missing_errors_doc, reason = "said once, for the whole trait")]
pub trait Vfs: Debug + Send + Sync {
    /// Creates an empty file, open for reading and writing. An existing name is
    /// [`io::ErrorKind::AlreadyExists`]: the store never overwrites a file.
    fn create(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>>;

    /// Opens an existing file for reading.
    fn open(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>>;

    /// Renames a file, atomically replacing an existing one; or a directory ([`FileKind::Directory`]), which
    /// replaces nothing but an empty directory.
    fn rename(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()>;

    /// Removes a name. Open handles stay readable. A directory ([`FileKind::Directory`]) must be empty.
    fn remove(&self, path: &Path, kind: FileKind) -> io::Result<()>;

    /// Gives a file a second name.
    fn hard_link(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()>;

    /// The names in a directory, in any order.
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>>;

    /// Creates a directory and its missing parents, durably. An existing one is no error.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes the exclusive lock on a file, which is created if it is missing, until the returned value is
    /// dropped. If this or another process holds it, the error is [`io::ErrorKind::WouldBlock`], at once.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;

    /// Takes a shared lock on an existing file, without a change to it. Shared locks exclude only the
    /// [exclusive](Self::lock) one. By default this is the exclusive one.
    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.lock(path)
    }

    /// Whether this is a simulation in a test, as `SimVfs` is. Filters and indexes of such a store are not
    /// made read-only: that interrupts all threads of the process, and tests open stores by the thousand.
    fn is_simulated(&self) -> bool {
        false
    }
}

/// A shared file layer, for [`Options::vfs`](crate::Options::vfs). Forwards every method, defaulted ones too.
/// Calls through it follow one pointer more; calls of open files do not.
impl<V: Vfs + ?Sized> Vfs for Arc<V> {
    fn create(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        (**self).create(path, kind)
    }

    fn open(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>> {
        (**self).open(path, kind)
    }

    fn rename(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()> {
        (**self).rename(from, to, kind)
    }

    fn remove(&self, path: &Path, kind: FileKind) -> io::Result<()> {
        (**self).remove(path, kind)
    }

    fn hard_link(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()> {
        (**self).hard_link(from, to, kind)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        (**self).list(dir)
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        (**self).create_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        (**self).sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        (**self).lock(path)
    }

    fn lock_shared(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        (**self).lock_shared(path)
    }

    fn is_simulated(&self) -> bool {
        (**self).is_simulated()
    }
}

/// An open file. Many threads may read it at once, and one may sync it while another appends.
///
/// # Errors
/// All methods return the error of the operating system.
#[expect(clippy::missing_errors_doc, reason = "said once, for the whole trait")]
pub trait VfsFile: Debug + Send + Sync {
    /// Fills `buffer` from `offset`. One call is one disk read in the ledger. If the file ends first, the
    /// error is [`io::ErrorKind::UnexpectedEof`].
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Reads `length` bytes from `offset` into a new buffer, otherwise as
    /// [`read_exact_at`](Self::read_exact_at). A file that need not set the buffer to zero first can do it
    /// faster.
    fn read_new(&self, length: usize, offset: u64) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; length];
        self.read_exact_at(&mut buffer, offset)?;
        Ok(buffer)
    }

    /// Writes all of `data` at the end. After an error the end stays, and the content behind it is undefined
    /// until [`set_length`](Self::set_length) cuts it off.
    fn append(&self, data: &[u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`, possibly beyond the end; a gap reads as zeros. The place of the next
    /// [`append`](Self::append) moves only if the write passes it.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts the file, or extends it with zeros. Appends continue there.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Makes the data durable, with the metadata needed to read it.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes the data and all metadata durable.
    fn sync_all(&self) -> io::Result<()>;

    /// The file's length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Announces an access. Doing nothing is safe.
    fn hint(&self, _hint: AccessHint) -> io::Result<()> {
        Ok(())
    }
}

/// A held lock. Dropping it releases the lock.
pub trait FileLock: Debug + Send + Sync {}
