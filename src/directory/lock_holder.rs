//! The process that holds a lock, if the system reports it: Linux has a list in `/proc/locks`.

use std::fs::read_to_string;

use rustix::fs::{major, minor};

use crate::names::FileName;
use crate::store_dir::StoreDir;
use crate::vfs::Identity;
use criba_filter::store::shown;

/// The id and the name of the process that took the lock on the lock file of a directory, or on the directory.
/// The name is empty if the process has ended: then a fork of it has the lock.
pub(super) fn holder_of(dir: &StoreDir) -> Option<(u32, String)> {
    let locks = read_to_string("/proc/locks").ok()?;
    let places = [dir.identity_of(FileName::Lock), dir.identity()];
    let pid = places.into_iter().flatten().find_map(|place| holder_in(&locks, &place))?;
    let name = read_to_string(format!("/proc/{pid}/comm"));
    Some((pid, name.map_or(String::new(), |name| shown(name.trim_end()).to_string())))
}

fn holder_in(locks: &str, Identity { device, inode, .. }: &Identity) -> Option<u32> {
    let place = format!("{:02x}:{:02x}:{inode}", major(*device), minor(*device));
    // 1: FLOCK  ADVISORY  WRITE 1234 fe:00:10108936 0 EOF
    locks.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, "FLOCK", _, _, pid, at, ..] if at == place => pid.parse().ok(),
        _ => None,
    })
}
