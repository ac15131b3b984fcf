//! What happens outside the store's own model of disks and crashes: forks of its process.

#[path = "../common/mod.rs"]
mod common;
mod forks;
