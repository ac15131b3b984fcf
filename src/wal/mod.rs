//! Log files: records in frames, so that damage can be located.
//!
//! Write-ahead logs (records are batches) and the manifest (records are edits) share the format. Invariant:
//! **a reader gets the records that were written, in order, up to the first damaged one, and can tell whether
//! anything from there on was known to be synced.**
//!
//! See format.md, "Frames" and "Write-ahead log".

mod frame;
mod reader;
mod replay;
mod writer;

pub(crate) use frame::{
    COMPRESSION, EXPIRY, FileHeader, LAYERED_RIBBONS, LogId, LogKind, MANY_PREFIXES,
};
pub(crate) use reader::{Item, LogReader};
pub use replay::LostTail;
pub(crate) use replay::{Logs, Record, replay};
pub(crate) use writer::{LogError, LogWriter};
