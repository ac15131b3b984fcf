//! A filter that is damaged never hides a key, whatever its kind and whatever the damage: its table is
//! degraded, named as such, counted as such, and gives the right values all the same.

#[path = "../common/mod.rs"]
mod common;
mod files;

mod forged;
mod forger;
mod store;
mod swapped;
