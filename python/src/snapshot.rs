use pyo3::prelude::*;

use crate::reader::Reader;
use crate::source::Source;

/// A view of a store at one moment, from Db.snapshot. While it is open, compactions keep the entries that it sees, and
/// the directory stays locked. It stays usable after the store is closed.
#[pyclass(extends = Reader, frozen, module = "criba")]
pub(crate) struct Snapshot;

impl Snapshot {
    pub(crate) fn of(py: Python<'_>, snapshot: criba::Snapshot) -> PyResult<Py<Self>> {
        Py::new(py, (Self, Reader::new(Source::Snapshot(snapshot))))
    }
}
