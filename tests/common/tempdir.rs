//! Temporary directories of tests.

use std::path::Path;

use tempfile::TempDir;

/// A directory for stores: in memory, unless less than a gibibyte is free there or `TMPDIR` is set. Where
/// hundreds of files were just removed, ext4 searches long for the inode of a new one: a quarter of the time
/// of the tests in `store`.
pub(crate) fn tempdir() -> TempDir {
    let memory = Path::new("/dev/shm");
    let has_room =
        || rustix::fs::statvfs(memory).is_ok_and(|fs| fs.f_bavail * fs.f_frsize >= 1 << 30);
    let in_memory = std::env::var_os("TMPDIR").is_none() && has_room();
    let dir = in_memory.then(|| tempfile::tempdir_in(memory).ok()).flatten();
    dir.unwrap_or_else(|| tempfile::tempdir().expect("a temporary directory"))
}
