//! The Python module `criba._criba`: the classes of the store and of its filters. `package/criba` is the rest of the
//! package.
//!
//! A class holds a handle of the store and nothing else of it. Each call that can read, write or wait releases the
//! GIL; docstrings of Python are the doc comments here.

#![expect(clippy::needless_pass_by_value, reason = "pyo3 extracts owned arguments")]

mod command;
mod db;
mod errors;
mod filters;
mod input;
mod open;
mod read_only;
mod reader;
mod scan;
mod snapshot;
mod source;
mod times;
mod transaction;

use pyo3::prelude::*;

#[pymodule]
mod _criba {
    #[pymodule_export]
    use crate::command::run_command;
    #[pymodule_export]
    use crate::db::Db;
    #[pymodule_export]
    use crate::filters::{BloomFilter, GrowingBloomFilter, MappedBloomFilter, SharedBloomFilter};
    #[pymodule_export]
    use crate::open::open;
    #[pymodule_export]
    use crate::read_only::ReadOnlyDb;
    #[pymodule_export]
    use crate::reader::Reader;
    #[pymodule_export]
    use crate::scan::Scan;
    #[pymodule_export]
    use crate::snapshot::Snapshot;
    #[pymodule_export]
    use crate::transaction::Transaction;
}
