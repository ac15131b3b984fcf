//! criba, with one of its policies.

use std::marker::PhantomData;
use std::path::Path;
use std::time::Duration;

use criba::{Batch, Db, Durability, FilterPolicy, Options, PrefixExtractor};

use super::{Built, Reader, Store, balance, seen, walk};
use crate::keys::NAME_BYTES;
use crate::settings::{BITS_PER_KEY, BLOCK_BYTES, Config, Told};
use crate::{Result, machine};

pub trait Policy: Send + Sync + 'static {
    fn policy() -> FilterPolicy;
}

pub struct Default;
pub struct Ribbon;
pub struct Classic;

impl Policy for Default {
    fn policy() -> FilterPolicy {
        FilterPolicy::default()
    }
}

impl Policy for Ribbon {
    fn policy() -> FilterPolicy {
        FilterPolicy::ribbon()
    }
}

impl Policy for Classic {
    fn policy() -> FilterPolicy {
        FilterPolicy::classic().with_bits_per_key(f64::from(BITS_PER_KEY))
    }
}

pub struct Criba<P>(Db, PhantomData<P>);

impl<P: Policy> Store for Criba<P> {
    type Reader<'s> = &'s Db;

    const PREFIXES: bool = true;
    const L0: bool = true;
    const TRANSACTIONS: bool = true;
    const INGEST: bool = true;

    fn version() -> String {
        machine::criba_version()
    }

    fn open(dir: &Path, config: &Config, told: &mut Told) -> Result<Self> {
        let mut options = Options::new()
            .filter(told.set("filter", P::policy()))
            .memtable_bytes(told.set("memtable_bytes", config.memtable_bytes()))
            .table_bytes(told.set("table_bytes", config.table_bytes()))
            .level_base_bytes(told.set("level_base_bytes", config.level_base_bytes()))
            .block_bytes(told.set("block_bytes", BLOCK_BYTES))
            .cache_bytes(told.set("cache_bytes", config.cache_bytes() as u64));
        if let Some(bytes) = config.prefix() {
            options = options.prefix(told.set("prefix", PrefixExtractor::fixed(bytes)));
        }
        if !config.compactions() {
            options = options.auto_compaction(told.set("auto_compaction", false));
        }
        Ok(Self(options.open(dir)?, PhantomData))
    }

    fn reader(&self) -> Result<&Db> {
        Ok(&self.0)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.put(key, value)?)
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut batch = Batch::new();
        batch.put(key, value);
        Ok(self.0.write_with(batch, Durability::Synced)?)
    }

    fn transact(
        &self,
        [a, b]: [&[u8]; 2],
        mut change: impl FnMut([i64; 2]) -> [i64; 2],
    ) -> Result<u64> {
        let mut tries = 0;
        self.0.transact(u32::MAX, |tx| -> Result<()> {
            tries += 1;
            let [new_a, new_b] = change([balance(tx.get(a)?)?, balance(tx.get(b)?)?]);
            tx.put(a, new_a.to_le_bytes()).put(b, new_b.to_le_bytes());
            Ok(())
        })?;
        Ok(tries - 1)
    }

    fn ingest<'v>(&self, pairs: impl Iterator<Item = ([u8; NAME_BYTES], &'v [u8])>) -> Result<()> {
        self.0.ingest(pairs.map(criba::Result::Ok))?;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(self.0.flush()?)
    }

    fn settle(&self) -> Result<Duration> {
        self.0.wait_until_settled()?;
        Ok(Duration::ZERO)
    }

    fn compact(&mut self) -> Result<()> {
        Ok(self.0.compact()?)
    }

    fn built(&self) -> Result<Built> {
        let tables = self.0.tables();
        let l0 = tables.iter().filter(|table| table.level == 0).count() as u64;
        let mut levels: Vec<_> =
            tables.iter().map(|table| table.level).filter(|&at| at > 0).collect();
        levels.dedup();
        Ok(Built {
            runs: Some(l0 + levels.len() as u64),
            l0_tables: Some(l0),
            filter_bytes: Some(tables.iter().map(|table| table.filter.bytes() as u64).sum()),
        })
    }

    fn own_reads(&self) -> Option<u64> {
        Some(self.0.stats().total().disk_reads)
    }

    fn close(self) -> Result<()> {
        Ok(self.0.close()?)
    }
}

impl Reader for &Db {
    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(Db::get(self, key)?.map(|value| seen(&value)))
    }

    fn get_many(&self, keys: &[&[u8]], found: &mut Vec<Option<usize>>) -> Result<()> {
        let values = Db::get_many(self, keys)?;
        found.extend(values.iter().map(|value| value.as_deref().map(seen)));
        Ok(())
    }

    fn scan(&self, from: &[u8], limit: usize) -> Result<(usize, usize)> {
        walk(self.range(from..), limit)
    }

    fn prefix(&self, prefix: &[u8]) -> Result<usize> {
        Ok(walk(Db::prefix(self, prefix), usize::MAX)?.0)
    }
}
