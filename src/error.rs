//! Errors. Each names what it concerns: the file, the offset, what was expected.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::value::Value;
use criba_filter::store::shown;

/// The result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the store. Cheap to clone: one failure may be the error of many calls.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file layer failed.
    #[error("{}: cannot {action}: {source}", shown(path))]
    Io {
        /// The attempted action: "open", "read 4096 bytes at offset 0".
        action: String,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// A file is damaged. Nothing was changed.
    #[error("{}: offset {offset}: expected {expected}, found {found}", shown(path))]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// The offset at which the damage was noticed.
        offset: u64,
        /// What a sound file has at the offset.
        expected: String,
        /// What the file has at the offset.
        found: String,
    },
    /// A file of the store is missing.
    #[error("{}: expected this file, named by {named_by}, found none", shown(path))]
    Missing {
        /// The file.
        path: PathBuf,
        /// The file, or the fact, that implies the missing file.
        named_by: String,
    },
    /// A file is of another version of criba; `found` says which one reads it.
    #[error("{}: expected {supported}, found {found}", shown(path))]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What this version of criba reads.
        supported: String,
        /// What the file needs.
        found: String,
    },
    /// No store can be made at this path. Nothing was changed.
    #[error("{}{reason}", named(path))]
    InvalidPath {
        /// The path. It may be empty.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// While the store was open, its directory, its lock file or its log was removed or replaced. What has the
    /// name now was not changed.
    #[error("{}: expected {expected}, found {found}", shown(path))]
    Moved {
        /// The directory or the file.
        path: PathBuf,
        /// What the store has open.
        expected: String,
        /// What was found in its place.
        found: String,
    },
    /// The directory is not a criba store. It was not changed.
    #[error("{}: expected a criba store, found {found}", shown(path))]
    NotAStore {
        /// The directory.
        path: PathBuf,
        /// What the directory holds.
        found: String,
    },
    /// The store is in use, in this process or another: it is open, a [`Range`](crate::Range) or
    /// [`Snapshot`](crate::Snapshot) of it is alive, or [`verify`](crate::verify) reads it.
    #[error("{} is held by {}", shown(path), holder(*pid, name))]
    #[non_exhaustive]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The process that took the lock, if the system reports it. It may be this one.
        pid: Option<u32>,
        /// The name of that process; empty if it has ended, or is unknown.
        name: String,
    },
    /// The store was closed through another handle.
    #[error("the store is closed")]
    Closed,
    /// This process is a fork of the one that opened the store: see [`Db`](crate::Db#after-a-fork).
    #[error(
        "this process is a fork of the one that opened the store: drop this copy, close the store there, then open it here"
    )]
    Forked,
    /// A key, value or batch is too long. Nothing was written.
    #[error("{what} of {length} bytes: the limit is {limit}")]
    TooLong {
        /// "key", "value" or "batch".
        what: &'static str,
        /// The length in bytes.
        length: u64,
        /// The greatest allowed length, in bytes.
        limit: u64,
    },
    /// A pair of an [ingest](crate::Db::ingest) has a key that is not greater than the one before. Nothing was
    /// changed.
    #[error(
        "the key \"{}\" comes behind \"{}\": ingested keys must ascend",
        shown_key(key),
        shown_key(before)
    )]
    Unsorted {
        /// The key.
        key: Value,
        /// The key before it.
        before: Value,
    },
    /// A condition of a batch does not hold: see [`Batch::require`](crate::Batch::require). Nothing was written.
    #[error("the condition on the key \"{}\" does not hold: nothing was written", shown_key(key))]
    ConditionFailed {
        /// The key of the first such condition.
        key: Value,
    },
    /// Something that a transaction read was written after its snapshot. Nothing was written. A new transaction can
    /// succeed: see [`Db::transact`](crate::Db::transact).
    #[error("what the transaction read was written meanwhile: begin a new one")]
    Conflict,
    /// The keys and ranges that a transaction read take more memory than
    /// [`Options::transaction_bytes`](crate::Options::transaction_bytes). Nothing was written.
    #[error(
        "the transaction has read keys and ranges of {bytes} bytes: the limit is {limit} (transaction_bytes)"
    )]
    TransactionTooLarge {
        /// The memory of the keys and ranges, in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The value of an option is invalid. Nothing was changed.
    #[error("option {option}: {reason}")]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// Why the value is invalid.
        reason: String,
    },
    /// The clock is more than an hour behind the time that the store has recorded: its keys would not expire. See
    /// [`Options::accept_clock`](crate::Options::accept_clock).
    #[error(
        "the clock shows {}, but the store was in use at {}: set the clock, or open the store with accept_clock",
        humantime::format_rfc3339_seconds(*clock),
        humantime::format_rfc3339_seconds(*recorded)
    )]
    ClockBehind {
        /// What the clock shows.
        clock: SystemTime,
        /// The time that the store has recorded.
        recorded: SystemTime,
    },
    /// The store refuses writes, because after a failure the content of a log or of the manifest is in doubt,
    /// or because its directory was removed ([`Moved`](Self::Moved)). Reads work. The next open recovers all
    /// synced writes, except those in a directory or log that was removed.
    #[error("the store refuses writes until it is opened again, because: {cause}")]
    Poisoned {
        /// The first failure.
        cause: Arc<Error>,
    },
    /// A flush or compaction that this call waits for failed, on a full disk for example. The store tries
    /// again.
    #[error("background work is failing: {cause}")]
    Background {
        /// The newest failure.
        cause: Arc<Error>,
    },
    /// A new filter denies a key of its table. It was not installed.
    #[error("{}: the finished filter denies key number {key} of its own table", shown(path))]
    FilterLies {
        /// The file of the filter.
        path: PathBuf,
        /// The number of the key in the table, from 0.
        key: u64,
    },
    /// The store needs more memory than [`Options::memory_limit`](crate::Options::memory_limit). Nothing was
    /// changed.
    #[error(
        "{}: {needed} bytes of memory are needed, memory_limit is {limit}: {memtables} for three memtables (memtable_bytes), {filters} for filters (filter_memory), {indexes} for indexes (fewer after compact with larger block_bytes), {cache} for cached blocks (cache_bytes)",
        shown(path)
    )]
    MemoryLimit {
        /// The directory of the store.
        path: PathBuf,
        /// The limit in bytes.
        limit: u64,
        /// The sum of the parts below.
        needed: u64,
        /// Three memtables of [`memtable_bytes`](crate::Options::memtable_bytes).
        memtables: u64,
        /// All filters, at most [`filter_memory`](crate::Options::filter_memory).
        filters: u64,
        /// All indexes: fewer bytes for larger [blocks](crate::Options::block_bytes).
        indexes: u64,
        /// [`cache_bytes`](crate::Options::cache_bytes).
        cache: u64,
    },
}

/// The greatest number of bytes of a key in a message.
const SHOWN_KEY_BYTES: usize = 64;

fn shown_key(key: &[u8]) -> String {
    match key.get(..SHOWN_KEY_BYTES) {
        Some(start) if start.len() < key.len() => format!("{}…", start.escape_ascii()),
        _ => key.escape_ascii().to_string(),
    }
}

fn named(path: &Path) -> String {
    if path == Path::new("") { String::new() } else { format!("{}: ", shown(path)) }
}

/// The holder of a lock, and what to do.
fn holder(pid: Option<u32>, name: &str) -> String {
    match pid {
        Some(pid) if pid == std::process::id() => {
            "this process: a Db, a Snapshot, a Transaction or a scan of the store \
            is alive; clone the Db, or open the store read-only"
                .into()
        }
        Some(pid) if name.is_empty() => format!(
            "process {pid}: close the store there; if that has ended, a fork of it, perhaps this process, \
            has the lock"
        ),
        Some(pid) => format!(
            "process {pid} ({name}), which has the store open: close it there, or open it read-only"
        ),
        None => "another process, or this one: close the store there, or open it read-only".into(),
    }
}

impl Error {
    /// Whether a file could not be opened or removed because it does not exist.
    pub(crate) fn is_missing_file(&self) -> bool {
        self.is_io(io::ErrorKind::NotFound)
    }

    pub(crate) fn is_io(&self, kind: io::ErrorKind) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == kind)
    }

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

/// The store's error is the payload: [`io::Error::get_ref`] returns it. The kind of [`Error::Io`] is that of the
/// operating system's error.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Io { source, .. } => source.kind(),
            Error::Corrupt { .. } | Error::Unsupported { .. } | Error::NotAStore { .. } => {
                io::ErrorKind::InvalidData
            }
            Error::Missing { .. } => io::ErrorKind::NotFound,
            Error::Locked { .. } => io::ErrorKind::WouldBlock,
            Error::TooLong { .. } | Error::InvalidOption { .. } | Error::InvalidPath { .. } => {
                io::ErrorKind::InvalidInput
            }
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// Adds the attempted action and the file to an `io::Error`.
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
