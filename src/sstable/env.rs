//! What all tables of a store share: files, cache, memory of filters, counters.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::sync::Arc;

use super::cache::BlockCache;
use super::filter::FilterMemory;
use super::pool::FilePool;
use crate::clock::StoreTime;
use crate::fork::Birth;
use crate::ledger::Ledger;
use crate::names::FileName;
use crate::random::RandomSource;
use crate::sealed::{Meter, Seal};
use crate::store_dir::StoreDir;
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use criba_filter::store::{HashKey, PrefixKey};

/// What all tables of a store share.
#[derive(Debug)]
pub(crate) struct TableEnv {
    pub(crate) dir: StoreDir,
    /// The store's id, which its files carry.
    pub(crate) store: u64,
    pub(crate) hash_key: HashKey,
    pub(crate) prefix_hash_key: PrefixKey,
    pub(crate) random: RandomSource,
    pub(crate) files: FilePool,
    pub(crate) cache: Option<BlockCache>,
    pub(crate) ledger: Arc<Ledger>,
    /// Whether the last reads of blocks took long.
    pub(crate) reads_are_slow: AtomicBool,
    pub(crate) filter_memory: FilterMemory,
    /// Counts the memory of indexes.
    pub(crate) index_memory: Arc<Meter>,
    pub(crate) next_file: AtomicU64,
    pub(crate) birth: Birth,
    pub(crate) time: StoreTime,
}

impl TableEnv {
    /// Closes and removes the file of an unreferenced table. If the removal fails, the next open removes it.
    pub(crate) fn remove_table(&self, id: u64) {
        // A file without a name takes room on the disk for as long as it is open.
        self.files.forget(id);
        let _ = self.dir.remove(FileName::Table(id));
    }

    /// The environment of tables outside an open store: no cache, no budgets.
    pub(crate) fn standalone(dir: &StoreDir, store: u64, hash_key: HashKey) -> Arc<Self> {
        Arc::new(Self::new(dir, store, hash_key))
    }

    /// As `standalone`, to be changed.
    pub(crate) fn new(dir: &StoreDir, store: u64, hash_key: HashKey) -> Self {
        Self {
            dir: dir.clone(),
            store,
            hash_key,
            prefix_hash_key: hash_key.for_prefixes(),
            random: RandomSource::default(),
            files: FilePool::new(64, true),
            cache: None,
            ledger: Arc::default(),
            reads_are_slow: AtomicBool::new(false),
            filter_memory: FilterMemory::new(None, Seal::for_files_of(dir)),
            index_memory: Arc::default(),
            next_file: AtomicU64::new(0),
            birth: Birth::now(),
            time: StoreTime::default(),
        }
    }

    /// Path for messages.
    pub(crate) fn path_of(&self, name: FileName) -> std::path::PathBuf {
        self.dir.path_of(name)
    }

    pub(crate) fn new_file_number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn next_file(&self) -> u64 {
        self.next_file.load(Ordering::Relaxed)
    }
}
