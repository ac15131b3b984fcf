use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command `criba` with these arguments, the name of the program first, and returns its exit code. For a
/// process of its own: it handles signals and writes to standard output.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| criba_cli::run(arguments))
}
