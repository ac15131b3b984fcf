//! RocksDB, through the crate `rocksdb`.

use std::path::Path;
use std::time::Duration;

use rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};
use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, ColumnFamilyDescriptor, ColumnFamilyRef,
    CompactOptions, DB, DBCompressionType, DataBlockIndexType, IngestExternalFileOptions, Options,
    ReadOptions, SliceTransform, SstFileWriter, WaitForCompactOptions, WriteOptions,
};

use super::{Built, Reader, Store, seen};
use crate::Result;
use crate::keys::NAME_BYTES;
use crate::settings::{BITS_PER_KEY, BLOCK_BYTES, Config, Told};

pub struct RocksDb {
    db: DB,
    /// For tables that are written to be ingested.
    options: Options,
    table_bytes: u64,
    prefixes: bool,
    synced: WriteOptions,
    unsynced: WriteOptions,
}

impl Store for RocksDb {
    type Reader<'s> = RocksReader<'s>;

    const PREFIXES: bool = true;
    const L0: bool = true;
    const INGEST: bool = true;

    fn version() -> String {
        env!("VERSION_ROCKSDB_AS_BUILT").to_owned()
    }

    fn open(dir: &Path, config: &Config, told: &mut Told) -> Result<Self> {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_size(told.set("block_size", BLOCK_BYTES));
        blocks.set_format_version(told.set("format_version", 7));
        blocks.set_bloom_filter(told.set("bloom_bits", f64::from(BITS_PER_KEY)), false);
        // Filters and indexes are in memory as long as their tables are open, which is always.
        blocks.set_cache_index_and_filter_blocks(told.set("cache_index_and_filter_blocks", false));
        let bytes = told.set("block_cache", config.cache_bytes());
        if bytes == 0 {
            blocks.disable_cache();
        } else if config.best() {
            told.note("cache", "hyper clock");
            blocks.set_block_cache(&Cache::new_hyper_clock_cache(bytes, BLOCK_BYTES));
        } else {
            told.note("cache", "LRU");
            blocks.set_block_cache(&Cache::new_lru_cache(bytes));
        }

        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(told.set("compression", DBCompressionType::None));
        options.set_write_buffer_size(told.set("write_buffer_size", config.memtable_bytes()));
        options.set_target_file_size_base(told.set("target_file_size_base", config.table_bytes()));
        options.set_max_bytes_for_level_base(
            told.set("max_bytes_for_level_base", config.level_base_bytes()),
        );
        options.set_max_open_files(told.set("max_open_files", -1));
        if config.best() {
            // What `OptimizeForPointLookup` sets, and the tuning guide's advice for two cores.
            blocks.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
            blocks.set_data_block_hash_ratio(told.set("data_block_hash_ratio", 0.75));
            blocks.set_optimize_filters_for_memory(told.set("optimize_filters_for_memory", true));
            options.set_memtable_prefix_bloom_ratio(told.set("memtable_prefix_bloom_ratio", 0.02));
            options
                .set_memtable_whole_key_filtering(told.set("memtable_whole_key_filtering", true));
            options.set_max_subcompactions(told.set("max_subcompactions", 2));
            options.set_bytes_per_sync(told.set("bytes_per_sync", 1 << 20));
        }
        if let Some(bytes) = config.prefix() {
            let bytes = told.set("prefix_extractor", bytes);
            options.set_prefix_extractor(SliceTransform::create_fixed_prefix(bytes));
        }
        if !config.compactions() {
            options.set_disable_auto_compactions(told.set("disable_auto_compactions", true));
            options.set_level_zero_slowdown_writes_trigger(1 << 20);
            options.set_level_zero_stop_writes_trigger(1 << 20);
        }
        options.set_block_based_table_factory(&blocks);

        let family = ColumnFamilyDescriptor::new("default", options.clone());
        let db = DB::open_cf_descriptors(&options, dir, [family])?;
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        let prefixes = config.prefix().is_some();
        Ok(Self {
            db,
            options,
            table_bytes: config.table_bytes(),
            prefixes,
            synced,
            unsynced: WriteOptions::default(),
        })
    }

    fn reader(&self) -> Result<RocksReader<'_>> {
        set_perf_stats(PerfStatsLevel::Disable);
        let family = self.db.cf_handle("default").ok_or("no column family")?;
        Ok(RocksReader { store: self, family, options: ReadOptions::default() })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put_opt(key, value, &self.unsynced)?)
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put_opt(key, value, &self.synced)?)
    }

    /// The tables are written beside the store, and moved.
    fn ingest<'v>(
        &self,
        mut pairs: impl Iterator<Item = ([u8; NAME_BYTES], &'v [u8])>,
    ) -> Result<()> {
        let mut files = Vec::new();
        while let Some(mut pair) = pairs.next() {
            let file = self.db.path().with_extension(format!("new-{}", files.len()));
            let mut writer = SstFileWriter::create(&self.options);
            writer.open(&file)?;
            loop {
                writer.put(pair.0, pair.1)?;
                if writer.file_size() >= self.table_bytes {
                    break;
                }
                match pairs.next() {
                    Some(next) => pair = next,
                    None => break,
                }
            }
            writer.finish()?;
            files.push(file);
        }
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        Ok(self.db.ingest_external_file_opts(&options, files)?)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn settle(&self) -> Result<Duration> {
        self.db.wait_for_compact(&WaitForCompactOptions::default())?;
        Ok(Duration::ZERO)
    }

    fn compact(&mut self) -> Result<()> {
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        Ok(())
    }

    fn built(&self) -> Result<Built> {
        let files = self.db.live_files()?;
        let l0 = files.iter().filter(|file| file.level == 0).count() as u64;
        let mut levels: Vec<_> = files.iter().map(|file| file.level).filter(|&at| at > 0).collect();
        levels.sort_unstable();
        levels.dedup();
        let properties =
            self.db.property_value(rocksdb::properties::AGGREGATED_TABLE_PROPERTIES)?;
        let filter_bytes = properties.as_deref().and_then(|properties| {
            let (_, rest) = properties.split_once("filter block size=")?;
            rest.split_once(';')?.0.trim().parse().ok()
        });
        let runs = Some(l0 + levels.len() as u64);
        Ok(Built { runs, l0_tables: Some(l0), filter_bytes })
    }

    /// Of this thread; counted from the first call on.
    fn own_reads(&self) -> Option<u64> {
        set_perf_stats(PerfStatsLevel::EnableCount);
        Some(PerfContext::default().metric(PerfMetric::BlockReadCount))
    }
}

pub struct RocksReader<'s> {
    store: &'s RocksDb,
    family: ColumnFamilyRef<'s>,
    options: ReadOptions,
}

impl Reader for RocksReader<'_> {
    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(self.store.db.get_pinned_opt(key, &self.options)?.map(|value| seen(&value)))
    }

    /// MultiGet, which probes the filters of a batch together.
    fn get_many(&self, keys: &[&[u8]], found: &mut Vec<Option<usize>>) -> Result<()> {
        let (db, family) = (&self.store.db, &self.family);
        for value in db.batched_multi_get_cf_opt(family, keys.iter().copied(), false, &self.options)
        {
            found.push(value?.map(|value| seen(&value)));
        }
        Ok(())
    }

    fn scan(&self, from: &[u8], limit: usize) -> Result<(usize, usize)> {
        let mut options = ReadOptions::default();
        options.set_total_order_seek(true);
        let mut iterator = self.store.db.raw_iterator_opt(options);
        let (mut count, mut bytes) = (0, 0);
        iterator.seek(from);
        while let Some((key, value)) = iterator.item().filter(|_| count < limit) {
            bytes += seen(key) + seen(value);
            count += 1;
            iterator.next();
        }
        iterator.status()?;
        Ok((count, bytes))
    }

    fn prefix(&self, prefix: &[u8]) -> Result<usize> {
        let mut options = ReadOptions::default();
        options.set_prefix_same_as_start(self.store.prefixes);
        let mut iterator = self.store.db.raw_iterator_opt(options);
        let mut count = 0;
        iterator.seek(prefix);
        while let Some((_, value)) = iterator.item().filter(|(key, _)| key.starts_with(prefix)) {
            seen(value);
            count += 1;
            iterator.next();
        }
        iterator.status()?;
        Ok(count)
    }
}
