//! The program `criba`, run as its users run it. One test program, which links once.

mod backups;
mod browser;
mod bulk;
mod commands;
mod common;
mod compression;
mod expiry;
mod interrupt;
mod json;
mod losses;
mod nonsense;
mod progress;
mod readamp;
mod readamp_json;
mod reading;
mod readme;
mod repair;
mod sorted;
mod text;
