//! Keys and values that Python passes: `bytes`, `bytearray`, `memoryview`, or `str` as UTF-8.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyString, PyTuple};

/// A key or value. Those of `bytes` are not copied: they never change. A `bytearray` and what a `memoryview` shows can
/// change while the GIL is released, so their bytes are copied once; so are those of a `str`. Drop it with the GIL: without,
/// its `bytes` stays until a later call.
pub(crate) enum Input {
    Bytes(PyBackedBytes),
    Text(PyBackedStr),
    Empty,
}

impl AsRef<[u8]> for Input {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Text(text) => text.as_bytes(),
            Self::Empty => &[],
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Input {
    type Error = PyErr;

    #[inline]
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes.to_owned().into()));
        }
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(Self::Text(text.to_owned().try_into()?));
        }
        if let Ok(bytes) = object.cast::<PyByteArray>() {
            return Ok(Self::Bytes(bytes.to_owned().into()));
        }
        if object.cast::<PyMemoryView>().is_ok() {
            let bytes = object.py().get_type::<PyBytes>().call1((object,))?;
            return Ok(Self::Bytes(bytes.cast_into::<PyBytes>()?.into()));
        }
        let type_name = object.get_type().name()?;
        Err(PyTypeError::new_err(format!(
            "expected bytes, bytearray, memoryview or str, found {type_name}"
        )))
    }
}

/// After so many items a signal may raise an exception.
const ITEMS: usize = 1024;

/// The items of an iterable. Many iterators of Python run none of its code, and so do not see a signal.
pub(crate) fn items<'py>(
    iterable: &Bound<'py, PyAny>,
) -> PyResult<impl Iterator<Item = PyResult<Bound<'py, PyAny>>>> {
    let py = iterable.py();
    Ok(iterable.try_iter()?.enumerate().map(move |(before, item)| {
        if before % ITEMS == ITEMS - 1 {
            py.check_signals()?;
        }
        item
    }))
}

/// The keys of an iterable. One key is iterable, too: it is refused, for each of its characters would be a key.
pub(crate) fn many<'py>(
    keys: &Bound<'py, PyAny>,
) -> PyResult<impl Iterator<Item = PyResult<Bound<'py, PyAny>>>> {
    let is_one = keys.is_instance_of::<PyBytes>()
        || keys.is_instance_of::<PyString>()
        || keys.is_instance_of::<PyByteArray>()
        || keys.is_instance_of::<PyMemoryView>();
    if is_one {
        return Err(PyTypeError::new_err("expected many keys, found one"));
    }
    items(keys)
}

pub(crate) fn keys(keys: &Bound<'_, PyAny>) -> PyResult<Vec<Input>> {
    many(keys)?.map(|key| key?.extract()).collect()
}

/// A key with its value: an item of an iterable.
pub(crate) fn pair(item: PyResult<Bound<'_, PyAny>>) -> PyResult<(Input, Input)> {
    let item = item?;
    match item.cast::<PyTuple>() {
        Ok(tuple) if tuple.len() == 2 => {
            Ok((tuple.get_item(0)?.extract()?, tuple.get_item(1)?.extract()?))
        }
        Ok(tuple) => Err(PyTypeError::new_err(format!(
            "expected a key and a value, found {} items",
            tuple.len()
        ))),
        Err(_) => {
            let type_name = item.get_type().name()?;
            Err(PyTypeError::new_err(format!(
                "expected a tuple of a key and a value, found {type_name}"
            )))
        }
    }
}
