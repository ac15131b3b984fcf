//! The open store: what all handles share, and what happens to it until it is closed.
//!
//! [`inner::DbInner`] owns the state. Writes go through one queue, whose first thread writes for all; reads use the
//! view; [`background`] flushes and compacts.

pub(crate) mod background;
mod checkpoint;
pub(crate) mod commit_queue;
mod condition;
mod conditional;
pub(crate) mod earlier_logs;
mod group_writes;
pub(crate) mod health;
mod ingest;
pub(crate) mod inner;
pub(crate) mod next_log;
mod read;
pub(crate) mod read_set;
pub(crate) mod rebuild_filters;
mod recent_writes;
pub(crate) mod scan;
pub(crate) mod sequences;
mod validate;
pub(crate) mod write;

pub(crate) use checkpoint::copy;
