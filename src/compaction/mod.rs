//! Compactions: selection of tables, merge, output.
//!
//! A compaction reads tables of one version and writes new ones. It changes and installs nothing. Invariants:
//! no reader, snapshot or later compaction sees a difference in answers; each output has a filter that was
//! probed with every key.

mod merge;
mod pick;
mod survive;

pub(crate) use merge::{MergeContext, run, write_tables};
pub(crate) use pick::{Compaction, PickSettings, everything, pick, pick_idle, pick_within_l0};
pub(crate) use survive::Survivors;
