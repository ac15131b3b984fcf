//! The reads of a store, of a snapshot and of a store that is open for reading only.

use std::ops::Bound as Limit;
use std::sync::{PoisonError, RwLock};

use criba::{Error, Membership};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use pythonize::pythonize;

use crate::errors::{Failure, Result};
use crate::input::{self, Input};
use crate::scan::{Part, Scan};
use crate::source::Source;
use crate::times::seconds;

/// The reads that Db, ReadOnlyDb and Snapshot have in common. Keys and values are bytes; where a method takes them, it
/// takes bytes, bytearray, memoryview, or a str as its UTF-8. A method that reads releases the GIL.
#[pyclass(subclass, frozen, module = "criba")]
pub(crate) struct Reader {
    /// `None` when closed. Locked for moments only, with the GIL, so that no thread waits for it.
    source: RwLock<Option<Source>>,
}

impl Reader {
    pub(crate) fn new(source: Source) -> Self {
        Self { source: RwLock::new(Some(source)) }
    }

    pub(crate) fn source(&self) -> criba::Result<Source> {
        self.source.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Error::Closed)
    }

    /// Reads without the GIL.
    fn read<T: Send>(
        &self,
        py: Python<'_>,
        read: impl FnOnce(&(dyn criba::Reader + Send + Sync)) -> criba::Result<T> + Send,
    ) -> Result<T> {
        let source = self.source()?;
        Ok(py.detach(|| read(source.reader()))?)
    }

    fn scan(&self, bounds: &Bounds, part: Part, reverse: bool) -> Result<Scan> {
        let source = self.source()?;
        Ok(Scan::new(source.reader().range(bounds), part, reverse))
    }
}

/// Bounds of keys: the first that is in, and the first that is not.
type Bounds = (Limit<Input>, Limit<Input>);

fn bounds(start: Option<Input>, end: Option<Input>) -> Bounds {
    (start.map_or(Limit::Unbounded, Limit::Included), end.map_or(Limit::Unbounded, Limit::Excluded))
}

#[pymethods]
impl Reader {
    /// The value of a key; `default` if the key is absent.
    ///
    /// Cost: at most one disk read in each table whose range covers the key and whose filter says "maybe". So an absent
    /// key costs about 0.01 disk reads with the default filters, a present one a disk read, or none if its block is in
    /// the cache.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Input,
        default: Option<Bound<'py, PyAny>>,
    ) -> Result<Option<Bound<'py, PyAny>>> {
        let value = self.read(py, |reader| reader.get(key.as_ref()))?;
        Ok(value.map(|value| PyBytes::new(py, &value).into_any()).or(default))
    }

    /// The value of a key, and when it expires, in seconds since 1970; None for a key that never does. None if the key is
    /// absent. Costs as much as get.
    fn get_with_expiry<'py>(
        &self,
        py: Python<'py>,
        key: Input,
    ) -> Result<Option<(Bound<'py, PyBytes>, Option<f64>)>> {
        let found = self.read(py, |reader| reader.get_with_expiry(key.as_ref()))?;
        Ok(found.map(|(value, expiry)| (PyBytes::new(py, &value), expiry.map(seconds))))
    }

    /// The values of many keys as of one moment, in their order; None for absent keys.
    ///
    /// Cost: the disk reads of get for each key. The filters of several keys are fetched from memory at once, and on
    /// a cold disk the blocks of the next keys are announced to the operating system.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyList>> {
        let keys = input::keys(keys)?;
        let values = self.read(py, |reader| {
            let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
            reader.get_many(&keys)
        })?;
        let bytes = values.iter().map(|value| Some(PyBytes::new(py, value.as_ref()?)));
        Ok(PyList::new(py, bytes)?)
    }

    /// Whether a key has a value. Costs as much as get.
    fn __contains__(&self, py: Python<'_>, key: Input) -> Result<bool> {
        self.read(py, |reader| reader.contains(key.as_ref()))
    }

    /// The value of a key. Raises KeyError if the key is absent. Costs as much as get.
    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyBytes>> {
        let bytes: Input = key.extract()?;
        let value = self.read(py, |reader| reader.get(bytes.as_ref()))?;
        let value = value.ok_or_else(|| Failure::Python(PyKeyError::new_err(key.unbind())))?;
        Ok(PyBytes::new(py, &value))
    }

    /// Whether a key may have a value; False is certain. Never reads the disk: it searches the memtables and probes the
    /// filters. The statistics do not count it.
    fn may_contain(&self, py: Python<'_>, key: Input) -> Result<bool> {
        let membership = self.read(py, |reader| reader.may_contain(key.as_ref()))?;
        Ok(membership != Membership::No)
    }

    /// The steps of the lookup of a key as a dict, and as text under "text". Reads and counts the same as get.
    fn explain<'py>(&self, py: Python<'py>, key: Input) -> Result<Bound<'py, PyDict>> {
        let explanation = self.read(py, |reader| reader.explain(key.as_ref()))?;
        let dict = dict(py, &explanation)?;
        dict.set_item("text", explanation.to_string())?;
        Ok(dict)
    }

    /// An iterator over the pairs of the keys from `start` on that are below `end`, in order, or in reverse. None is no
    /// bound. It shows the store as of this call.
    ///
    /// Cost: the first item reads one block of each table of level 0 and of each lower level that has keys within the
    /// bounds. A later item reads a block only where the one in use ends.
    #[pyo3(signature = (start=None, end=None, *, reverse=false))]
    fn range(&self, start: Option<Input>, end: Option<Input>, reverse: bool) -> Result<Scan> {
        self.scan(&bounds(start, end), Part::Pairs, reverse)
    }

    /// An iterator over the pairs of the keys that start with `prefix`, in order, or in reverse. Costs as much as range;
    /// less in a store with prefix_delimiter, whose filters exclude tables without the prefix.
    #[pyo3(signature = (prefix, *, reverse=false))]
    fn prefix(&self, prefix: Input, reverse: bool) -> Result<Scan> {
        let source = self.source()?;
        Ok(Scan::new(source.reader().prefix(prefix.as_ref()), Part::Pairs, reverse))
    }

    /// An iterator over all pairs, in order. Costs as much as range.
    fn items(&self) -> Result<Scan> {
        self.scan(&bounds(None, None), Part::Pairs, false)
    }

    /// An iterator over all keys, in order. Reads as much as items: values lie beside their keys.
    fn keys(&self) -> Result<Scan> {
        self.scan(&bounds(None, None), Part::Keys, false)
    }

    /// An iterator over all values, in the order of their keys. Costs as much as items.
    fn values(&self) -> Result<Scan> {
        self.scan(&bounds(None, None), Part::Values, false)
    }

    fn __iter__(&self) -> Result<Scan> {
        self.keys()
    }

    /// The estimated number of keys from `start` on that are below `end`. No disk read: it counts by the indexes, and
    /// overwritten and deleted keys count until a compaction drops them.
    #[pyo3(signature = (start=None, end=None))]
    fn approximate_len(
        &self,
        py: Python<'_>,
        start: Option<Input>,
        end: Option<Input>,
    ) -> Result<u64> {
        let bounds = bounds(start, end);
        self.read(py, |reader| reader.approximate_len(&bounds))
    }

    /// Closes it; a second call does nothing. Of a store it waits until background tasks end and all writes are synced;
    /// snapshots and iterators stay usable, and keep the directory locked.
    fn close(&self, py: Python<'_>) -> Result<()> {
        let source = self.source.write().unwrap_or_else(PoisonError::into_inner).take();
        match source {
            Some(source) => Ok(py.detach(|| source.close())?),
            None => Ok(()),
        }
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
    ) -> Result<()> {
        self.close(py)
    }
}

/// What serde writes of a struct.
pub(crate) fn dict<'py>(
    py: Python<'py>,
    value: &impl serde::Serialize,
) -> PyResult<Bound<'py, PyDict>> {
    Ok(pythonize(py, value)?.cast_into()?)
}
