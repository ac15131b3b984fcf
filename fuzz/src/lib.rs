//! Properties of each parser for all input bytes: for the fuzz targets, and for the test `fuzz` of the
//! package criba, which replays their corpus.
//!
//! A target runs its bytes twice: as they are, and with all checksums corrected, which reaches the parser
//! behind them. It panics if a property does not hold, and returns whether any of the input was accepted, so
//! that a replay can count these.

mod batch;
mod fields;
mod filter;
mod log;
mod manifest;
mod mend;
mod open;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod seeds;
mod store;
mod table;

pub use batch::batch;
pub use filter::filter;
pub use log::wal;
pub use manifest::manifest;
pub use open::open;
pub use table::table;

use std::path::Path;
use std::sync::Arc;

use criba::Error;
use criba::vfs::{SimDisk, SimVfs, Vfs};

/// The directory of the input files.
const DIR: &str = "/store";

/// A file layer with one file.
fn disk_with(name: &str, bytes: &[u8]) -> Arc<dyn Vfs> {
    let mut disk = SimDisk::default();
    disk.write(Path::new(DIR).join(name), bytes);
    mounted(disk)
}

/// A disk with the directory.
fn mounted(disk: SimDisk) -> Arc<dyn Vfs> {
    let vfs = SimVfs::on(disk);
    vfs.edit(|disk| disk.create_dir_all(DIR));
    Arc::new(vfs)
}

/// # Panics
/// If an error does not name a file of the directory.
fn assert_names_a_file(error: &Error) {
    match error {
        Error::Io { path, .. }
        | Error::Corrupt { path, .. }
        | Error::Missing { path, .. }
        | Error::Unsupported { path, .. }
        | Error::NotAStore { path, .. }
        | Error::FilterLies { path, .. } => {
            assert!(path.starts_with(DIR), "an error that names another place: {error}");
        }
        Error::Poisoned { cause } | Error::Background { cause } => assert_names_a_file(cause),
        _ => panic!("an error that names no file: {error}"),
    }
}
