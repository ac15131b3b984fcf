//! What all tables of a store share: files, cache, memory of filters, counters.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cache::BlockCache;
use super::memory::FilterMemory;
use super::pool::FilePool;
use crate::filter::{HashKey, PrefixKey};
use crate::fork::Birth;
use crate::ledger::Ledger;
use crate::names::FileName;
use crate::sealed::{Meter, Seal};
use crate::sync::{AtomicU64, Ordering};
use crate::vfs::{FileKind, Vfs};

/// What all tables of a store share.
#[derive(Debug)]
pub(crate) struct TableEnv {
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) dir: PathBuf,
    /// The store's id, which its files carry.
    pub(crate) store: u64,
    pub(crate) hash_key: HashKey,
    pub(crate) prefix_hash_key: PrefixKey,
    pub(crate) files: FilePool,
    pub(crate) cache: Option<BlockCache>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) filter_memory: FilterMemory,
    /// Counts the memory of indexes.
    pub(crate) index_memory: Arc<Meter>,
    pub(crate) next_file: AtomicU64,
    pub(crate) birth: Birth,
}

impl TableEnv {
    /// Closes and removes the file of an unreferenced table. If the removal fails, the next open removes it.
    pub(crate) fn remove_table(&self, id: u64) {
        // A file without a name takes room on the disk for as long as it is open.
        self.files.forget(id);
        let _ = self.vfs.remove(&FileName::Table(id).path(&self.dir), FileKind::Table);
    }

    /// The environment of tables outside an open store: no cache.
    pub(crate) fn standalone(
        vfs: &Arc<dyn Vfs>,
        dir: &Path,
        store: u64,
        hash_key: HashKey,
    ) -> Arc<Self> {
        Arc::new(Self {
            vfs: Arc::clone(vfs),
            dir: dir.to_owned(),
            store,
            hash_key,
            prefix_hash_key: hash_key.for_prefixes(),
            files: FilePool::new(64),
            cache: None,
            ledger: Arc::default(),
            filter_memory: FilterMemory::new(None, Seal::for_files_of(vfs.as_ref())),
            index_memory: Arc::default(),
            next_file: AtomicU64::new(0),
            birth: Birth::now(),
        })
    }

    pub(crate) fn new_file_number(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn next_file(&self) -> u64 {
        self.next_file.load(Ordering::Relaxed)
    }
}
