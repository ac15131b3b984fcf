//! Errors of files and figures.

use std::io;
use std::path::{Path, PathBuf};

/// The result of a function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a page or a figure was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    File {
        /// The operation, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file, a directory or a figure has the wrong content.
    #[error("{}: expected {expected}, found {found}", path.display())]
    Unfit {
        /// The file or directory; the name of the figure.
        path: PathBuf,
        /// The expected content.
        expected: String,
        /// The actual content.
        found: String,
    },
}

impl Error {
    pub(crate) fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { action, path: path.to_owned(), source }
    }

    pub(crate) fn unfit(
        path: &Path,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::Unfit { path: path.to_owned(), expected: expected.into(), found: found.into() }
    }
}
