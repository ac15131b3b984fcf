//! How the store is built and read.

use criba::{Compression, FilterPolicy};

/// How the store is built and read.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command")]
pub struct Settings {
    /// The filters that tables get.
    pub filter: FilterPolicy,
    /// The compression of data blocks.
    pub compression: Compression,
    /// Fixes the store's id, the order of loading and of lookups.
    pub seed: u64,
    /// The number of present lookups, and of absent ones; each key once if `None`. Keys repeat if there are
    /// fewer.
    pub lookups: Option<u64>,
    /// The block cache of the measured passes.
    pub cache_bytes: u64,
    /// As [`criba::Options::memtable_bytes`].
    pub memtable_bytes: usize,
    /// As [`criba::Options::table_bytes`].
    pub table_bytes: u64,
    /// As [`criba::Options::level_base_bytes`].
    pub level_base_bytes: u64,
    /// Whether L0 keeps every table.
    pub unsettled: bool,
    /// Whether everything is compacted into one run.
    pub one_run: bool,
    /// The exponent of the Zipf distribution of absent lookups; each key once if `None`.
    pub zipf: Option<f64>,
    /// Whether there is only the first act: no batches, no scans, no compaction and no other filters.
    pub only_lookups: bool,
    /// Whether a rebuild gives the loaded store the bytes of its policy. Otherwise each filter has the size that was
    /// planned when its table was written.
    pub rebuilt_filters: bool,
    /// The memory budget for filters in the passes; `None` for no limit.
    pub filter_memory: Option<u64>,
    /// What ends each prefix that is scanned.
    pub delimiter: u8,
}

impl Default for Settings {
    /// As `criba readamp --only-lookups`: sizes are 1/1024 of the library's, so that 120,000 keys make a store
    /// like one of 120 million.
    fn default() -> Self {
        Self {
            filter: FilterPolicy::default(),
            compression: Compression::None,
            seed: 1,
            lookups: None,
            cache_bytes: 0,
            memtable_bytes: 64 << 10,
            table_bytes: 64 << 10,
            level_base_bytes: 256 << 10,
            unsettled: false,
            one_run: false,
            zipf: None,
            only_lookups: true,
            rebuilt_filters: false,
            filter_memory: None,
            delimiter: b'.',
        }
    }
}
