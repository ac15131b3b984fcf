//! Every kind of file of a small store, with every damage that fits. The store answers right, or reports
//! what it lost, or refuses with an error that names the file; it never answers wrong, panics, hangs, or
//! takes memory out of proportion.
//!
//! One bit of every byte is flipped; `CRIBA_ROT=all` flips every bit:
//!
//! ```text
//! CRIBA_ROT=all cargo test --test rot -- --nocapture
//! ```

mod aged;
mod bytes;
mod case;
#[path = "../common/mod.rs"]
mod common;
mod current;
mod files;
mod fixture;
mod forge;
mod forged_anywhere;
mod forged_compression;
mod forged_filters;
mod forged_logs;
mod forged_manifests;
mod forged_tables;
mod numbers;
mod plants;
mod repaired;
mod strays;
mod stretched;
mod sweep;
