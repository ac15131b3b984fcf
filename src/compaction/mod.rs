//! Compactions: selects tables and merges them into new ones.
//!
//! A compaction reads tables of one version and writes new tables; the scheduler installs them. Invariants:
//! every read, also at a snapshot, gets the same answer before and after; the filter of each output was
//! probed with every key.

mod merge;
mod pick;
mod survive;

pub(crate) use merge::{MergeContext, merge, none_has, write_memtable};
pub(crate) use pick::{Compaction, PickSettings, everything, pick, pick_idle, pick_within_l0};
pub(crate) use survive::Survivors;
