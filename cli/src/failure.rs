//! Failures of a command, and their exit codes.

use crate::shell::quoted;
use std::io;
use std::path::{Path, PathBuf};

/// The result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The store refused or failed.
    #[error("{}{}", .0, next_step(.0, true))]
    Store(#[from] criba::Error),
    /// As [`Store`](Self::Store), in a command that only reads.
    #[error("{}{}", .0, next_step(.0, false))]
    Read(criba::Error),
    /// A filter without a store failed.
    #[error(transparent)]
    Filter(#[from] criba_filter::Error),
    /// A page or a figure was not written.
    #[error(transparent)]
    Report(#[from] criba_report::Error),
    /// A file outside the store failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    File {
        /// The operation, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file or directory has the wrong content.
    #[error("{}: expected {expected}, found {found}", path.display())]
    Unfit {
        /// The file or directory.
        path: PathBuf,
        /// The expected content.
        expected: String,
        /// The actual content.
        found: String,
    },
    /// A dump of which a part is missing.
    #[error("{}: expected a whole dump, found {found}", path.display())]
    Cut {
        /// The file.
        path: PathBuf,
        /// What was found.
        found: String,
    },
    /// An error of another package.
    #[error("{0}")]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// An impossible command line.
    #[error("{0}")]
    Usage(String),
    /// Standard output failed. The only plain I/O error: all others name their file.
    #[error("standard output: cannot write: {0}")]
    Output(#[from] io::Error),
}

/// What helps after an error of the store, in a command that writes or only reads.
fn next_step(error: &criba::Error, writes: bool) -> String {
    use criba::Error::{ClockBehind, Corrupt, Io, Locked, Missing, NotAStore};
    match error {
        Corrupt { path, .. } | Missing { path, .. } => {
            let dir = match path.parent() {
                Some(dir) if dir != Path::new("") => dir,
                _ => Path::new("."),
            };
            let dir = quoted(dir);
            format!(
                "; criba verify {dir} lists the damage, criba repair {dir} --to NEW salvages the rest"
            )
        }
        Locked { .. } => {
            "; get, scan, dump, stats, tune, explain, inspect, backup and verify --live work \
                          meanwhile"
                .into()
        }
        ClockBehind { .. } => "; if the clock is right, --accept-clock does that".into(),
        NotAStore { .. } => "; put and load make a store in a new or an empty directory".into(),
        Io { source, .. } => match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem if writes => {
                "; get, scan, dump, stats, tune, explain, inspect and verify only read".into()
            }
            io::ErrorKind::StorageFull => "; free some space and run the command again".into(),
            _ => String::new(),
        },
        _ => String::new(),
    }
}

impl Failure {
    /// A [`Failure::File`].
    pub fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { action, path: path.to_owned(), source }
    }

    /// A [`Failure::Unfit`].
    pub fn unfit(path: &Path, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self::Unfit { path: path.to_owned(), expected: expected.into(), found: found.into() }
    }

    /// The same, of a command that only reads.
    pub(crate) fn of_reading(self) -> Self {
        match self {
            Self::Store(error) => Self::Read(error),
            other => other,
        }
    }

    /// Whether the reader of our output closed it (`criba scan … | head -1`).
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            _ if self.is_closed_pipe() => 0,
            Self::Usage(_)
            | Self::Store(criba::Error::InvalidOption { .. })
            | Self::Read(criba::Error::InvalidOption { .. }) => 2,
            Self::Cut { .. } => 1,
            _ => 3,
        }
    }
}
