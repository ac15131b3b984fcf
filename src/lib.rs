//! criba: an embedded key-value store for lookups that mostly miss.

#[cfg(not(all(unix, target_pointer_width = "64")))]
compile_error!("criba is made for 64-bit Unix systems");

mod batch;
mod cache;
mod codec;
mod compaction;
mod db;
mod error;
mod filter;
mod iter;
mod key;
mod ledger;
mod memtable;
mod names;
mod options;
mod sealed;
mod sync;
mod table;
mod value;
mod version;
pub mod vfs;
mod wal;

pub use batch::Batch;
pub use db::{Db, Durability, Range, RecoveryReport, Snapshot, TableInfo};
pub use error::{Error, Result};
pub use filter::{FilterPolicy, Geometry};
pub use key::{EntryKind, MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use ledger::{
    Activity, BlockFetch, Counts, Explanation, Io, LEVELS, Outcome, Stats, Step, TableStep, Verdict,
};
pub use options::Options;
pub use table::{FilterInfo, IndexEntry, TableEntry, TableFile, TableProperties};
pub use value::Value;
pub use wal::LostTail;
