//! Compactions: selects tables and merges them into new ones.
//!
//! A compaction reads tables of one version and writes new tables; the scheduler installs them. Invariants:
//! every read, also at a snapshot, gets the same answer before and after; the filter of each output was
//! probed with every key.

mod context;
mod merge;
mod outputs;
mod pick;
mod places;
mod survive;

pub(crate) use context::MergeContext;
pub(crate) use merge::{merge, none_has, write_memtable};
pub(crate) use outputs::Outputs;
pub(crate) use pick::{
    Compaction, How, PickSettings, everything, leave_l0, leave_level, pick, pick_idle,
    pick_within_l0,
};
pub(crate) use places::{Busy, Occupied};
