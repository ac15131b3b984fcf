//! One SSTable: sorted entries in data blocks, then filter, index, properties and footer.
//!
//! This room turns sorted entries into a file and a file into answers. It reads through the file
//! layer, the block cache and the pool of open files, and knows nothing of levels or versions.
//! Its invariants:
//!
//! * every block is verified, at its place in its file, each time it is read from disk;
//! * filter and index are resident from open to drop: nothing is read to learn that a key is absent;
//! * for every key within the table's range the index names exactly one block.
//!
//! The bytes are described in format.md.

mod block;
mod cursor;
mod format;
mod index;
mod pool;
mod reader;
mod writer;

pub(crate) use cursor::{ReadPlan, TableCursor};
#[cfg(test)]
pub(crate) use format::FilterMeta;
pub(crate) use format::{Properties, TableMeta};
pub(crate) use pool::FilePool;
pub(crate) use reader::{FilterState, OpenTable, Table, TableEnv, TableFilter};
pub(crate) use writer::{FinishedTable, TableSettings, TableWriter};
