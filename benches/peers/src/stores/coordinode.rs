//! coordinode-lsm-tree, a fork of fjall's lsm-tree whose filters are bumped ribbons. It has no log and no threads of its
//! own: this flushes full memtables, and compacts after each flush.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use coordinode::compaction::Leveled;
use coordinode::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    PinningPolicy,
};
use coordinode::{AbstractTree, AnyTree, Cache, Guard, SeqNo, SequenceNumberCounter};

use super::{Built, Reader, Store, seen, walk};
use crate::Result;
use crate::settings::{BITS_PER_KEY, BLOCK_BYTES, Config, Told};

pub struct Coordinode {
    tree: AnyTree,
    seqno: SequenceNumberCounter,
    strategy: Arc<Leveled>,
    memtable_bytes: u64,
    compactions: bool,
}

impl Store for Coordinode {
    type Reader<'s> = &'s AnyTree;

    const L0: bool = true;
    const LOG: bool = false;
    const SYNCED: bool = false;

    fn version() -> String {
        env!("VERSION_COORDINODE_LSM_TREE").to_owned()
    }

    fn open(dir: &Path, config: &Config, told: &mut Told) -> Result<Self> {
        let seqno = SequenceNumberCounter::default();
        let visible = SequenceNumberCounter::default();
        let cache = told.set("cache", config.cache_bytes() as u64);
        let bits = BloomConstructionPolicy::BitsPerKey(BITS_PER_KEY as f32);
        let filters = FilterPolicy::all(FilterPolicyEntry::Bloom(bits));
        let tree = coordinode::Config::new(dir, seqno.clone(), visible)
            .use_cache(Arc::new(Cache::with_capacity_bytes(cache)))
            .data_block_size_policy(
                told.set("data_block_size", BlockSizePolicy::all(BLOCK_BYTES as u32)),
            )
            .data_block_compression_policy(told.set("compression", CompressionPolicy::disabled()))
            .filter_policy(told.set("filter", filters))
            .filter_block_partitioning_policy(
                told.set("filters partitioned", PinningPolicy::all(false)),
            )
            .index_block_partitioning_policy(
                told.set("indexes partitioned", PinningPolicy::all(false)),
            )
            .filter_block_pinning_policy(told.set("filters pinned", PinningPolicy::all(true)))
            .index_block_pinning_policy(told.set("indexes pinned", PinningPolicy::all(true)))
            .open()?;
        told.note("log", "none");
        let l0 = if config.compactions() { 4 } else { 255 };
        let strategy = Leveled::default()
            .with_table_target_size(told.set("table_target_size", config.table_bytes()))
            .with_l0_threshold(told.set("l0_threshold", l0));
        let memtable_bytes = told.set("memtable_bytes", config.memtable_bytes() as u64);
        let (strategy, compactions) = (Arc::new(strategy), config.compactions());
        Ok(Self { tree, seqno, strategy, memtable_bytes, compactions })
    }

    fn reader(&self) -> Result<&AnyTree> {
        Ok(&self.tree)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let (_, memtable_bytes) = self.tree.insert(key, value, self.seqno.next());
        if memtable_bytes >= self.memtable_bytes {
            self.tree.flush_active_memtable(self.seqno.get())?;
            if self.compactions {
                self.settle()?;
            }
        }
        Ok(())
    }

    fn put_synced(&self, _: &[u8], _: &[u8]) -> Result<()> {
        unreachable!("left out")
    }

    fn flush(&mut self) -> Result<()> {
        Ok(self.tree.flush_active_memtable(self.seqno.get())?)
    }

    /// Compacts until its strategy leaves all tables where they are.
    fn settle(&self) -> Result<Duration> {
        let tables = || -> Vec<_> {
            let version = self.tree.current_version();
            let levels = version.iter_levels().enumerate();
            let mut tables: Vec<_> = levels
                .flat_map(|(at, level)| level.list_ids().into_iter().map(move |id| (at, id)))
                .collect();
            tables.sort_unstable();
            tables
        };
        let mut before = Vec::new();
        loop {
            let now = tables();
            if now == before {
                return Ok(Duration::ZERO);
            }
            before = now;
            self.tree.compact(self.strategy.clone(), self.seqno.get())?;
        }
    }

    fn compact(&mut self) -> Result<()> {
        self.tree.major_compact(u64::MAX, self.seqno.get())?;
        Ok(())
    }

    fn built(&self) -> Result<Built> {
        let runs = self.tree.current_version().iter_levels().map(|level| level.len() as u64).sum();
        Ok(Built {
            runs: Some(runs),
            l0_tables: Some(self.tree.l0_run_count() as u64),
            filter_bytes: Some(self.tree.filter_size()),
        })
    }
}

impl Reader for &AnyTree {
    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(AbstractTree::get(*self, key, SeqNo::MAX)?.map(|value| seen(&value)))
    }

    fn get_many(&self, keys: &[&[u8]], found: &mut Vec<Option<usize>>) -> Result<()> {
        let values = self.multi_get(keys.iter().copied(), SeqNo::MAX)?;
        found.extend(values.iter().map(|value| value.as_deref().map(seen)));
        Ok(())
    }

    fn scan(&self, from: &[u8], limit: usize) -> Result<(usize, usize)> {
        walk(self.range(from.., SeqNo::MAX, None).map(Guard::into_inner), limit)
    }

    fn prefix(&self, prefix: &[u8]) -> Result<usize> {
        let pairs = AbstractTree::prefix(*self, prefix, SeqNo::MAX, None).map(Guard::into_inner);
        Ok(walk(pairs, usize::MAX)?.0)
    }
}
