//! fjall, on lsm-tree.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fjall::compaction::Leveled;
use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    HashRatioPolicy, PartitioningPolicy, PinningPolicy,
};
use fjall::{
    AbstractTree, Keyspace, KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace,
    PersistMode, Readable,
};

use super::{Built, Reader, Store, balance, seen, settle_by_looking, walk};
use crate::Result;
use crate::keys::NAME_BYTES;
use crate::settings::{BITS_PER_KEY, BLOCK_BYTES, Config, Told};

/// Only `transact` uses the conflict detection; all else goes to the keyspace within.
pub struct Fjall {
    database: OptimisticTxDatabase,
    keyspace: OptimisticTxKeyspace,
    strategy: Arc<Leveled>,
}

impl Store for Fjall {
    type Reader<'s> = &'s Keyspace;

    const L0: bool = true;
    const TRANSACTIONS: bool = true;
    const INGEST: bool = true;

    fn version() -> String {
        format!("{} (lsm-tree {})", env!("VERSION_FJALL"), env!("VERSION_LSM_TREE"))
    }

    fn open(dir: &Path, config: &Config, told: &mut Told) -> Result<Self> {
        let cache = told.set("cache_size", config.cache_bytes() as u64);
        let database = OptimisticTxDatabase::builder(dir).cache_size(cache).open()?;

        let bloom = |policy| FilterPolicyEntry::Bloom(policy);
        let bits = bloom(BloomConstructionPolicy::BitsPerKey(BITS_PER_KEY as f32));
        // With smaller ones writes came to a stop: L0 was over its limit, and no worker looked at it.
        let memtable = config.memtable_bytes().max(512 << 10) as u64;
        let mut options = KeyspaceCreateOptions::default()
            .max_memtable_size(told.set("max_memtable_size", memtable))
            .data_block_size_policy(
                told.set("data_block_size", BlockSizePolicy::all(BLOCK_BYTES as u32)),
            )
            .data_block_compression_policy(told.set("compression", CompressionPolicy::disabled()))
            .filter_block_partitioning_policy(
                told.set("filters partitioned", PartitioningPolicy::all(false)),
            )
            .index_block_partitioning_policy(
                told.set("indexes partitioned", PartitioningPolicy::all(false)),
            )
            .filter_block_pinning_policy(told.set("filters pinned", PinningPolicy::all(true)))
            .index_block_pinning_policy(told.set("indexes pinned", PinningPolicy::all(true)));
        options = if config.best() {
            // Its default filters are sharper on L0; its hash index in blocks is for hot data.
            let sharp = bloom(BloomConstructionPolicy::FalsePositiveRate(0.0001));
            options
                .filter_policy(told.set("filter", FilterPolicy::new([sharp, bits])))
                .data_block_hash_ratio_policy(
                    told.set("data_block_hash_ratio", HashRatioPolicy::all(1.33)),
                )
        } else {
            options.filter_policy(told.set("filter", FilterPolicy::all(bits)))
        };
        // Its L1 holds as many tables as L0 may have.
        let l0 = if config.compactions() { 4 } else { 255 };
        let strategy = Leveled::default()
            .with_table_target_size(told.set("table_target_size", config.table_bytes()))
            .with_l0_threshold(told.set("l0_threshold", l0));
        let strategy = Arc::new(strategy);
        options = options.compaction_strategy(strategy.clone());
        let keyspace = database.keyspace("keys", || options)?;
        Ok(Self { database, keyspace, strategy })
    }

    fn reader(&self) -> Result<&Keyspace> {
        Ok(self.keyspace.inner())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.keyspace.inner().insert(key, value)?)
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.inner().insert(key, value)?;
        Ok(self.database.persist(PersistMode::SyncData)?)
    }

    fn transact(
        &self,
        [a, b]: [&[u8]; 2],
        mut change: impl FnMut([i64; 2]) -> [i64; 2],
    ) -> Result<u64> {
        let mut conflicts = 0;
        loop {
            let mut tx = self.database.write_tx()?;
            let read = |key| balance(tx.get(&self.keyspace, key)?);
            let [new_a, new_b] = change([read(a)?, read(b)?]);
            tx.insert(&self.keyspace, a, new_a.to_le_bytes());
            tx.insert(&self.keyspace, b, new_b.to_le_bytes());
            match tx.commit()? {
                Ok(()) => return Ok(conflicts),
                Err(fjall::Conflict) => conflicts += 1,
            }
        }
    }

    fn ingest<'v>(&self, pairs: impl Iterator<Item = ([u8; NAME_BYTES], &'v [u8])>) -> Result<()> {
        let mut ingestion = self.keyspace.inner().start_ingestion()?;
        for (key, value) in pairs {
            ingestion.write(key, value)?;
        }
        Ok(ingestion.finish()?)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(self.keyspace.inner().rotate_memtable_and_wait()?)
    }

    /// Its workers check for compactions after each flush, and may leave due ones: those run here, as its
    /// strategy chooses them.
    fn settle(&self) -> Result<Duration> {
        let (database, tree) = (self.database.inner(), &self.keyspace.inner().tree);
        let idle = settle_by_looking(|| {
            let busy = database.outstanding_flushes() > 0
                || tree.sealed_memtable_count() > 0
                || database.active_compactions() > 0;
            Ok((!busy).then(|| (database.compactions_completed(), tree.table_count())))
        })?;
        let tables = || -> Vec<_> {
            let version = tree.current_version();
            let levels = version.iter_levels().enumerate();
            levels
                .flat_map(|(at, level)| level.list_ids().into_iter().map(move |id| (at, id)))
                .collect()
        };
        let mut before = Vec::new();
        loop {
            let mut now = tables();
            now.sort_unstable();
            if now == before {
                return Ok(idle);
            }
            before = now;
            tree.compact(self.strategy.clone(), database.visible_seqno())?;
        }
    }

    fn compact(&mut self) -> Result<()> {
        Ok(self.keyspace.inner().major_compact()?)
    }

    fn built(&self) -> Result<Built> {
        let tree = &self.keyspace.inner().tree;
        let version = tree.current_version();
        let runs = version.iter_levels().map(|level| level.len() as u64).sum();
        Ok(Built {
            runs: Some(runs),
            l0_tables: Some(tree.l0_run_count() as u64),
            filter_bytes: Some(tree.filter_size()),
        })
    }
}

impl Reader for &Keyspace {
    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(Keyspace::get(self, key)?.map(|value| seen(&value)))
    }

    fn scan(&self, from: &[u8], limit: usize) -> Result<(usize, usize)> {
        walk(self.range(from..).map(fjall::Guard::into_inner), limit)
    }

    fn prefix(&self, prefix: &[u8]) -> Result<usize> {
        let pairs = Keyspace::prefix(self, prefix).map(fjall::Guard::into_inner);
        Ok(walk(pairs, usize::MAX)?.0)
    }
}
