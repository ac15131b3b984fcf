//! The traits of a file layer, with the kinds of files and operations.

use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::io;
use std::os::unix::ffi::OsStrExt;
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
    /// A directory: the store's own, one of its ancestors, or that of a checkpoint.
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
    /// [`VfsDir::create`].
    Create,
    /// [`VfsDir::open`].
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
    /// [`VfsDir::sync`].
    SyncDir,
    /// [`VfsDir::rename`].
    Rename,
    /// [`VfsDir::remove`].
    Remove,
    /// [`VfsDir::link_to`].
    HardLink,
    /// [`VfsDir::list`].
    List,
    /// [`VfsFile::length`].
    Length,
    /// [`VfsDir::lock`] and [`VfsDir::lock_shared`].
    Lock,
    /// [`VfsDir::create_dir`].
    CreateDir,
    /// [`Vfs::open_dir`] and [`VfsDir::open_dir`].
    OpenDir,
    /// [`VfsDir::identity`], [`VfsDir::identity_of`] and [`VfsFile::identity`].
    Identity,
}

impl Operation {
    /// All operations, in the order of their declaration.
    pub const ALL: [Self; 17] = [
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
        Self::OpenDir,
        Self::Identity,
    ];
}

/// The expected access to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AccessHint {
    /// Reads at unrelated places: readahead would be wasted.
    Random,
    /// These bytes soon: readahead can begin.
    WillNeed {
        /// Where they begin.
        offset: u64,
        /// How many they are.
        length: u64,
    },
    /// A scan reads on from block to block, and so probably these bytes. A layer of slow reads can read them at once;
    /// for a disk it is not worth a call of the system.
    Scan {
        /// Where they begin.
        offset: u64,
        /// How many they are.
        length: u64,
    },
}

/// The type of a name's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EntryType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A device, a pipe or a socket.
    Other,
}

/// Identifies a file by device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The number of the file system.
    pub device: u64,
    /// The number of the file on it.
    pub inode: u64,
    /// The number of names; 0 for a file or directory that was removed while it is open. A layer that counts none
    /// returns 0 always: a store whose directory has 0 at the opening does not look at it.
    pub links: u64,
    /// The type.
    pub entry_type: EntryType,
}

impl Identity {
    /// Whether both are the same file.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// The part of a file system that a store needs: a way to its directory.
///
/// A path leads to a directory once. Later operations take single names in it, so a `chdir`, a rename or another
/// directory in its place cannot lead them elsewhere.
pub trait Vfs: Debug + Send + Sync {
    /// Opens an existing directory, also through symbolic links.
    ///
    /// # Errors
    /// The error of the operating system.
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn VfsDir>>;

    /// Whether this is a simulation in a test, as `SimVfs` is. Filters and indexes of such a store are not
    /// made read-only: that interrupts all threads of the process, and tests open stores by the thousand.
    fn is_simulated(&self) -> bool {
        false
    }
}

/// A shared file layer, for [`Options::vfs`](crate::Options::vfs). Forwards every method, defaulted ones too.
impl<V: Vfs + ?Sized> Vfs for Arc<V> {
    fn open_dir(&self, path: &Path) -> io::Result<Arc<dyn VfsDir>> {
        (**self).open_dir(path)
    }

    fn is_simulated(&self) -> bool {
        (**self).is_simulated()
    }
}

/// An open directory. It stays the same one when it is renamed, and when another takes its name.
///
/// A name is one component: an empty one, `.`, `..`, and one with a slash are
/// [`io::ErrorKind::InvalidInput`] ([`check_name`]). The mode of a new file has the permissions of Unix,
/// `0o600` for example; the process's mask applies.
///
/// Durability follows POSIX: a power failure may lose the content of a file until the file is synced, and a
/// created, renamed or removed name until its directory is synced.
///
/// # Errors
/// All methods return the error of the operating system. A missing file is [`io::ErrorKind::NotFound`].
#[expect(clippy::missing_errors_doc, reason = "said once, for the whole trait")]
pub trait VfsDir: Any + Debug + Send + Sync {
    /// Opens an existing regular file for reading. A symbolic link, a directory or a pipe under this name is an
    /// error, and the call does not wait for the other end of a pipe.
    fn open(&self, name: &OsStr, kind: FileKind) -> io::Result<Arc<dyn VfsFile>>;

    /// Creates an empty file, open for reading and writing. An existing name is
    /// [`io::ErrorKind::AlreadyExists`]: the store never overwrites a file.
    fn create(&self, name: &OsStr, kind: FileKind, mode: u32) -> io::Result<Arc<dyn VfsFile>>;

    /// Renames a file within the directory, atomically replacing an existing one; or a directory
    /// ([`FileKind::Directory`]), which replaces nothing but an empty directory.
    fn rename(&self, from: &OsStr, to: &OsStr, kind: FileKind) -> io::Result<()>;

    /// Removes a name. Open handles stay readable. A directory ([`FileKind::Directory`]) must be empty.
    fn remove(&self, name: &OsStr, kind: FileKind) -> io::Result<()>;

    /// Gives a file a second name, in another directory of this layer. A layer without hard links returns
    /// [`io::ErrorKind::Unsupported`]; then a checkpoint copies the file.
    fn link_to(
        &self,
        name: &OsStr,
        to: &dyn VfsDir,
        to_name: &OsStr,
        kind: FileKind,
    ) -> io::Result<()>;

    /// The names in the directory, in any order.
    fn list(&self) -> io::Result<Vec<OsString>>;

    /// Makes the names in the directory durable.
    fn sync(&self) -> io::Result<()>;

    /// Takes the exclusive lock on a file, which is created if it is missing, and on the directory itself,
    /// until the returned value is dropped. If this or another process holds one of them, the error is
    /// [`io::ErrorKind::WouldBlock`], at once. A directory that cannot be locked, as on NFS, stays unlocked.
    fn lock(&self, name: &OsStr, mode: u32) -> io::Result<Box<dyn FileLock>>;

    /// Takes shared locks on an existing file and on the directory, without a change to them. Shared locks
    /// exclude only the [exclusive](Self::lock) one.
    fn lock_shared(&self, name: &OsStr) -> io::Result<Box<dyn FileLock>>;

    /// Creates a directory in this one. An existing name is [`io::ErrorKind::AlreadyExists`].
    fn create_dir(&self, name: &OsStr, mode: u32) -> io::Result<()>;

    /// Opens a directory in this one, not through a symbolic link.
    fn open_dir(&self, name: &OsStr) -> io::Result<Arc<dyn VfsDir>>;

    /// The identity of this directory.
    fn identity(&self) -> io::Result<Identity>;

    /// The identity of the file with this name. A symbolic link is not followed.
    fn identity_of(&self, name: &OsStr, kind: FileKind) -> io::Result<Identity>;
}

/// Refuses what is not the name of one file in a directory.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`].
pub fn check_name(name: &OsStr) -> io::Result<&OsStr> {
    let bytes = name.as_bytes();
    let is_one = !matches!(bytes, b"" | b"." | b"..") && !bytes.contains(&b'/');
    is_one.then_some(name).ok_or_else(|| {
        let text = format!("{} is not the name of one file", name.display());
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
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
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(length)?;
        buffer.resize(length, 0);
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

    /// The offset from `offset` on at which data begin that are not a hole, which reads as zeros; `None` if there
    /// are none. A layer that knows no holes returns `offset`.
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok(Some(offset))
    }

    /// The identity of this file, with the number of names that it has left.
    fn identity(&self) -> io::Result<Identity>;

    /// Announces an access. Doing nothing is safe.
    fn hint(&self, _hint: AccessHint) -> io::Result<()> {
        Ok(())
    }
}

/// A held lock. Dropping it releases the lock.
pub trait FileLock: Debug + Send + Sync {
    /// The identity of the locked file.
    ///
    /// # Errors
    /// The error of the operating system.
    fn identity(&self) -> io::Result<Identity>;
}
