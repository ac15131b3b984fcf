//! Filters without a store.

mod bytes;
mod files;
mod grown;
#[path = "../common/skip.rs"]
mod skip;
mod whole;
