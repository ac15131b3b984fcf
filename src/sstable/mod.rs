//! SSTables: sorted entries in data blocks, then filter, index, properties and footer; and filters rebuilt
//! beside them. format.md describes the bytes.
//!
//! This module uses the file layer, the block cache and the pool of open files. It knows no levels or versions.
//! Invariants:
//!
//! * every block is verified, at its place in its file, each time it is read from disk;
//! * the index stays in memory while the table is open, and a lookup does no I/O for filters;
//! * for each key in the table's range the index names exactly one block.

mod block;
mod cache;
mod check;
mod compression;
mod cursor;
mod data_file;
mod env;
mod estimate;
mod expiries;
mod filter;
mod format;
mod index;
mod large_block;
mod layout;
mod pool;
mod reader;
#[cfg(test)]
mod samples;
mod writer;

pub(crate) use block::{BlockDamage, DecodedBlock, MAX_BLOCK_OF_ENTRIES};
pub(crate) use cache::{BlockCache, FixedHasher};
pub(crate) use check::Checked;
pub use compression::Compression;
pub(crate) use compression::MAX_EXPANSION;
pub(crate) use cursor::{ReadPlan, TableCursor};
pub(crate) use data_file::DataFile;
pub(crate) use env::TableEnv;
pub(crate) use estimate::estimate_compression;
pub(crate) use expiries::Expiries;
pub(crate) use filter::{
    Filter, FilterHeader, FilterMemory, FilterState, OpenTable, Portion, TableFilter, block_bits,
    is_under_another_key, resident_bytes,
};
#[cfg(test)]
pub(crate) use format::TableRandom;
pub(crate) use format::{
    BlockHandle, BlockType, FOOTER_BYTES, FilterMeta, Footer, FooterError, MAX_BLOCK_BYTES,
    TRAILER_BYTES, TableMeta, check_block,
};
pub(crate) use index::Index;
pub use layout::TableLayout;
pub(crate) use pool::FilePool;
pub(crate) use reader::Table;
pub(crate) use writer::{FinishedTable, TableSettings, TableWriter};
