//! LMDB, through the crate `heed`: a B-tree in a mapped file.

#![expect(
    unsafe_code,
    reason = "a map of a file is sound only while no other process changes the file"
)]

use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithoutTls};

use super::{Built, Reader, Store, seen, walk};
use crate::Result;
use crate::keys::{Pairs, VALUE_BYTES};
use crate::settings::{Config, Told};

/// The writes of one transaction in bulk loads.
const TRANSACTION: usize = 1000;

pub struct Lmdb {
    env: Env<WithoutTls>,
    keys: Database<'static, Bytes, Bytes>,
}

impl Store for Lmdb {
    type Reader<'s> = LmdbReader<'s>;

    const PREADS: bool = false;
    const CACHE_OFF: bool = false;

    fn version() -> String {
        let version = heed::lmdb_version();
        format!(
            "{}.{}.{} (crate heed {})",
            version.major,
            version.minor,
            version.patch,
            env!("VERSION_HEED")
        )
    }

    fn open(dir: &Path, config: &Config, told: &mut Told) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        // Addresses only; a B-tree loaded at random is two thirds full, and is copied once more.
        let map =
            (config.n as usize * (VALUE_BYTES + 100) * 4).max(1 << 30).next_multiple_of(1 << 20);
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(told.set("map_size", map)).max_readers(told.set("max_readers", 64));
        told.set("flags", EnvFlags::NO_SYNC);
        told.set("writes a transaction, loading", TRANSACTION);
        // SAFETY: only this process has the file open, and without syncs it is lost in a power
        // failure, not in the program.
        let env = unsafe { options.flags(EnvFlags::NO_SYNC).open(dir)? };
        let transaction = env.write_txn()?;
        let made = env.create_databases_and_commit(transaction, |opener, transaction| {
            opener.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
        })?;
        let CommitOrAbort::Commit(keys) = made else { return Err("no database".into()) };
        Ok(Self { env, keys })
    }

    fn reader(&self) -> Result<LmdbReader<'_>> {
        Ok(LmdbReader { store: self, transaction: self.env.read_txn()? })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        self.keys.put(&mut transaction, key, value)?;
        Ok(transaction.commit()?)
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put(key, value)?;
        Ok(self.env.force_sync()?)
    }

    fn load(&self, pairs: &mut Pairs<'_, impl Iterator<Item = u64>>) -> Result<()> {
        let mut more = true;
        while more {
            let mut transaction = self.env.write_txn()?;
            for _ in 0..TRANSACTION {
                let Some((key, value)) = pairs.next() else {
                    more = false;
                    break;
                };
                self.keys.put(&mut transaction, key, value)?;
            }
            transaction.commit()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(self.env.force_sync()?)
    }

    fn settle(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    /// LMDB compacts only into a copy, which would be another store.
    fn compact(&mut self) -> Result<()> {
        Ok(())
    }

    fn built(&self) -> Result<Built> {
        Ok(Built::default())
    }
}

pub struct LmdbReader<'s> {
    store: &'s Lmdb,
    transaction: RoTxn<'s, WithoutTls>,
}

impl Reader for LmdbReader<'_> {
    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(self.store.keys.get(&self.transaction, key)?.map(seen))
    }

    fn scan(&self, from: &[u8], limit: usize) -> Result<(usize, usize)> {
        // LMDB has no empty key, and no workload uses one.
        let from = if from.is_empty() { Bound::Unbounded } else { Bound::Included(from) };
        let range = (from, Bound::Unbounded);
        walk(self.store.keys.range(&self.transaction, &range)?, limit)
    }

    fn prefix(&self, prefix: &[u8]) -> Result<usize> {
        Ok(walk(self.store.keys.prefix_iter(&self.transaction, prefix)?, usize::MAX)?.0)
    }
}
