//! Directories for stores beside the measured one.

use tempfile::{Builder, TempDir};

use crate::failure::{Failure, Result};

pub(super) fn scratch() -> Result<TempDir> {
    let parent = std::env::temp_dir();
    let dir = Builder::new().prefix("criba-readamp-").tempdir_in(&parent);
    dir.map_err(|e| Failure::file("make a directory in it", &parent, e))
}
