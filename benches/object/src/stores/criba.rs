//! criba-object.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use criba::FilterPolicy;
use criba_object::{ObjectDb, ObjectReader, Options, open, open_reader};
use criba_object_cli::metered::Metered;
use object_store::ObjectStore;

use super::{Caches, Kind, Reader, Setup, Shape};
use crate::Result;
use crate::keys::Keys;

pub struct Criba(ObjectReader);

fn policy(kind: Kind) -> FilterPolicy {
    if kind == Kind::CribaRibbon { FilterPolicy::ribbon() } else { FilterPolicy::bloom() }
}

fn options(setup: Setup) -> Options {
    let store =
        criba::Options::new().filter(policy(setup.kind)).memtable_bytes(setup.memtable_bytes);
    Options::new().store(store)
}

fn writer(setup: Setup, bucket: &Arc<Metered>, dir: &Path) -> Result<ObjectDb> {
    let bucket: Arc<dyn ObjectStore> = bucket.clone();
    Ok(open(bucket, dir, options(setup))?)
}

pub fn settings(setup: Setup, caches: Caches) -> Vec<(&'static str, String)> {
    vec![
        ("filter", policy(setup.kind).to_string()),
        ("memtable_bytes", setup.memtable_bytes.to_string()),
        ("cache_bytes", caches.block_bytes.to_string()),
    ]
}

pub fn load(setup: Setup, bucket: &Arc<Metered>, dir: &Path, keys: Keys) -> Result<()> {
    let db = writer(setup, bucket, dir)?;
    for number in 0..keys.n {
        db.put(keys.key(number), keys.value(number))?;
    }
    Ok(db.close()?)
}

pub fn compact(
    setup: Setup,
    bucket: &Arc<Metered>,
    dir: &Path,
    opened: impl FnOnce(),
) -> Result<()> {
    let db = writer(setup, bucket, dir)?;
    opened();
    db.compact()?;
    Ok(db.close()?)
}

impl Criba {
    pub fn open(bucket: &Arc<Metered>, dir: &Path, caches: Caches) -> Result<Self> {
        let bucket: Arc<dyn ObjectStore> = bucket.clone();
        let store = criba::Options::new().cache_bytes(caches.block_bytes);
        Ok(Self(open_reader(bucket, dir, Options::new().store(store))?))
    }
}

impl Reader for Criba {
    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(self.0.get(key)?.map(|value| value.len()))
    }

    fn get_many(&self, keys: &[[u8; 16]]) -> Result<Vec<Option<usize>>> {
        let values = self.0.get_many(keys)?;
        Ok(values.into_iter().map(|value| value.map(|value| value.len())).collect())
    }

    fn shape(&self) -> Shape {
        let tables = self.0.tables();
        let l0 = tables.iter().filter(|table| table.level == 0).count();
        let levels: BTreeSet<_> = tables.iter().map(|table| table.level).collect();
        let levels = levels.into_iter().filter(|&level| level > 0).count();
        let memory = self.0.memory();
        Shape {
            runs: (l0 + levels) as u64,
            tables: tables.len() as u64,
            filter_bytes: memory.filters.resident,
            index_bytes: memory.indexes,
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
