//! The promises of a store on real files and a sound machine. One program, so that it is linked once and
//! its tests share the cores; tests that measure or limit a whole process are separate.

#[path = "../common/mod.rs"]
mod common;

#[path = "../common/linearizable.rs"]
mod linearizable;

mod allocation;
mod api_shape;
mod atomic_insertion;
mod checkpoint;
mod compaction_beside_writers;
mod compaction_laws;
mod compression;
mod conditions;
mod copies;
mod crafted_keys;
mod damaged_tables;
mod directories;
mod events;
mod expiry;
mod expiry_window;
mod filters_never_deny;
mod fixture_store;
mod format;
mod format_stores;
mod get_many;
mod handles;
mod hidden;
mod ingest;
mod ledger_beside_changes;
mod locking;
mod long_versions;
mod may_contain;
mod memory;
mod model;
mod next_log;
mod open_files;
mod operators;
mod policies;
mod prefix_model;
mod prefixes;
mod read_ahead;
mod read_only;
mod reads_avoided;
mod rebuild_filters;
mod recovery;
mod replaced_views;
mod rewriting;
mod serializable;
mod sim_vfs;
mod space;
mod stored_policy;
mod tombstones;
mod transactions;
mod verify;
mod writers;
mod wrong_bytes;
mod wrong_bytes_written;
