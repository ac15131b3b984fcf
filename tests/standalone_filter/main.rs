//! Standalone filters.

mod bytes;
mod files;
mod grown;
#[path = "../common/skip.rs"]
mod skip;
mod whole;
