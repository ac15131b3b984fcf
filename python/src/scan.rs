//! Iterators over keys and values.

use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use criba::{Error, Range, Value};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::Result;

/// What of each pair an iterator returns.
#[derive(Clone, Copy)]
pub(crate) enum Part {
    Pairs,
    Keys,
    Values,
}

/// An iterator over keys, values, or pairs of them, from range, prefix, items, keys or values. It shows the store as of
/// its creation, and keeps the directory locked until its end, close, or the end of its `with`. It reads nothing before
/// the first item, and ends after an error.
#[pyclass(frozen, module = "criba")]
pub(crate) struct Scan {
    /// `None` at the end. A thread waits for it without the GIL.
    range: Mutex<Option<Range>>,
    /// In which it was made.
    process: u32,
    part: Part,
    reverse: bool,
}

impl Scan {
    pub(crate) fn new(range: Range, part: Part, reverse: bool) -> Self {
        Self { range: Mutex::new(Some(range)), process: process::id(), part, reverse }
    }

    /// Fails in a fork of a process in which a thread had the lock: none unlocks the copy.
    fn lock(&self) -> criba::Result<MutexGuard<'_, Option<Range>>> {
        match self.range.try_lock() {
            Ok(range) => Ok(range),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if self.process != process::id() => Err(Error::Forked),
            Err(TryLockError::WouldBlock) => {
                Ok(self.range.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    fn step(&self) -> Option<criba::Result<(Value, Value)>> {
        let mut range = match self.lock() {
            Ok(range) => range,
            Err(error) => return Some(Err(error)),
        };
        let open = range.as_mut()?;
        let item = if self.reverse { open.next_back() } else { open.next() };
        if item.is_none() {
            *range = None; // the directory is free
        }
        item
    }
}

#[pymethods]
impl Scan {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, PyAny>>> {
        let Some(item) = py.detach(|| self.step()) else { return Ok(None) };
        let (key, value) = item?;
        let item = match self.part {
            Part::Pairs => {
                (PyBytes::new(py, &key), PyBytes::new(py, &value)).into_bound_py_any(py)?
            }
            Part::Keys => PyBytes::new(py, &key).into_any(),
            Part::Values => PyBytes::new(py, &value).into_any(),
        };
        Ok(Some(item))
    }

    /// Ends it, and frees what it holds of the store.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.lock().map_or((), |mut range| drop(range.take())));
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _type: &Bound<'_, PyAny>,
        _exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) {
        self.close(py);
    }
}
