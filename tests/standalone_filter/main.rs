//! Filters without a store.

mod bytes;
mod files;
mod grown;
mod whole;
