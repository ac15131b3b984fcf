//! Events in the world outside, while a store on real files is open: its directory is renamed, removed or
//! replaced, the process changes its own, the lock file or the log goes. Each event happens before and after
//! each operation of a writer. Afterwards each store is whole with all that was acknowledged, or a call
//! returned an error; and no file outside the opened directory changed.
//!
//! `OUTSIDE_EVERY=1 cargo test --test outside -- --nocapture` tries every moment, and shows the counts.

#[path = "../common/mod.rs"]
mod common;
mod descriptors;
mod event;
mod foreign;
mod forks;
mod matrix;
mod modes;
mod names;
mod other;
mod script;
mod tree;

use std::process::{Command, Stdio};

use event::Event;

/// Runs an ignored test in a process of its own.
fn alone(test: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
}

#[test]
fn the_process_changes_its_directory() {
    matrix::holds(Event::Chdir);
}

#[test]
fn the_directory_is_renamed() {
    matrix::holds(Event::Rename);
}

#[test]
fn the_directory_is_renamed_and_replaced() {
    matrix::holds(Event::RenameAndReplace);
}

#[test]
fn the_directory_is_removed() {
    matrix::holds(Event::Remove);
}

#[test]
fn the_directory_is_removed_and_a_store_made_in_its_place() {
    matrix::holds(Event::RemoveAndMake);
}

#[test]
fn the_directory_is_removed_and_a_store_put_in_its_place() {
    matrix::holds(Event::RemoveAndReplace);
}

#[test]
fn a_checkpoint_is_restored_over_the_directory() {
    matrix::holds(Event::Restore);
}

#[test]
fn the_lock_file_is_removed() {
    matrix::holds(Event::RemoveLock);
}

#[test]
fn the_lock_file_is_replaced() {
    matrix::holds(Event::ReplaceLock);
}

#[test]
fn the_log_is_removed() {
    matrix::holds(Event::RemoveLog);
}

#[test]
fn the_log_is_replaced() {
    matrix::holds(Event::ReplaceLog);
}

#[test]
fn a_copy_replaces_the_log() {
    matrix::holds(Event::CopyLog);
}
