//! Errors. Each names the object or the file, the offset, what was expected.

use std::path::PathBuf;

/// The result of every fallible call of this package.
pub type Result<T> = std::result::Result<T, Error>;

/// An error. Cheap to clone.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The local store, or a local file, failed.
    #[error(transparent)]
    Store(#[from] criba::Error),
    /// A request failed, also when it was repeated for as long as [`Options::retry_for`](crate::Options::retry_for).
    #[error("{object}: cannot {action}: {cause}")]
    #[non_exhaustive]
    Request {
        /// "read 4096 bytes at offset 0".
        action: String,
        /// The name of the object.
        object: String,
        /// The last error of the object store, without the query of a URL.
        cause: String,
        /// Whether there is no such object.
        is_missing: bool,
    },
    /// An object is damaged.
    #[error("{object}: offset {offset}: expected {expected}, found {found}")]
    #[non_exhaustive]
    Damaged {
        /// The name of the object, or the local file.
        object: String,
        /// The offset at which the damage was noticed.
        offset: u64,
        /// What a sound object has there.
        expected: String,
        /// What was found.
        found: String,
    },
    /// Another writer opened the store later. This one publishes nothing more.
    #[error(
        "{}: epoch {epoch} of this writer has ended, because another writer began epoch {newest}; \
         up to {unpublished} changes here are not in the bucket; open_local reads them",
        directory.display()
    )]
    #[non_exhaustive]
    Fenced {
        /// The local directory.
        directory: PathBuf,
        /// The epoch of this directory's writer.
        epoch: u64,
        /// The newest epoch in the bucket.
        newest: u64,
        /// At most so many changes of this directory were not published.
        unpublished: u64,
    },
    /// The bucket has no published version of a store.
    #[error("{bucket}: no version of a store is published there")]
    #[non_exhaustive]
    NothingPublished {
        /// The place.
        bucket: String,
    },
    /// The local directory belongs to another bucket than the one that was named.
    #[error("{}: expected a directory of the store in {bucket}, found {found}", directory.display())]
    #[non_exhaustive]
    OtherBucket {
        /// The local directory.
        directory: PathBuf,
        /// The place of the objects.
        bucket: String,
        /// What the directory has.
        found: String,
    },
    /// A URL names no object store that this build supports.
    #[error("{url}: {reason}")]
    #[non_exhaustive]
    Url {
        /// The URL, without its query and password.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The handle was closed or dropped during the call.
    #[error("the store is closed")]
    Closed,
    /// The operating system has no random number.
    #[error("no random number: {0}")]
    Random(#[from] getrandom::Error),
}

impl Error {
    /// Whether an object is missing.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Request { is_missing: true, .. })
    }
}

/// The error of a file operation, for the file layer.
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Request { is_missing: true, .. } => std::io::ErrorKind::NotFound,
            _ => std::io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// A text without the queries of its URLs, which can have signatures.
pub(crate) fn without_queries(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut is_query = false;
    for letter in text.chars() {
        if is_query && (letter.is_whitespace() || matches!(letter, ')' | '"' | '\'' | '>' | ']')) {
            is_query = false;
        }
        if !is_query {
            shown.push(letter);
        }
        if letter == '?' {
            is_query = true;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_query_of_a_url_is_shown() {
        let text = "error sending request for url (https://host/c/o?sv=1&sig=SECRET): refused";
        assert_eq!(
            without_queries(text),
            "error sending request for url (https://host/c/o?): refused"
        );
    }
}
