//! Errors.

/// The result of every fallible call of this package.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the storage. openraft gets it as a `StorageError` and stops the node.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] criba::Error),
    /// A record or a chunk of a snapshot is not what this package writes. Nothing was changed.
    #[error("{of}: expected {expected}, found {found}")]
    #[non_exhaustive]
    Record {
        /// The record's key, or what was received.
        of: String,
        /// What was expected.
        expected: &'static str,
        /// What was found.
        found: String,
    },
    /// A directory or a message is of another node than expected, or of another incarnation. Nothing was
    /// changed.
    #[error("{of}: expected {expected}, found {found}")]
    #[non_exhaustive]
    Identity {
        /// The directory, or the message.
        of: String,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
    /// Keys would expire: each node has its own clock, so the nodes would differ.
    #[error("{of}: keys would expire, on each node by its own clock, and the nodes would differ")]
    #[non_exhaustive]
    Expiry {
        /// The directory whose store has, or had, keys that expire; or the option.
        of: String,
    },
    /// The operating system has no random number for a new identity.
    #[error("no random number for a new identity: {0}")]
    Random(#[from] getrandom::Error),
}
