//! Compaction: what to compact, the merge, and the job that writes its outcome.
//!
//! A job reads tables of one version and writes new ones; it changes nothing that exists, and
//! installs nothing: its caller does. Invariants: no reader, snapshot or later compaction can tell
//! from answers that a compaction took place; each table written has a filter that was asked for
//! every one of its keys.

mod job;
mod pick;
mod survive;

pub(crate) use job::{JobContext, run, write_tables};
pub(crate) use pick::{Compaction, PickSettings, everything, pick, pick_idle};
pub(crate) use survive::Survivors;
