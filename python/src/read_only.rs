use criba::Error;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Result;
use crate::reader::{Reader, dict};
use crate::snapshot::Snapshot;
use crate::source::Source;

/// A store that is only read, from open(path, read_only=True), also beside a process that writes to it. It shows the
/// store as of its opening, until refresh reads it again. Nothing in the directory is changed or locked.
#[pyclass(extends = Reader, frozen, module = "criba")]
pub(crate) struct ReadOnlyDb;

fn open(this: &PyRef<'_, ReadOnlyDb>) -> criba::Result<criba::ReadOnlyDb> {
    match this.as_super().source()? {
        Source::ReadOnly(db) => Ok(db),
        Source::Db(_) | Source::Snapshot(_) => Err(Error::Closed),
    }
}

#[pymethods]
impl ReadOnlyDb {
    /// Shows the store as it is now. Returns whether anything changed. Reads the manifest and the logs, and of new
    /// tables two blocks each.
    fn refresh(this: PyRef<'_, Self>) -> Result<bool> {
        let db = open(&this)?;
        Ok(this.py().detach(|| db.refresh())?)
    }

    /// A view that refresh does not change. No I/O.
    fn snapshot(this: PyRef<'_, Self>) -> Result<Py<Snapshot>> {
        Ok(Snapshot::of(this.py(), open(&this)?.snapshot())?)
    }

    /// The counts since the store was opened, as Db.stats. No I/O.
    fn stats(this: PyRef<'_, Self>) -> Result<Bound<'_, PyDict>> {
        stats(this.py(), &open(&this)?.stats())
    }

    /// The bytes of all files of the store. Opens each file to find its length.
    fn disk_bytes(this: PyRef<'_, Self>) -> Result<u64> {
        let db = open(&this)?;
        Ok(this.py().detach(|| db.disk_bytes())?)
    }
}

/// All counts; those of all levels together are under "total".
pub(crate) fn stats<'py>(py: Python<'py>, stats: &criba::Stats) -> Result<Bound<'py, PyDict>> {
    let counts = dict(py, stats)?;
    counts.set_item("total", dict(py, &stats.total())?)?;
    Ok(counts)
}
