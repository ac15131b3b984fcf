//! What a file layer is: its traits, and the kinds and operations by which wrappers count and fail.

use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What a file is for. Wrappers count and fail by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FileKind {
    /// An SSTable.
    Table,
    /// A write-ahead log.
    Wal,
    /// The record of the live tables.
    Manifest,
    /// The file that names the manifest in force, and its temporary predecessor.
    Current,
    /// The lock file.
    Lock,
    /// A filter that stands in a file of its own.
    Filter,
    /// The store's directory itself.
    Directory,
}

impl FileKind {
    /// Every kind, in the order of their declaration.
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

/// One operation of the file layer. Wrappers count and fail by it.
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
    /// Every operation, in the order of their declaration.
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

/// How a file is about to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AccessHint {
    /// At places that do not follow one another: readahead would be wasted.
    Random,
    /// These bytes soon: reading them into the page cache can begin.
    WillNeed {
        /// Where they begin.
        offset: u64,
        /// How many they are.
        length: u64,
    },
}

/// A file system, as far as a store needs one.
///
/// Durability follows POSIX: what is written to a file may be lost in a power failure until that
/// file is synced, and a name that is created, renamed or removed until its directory is.
///
/// # Errors
/// All methods pass on what the operating system says. A file that is not there is
/// [`io::ErrorKind::NotFound`].
#[expect(clippy::missing_errors_doc, reason = "said once, for the whole trait")]
pub trait Vfs: Debug + Send + Sync {
    /// Makes a new, empty file and opens it for reading and writing. A name that exists already is
    /// [`io::ErrorKind::AlreadyExists`]: the store never writes over a file.
    fn create(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>>;

    /// Opens an existing file for reading.
    fn open(&self, path: &Path, kind: FileKind) -> io::Result<Arc<dyn VfsFile>>;

    /// Gives a file another name, replacing what has that name, atomically.
    fn rename(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()>;

    /// Removes a name. An open file stays readable through its handle.
    fn remove(&self, path: &Path, kind: FileKind) -> io::Result<()>;

    /// Gives a file a second name.
    fn hard_link(&self, from: &Path, to: &Path, kind: FileKind) -> io::Result<()>;

    /// The names in a directory, in no particular order.
    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>>;

    /// Makes a directory and its missing parents, durably. One that exists is no error.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes the exclusive lock on a file, creating the file if need be, for as long as the
    /// returned value lives. Held elsewhere, in this process or another, it is
    /// [`io::ErrorKind::WouldBlock`], at once.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;

    /// Whether the files are simulated, as those of `SimVfs` are, by a process that tests something.
    /// Filters and indexes of such a store lie in memory that the operating system does not make
    /// read-only: it stops the process's other threads for that, and tests open stores by the thousand.
    fn is_simulated(&self) -> bool {
        false
    }
}

/// An open file. All methods take `&self`: a file is read by many threads at once, and synced by
/// one while another appends.
///
/// # Errors
/// All methods pass on what the operating system says.
#[expect(clippy::missing_errors_doc, reason = "said once, for the whole trait")]
pub trait VfsFile: Debug + Send + Sync {
    /// Fills `buffer` from `offset`. One call is one disk read in the ledger. A file that ends
    /// before the buffer is full is [`io::ErrorKind::UnexpectedEof`]; the rest is never zero-filled.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `data` at the end. After an error the end is where it was, and what lies
    /// beyond it is undefined until [`set_length`](Self::set_length) cuts it off.
    fn append(&self, data: &[u8]) -> io::Result<()>;

    /// Writes all of `data` at `offset`, which may lie beyond the end; a gap reads as zeros. Does
    /// not move the place where [`append`](Self::append) goes on, unless it writes past it.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;

    /// Cuts the file, or grows it with zeros, and appends from there on.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Makes the data durable, with as much metadata as is needed to read it back.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes the data and all metadata durable.
    fn sync_all(&self) -> io::Result<()>;

    /// The file's length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Says how the file is about to be read. Doing nothing is safe.
    fn hint(&self, _hint: AccessHint) -> io::Result<()> {
        Ok(())
    }
}

/// A held lock; dropping it lets go.
pub trait FileLock: Debug + Send + Sync {}
