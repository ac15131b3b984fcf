//! `cargo bench -p criba-benches --bench readamp`: the report of `criba readamp` on a small store. Its counts
//! are the same in every run and on every machine; only the times differ.

use std::io::{Error, stdout};

use criba_cli::readamp::input::Input;
use criba_cli::readamp::settings::Settings;
use criba_cli::readamp::{print, run_in};

const KEYS: u64 = 20_000;

/// Arguments from cargo (`--bench`, a filter) have no effect: there is one benchmark.
fn main() -> Result<(), Error> {
    // A tenth of the command's data and of its sizes, so that the levels are the same.
    let settings = Settings {
        memtable_bytes: 100 << 10,
        table_bytes: 50 << 10,
        level_base_bytes: 50 << 10,
        ..Settings::default()
    };
    let dir = tempfile::tempdir()?;
    let input = Input::made_up(KEYS, KEYS, settings.seed);
    let report = run_in(dir.path(), &input, &settings).map_err(Error::other)?;
    print(&report, &mut stdout().lock()).map_err(Error::other)?;
    match report.checks.failed().next() {
        None => Ok(()),
        Some((name, check)) => Err(Error::other(format!("{name} does not hold: {}", check.said))),
    }
}
