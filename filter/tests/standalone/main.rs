//! Standalone filters.

mod bytes;
mod files;
mod grown;
#[path = "../../../tests/common/skip.rs"]
mod skip;
mod whole;
