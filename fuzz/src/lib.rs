//! What must hold of each parser, whatever bytes it is given: for the fuzz targets beside this, and for
//! the tests that replay their corpus. The tests are the test `fuzz` of the package criba, which has this
//! file for its root, so that plain `cargo test` runs them.
//!
//! A target takes bytes and runs them twice: as they are, which most checksums stop, and once more
//! with every checksum made right, so that the parser behind it is reached. It panics if something
//! does not hold. It returns whether any of it was accepted, so that a replay can count how much comes
//! through.

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

/// The directory in which inputs lie as files.
const DIR: &str = "/store";

/// A file layer with one file on it.
fn disk_with(name: &str, bytes: &[u8]) -> Arc<dyn Vfs> {
    let mut disk = SimDisk::default();
    disk.write(Path::new(DIR).join(name), bytes);
    mounted(disk)
}

/// A disk in use; the directory is there.
fn mounted(disk: SimDisk) -> Arc<dyn Vfs> {
    let vfs = SimVfs::on(disk);
    vfs.create_dir(DIR.as_ref()).expect("a directory in memory");
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
