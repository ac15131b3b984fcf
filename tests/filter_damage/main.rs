//! A damaged filter never hides a key, whatever its kind and its damage: its table is degraded, reported
//! and counted, and all values are right.

#[path = "../common/mod.rs"]
mod common;
mod files;

mod forged;
mod forger;
mod store;
mod swapped;
