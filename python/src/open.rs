//! Opening a store, with options.

use std::path::PathBuf;

use criba::{Compression, FilterKind, FilterPolicy, Options, PrefixExtractor};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::db::Db;
use crate::errors::Result;
use crate::read_only::ReadOnlyDb;
use crate::reader::Reader;
use crate::source::Source;
use crate::times::duration;

/// Opens the store in the directory `path`, or makes one there, and recovers it after a crash. Use it in a `with`.
///
/// With read_only=True it returns a ReadOnlyDb: many processes can read a store that one process writes to.
///
/// The other options, with their defaults:
///   filter="bloom", or "ribbon" (a sixth of the mistakes in as many bytes) or "none"
///   bits_per_key=10.0, in the average of the store; or rate, such as 0.01, for every table
///   filter_memory: the most bytes that filters take in memory
///   memory_limit: refuse to open a store that needs more bytes of memory
///   cache_bytes=64 MiB of blocks; memtable_bytes=64 MiB: three such can be in memory
///   table_bytes, level_base_bytes, block_bytes=4096: sizes of files
///   compression="none" or "lz4"
///   default_ttl: the seconds that keys live that are written without a time of their own
///   prefix_delimiter: one byte; filters then exclude tables in scans of directories
///   create_if_missing=True, strict_filters=False, ignore_filters=False, auto_compaction=True, accept_clock=False,
///   background_threads, file_mode=0o600, seed
///
/// Cost: two reads for each table, one of them for its filter; what the logs hold is written to tables.
#[pyfunction]
#[pyo3(signature = (path, *, read_only=false, **options))]
pub(crate) fn open<'py>(
    py: Python<'py>,
    path: PathBuf,
    read_only: bool,
    options: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    let options = options.map_or_else(|| Ok(Options::new()), read_options)?;
    if read_only {
        let db = py.detach(|| options.open_read_only(path))?;
        let object = Py::new(py, (ReadOnlyDb, Reader::new(Source::ReadOnly(db))))?;
        return Ok(object.into_bound(py).into_any());
    }
    let db = py.detach(|| options.open(path))?;
    let object = Py::new(py, (Db, Reader::new(Source::Db(db))))?;
    Ok(object.into_bound(py).into_any())
}

fn read_options(dict: &Bound<'_, PyDict>) -> PyResult<Options> {
    let mut options = Options::new();
    for (name, value) in dict {
        let name: String = name.extract()?;
        options = match name.as_str() {
            "filter" | "rate" | "bits_per_key" => options, // below: they depend on each other
            "create_if_missing" => options.create_if_missing(value.extract()?),
            "filter_memory" => options.filter_memory(value.extract()?),
            "memory_limit" => options.memory_limit(value.extract()?),
            "cache_bytes" => options.cache_bytes(value.extract()?),
            "memtable_bytes" => options.memtable_bytes(value.extract()?),
            "table_bytes" => options.table_bytes(value.extract()?),
            "level_base_bytes" => options.level_base_bytes(value.extract()?),
            "block_bytes" => options.block_bytes(value.extract()?),
            "compression" => options.compression(compression(&value)?),
            "default_ttl" => options.default_ttl(duration(value.extract()?)?),
            "prefix_delimiter" => options.prefix(PrefixExtractor::every(one_byte(&value)?)),
            "strict_filters" => options.strict_filters(value.extract()?),
            "ignore_filters" => options.ignore_filters(value.extract()?),
            "auto_compaction" => options.auto_compaction(value.extract()?),
            "accept_clock" => options.accept_clock(value.extract()?),
            "background_threads" => options.background_threads(value.extract()?),
            "file_mode" => options.file_mode(value.extract()?),
            "seed" => options.seed(value.extract()?),
            _ => return Err(PyTypeError::new_err(format!("criba.open has no option {name}"))),
        };
    }
    Ok(match policy(dict)? {
        Some(policy) => options.filter(policy),
        None => options,
    })
}

/// `None` for the policy that the store has.
fn policy(dict: &Bound<'_, PyDict>) -> PyResult<Option<FilterPolicy>> {
    let filter: Option<String> =
        dict.get_item("filter")?.map(|value| value.extract()).transpose()?;
    let rate: Option<f64> = dict.get_item("rate")?.map(|value| value.extract()).transpose()?;
    let bits: Option<f64> =
        dict.get_item("bits_per_key")?.map(|value| value.extract()).transpose()?;
    if filter.is_none() && rate.is_none() && bits.is_none() {
        return Ok(None);
    }
    let policy = match filter.as_deref() {
        None | Some("bloom") => FilterPolicy::default(),
        Some("ribbon") => FilterPolicy::default().with_kind(FilterKind::Ribbon),
        Some("none") if rate.is_none() && bits.is_none() => return Ok(Some(FilterPolicy::none())),
        Some(_) => {
            let reason = "filter is \"bloom\" or \"ribbon\", or \"none\" without a size";
            return Err(PyValueError::new_err(reason));
        }
    };
    match (rate, bits) {
        (Some(_), Some(_)) => {
            Err(PyValueError::new_err("rate and bits_per_key contradict each other"))
        }
        (Some(rate), None) => Ok(Some(policy.with_rate(rate))),
        (None, Some(bits)) => Ok(Some(policy.with_bits_per_key(bits))),
        (None, None) => Ok(Some(policy)),
    }
}

fn compression(value: &Bound<'_, PyAny>) -> PyResult<Compression> {
    match value.extract::<String>()?.as_str() {
        "none" => Ok(Compression::None),
        "lz4" => Ok(Compression::Lz4),
        _ => Err(PyValueError::new_err("compression is \"none\" or \"lz4\"")),
    }
}

fn one_byte(value: &Bound<'_, PyAny>) -> PyResult<u8> {
    let input: crate::input::Input = value.extract()?;
    match input.as_ref() {
        [byte] => Ok(*byte),
        _ => Err(PyValueError::new_err("prefix_delimiter is one byte")),
    }
}
