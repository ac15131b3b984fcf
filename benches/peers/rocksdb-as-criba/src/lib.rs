//! The part of criba's interface that criba-raft uses, on RocksDB. What is said of an item of the same name
//! in criba holds here, too: a write survives a crash of the process, and [`Db::sync`] makes all earlier
//! writes survive a power failure.

use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, DBRawIterator, ReadOptions,
    WaitForCompactOptions, WriteBatch,
};

/// The bytes of a block.
pub const BLOCK_BYTES: usize = 4096;
/// The bits of the filter for each key.
pub const BITS_PER_KEY: u32 = 10;
/// The bytes of the block cache.
pub const CACHE_BYTES: usize = 64 << 20;
/// The bytes of the first level below L0.
pub const LEVEL_BASE_BYTES: u64 = 256 << 20;
/// The bytes of a memtable.
pub const MEMTABLE_BYTES: usize = 64 << 20;
/// The bytes of an SSTable.
pub const TABLE_BYTES: u64 = 64 << 20;

/// The longest key of criba.
pub const MAX_KEY_BYTES: usize = u16::MAX as usize;
/// The longest value of criba.
pub const MAX_VALUE_BYTES: usize = 1 << 30;

/// The result of every fallible call.
pub type Result<T> = std::result::Result<T, Error>;

/// A key or a value.
pub type Value = Vec<u8>;

/// An error of the store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// RocksDB failed.
    #[error(transparent)]
    Store(#[from] rocksdb::Error),
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

/// The settings above, without compression.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    create_if_missing: bool,
}

impl Options {
    /// Whether to create a store where none is.
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.create_if_missing = create;
        self
    }

    /// None: no key expires.
    pub fn has_default_ttl(&self) -> bool {
        false
    }

    /// Opens a store, or creates it.
    pub fn open(self, dir: impl AsRef<Path>) -> Result<Db> {
        Db::open(dir.as_ref(), self.create_if_missing)
    }
}

/// A store. It stays open until the process ends, so that iterators and snapshots need no owner.
#[derive(Debug, Clone)]
pub struct Db(&'static DB);

impl Db {
    fn open(dir: &Path, create: bool) -> Result<Self> {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_size(BLOCK_BYTES);
        blocks.set_format_version(7);
        blocks.set_bloom_filter(f64::from(BITS_PER_KEY), false);
        // Filters and indexes are in memory as long as their tables are open, which is always.
        blocks.set_cache_index_and_filter_blocks(false);
        blocks.set_block_cache(&Cache::new_lru_cache(CACHE_BYTES));

        let mut options = rocksdb::Options::default();
        options.create_if_missing(create);
        options.set_compression_type(DBCompressionType::None);
        options.set_write_buffer_size(MEMTABLE_BYTES);
        options.set_target_file_size_base(TABLE_BYTES);
        options.set_max_bytes_for_level_base(LEVEL_BASE_BYTES);
        options.set_max_open_files(-1);
        options.set_block_based_table_factory(&blocks);
        Ok(Self(Box::leak(Box::new(DB::open(&options, dir)?))))
    }

    /// None: no key expires.
    pub fn has_expiries(&self) -> bool {
        false
    }

    /// Sets the value of a key.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        Ok(self.0.put(key, value)?)
    }

    /// Makes all changes of a batch, or none. No changes cost nothing.
    pub fn write(&self, batch: Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        Ok(self.0.write(batch.0)?)
    }

    /// Syncs all earlier writes.
    pub fn sync(&self) -> Result<()> {
        Ok(self.0.flush_wal(true)?)
    }

    /// The value of a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        Ok(self.0.get(key)?)
    }

    /// Whether a key has a value.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.0.get_pinned(key)?.is_some())
    }

    /// The keys in a range with their values, in order.
    pub fn range(&self, bounds: impl RangeBounds<Vec<u8>>) -> Range {
        Range::new(self.0, &bounds, ReadOptions::default())
    }

    /// The keys that begin with a prefix, with their values, in order.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range {
        let start = prefix.as_ref().to_vec();
        let mut end = start.clone();
        while let Some(last) = end.pop() {
            if last < u8::MAX {
                end.push(last + 1);
                return self.range(start..end);
            }
        }
        self.range(start..)
    }

    /// The first key with its value.
    pub fn first(&self) -> Result<Option<(Value, Value)>> {
        self.range(..).next().transpose()
    }

    /// The store as it is now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { db: self.0, snapshot: self.0.snapshot() }
    }

    /// Writes the memtable to an SSTable.
    pub fn flush(&self) -> Result<()> {
        Ok(self.0.flush()?)
    }

    /// Waits until no compaction is due.
    pub fn wait_until_settled(&self) -> Result<()> {
        Ok(self.0.wait_for_compact(&WaitForCompactOptions::default())?)
    }
}

/// Changes that are made together.
#[derive(Default)]
pub struct Batch(WriteBatch);

impl Batch {
    /// No changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a change that sets the value of a key.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.0.put(key, value);
        self
    }

    /// Adds a change that deletes a key.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.0.delete(key);
        self
    }

    /// The number of changes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of the changes.
    pub fn bytes(&self) -> usize {
        self.0.size_in_bytes()
    }
}

/// Keys and values in order.
pub struct Range {
    entries: DBRawIterator<'static>,
    begun: bool,
}

impl Range {
    fn new(db: &'static DB, bounds: &impl RangeBounds<Vec<u8>>, mut options: ReadOptions) -> Self {
        match bounds.start_bound() {
            Bound::Included(key) => options.set_iterate_lower_bound(key.clone()),
            Bound::Excluded(key) => options.set_iterate_lower_bound(next_key(key)),
            Bound::Unbounded => {}
        }
        match bounds.end_bound() {
            Bound::Included(key) => options.set_iterate_upper_bound(next_key(key)),
            Bound::Excluded(key) => options.set_iterate_upper_bound(key.clone()),
            Bound::Unbounded => {}
        }
        Self { entries: db.raw_iterator_opt(options), begun: false }
    }

    /// The last pair. Unlike in criba, it ends the iterator.
    pub fn next_back(mut self) -> Option<Result<(Value, Value)>> {
        self.entries.seek_to_last();
        self.item()
    }

    fn item(&self) -> Option<Result<(Value, Value)>> {
        match self.entries.item() {
            Some((key, value)) => Some(Ok((key.to_vec(), value.to_vec()))),
            None => self.entries.status().err().map(|error| Err(error.into())),
        }
    }
}

impl Iterator for Range {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.begun {
            self.entries.next();
        } else {
            self.entries.seek_to_first();
            self.begun = true;
        }
        self.item()
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range").finish_non_exhaustive()
    }
}

/// The first key after this one.
fn next_key(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The store as it was at one moment.
pub struct Snapshot {
    db: &'static DB,
    snapshot: rocksdb::Snapshot<'static>,
}

impl Snapshot {
    /// The value of a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        Ok(self.snapshot.get(key)?)
    }

    /// The keys in a range with their values, in order.
    pub fn range(&self, bounds: impl RangeBounds<Vec<u8>>) -> Range {
        let mut options = ReadOptions::default();
        options.set_snapshot(&self.snapshot);
        Range::new(self.db, &bounds, options)
    }
}

/// What can be read.
pub trait Reader {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Value>>;
}

impl Reader for Db {
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        Self::get(self, key)
    }
}

impl Reader for Snapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        Self::get(self, key)
    }
}
