//! Errors of the store and of filters as exceptions: the classes are in `package/criba/errors.py`.

use std::path::Path;

use pyo3::prelude::*;

/// What a method fails with.
pub(crate) enum Failure {
    /// An exception of Python, also of a function or iterator that a method calls.
    Python(PyErr),
    Store(criba::Error),
    Filter(criba_filter::Error),
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<criba::Error> for Failure {
    fn from(error: criba::Error) -> Self {
        Self::Store(error)
    }
}

impl From<criba_filter::Error> for Failure {
    fn from(error: criba_filter::Error) -> Self {
        Self::Filter(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        let (message, fields) = match &failure {
            Failure::Python(_) => (String::new(), Fields::of("")),
            Failure::Store(error) => (error.to_string(), of_store(error)),
            Failure::Filter(error) => (error.to_string(), of_filter(error)),
        };
        match failure {
            Failure::Python(error) => error,
            _ => Python::attach(|py| fields.exception(py, &message).unwrap_or_else(|error| error)),
        }
    }
}

/// An exception's class and attributes.
struct Fields<'a> {
    class: &'static str,
    file: Option<&'a Path>,
    offset: Option<u64>,
    errno: Option<i32>,
}

impl<'a> Fields<'a> {
    fn of(class: &'static str) -> Self {
        Self { class, file: None, offset: None, errno: None }
    }

    fn at(class: &'static str, file: &'a Path) -> Self {
        Self { file: Some(file), ..Self::of(class) }
    }

    fn exception(&self, py: Python<'_>, message: &str) -> PyResult<PyErr> {
        let exception = py.import("criba.errors")?.getattr(self.class)?.call1((message,))?;
        let file = self.file.map(Path::as_os_str); // a `str` in Python, not a `Path`
        exception.setattr("file", file)?;
        exception.setattr("offset", self.offset)?;
        if let Some(errno) = self.errno {
            exception.setattr("errno", errno)?;
            exception.setattr("strerror", message)?;
            exception.setattr("filename", file)?;
        }
        Ok(PyErr::from_value(exception))
    }
}

fn of_store(error: &criba::Error) -> Fields<'_> {
    use criba::Error;
    match error {
        Error::Io { path, source, .. } => {
            Fields { errno: source.raw_os_error(), ..Fields::at("IoError", path) }
        }
        Error::Corrupt { path, offset, .. } => {
            Fields { offset: Some(*offset), ..Fields::at("CorruptError", path) }
        }
        Error::Missing { path, .. } => Fields::at("MissingError", path),
        Error::Unsupported { path, .. } => Fields::at("UnsupportedError", path),
        Error::InvalidPath { path, .. } => Fields::at("InvalidPathError", path),
        Error::Moved { path, .. } => Fields::at("MovedError", path),
        Error::NotAStore { path, .. } => Fields::at("NotAStoreError", path),
        Error::Locked { path, .. } => Fields::at("LockedError", path),
        Error::FilterLies { path, .. } => Fields::at("FilterLiesError", path),
        Error::MemoryLimit { path, .. } => Fields::at("MemoryLimitError", path),
        Error::Closed => Fields::of("ClosedError"),
        Error::Forked => Fields::of("ForkedError"),
        Error::TooLong { .. } => Fields::of("TooLongError"),
        Error::Unsorted { .. } => Fields::of("UnsortedError"),
        Error::Conflict => Fields::of("ConflictError"),
        Error::TransactionTooLarge { .. } => Fields::of("TransactionTooLargeError"),
        Error::InvalidOption { .. } => Fields::of("InvalidOptionError"),
        Error::ClockBehind { .. } => Fields::of("ClockBehindError"),
        // The file and the offset of what began it.
        Error::Poisoned { cause } => Fields { class: "PoisonedError", ..of_store(cause) },
        Error::Background { cause } => Fields { class: "BackgroundError", ..of_store(cause) },
        _ => Fields::of("CribaError"),
    }
}

fn of_filter(error: &criba_filter::Error) -> Fields<'_> {
    use criba_filter::Error;
    match error {
        Error::Io { path, source, .. } => {
            Fields { errno: source.raw_os_error(), ..Fields::at("IoError", path) }
        }
        Error::Corrupt { path, offset, .. } => {
            Fields { offset: Some(*offset), ..Fields::at("CorruptError", path) }
        }
        Error::Unsupported { path, .. } => Fields::at("UnsupportedError", path),
        Error::InvalidOption { .. } => Fields::of("InvalidOptionError"),
        Error::Mismatch { .. } => Fields::of("MismatchError"),
        _ => Fields::of("CribaError"),
    }
}
