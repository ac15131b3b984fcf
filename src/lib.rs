//! An embedded key-value store for workloads in which most lookups are of absent keys.
//!
//! criba is a small LSM tree. Writes go to a log and a *memtable*: entries sorted in memory. Full memtables
//! become sorted files, *SSTables*, which are merged level by level in the background. Every SSTable has a
//! filter of its keys, in memory. A lookup probes the filter first: an absent key costs a disk read only
//! after a false positive. You choose the rate or the memory of filters. Every read that is made or avoided
//! is counted.
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("store");
//! # drop(criba::Options::new().seed(1).open(&path)?);
//! let db = criba::Db::open(path)?;
//! for i in 0..1000 {
//!     db.put(format!("user{i}"), format!("{i}@example.org"))?;
//! }
//! db.flush()?; // into an SSTable
//!
//! assert_eq!(db.get("user7")?.unwrap(), "7@example.org");
//! assert_eq!(db.stats().total().disk_reads, 1);
//!
//! assert_eq!(db.get("user7000")?, None);
//! assert_eq!(db.stats().total().disk_reads, 1); // no read: the filter said no
//! assert_eq!(db.stats().total().true_negatives, 1);
//! # Ok::<(), criba::Error>(())
//! ```
//!
//! # What memory it takes
//! ```text
//! bytes = 3 × memtable_bytes                    default 3 × 64 MiB
//!       + keys × bits per key / 8               default 10 bits; at most filter_memory
//!       + blocks × (30 + separator)             blocks = data bytes, decompressed / block_bytes (default 4,096)
//!       + cache_bytes                           default 64 MiB
//! ```
//! A *separator* in an index is the shortest key between two blocks. [`Db::memory`] reports the bytes of each
//! kind; opening a store that needs more than [`Options::memory_limit`] is refused.
//!
//! # Where to begin
//! * [`Db::open`] opens or makes a store, with [`Options`].
//! * [`Db::put`], [`Db::get`], [`Db::delete`], [`Db::range`], [`Db::prefix`]; [`KeyPrefix`] makes the keys of a table. A
//!   [`Batch`] makes several changes at once; a [`Db::snapshot`] reads the store as it was at one moment.
//! * [`Db::insert_if_absent`], [`Db::insert_many_if_absent`], [`Db::compare_and_swap`], [`Batch::require`]: one of many
//!   threads wins.
//! * [`Db::put_with_expiry`] and [`Options::default_ttl`]: keys that expire. [`Options::compression`]: smaller files.
//! * [`Db::transact`] runs a [`Transaction`]: reads and changes of several keys and ranges take effect at one moment.
//! * [`Db::checkpoint`] makes a backup, [`verify`] checks a store, [`repair`] salvages a damaged one.
//! * [`Options::open_read_only`] reads without a change, also beside a writing process.
//! * [`FilterPolicy`] sets the filters of tables: [kind](FilterKind), [hash](HashFunction), size and
//!   [allocation](Allocation).
//! * [`Db::may_contain`] reads no disk; [`Db::set_filter_memory`] limits the memory of filters.
//! * [`Db::advise`] estimates what other filters would cost and avoid.
//! * [`Db::stats`] counts lookups and reads, [`Db::tables`] lists tables, [`Db::disk_bytes`] adds up all files,
//!   [`Db::explain`] shows the steps of a lookup.
//! * [`vfs`] is the file layer, [`TableFile`] opens one SSTable. Filters without a store are the crate [`criba_filter`].
//!
//! # What a lookup costs
//! A lookup searches the memtables. Then, from newest to oldest, it probes the filters of the tables whose
//! range covers the key: all on L0, at most one on each level below. "No" is certain. After "maybe", the
//! index names the one block that can hold the key. The index is in memory; the block comes from the block
//! cache or by one disk read. So a present key costs one block, and each false positive one more.
//!
//! # What a write survives
//! An acknowledged write survives a crash of the process; with [`Durability::Synced`], a power failure. After
//! a crash the store holds a prefix of all batches that includes every synced one. A write that the crash cut
//! short is dropped and reported ([`Db::recovery`]). Damage to synced data makes opening fail.
//!
//! # When bytes are damaged
//! Every block has a checksum, bound to its file and place, and is verified whenever it is read from disk. A
//! damaged data block is an error for its keys. A damaged filter is *degraded*: it answers "maybe", is
//! counted ([`Counts::degraded`]) and reported ([`Options::on_event`]). [`Db::rebuild_filters`] makes it
//! again. With [`Options::strict_filters`] opening fails. [`verify`] checks a store that is not open. No
//! bytes in a file make the library panic.

// tests/schedules compiles these sources as a library; their unit tests run only here.
#![cfg(not(all(test, criba_shuttle)))]
// On docs.rs each item says which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(all(unix, target_pointer_width = "64")))]
compile_error!("criba is made for 64-bit Unix systems");

mod batch;
mod clock;
mod codec;
mod compaction;
mod db;
mod descriptors;
mod directory;
mod engine;
mod error;
mod event;
mod expiry;
mod fences;
mod filter;
mod filter_manager;
mod fork;
mod inspect;
mod iter;
mod key;
mod key_range;
mod ledger;
mod lookup;
mod memtable;
mod names;
mod offline;
mod options;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod parsers;
mod poison;
mod random;
mod recovery;
mod sealed;
mod sstable;
mod store_dir;
mod sync;
#[cfg(test)]
#[path = "../tests/common/tempdir.rs"]
mod tempdir;
mod value;
mod version;
pub mod vfs;
mod view;
mod wal;

pub use batch::{Batch, Change};
pub use clock::Clock;
pub use codec::FORMAT_VERSION;
#[doc(inline)] // else the front page lists names without their text
pub use criba_filter::{FilterKind, Geometry, HashFunction};
pub use db::{
    CheckpointFiles, Db, FilterMemory, Keys, MemoryUse, ReadOnlyDb, Reader, Snapshot, TableInfo,
    Transaction, TransactionRange, WeakDb,
};
pub use engine::commit_queue::Durability;
pub use engine::rebuild_filters::RebuildReport;
pub use engine::scan::Range;
pub use error::{Error, Result};
pub use event::Event;
pub use expiry::Expiry;
#[doc(inline)]
pub use filter::{Allocation, FilterPolicy, PrefixExtractor};
pub use filter_manager::advise::{Advice, Estimate};
pub use inspect::{
    FilterInfo, FilterShape, IndexEntry, TableEntry, TableExpiries, TableFile, TableProperties,
};
pub use key::{EntryKind, MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use key_range::{KeyPrefix, KeyRange};
pub use ledger::{
    Activity, BlockFetch, Counts, Explanation, Histogram, Io, LEVELS, Latencies, Outcome,
    PrefixCounts, Stats, Step, TableStep, Verdict, Work, Writes,
};
pub use lookup::Membership;
pub use offline::repair::{Loss, Repaired, Uncertain, repair, repair_with};
pub use offline::verify::{Finding, Verification, verify, verify_with};
pub use options::Options;
pub use recovery::open::RecoveryReport;
pub use sstable::{Compression, TableLayout};
pub use value::Value;
pub use wal::LostTail;

/// The examples of documents, run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../docs/filters.md")]
struct Documents;
