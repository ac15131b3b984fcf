//! What can go wrong, said so that the reader knows which file, where in it, and what was expected.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the store. Cheap to clone: one failure may have to be told to many waiting callers.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file layer failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// What was attempted, as a verb: "open", "read 4096 bytes at offset 0".
        action: String,
        /// The file or directory concerned.
        path: PathBuf,
        /// What the operating system said.
        source: Arc<io::Error>,
    },
    /// A file does not hold what it should. Nothing was changed.
    #[error("{}: offset {offset}: expected {expected}, found {found}", path.display())]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Where in it the damage was noticed, in bytes from its start.
        offset: u64,
        /// What a sound file has there.
        expected: String,
        /// What is there instead.
        found: String,
    },
    /// A file that the store's own records name is not there.
    #[error("{}: expected this file, named by {named_by}, found none", path.display())]
    Missing {
        /// The file that should exist.
        path: PathBuf,
        /// The record that names it.
        named_by: String,
    },
    /// A file of a newer format version, or one that needs a feature this version does not have.
    #[error("{}: expected {supported}, found {found}; a newer criba may open it", path.display())]
    Unsupported {
        /// The file concerned.
        path: PathBuf,
        /// What this version can read.
        supported: String,
        /// What the file asks for.
        found: String,
    },
    /// The directory is not a criba store. It was left as it was.
    #[error("{}: expected a criba store, found {found}", path.display())]
    NotAStore {
        /// The directory.
        path: PathBuf,
        /// What made it unfit.
        found: String,
    },
    /// The store is open in this or another process, or a [`Range`](crate::Range) or
    /// [`Snapshot`](crate::Snapshot) of a closed handle is still alive, or
    /// [`verify`](crate::verify) is reading the store. The lock does not say which.
    #[error(
        "{}: the store is locked: it is open in this or another process, or a scan or snapshot of a closed handle is still alive",
        path.display()
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The store was closed through another handle.
    #[error("the store is closed")]
    Closed,
    /// A key, value or batch is longer than the format allows. Nothing was written.
    #[error("{what} of {length} bytes: the limit is {limit}")]
    TooLong {
        /// "key", "value" or "batch".
        what: &'static str,
        /// Its length in bytes.
        length: u64,
        /// The greatest length allowed, in bytes.
        limit: u64,
    },
    /// An option makes no sense. Nothing was created or changed.
    #[error("option {option}: {reason}")]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// Why its value is refused.
        reason: String,
    },
    /// An earlier failure left the end of a log in doubt, so the store takes no more writes.
    /// Reads go on. Opening the store again recovers everything that was synced.
    #[error("no more writes until the store is opened again, because: {cause}")]
    Poisoned {
        /// The failure that did it.
        cause: Arc<Error>,
    },
    /// A flush or compaction cannot go on (a full disk, say), so writers are not made to wait for
    /// it. It is tried again by itself.
    #[error("background work is failing: {cause}")]
    Background {
        /// The failure of the newest try.
        cause: Arc<Error>,
    },
    /// A finished filter denied a key of its own table; neither was installed.
    #[error("{}: the finished filter denies key number {key} of its own table", path.display())]
    FilterLies {
        /// The file that holds the filter.
        path: PathBuf,
        /// The key's place in the table, counted from 0.
        key: u64,
    },
    /// Two filters of one's own that cannot be united or compared. Nothing was changed.
    #[error("the filters differ in their {what}: {this} here, {other} there")]
    Mismatch {
        /// "shape", "hash" or "hash key".
        what: &'static str,
        /// What the filter called has.
        this: String,
        /// What the other filter has.
        other: String,
    },
}

impl Error {
    pub(crate) fn corrupt(
        path: &Path,
        offset: u64,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::Corrupt {
            path: path.to_owned(),
            offset,
            expected: expected.into(),
            found: found.into(),
        }
    }
}

/// Adds the file and the attempted action to an `io::Error`.
pub(crate) trait IoContext<T> {
    fn context(self, action: impl Display, path: &Path) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn context(self, action: impl Display, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io {
            action: action.to_string(),
            path: path.to_owned(),
            source: Arc::new(source),
        })
    }
}
