//! What can go wrong in a command, and its exit code.

use std::io;
use std::path::{Path, PathBuf};

/// The result of a command.
pub type Result<T> = std::result::Result<T, Failure>;

/// Why a command could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The store refused or failed.
    #[error(transparent)]
    Store(#[from] criba::Error),
    /// A file beside the store could not be used.
    #[error("{}: cannot {action}: {source}", path.display())]
    File {
        /// What was attempted, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file or directory is not what it should be.
    #[error("{}: expected {expected}, found {found}", path.display())]
    Unfit {
        /// The file or directory.
        path: PathBuf,
        /// What would do.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The command line asks for what cannot be.
    #[error("{0}")]
    Usage(String),
    /// Standard output could not be written to. The only plain I/O error there is: everything else
    /// that can fail names its file.
    #[error("standard output: cannot write: {0}")]
    Output(#[from] io::Error),
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

    /// Whether the reader of our output has enough (`criba scan … | head -1`).
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            _ if self.is_closed_pipe() => 0,
            Self::Usage(_) | Self::Store(criba::Error::InvalidOption { .. }) => 2,
            _ => 3,
        }
    }
}
