//! The process that holds a lock, where the system tells it: Linux has a list in `/proc/locks`.

use std::fs::read_to_string;

use rustix::fs::{major, minor};

use crate::names::FileName;
use crate::store_dir::StoreDir;
use crate::vfs::Identity;

/// The id and the name of the process that holds the lock file of a directory, or the directory.
pub(super) fn holder_of(dir: &StoreDir) -> Option<(u32, String)> {
    let locks = read_to_string("/proc/locks").ok()?;
    let places = [dir.identity_of(FileName::Lock), dir.identity()];
    let pid = places.into_iter().flatten().find_map(|place| holder_in(&locks, &place))?;
    let name = read_to_string(format!("/proc/{pid}/comm"));
    Some((pid, name.map_or("of unknown name".into(), |name| name.trim_end().to_owned())))
}

fn holder_in(locks: &str, Identity { device, inode, .. }: &Identity) -> Option<u32> {
    let place = format!("{:02x}:{:02x}:{inode}", major(*device), minor(*device));
    // 1: FLOCK  ADVISORY  WRITE 1234 fe:00:10108936 0 EOF
    locks.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, "FLOCK", _, _, pid, at, ..] if at == place => pid.parse().ok(),
        _ => None,
    })
}
