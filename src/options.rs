//! The options of a store.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::compaction::PickSettings;
use crate::descriptors;
use crate::error::{Error, Result};
use crate::event::{Event, Listener};
use crate::expiry::{Millis, Moment, rounded_up};
use crate::filter::{FilterPolicy, PrefixExtractor};
use crate::key::MAX_KEY_BYTES;
use crate::sstable::{Compression, MAX_BLOCK_OF_ENTRIES, TableSettings};
use crate::version::StoreSettings;
use crate::vfs::{RealVfs, Vfs};

/// Each is a thread of the system at once: a wrong number would take those of other programs.
const MAX_BACKGROUND_THREADS: usize = 1024;

/// The options of an open store. The store keeps [`filter`](Self::filter) and [`prefix`](Self::prefix); the
/// others hold until it is closed.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("store");
/// use criba::{FilterPolicy, Options};
///
/// let db = Options::new().filter(FilterPolicy::bits_per_key(12.5)).cache_bytes(1 << 30).open(path)?;
/// # Ok::<(), criba::Error>(())
/// ```
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[expect(clippy::option_option, reason = "a setting of the store can be kept, replaced or removed")]
#[must_use = "options do nothing until a store is opened with them"]
pub struct Options {
    pub(crate) create_if_missing: bool,
    /// `None`: as the store has it.
    pub(crate) filter: Option<FilterPolicy>,
    /// `None`: as the store has it.
    pub(crate) prefix: Option<Option<PrefixExtractor>>,
    /// `None`: as the store has it.
    pub(crate) compression: Option<Compression>,
    pub(crate) ignore_filters: bool,
    pub(crate) strict_filters: bool,
    pub(crate) listener: Listener,
    pub(crate) memtable_bytes: usize,
    pub(crate) table_bytes: u64,
    pub(crate) level_base_bytes: u64,
    pub(crate) block_bytes: usize,
    pub(crate) cache_bytes: u64,
    pub(crate) filter_memory: Option<u64>,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) max_open_files: usize,
    pub(crate) read_ahead: bool,
    pub(crate) auto_compaction: bool,
    pub(crate) latencies: bool,
    pub(crate) transaction_bytes: usize,
    pub(crate) background_threads: usize,
    pub(crate) l0_compaction_trigger: usize,
    pub(crate) l0_slowdown_trigger: usize,
    pub(crate) l0_stop_trigger: usize,
    pub(crate) default_ttl: Option<Option<Duration>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) accept_clock: bool,
    /// The time of a store of which this one is a copy.
    pub(crate) time_of_another: Option<Millis>,
    pub(crate) seed: Option<u64>,
    pub(crate) file_mode: u32,
    pub(crate) vfs: Arc<dyn Vfs>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create_if_missing: true,
            filter: None,
            prefix: None,
            compression: None,
            ignore_filters: false,
            strict_filters: false,
            listener: Listener::default(),
            memtable_bytes: 64 << 20,
            table_bytes: 64 << 20,
            level_base_bytes: 256 << 20,
            block_bytes: 4096,
            cache_bytes: 64 << 20,
            filter_memory: None,
            memory_limit: None,
            max_open_files: default_max_open_files(),
            read_ahead: true,
            auto_compaction: true,
            latencies: false,
            transaction_bytes: 64 << 20,
            background_threads: 1,
            l0_compaction_trigger: 4,
            l0_slowdown_trigger: 12,
            l0_stop_trigger: 24,
            default_ttl: None,
            clock: Arc::new(SystemClock::default()),
            accept_clock: false,
            time_of_another: None,
            seed: None,
            file_mode: 0o600,
            vfs: Arc::new(RealVfs),
        }
    }
}

fn default_max_open_files() -> usize {
    descriptors::limit().map_or(4096, |limit| (limit / 4).min(4096) as usize)
}

impl Options {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether to make a store if there is none: in a new directory, an empty one, or one in which no file has a
    /// name like those of a store. Default: true.
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.create_if_missing = create;
        self
    }

    /// The policy for the filters of new tables. It belongs to the store: this is durable before `open`
    /// returns, and a program that opens the store without it changes nothing. Existing filters stay. Default:
    /// the store's policy, for a new store [`FilterPolicy::default`].
    ///
    /// In an open store, [`Db::policy`](crate::Db::policy) is the policy in force,
    /// [`Db::set_policy`](crate::Db::set_policy) replaces it, and
    /// [`Db::rebuild_filters`](crate::Db::rebuild_filters) replaces it and the existing filters.
    pub fn filter(mut self, policy: FilterPolicy) -> Self {
        self.filter = Some(policy);
        self
    }

    /// Adds the prefixes of keys to filters, so that [`Db::prefix`](crate::Db::prefix), and
    /// [`Db::range`](crate::Db::range) within one prefix, skip tables: a table whose filter denies the prefix costs
    /// no read. A distinct prefix takes as many bits as a key: the false-positive rate stays, the bytes grow.
    ///
    /// Of a filter made with another extractor, a scan uses the prefixes that both have: after `until(b'/')`, with
    /// `every(b'/')` the first directory. The extractor belongs to the store, as the [policy](Self::filter) does; `None` removes it.
    /// Default: the store's; none in a new store. After a change, [`Db::rebuild_filters`](crate::Db::rebuild_filters)
    /// gives present tables the new prefixes. Commits before [`PrefixExtractor::every`] refuse a store with it.
    pub fn prefix(mut self, extractor: impl Into<Option<PrefixExtractor>>) -> Self {
        self.prefix = Some(extractor.into());
        self
    }

    /// The compression of the data blocks of new tables. It belongs to the store, as the [policy](Self::filter) does.
    /// Existing tables stay as they are until a compaction writes them anew: `criba compact --rewrite`, or
    /// [`Db::compact_rewriting`](crate::Db::compact_rewriting), brings all of them to the setting. Default: the store's; none in a
    /// new store.
    ///
    /// A lookup or scan that reads a compressed block from the disk decompresses it; a cached block is decompressed
    /// already. Filters are not compressed, and absent keys cost what they cost without. To decompress takes about 1.7 µs
    /// for 4 KiB and 6.9 µs for 16 KiB (`docs/performance.md`, "Compressed blocks"). A larger [block](Self::block_bytes)
    /// shrinks more. A value of 256 KiB or more is not compressed. Earlier commits than [`Compression`] refuse a
    /// store with another setting than `None`, also after it is `None` again; they open a new one into which it is dumped
    /// and loaded.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// Makes every filter answer "maybe", to measure what filters save. Probes count as unfiltered. Default:
    /// false.
    pub fn ignore_filters(mut self, ignore: bool) -> Self {
        self.ignore_filters = ignore;
        self
    }

    /// If a filter is degraded, opening fails with [`Error::Corrupt`], and changes nothing; also if a filter is of
    /// a kind that stores no longer have. Otherwise the filter answers "maybe". Default: false.
    pub fn strict_filters(mut self, strict: bool) -> Self {
        self.strict_filters = strict;
        self
    }

    /// Calls `callback` for each [event](Event), on the thread that caused the event. The callback must not
    /// panic, nor write to the store, flush, compact or checkpoint it. It may hold a [`WeakDb`](crate::WeakDb) of the
    /// store; a [`Db`](crate::Db) would keep the store open for ever. Default: none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let path = dir.path().join("store");
    /// use std::sync::{Arc, OnceLock};
    /// use criba::{Options, WeakDb};
    ///
    /// let store: Arc<OnceLock<WeakDb>> = Arc::default();
    /// let weak = Arc::clone(&store);
    /// let db = Options::new()
    ///     .on_event(move |event| {
    ///         if let Some(db) = weak.get().and_then(WeakDb::upgrade) {
    ///             println!("{event}; {} tables", db.tables().len());
    ///         }
    ///     })
    ///     .open(&path)?;
    /// store.set(db.downgrade()).expect("set once");
    ///
    /// db.put("key", "value")?;
    /// db.flush()?;
    /// drop(db); // closes the store
    /// # criba::Db::open(path)?;
    /// # Ok::<(), criba::Error>(())
    /// ```
    pub fn on_event(mut self, callback: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.listener = Listener(Some(Arc::new(callback)));
        self
    }

    /// The bytes of memory, overhead included, at which a memtable is sealed and flushed. Up to three
    /// memtables exist at once. Default: 64 MiB.
    pub fn memtable_bytes(mut self, bytes: usize) -> Self {
        self.memtable_bytes = bytes;
        self
    }

    /// The size in bytes at which a compaction ends an output table, in the file: a [compressed](Self::compression)
    /// table has more keys. Default: 64 MiB.
    pub fn table_bytes(mut self, bytes: u64) -> Self {
        self.table_bytes = bytes;
        self
    }

    /// The least target size of a level, in bytes. The target size of a level is a tenth of that of the level
    /// below; a level with a smaller target size is not used. Default: 256 MiB.
    pub fn level_base_bytes(mut self, bytes: u64) -> Self {
        self.level_base_bytes = bytes;
        self
    }

    /// The greatest size of a data block of new tables, in bytes, decompressed; a larger value has a block of its own. A
    /// lookup reads one block from a table. The store does not keep this option. At most 1,048,576. Default: 4,096.
    pub fn block_bytes(mut self, bytes: usize) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// The size of the block cache in bytes, of decompressed blocks. With 0, each access to a block is a disk read. Default: 64 MiB.
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// The budget of filters in bytes; see [`Db::set_filter_memory`](crate::Db::set_filter_memory). Opening
    /// costs another small read per table, and reads only portions within the budget. With
    /// [`strict_filters`](Self::strict_filters) it first reads each whole filter. Default: none.
    pub fn filter_memory(mut self, bytes: u64) -> Self {
        self.filter_memory = Some(bytes);
        self
    }

    /// If memtables, filters, indexes and cache need more than these bytes, opening fails with
    /// [`Error::MemoryLimit`], before a filter is read, and changes nothing. Counted are three full
    /// memtables, the filters within their [budget](Self::filter_memory), all indexes, and
    /// [`cache_bytes`](Self::cache_bytes). **Checked only by `open`**: an open store may grow beyond the
    /// limit, as [`Db::memory`](crate::Db::memory) shows, and is refused at the next open. Default: none.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// The greatest number of table files that are open at once. The filter and index of a closed file stay
    /// in memory. Default: a quarter of the process's limit, at most 4,096.
    pub fn max_open_files(mut self, files: usize) -> Self {
        self.max_open_files = files;
        self
    }

    /// Whether the operating system may read blocks of a table before a lookup or scan asks for them. It does so
    /// where the blocks before were read: cold scans take a quarter to two thirds of the time, and lookups bring
    /// a store that fits into memory there in a quarter of the time. In a store that is four times as large as memory,
    /// lookups take a tenth longer, and the disk reads 1.5 times the bytes: then try `false`. Counts of reads
    /// do not change. Default: true.
    pub fn read_ahead(mut self, on: bool) -> Self {
        self.read_ahead = on;
        self
    }

    /// Whether compactions run by themselves. If not, L0 grows, and its size does not slow writes. In an open store
    /// [`Db::set_auto_compaction`](crate::Db::set_auto_compaction) changes it. Default: true.
    pub fn auto_compaction(mut self, on: bool) -> Self {
        self.auto_compaction = on;
        self
    }

    /// Whether the store counts latencies: see [`Db::latencies`](crate::Db::latencies). It costs two readings of the clock
    /// for each call, and 4 KiB of memory for each of the first threads. Default: false.
    pub fn latencies(mut self, on: bool) -> Self {
        self.latencies = on;
        self
    }

    /// The most memory of what one [`Transaction`](crate::Transaction) read: about 130 bytes for each key that was looked
    /// up, and for each range, whatever it returned. Changes do not count. Default: 64 MiB.
    pub fn transaction_bytes(mut self, bytes: usize) -> Self {
        self.transaction_bytes = bytes;
        self
    }

    /// The number of compaction threads, at most 1024; one more thread flushes. With 0, flushes and compactions run inside
    /// the calls that make them due: the same calls run the same work. Default: 1.
    pub fn background_threads(mut self, threads: usize) -> Self {
        self.background_threads = threads;
        self
    }

    /// The number of L0 tables at which a compaction is due. While L0 has fewer bytes than the level below, it may
    /// have twice as many tables, but no more than midway to
    /// [`l0_slowdown_trigger`](Self::l0_slowdown_trigger): so a compaction rewrites fewer bytes for each byte that it
    /// brings down. Default: 4.
    pub fn l0_compaction_trigger(mut self, tables: usize) -> Self {
        self.l0_compaction_trigger = tables;
        self
    }

    /// The number of L0 tables at which writes are limited to 16 MiB a second. Default: 12.
    pub fn l0_slowdown_trigger(mut self, tables: usize) -> Self {
        self.l0_slowdown_trigger = tables;
        self
    }

    /// The number of L0 tables at which writes to a full memtable wait for a compaction. Default: 24.
    pub fn l0_stop_trigger(mut self, tables: usize) -> Self {
        self.l0_stop_trigger = tables;
        self
    }

    /// Derives the id and hash key of a new store from a seed: with
    /// [`background_threads(0)`](Self::background_threads), the same calls write the same bytes. Default:
    /// random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The Unix mode of the files that this opening makes, reduced by the process's mask. A new directory can be
    /// searched, too, where its files can be read: `0o640` gives `0o750`. Existing files and directories keep
    /// theirs, also tables that a checkpoint links. As root, new files get the owner of the directory. The store
    /// does not record the mode: give it at each opening. The hash key is in the manifest, and any user that can
    /// read the lock file can hold the lock.
    /// Default: `0o600`.
    pub fn file_mode(mut self, mode: u32) -> Self {
        self.file_mode = mode;
        self
    }

    /// The time that keys live if they are written without an expiry of their own: see
    /// [`Db::put_with_expiry`](crate::Db::put_with_expiry). `None` for ever. By default what the store has recorded; a
    /// new store has none. The store records it, and keys that were written before keep their expiry.
    pub fn default_ttl(mut self, ttl: impl Into<Option<Duration>>) -> Self {
        self.default_ttl = Some(ttl.into());
        self
    }

    /// Whether [`default_ttl`](Self::default_ttl) gives keys a time to live.
    pub fn has_default_ttl(&self) -> bool {
        self.default_ttl.flatten().is_some()
    }

    /// Takes the time from another clock, for tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Whether a clock that is more than an hour behind the time that the store has recorded is right (off by
    /// default). Otherwise such an opening fails with [`Error::ClockBehind`]: keys would live longer than they should.
    /// An opening to write then records the time of the clock, so once is enough.
    pub fn accept_clock(mut self, accept: bool) -> Self {
        self.accept_clock = accept;
        self
    }

    /// The file layer; an [`Arc`] of one is one too. Default: the operating system's.
    pub fn vfs(mut self, vfs: impl Vfs + 'static) -> Self {
        self.vfs = Arc::new(vfs);
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |option, reason: String| Err(Error::InvalidOption { option, reason });
        let sound = |policy: FilterPolicy| policy.check().and_then(|()| policy.check_memory());
        if let Some(Err(reason)) = self.filter.map(sound) {
            return refuse("filter", reason);
        }
        if let Some(Err(reason)) = self.prefix.flatten().map(|prefix| prefix.check(MAX_KEY_BYTES)) {
            return refuse("prefix", reason);
        }
        if self.default_ttl.flatten().is_some_and(|ttl| ttl.is_zero()) {
            return refuse("default_ttl", "zero: what is written would be expired".into());
        }
        for (option, value, least) in [
            ("memtable_bytes", self.memtable_bytes as u64, 1024),
            ("table_bytes", self.table_bytes, 1024),
            ("level_base_bytes", self.level_base_bytes, 1),
            ("block_bytes", self.block_bytes as u64, 64),
            ("l0_compaction_trigger", self.l0_compaction_trigger as u64, 1),
            (
                "l0_slowdown_trigger",
                self.l0_slowdown_trigger as u64,
                self.l0_compaction_trigger as u64,
            ),
            ("l0_stop_trigger", self.l0_stop_trigger as u64, self.l0_slowdown_trigger as u64),
        ] {
            if value < least {
                return refuse(option, format!("{value} is less than {least}"));
            }
        }
        if self.background_threads > MAX_BACKGROUND_THREADS {
            let reason =
                format!("{} is more than {MAX_BACKGROUND_THREADS}", self.background_threads);
            return refuse("background_threads", reason);
        }
        if self.file_mode & !0o777 != 0 || self.file_mode & 0o600 != 0o600 {
            return refuse("file_mode", format!("{:#o} is not 0o600 to 0o777", self.file_mode));
        }
        if self.block_bytes > MAX_BLOCK_OF_ENTRIES {
            let reason = format!("{} is more than {MAX_BLOCK_OF_ENTRIES}", self.block_bytes);
            return refuse("block_bytes", reason);
        }
        Ok(())
    }

    /// The settings of a store that has `stored`.
    pub(crate) fn store_settings(&self, stored: StoreSettings) -> StoreSettings {
        let StoreSettings { policy, extractor, default_ttl, compression } = stored;
        // A store that was never given a compression records none.
        let given =
            self.compression.filter(|&given| compression.is_some() || given != Compression::None);
        StoreSettings {
            policy: self.filter.unwrap_or(policy.without_blocked()),
            extractor: self.prefix.unwrap_or(extractor),
            default_ttl: self.default_ttl.map_or(default_ttl, |ttl| ttl.map(rounded_up)),
            compression: given.or(compression),
        }
    }

    /// These options, for a store with the settings of another one.
    pub(crate) fn with_settings(self, of_another: StoreSettings, time: Option<Millis>) -> Self {
        let StoreSettings { policy, extractor, default_ttl, compression } = of_another;
        Self {
            filter: Some(policy.without_blocked()),
            prefix: Some(extractor),
            default_ttl: Some(default_ttl.map(Duration::from_millis)),
            compression,
            time_of_another: time,
            ..self
        }
    }

    /// The stored policy, if it has a kind that stores no longer have, and the options have no other policy.
    pub(crate) fn replaced_policy(&self, stored: StoreSettings) -> Option<FilterPolicy> {
        let replaced = self.filter.is_none() && stored.policy.without_blocked() != stored.policy;
        replaced.then_some(stored.policy)
    }

    pub(crate) fn table_settings(&self, settings: &StoreSettings) -> TableSettings {
        TableSettings {
            block_bytes: self.block_bytes,
            compression: settings.compression.unwrap_or_default(),
            filter_hash: settings.policy.hash(),
            prefix: settings.extractor,
            ingested_after: None,
        }
    }

    /// The bytes by which logs are filled ahead of synced writes: at most a quarter of a memtable.
    pub(crate) fn log_fill(&self) -> u64 {
        (self.memtable_bytes as u64 / 4).min(256 << 10)
    }

    /// The L0 tables at which a compaction is due that rewrites more than it brings down. Writers do not wait for it.
    fn l0_patience(&self) -> usize {
        let midway = self.l0_compaction_trigger.midpoint(self.l0_slowdown_trigger);
        (2 * self.l0_compaction_trigger).min(midway)
    }

    /// `over`: what expires up to this time may go, unless a snapshot needs it.
    pub(crate) fn pick_settings(&self, snapshots: Vec<Moment>, over: Millis) -> PickSettings {
        PickSettings {
            l0_tables: self.l0_compaction_trigger,
            l0_patience: self.l0_patience(),
            l0_crowded: self.l0_stop_trigger.saturating_sub(self.l0_compaction_trigger),
            level_base_bytes: self.level_base_bytes,
            table_bytes: self.table_bytes,
            snapshots,
            over,
        }
    }
}
