//! One SSTable: sorted entries in data blocks, then filter, index, properties and footer; and the
//! filters that were written beside it later.
//!
//! This room turns sorted entries into a file and a file into answers. It reads through the file
//! layer, the block cache and the pool of open files, and knows nothing of levels or versions.
//! Its invariants:
//!
//! * every block is verified, at its place in its file, each time it is read from disk;
//! * the index is resident from open to drop, and a lookup reads nothing of a filter: it asks what is
//!   resident of it, all unless there is a budget for filters;
//! * for every key within the table's range the index names exactly one block.
//!
//! The bytes are described in format.md.

mod block;
mod cache;
mod check;
mod cursor;
mod env;
mod filter;
mod format;
mod index;
mod memory;
mod pool;
mod portions;
mod reader;
#[cfg(test)]
mod samples;
mod writer;

pub(crate) use cache::{BlockCache, FixedHasher};
pub(crate) use check::Checked;
pub(crate) use cursor::{ReadPlan, TableCursor};
pub(crate) use env::TableEnv;
pub(crate) use filter::{FilterState, OpenTable, TableFilter};
pub(crate) use format::{FilterMeta, Properties, TableMeta};
pub(crate) use memory::{FilterMemory, resident_bytes};
pub(crate) use pool::FilePool;
pub(crate) use reader::Table;
pub(crate) use writer::{FinishedTable, TableSettings, TableWriter};
