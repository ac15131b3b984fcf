//! Rot: every kind of file of a store, damaged in every way that fits into a small one. Whatever the
//! damage, the store gives the right answers, or says what it cannot vouch for, or refuses by name; it
//! never gives a wrong answer, panics, hangs, or takes memory out of proportion.
//!
//! One bit of every byte is flipped; `CRIBA_ROT=all` flips every bit:
//!
//! ```text
//! CRIBA_ROT=all cargo test --test rot -- --nocapture
//! ```

mod bytes;
mod case;
#[path = "../common/mod.rs"]
mod common;
mod current;
mod files;
mod fixture;
mod forge;
mod forged_filters;
mod forged_logs;
mod forged_manifests;
mod forged_tables;
mod numbers;
mod sweep;
