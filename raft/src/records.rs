//! Values of the store: what serde makes of them with postcard.

use criba::{Db, Reader};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|error| Error::Record {
        of: std::any::type_name::<T>().to_string(),
        expected: "a value that postcard can write",
        found: error.to_string(),
    })
}

/// `of` names the value in the message of an error.
pub(crate) fn decode<T: DeserializeOwned>(
    bytes: &[u8],
    expected: &'static str,
    of: impl FnOnce() -> String,
) -> Result<T> {
    let found = match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => return Ok(value),
        Ok((_, rest)) => format!("{} bytes behind it", rest.len()),
        Err(error) => format!("{} bytes that are none: {error}", bytes.len()),
    };
    Err(Error::Record { of: of(), expected, found })
}

pub(crate) fn read<T: DeserializeOwned>(
    store: &impl Reader,
    key: &[u8],
    expected: &'static str,
) -> Result<Option<T>> {
    let value = store.get(key)?;
    value.map(|bytes| decode(&bytes, expected, || key.escape_ascii().to_string())).transpose()
}

/// Writes a value, buffered.
pub(crate) fn write<T: Serialize>(db: &Db, key: &[u8], value: &T) -> Result<()> {
    Ok(db.put(key, encode(value)?)?)
}
