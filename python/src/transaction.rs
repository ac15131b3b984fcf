//! Transactions: reads and changes that take effect at one moment.

use std::ops::Bound as Limit;
use std::sync::{Mutex, MutexGuard, PoisonError};

use criba::Error;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::errors::{Failure, Result};
use crate::input::{self, Input};
use crate::times::expiry;

/// What the function of Db.transact reads and changes. It sees the store as of its beginning, with its own changes. It
/// ends with the function: later calls raise ClosedError.
#[pyclass(frozen, module = "criba")]
pub(crate) struct Transaction(Mutex<Option<criba::Transaction>>);

/// Calls `function` with a transaction, which is moved into an object of Python meanwhile.
pub(crate) fn call(
    py: Python<'_>,
    db: &criba::Db,
    transaction: &mut criba::Transaction,
    function: &Py<PyAny>,
) -> Result<Py<PyAny>> {
    // In its place stays one that reads and changes nothing.
    let moved = std::mem::replace(transaction, db.transaction());
    let object = Py::new(py, Transaction(Mutex::new(Some(moved))))?;
    let result = function.call1(py, (object.clone_ref(py),));
    let back = py.detach(|| object.get().lock().take());
    *transaction = back.ok_or(Error::Closed)?;
    Ok(result?)
}

impl Transaction {
    fn lock(&self) -> MutexGuard<'_, Option<criba::Transaction>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Without the GIL: the store may be read, and another thread may have the transaction.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut criba::Transaction) -> criba::Result<T> + Send,
    ) -> Result<T> {
        Ok(py.detach(|| run(self.lock().as_mut().ok_or(Error::Closed)?))?)
    }
}

fn pairs<'py>(
    py: Python<'py>,
    found: &[(criba::Value, criba::Value)],
) -> PyResult<Bound<'py, PyList>> {
    let items = found.iter().map(|(key, value)| (PyBytes::new(py, key), PyBytes::new(py, value)));
    PyList::new(py, items)
}

#[pymethods]
impl Transaction {
    /// The value of a key; `default` if it is absent. Costs as much as Db.get; nothing for a key that it changed.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: Input,
        default: Option<Bound<'py, PyAny>>,
    ) -> Result<Option<Bound<'py, PyAny>>> {
        let value = self.with(py, |transaction| transaction.get(&key))?;
        Ok(value.map(|value| PyBytes::new(py, &value).into_any()).or(default))
    }

    /// The values of many keys, in their order; None for absent keys. Costs as much as Db.get_many.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyList>> {
        let keys = input::keys(keys)?;
        let values = self.with(py, |transaction| transaction.get_many(&keys))?;
        let bytes = values.iter().map(|value| Some(PyBytes::new(py, value.as_ref()?)));
        Ok(PyList::new(py, bytes)?)
    }

    /// Whether a key has a value. Costs as much as get.
    fn __contains__(&self, py: Python<'_>, key: Input) -> Result<bool> {
        self.with(py, |transaction| transaction.contains(&key))
    }

    /// The value of a key. Raises KeyError if the key is absent. Costs as much as get.
    fn __getitem__<'py>(
        &self,
        py: Python<'py>,
        key: Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyBytes>> {
        let bytes: Input = key.extract()?;
        let value = self.with(py, |transaction| transaction.get(&bytes))?;
        let value = value.ok_or_else(|| Failure::Python(PyKeyError::new_err(key.unbind())))?;
        Ok(PyBytes::new(py, &value))
    }

    /// Sets the value of a key. `ttl` and `expires_at` as of Db.put. No I/O.
    #[pyo3(signature = (key, value, *, ttl=None, expires_at=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Input,
        value: Input,
        ttl: Option<f64>,
        expires_at: Option<f64>,
    ) -> Result<()> {
        let expiry = expiry(ttl, expires_at)?;
        self.with(py, |transaction| {
            match expiry {
                Some(expiry) => transaction.put_expiring(&key, &value, expiry),
                None => transaction.put(&key, &value),
            };
            Ok(())
        })
    }

    fn __setitem__(&self, py: Python<'_>, key: Input, value: Input) -> Result<()> {
        self.put(py, key, value, None, None)
    }

    /// Deletes a key, which may be absent. No I/O.
    fn delete(&self, py: Python<'_>, key: Input) -> Result<()> {
        self.with(py, |transaction| {
            transaction.delete(&key);
            Ok(())
        })
    }

    /// A list of the pairs of the keys from `start` on that are below `end`. A key that another write adds there before
    /// the commit is a conflict. Costs as much as Db.range, read to its end.
    #[pyo3(signature = (start=None, end=None))]
    fn range<'py>(
        &self,
        py: Python<'py>,
        start: Option<Input>,
        end: Option<Input>,
    ) -> Result<Bound<'py, PyList>> {
        let start = start.map_or(Limit::Unbounded, Limit::Included);
        let end = end.map_or(Limit::Unbounded, Limit::Excluded);
        let found = self.with(py, |transaction| {
            transaction.range((start.as_ref(), end.as_ref())).collect::<criba::Result<Vec<_>>>()
        })?;
        Ok(pairs(py, &found)?)
    }

    /// A list of the pairs of the keys that start with `prefix`: as range.
    fn prefix<'py>(&self, py: Python<'py>, prefix: Input) -> Result<Bound<'py, PyList>> {
        let found = self.with(py, |transaction| {
            transaction.prefix(&prefix).collect::<criba::Result<Vec<_>>>()
        })?;
        Ok(pairs(py, &found)?)
    }
}
