//! Times as Python has them: seconds as a float, since the beginning of 1970 or from now.

use std::time::{Duration, SystemTime};

use criba::Expiry;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A time to live in seconds.
pub(crate) fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The expiry of a write; `None` for the default of the store.
pub(crate) fn expiry(ttl: Option<f64>, expires_at: Option<f64>) -> PyResult<Option<Expiry>> {
    match (ttl, expires_at) {
        (None, None) => Ok(None),
        (Some(f64::INFINITY), None) | (None, Some(f64::INFINITY)) => Ok(Some(Expiry::Never)),
        (Some(ttl), None) => Ok(Some(Expiry::In(duration(ttl)?))),
        (None, Some(time)) => {
            let time = SystemTime::UNIX_EPOCH.checked_add(duration(time)?);
            let late = || PyValueError::new_err("expires_at is too late");
            Ok(Some(Expiry::At(time.ok_or_else(late)?)))
        }
        (Some(_), Some(_)) => {
            Err(PyValueError::new_err("ttl and expires_at contradict each other"))
        }
    }
}

/// Seconds since the beginning of 1970, as `time.time()` counts them.
pub(crate) fn seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
