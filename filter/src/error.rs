//! Errors. Each names what it concerns: the file, the offset, what was expected.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::shown::shown;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a filter.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system failed.
    #[error("{}: cannot {action}: {source}", shown(path))]
    Io {
        /// The attempted action: "open", "write".
        action: String,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: Arc<io::Error>,
    },
    /// Bytes or a file hold no sound filter of this type.
    #[error("{}: offset {offset}: expected {expected}, found {found}", shown(path))]
    Corrupt {
        /// The file, or "the bytes of a filter".
        path: PathBuf,
        /// The offset at which the damage was noticed.
        offset: u64,
        /// What a sound filter has at the offset.
        expected: String,
        /// What the bytes have at the offset.
        found: String,
    },
    /// Another version of this crate made the filter.
    #[error("{}: expected {supported}, found {found}", shown(path))]
    Unsupported {
        /// The file, or "the bytes of a filter".
        path: PathBuf,
        /// What this version reads.
        supported: String,
        /// What the filter needs.
        found: String,
    },
    /// An option is invalid. Nothing was changed.
    #[error("option {option}: {reason}")]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// Why the value is invalid.
        reason: String,
    },
    /// Two filters cannot be united or compared. Nothing was changed.
    #[error("the filters differ in their {what}: {this} here, {other} there")]
    Mismatch {
        /// "shape", "hash" or "hash key".
        what: &'static str,
        /// What this filter has.
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
