//! The process that holds a lock, where the system tells it: Linux has a list in `/proc/locks`.

use std::fs::{metadata, read_to_string};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

/// The id and the name of the process that holds the lock of a file.
pub(super) fn holder_of(path: &Path) -> Option<(u32, String)> {
    let file = metadata(path).ok()?;
    let (device, inode) = (file.dev(), file.ino());
    let place = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let locks = read_to_string("/proc/locks").ok()?;
    // 1: FLOCK  ADVISORY  WRITE 1234 fe:00:10108936 0 EOF
    let pid =
        locks.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [_, "FLOCK", _, _, pid, at, ..] if at == place => pid.parse().ok(),
            _ => None,
        })?;
    let name = read_to_string(format!("/proc/{pid}/comm"));
    Some((pid, name.map_or("of unknown name".into(), |name| name.trim_end().to_owned())))
}
