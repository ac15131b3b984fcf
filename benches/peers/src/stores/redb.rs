//! redb: a copy-on-write B-tree in one file.

use std::path::Path;
use std::time::Duration;

use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition};

use super::{Built, Reader, Store, balance, seen};
use crate::Result;
use crate::keys::Pairs;
use crate::settings::{Config, Told};

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("keys");

/// The writes of one transaction in bulk loads.
const TRANSACTION: usize = 1000;

pub struct Redb(Database);

impl Redb {
    fn write(&self, durability: Durability, pairs: &[(&[u8], &[u8])]) -> Result<()> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(durability)?;
        let mut table = transaction.open_table(TABLE)?;
        for (key, value) in pairs {
            table.insert(key, value)?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }
}

impl Store for Redb {
    type Reader<'s> = ReadOnlyTable<&'static [u8], &'static [u8]>;

    const CACHE_OFF: bool = false;
    const TRANSACTIONS: bool = true;

    fn version() -> String {
        env!("VERSION_REDB").to_owned()
    }

    fn open(dir: &Path, config: &Config, told: &mut Told) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let cache = told.set("cache_size", config.cache_bytes());
        told.set("writes a transaction, loading", TRANSACTION);
        let this = Self(Database::builder().set_cache_size(cache).create(dir.join("redb"))?);
        this.write(Durability::None, &[])?; // there is a table from now on
        Ok(this)
    }

    fn reader(&self) -> Result<Self::Reader<'_>> {
        Ok(self.0.begin_read()?.open_table(TABLE)?)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(Durability::None, &[(key, value)])
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(Durability::Immediate, &[(key, value)])
    }

    /// One thread at a time has a transaction, so none conflict.
    fn transact(
        &self,
        keys: [&[u8]; 2],
        mut change: impl FnMut([i64; 2]) -> [i64; 2],
    ) -> Result<u64> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(Durability::None)?;
        let mut table = transaction.open_table(TABLE)?;
        let read = |key| balance(table.get(key)?.map(|value| value.value().to_vec()));
        let new = change([read(keys[0])?, read(keys[1])?]);
        for (key, new) in keys.into_iter().zip(new) {
            table.insert(key, &new.to_le_bytes()[..])?;
        }
        drop(table);
        transaction.commit()?;
        Ok(0)
    }

    fn load(&self, pairs: &mut Pairs<'_, impl Iterator<Item = u64>>) -> Result<()> {
        let mut more = true;
        while more {
            let mut transaction = self.0.begin_write()?;
            transaction.set_durability(Durability::None)?;
            let mut table = transaction.open_table(TABLE)?;
            for _ in 0..TRANSACTION {
                let Some((key, value)) = pairs.next() else {
                    more = false;
                    break;
                };
                table.insert(key, value)?;
            }
            drop(table);
            transaction.commit()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.write(Durability::Immediate, &[])
    }

    fn settle(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn compact(&mut self) -> Result<()> {
        self.0.compact()?;
        Ok(())
    }

    fn built(&self) -> Result<Built> {
        Ok(Built::default())
    }
}

impl Reader for ReadOnlyTable<&'static [u8], &'static [u8]> {
    #[inline]
    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(ReadOnlyTable::get(self, key)?.map(|value| seen(value.value())))
    }

    fn scan(&self, from: &[u8], limit: usize) -> Result<(usize, usize)> {
        let (mut count, mut bytes) = (0, 0);
        for pair in self.range(from..)?.take(limit) {
            let (key, value) = pair?;
            count += 1;
            bytes += seen(key.value()) + seen(value.value());
        }
        Ok((count, bytes))
    }

    fn prefix(&self, prefix: &[u8]) -> Result<usize> {
        let mut count = 0;
        for pair in self.range(prefix..)? {
            let (key, value) = pair?;
            if !key.value().starts_with(prefix) {
                break;
            }
            seen(value.value());
            count += 1;
        }
        Ok(count)
    }
}
