//! The stores, behind the same two traits.
//!
//! Everything is generic over them, and nothing `dyn`: an indirect call costs as much as the cache line that
//! a good filter reads.

mod coordinode;
mod criba;
mod fjall;
#[cfg(leveldb)]
mod leveldb;
mod lmdb;
mod lsm_db;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use std::hint::black_box;
use std::path::Path;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::keys::{NAME_BYTES, Pairs};
use crate::settings::{Config, Setting, Shape, Told};

/// A store and its configuration; criba has one name per policy, LevelDB one with checksums verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    Criba,
    CribaRibbon,
    CribaClassic,
    /// In older results only.
    #[value(skip)]
    CribaBlocked,
    #[value(name = "rocksdb")]
    #[serde(rename = "rocksdb")]
    RocksDb,
    Fjall,
    #[value(name = "leveldb")]
    #[serde(rename = "leveldb")]
    LevelDb,
    #[value(name = "leveldb-verified")]
    #[serde(rename = "leveldb-verified")]
    LevelDbVerified,
    LsmDb,
    Coordinode,
    Redb,
    Lmdb,
}

/// Work with a store of any type.
pub trait Visitor {
    type Output;
    fn visit<S: Store>(self) -> Self::Output;
}

impl Name {
    /// The settings in which it differs.
    pub fn settings(self) -> &'static [Setting] {
        match self {
            Self::RocksDb | Self::Fjall => &[Setting::Alike, Setting::Best],
            _ => &[Setting::Alike],
        }
    }

    /// Whether this program was built with it.
    #[allow(clippy::match_like_matches_macro, reason = "if two of these stores are left out")]
    pub fn is_here(self) -> bool {
        match self {
            Self::RocksDb => cfg!(feature = "rocksdb"),
            Self::LevelDb | Self::LevelDbVerified => cfg!(leveldb),
            _ => true,
        }
    }

    pub fn visit<V: Visitor>(self, visitor: V) -> V::Output {
        match self {
            Self::Criba => visitor.visit::<criba::Criba<criba::Default>>(),
            Self::CribaRibbon => visitor.visit::<criba::Criba<criba::Ribbon>>(),
            Self::CribaClassic => visitor.visit::<criba::Criba<criba::Classic>>(),
            Self::CribaBlocked => unreachable!("not a value of the command line"),
            #[cfg(feature = "rocksdb")]
            Self::RocksDb => visitor.visit::<rocksdb::RocksDb>(),
            #[cfg(not(feature = "rocksdb"))]
            Self::RocksDb => unreachable!("not built with RocksDB"),
            Self::Fjall => visitor.visit::<fjall::Fjall>(),
            #[cfg(leveldb)]
            Self::LevelDb => visitor.visit::<leveldb::LevelDb<false>>(),
            #[cfg(leveldb)]
            Self::LevelDbVerified => visitor.visit::<leveldb::LevelDb<true>>(),
            #[cfg(not(leveldb))]
            Self::LevelDb | Self::LevelDbVerified => unreachable!("not built with LevelDB"),
            Self::LsmDb => visitor.visit::<lsm_db::LsmDb>(),
            Self::Coordinode => visitor.visit::<coordinode::Coordinode>(),
            Self::Redb => visitor.visit::<redb::Redb>(),
            Self::Lmdb => visitor.visit::<lmdb::Lmdb>(),
        }
    }

    /// Its version in this program.
    pub fn version(self) -> String {
        struct Version;
        impl Visitor for Version {
            type Output = String;
            fn visit<S: Store>(self) -> String {
                S::version()
            }
        }
        self.visit(Version)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.to_possible_value().expect("none is hidden").get_name())
    }
}

/// What a store has on disk, as far as it reports it.
#[derive(Debug, Default, Clone, Copy)]
pub struct Built {
    /// L0 tables, and levels with tables: the runs of a lookup.
    pub runs: Option<u64>,
    /// Tables of L0 alone.
    pub l0_tables: Option<u64>,
    /// What all filters take.
    pub filter_bytes: Option<u64>,
}

/// The operations that workloads need.
pub trait Store: Sized + Send + Sync {
    type Reader<'s>: Reader
    where
        Self: 's;

    /// Whether filters can have prefixes.
    const PREFIXES: bool = false;
    /// Whether compactions can be turned off.
    const L0: bool = false;
    /// Whether it reads files by system calls, which the kernel counts.
    const PREADS: bool = true;
    /// Whether the block cache can be turned off.
    const CACHE_OFF: bool = true;
    /// Whether a write survives a crash of the process. Without a log, puts are quick for that reason, and are not measured.
    const LOG: bool = true;
    /// Whether it has synced writes.
    const SYNCED: bool = true;
    /// Whether `transact` is there.
    const TRANSACTIONS: bool = false;
    /// Whether `ingest` is there.
    const INGEST: bool = false;

    fn version() -> String;

    /// Opens or creates a store, and records its settings.
    fn open(dir: &Path, config: &Config, told: &mut Told) -> Result<Self>;

    /// A reader for one thread and the present data.
    fn reader(&self) -> Result<Self::Reader<'_>>;

    /// One write, not synced.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// One write, safe from a power failure at the return.
    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Reads and writes two balances in a transaction, not synced, which begins again after each conflict. Returns
    /// the number of conflicts.
    fn transact(&self, _: [&[u8]; 2], _: impl FnMut([i64; 2]) -> [i64; 2]) -> Result<u64> {
        unreachable!("left out")
    }

    /// Many writes, as fast as the store can without external tables: one by one, unless it needs
    /// transactions.
    fn load(&self, pairs: &mut Pairs<'_, impl Iterator<Item = u64>>) -> Result<()> {
        while let Some((key, value)) = pairs.next() {
            self.put(key, value)?;
        }
        Ok(())
    }

    /// Sets sorted pairs, as tables without the log and the memtable.
    fn ingest<'v>(&self, _: impl Iterator<Item = ([u8; NAME_BYTES], &'v [u8])>) -> Result<()> {
        unreachable!("left out")
    }

    /// Flushes all memory to tables.
    fn flush(&mut self) -> Result<()>;

    /// Waits until no flush or compaction is due or running. Returns the time spent watching after the end.
    fn settle(&self) -> Result<std::time::Duration>;

    /// Merges everything into one run.
    fn compact(&mut self) -> Result<()>;

    fn built(&self) -> Result<Built>;

    /// Reads of data blocks so far, as the store counts them, at least on this thread.
    fn own_reads(&self) -> Option<u64> {
        None
    }

    fn close(self) -> Result<()> {
        Ok(())
    }
}

/// Reading, on one thread.
pub trait Reader {
    /// The length of a key's value.
    fn get(&self, key: &[u8]) -> Result<Option<usize>>;

    /// The same for many keys, in their order.
    fn get_many(&self, keys: &[&[u8]], found: &mut Vec<Option<usize>>) -> Result<()> {
        for key in keys {
            found.push(self.get(key)?);
        }
        Ok(())
    }

    /// Scans `limit` pairs from the first key not below `from`. Returns the number of pairs and bytes.
    fn scan(&self, from: &[u8], limit: usize) -> Result<(usize, usize)>;

    /// How many keys begin with a prefix.
    fn prefix(&self, prefix: &[u8]) -> Result<usize>;
}

/// The length of a value after reading it: a mapped file was not read before.
#[inline]
fn seen(value: &[u8]) -> usize {
    black_box((value.first(), value.last()));
    value.len()
}

/// A balance from its value.
fn balance(value: Option<impl AsRef<[u8]>>) -> Result<i64> {
    let value = value.ok_or("an account is missing")?;
    Ok(i64::from_le_bytes(value.as_ref().try_into()?))
}

/// Goes over pairs that come as results.
fn walk<K: AsRef<[u8]>, V: AsRef<[u8]>, E: Into<crate::Error>>(
    pairs: impl Iterator<Item = std::result::Result<(K, V), E>>,
    limit: usize,
) -> Result<(usize, usize)> {
    let (mut count, mut bytes) = (0, 0);
    for pair in pairs.take(limit) {
        let (key, value) = pair.map_err(Into::into)?;
        count += 1;
        bytes += seen(key.as_ref()) + seen(value.as_ref());
    }
    Ok((count, bytes))
}

/// Waits until the state of a store stays the same for a while and is settled; `None` says that work is due.
/// Returns the length of the while.
fn settle_by_looking<T: PartialEq>(
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<std::time::Duration> {
    use std::time::{Duration, Instant};
    const WHILE: Duration = Duration::from_millis(500);
    let mut since = Instant::now();
    let mut last = None;
    loop {
        let now = look()?;
        if now.is_none() || now != last {
            (since, last) = (Instant::now(), now);
        } else if since.elapsed() >= WHILE {
            return Ok(since.elapsed());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The shape to load: a store without prefixes uses the settled one.
pub fn shape_of<S: Store>(shape: Shape) -> Shape {
    if shape == Shape::Prefixes && !S::PREFIXES { Shape::Settled } else { shape }
}
