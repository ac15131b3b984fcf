//! Log files: records appended in order, framed so that damage is found, placed and judged.
//!
//! Two kinds of file share the framing: write-ahead logs, whose records are batches, and the
//! manifest, whose records are version edits. This room knows neither batches nor edits; it keeps
//! one invariant: **a reader gets the records that were written, in order, up to the first one that
//! is not whole, and can tell whether anything from there on was known to be synced.**
//!
//! The bytes are described in format.md, "Log files".

mod frame;
mod reader;
mod replay;
mod writer;

pub(crate) use frame::LogKind;
pub(crate) use reader::{Item, LogReader};
pub use replay::LostTail;
pub(crate) use replay::replay;
pub(crate) use writer::{LogError, LogWriter};
