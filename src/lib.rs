//! An embedded key-value store for workloads that mostly ask for keys that are not there.
//!
//! criba is a small LSM tree. Writes go to a log and a sorted table in memory; full memtables become
//! sorted files, *SSTables*, which are merged level by level in the background. Every SSTable has a
//! filter of its own keys. The filters are in memory, verified, before the first lookup, and are asked
//! before anything is read: an absent key costs a disk read only where a filter is mistaken, at a rate
//! that you choose or with the memory that you give, and every read made or avoided is counted.
//!
//! ```
//! # fn main() -> criba::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("store");
//! let db = criba::Db::open(path)?;
//! for i in 0..1000 {
//!     db.put(format!("user{i}"), format!("{i}@example.org"))?;
//! }
//! db.flush()?; // into an SSTable, so that there is something to read from
//!
//! assert_eq!(db.get("user7")?.unwrap(), "7@example.org");
//! assert_eq!(db.stats().total().disk_reads, 1);
//!
//! assert_eq!(db.get("user7000")?, None);
//! assert_eq!(db.stats().total().disk_reads, 1); // no further read: the filter said no
//! assert_eq!(db.stats().total().true_negatives, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Where to begin
//! * [`Db::open`] opens a store or makes one; [`Options`] says how.
//! * [`Db::put`], [`Db::get`], [`Db::delete`], [`Db::range`], [`Db::prefix`]; several changes at
//!   once with a [`Batch`]; a fixed moment to read from with [`Db::snapshot`].
//! * [`FilterPolicy`] says which filters tables get: of which [kind](FilterKind), over which
//!   [hash](HashFunction), how large, and [where the bits go](Allocation).
//! * [`Db::may_contain`] asks memory alone; [`Db::set_filter_memory`] says how much of it filters take.
//! * [`Db::advise`] reckons what other filters would cost and avoid.
//! * [`Db::stats`] counts what lookups met, [`Db::tables`] lists what there is, [`Db::explain`] tells
//!   one lookup step by step.
//! * [`vfs`] is the file layer, to be counted, failed or replaced.
//! * [`TableFile`] looks at one SSTable on its own.
//! * [`filter`] has the same filters without a store.
//!
//! # What a lookup costs
//! Memtables first, in memory. Then, from the newest table to the oldest, those whose key range
//! covers the key: all on L0, at most one on each level below. Each is asked through its filter,
//! without I/O. "No" is certain. For "maybe" the index, in memory too, names the one data block that
//! can hold the key, and the block cache or one disk read brings it. So a present key costs one
//! block, and each mistaken filter on the way one more.
//!
//! # What a write survives
//! An acknowledged write survives a crash of the process, or, with [`Durability::Synced`], a power
//! failure. [`Db::sync`] makes all earlier writes synced. After a crash the store holds a prefix of
//! what was written: no hole, at least everything synced, batches whole. What a crash left half
//! written is dropped and reported ([`Db::recovery`]); damage to what had been synced makes opening
//! fail instead, and names the file and the offset.
//!
//! # When bytes are damaged
//! Every block has a checksum, bound to its file and its place, and is verified each time it is read
//! from disk. A damaged data block is an error for the keys in it. A damaged filter is none: its
//! table answers "maybe", is counted as degraded ([`FilterInfo::Degraded`], [`Counts::degraded`]) and
//! told of ([`Options::on_event`]), or refused instead ([`Options::strict_filters`]).
//! [`Db::rebuild_filters`] mends it, as it gives tables any other filters, without rewriting data.
//! [`verify`] reads a whole store that nobody has open, and reports everything that is wrong with it.
//! No bytes in a file make the library panic.

// What tests/schedules compiles of these sources is the library; their unit tests are run here alone.
#![cfg(not(all(test, criba_shuttle)))]
// On docs.rs each item says which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(all(unix, target_pointer_width = "64")))]
compile_error!("criba is made for 64-bit Unix systems");

mod batch;
mod codec;
mod compaction;
mod db;
mod error;
mod event;
mod fences;
pub mod filter;
mod filters;
mod inspect;
mod iter;
mod key;
mod ledger;
mod memo;
mod memtable;
mod names;
mod options;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod parsers;
mod prefetch;
mod scheduler;
mod sealed;
mod sstable;
mod sync;
mod value;
mod version;
pub mod vfs;
mod wal;

pub use batch::Batch;
pub use db::{
    Advice, Db, Durability, Estimate, FilterMemory, Finding, Membership, Range, RebuildReport,
    RecoveryReport, Snapshot, TableInfo, Verification, WeakDb, verify, verify_with,
};
pub use error::{Error, Result};
pub use event::Event;
#[doc(inline)] // or the front page would list names without a word
pub use filter::{Allocation, FilterKind, FilterPolicy, Geometry, HashFunction, PrefixExtractor};
pub use inspect::{FilterInfo, FilterShape, IndexEntry, TableEntry, TableFile, TableProperties};
pub use key::{EntryKind, MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use ledger::{
    Activity, BlockFetch, Counts, Explanation, Io, LEVELS, Outcome, PrefixCounts, Stats, Step,
    TableStep, Verdict,
};
pub use options::Options;
pub use value::Value;
pub use wal::LostTail;

/// The README's examples, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
