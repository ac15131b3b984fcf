//! The program `criba`, run as its users run it. One test program, which links once.

mod backups;
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod interrupt;
mod json;
mod losses;
mod nonsense;
mod reading;
mod readme;
mod repair;
mod text;
