//! The stores, behind one interface.

mod criba;
mod slatedb;

use std::path::Path;
use std::sync::Arc;

use clap::ValueEnum;
use criba_object_cli::metered::Metered;
use serde::Serialize;

use crate::Result;
use crate::keys::Keys;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Slatedb,
    CribaBloom,
    CribaRibbon,
}

#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub kind: Kind,
    pub memtable_bytes: usize,
}

/// The caches of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caches {
    /// Of decoded blocks, in memory.
    pub block_bytes: u64,
    /// SlateDB's cache of parts of objects on the local disk.
    pub on_disk: bool,
}

/// A store that is read, in a local directory of its own.
pub trait Reader {
    /// The length of the value.
    fn get(&self, key: &[u8]) -> Result<Option<usize>>;

    /// The lengths of the values of keys that are looked up at once.
    fn get_many(&self, keys: &[[u8; 16]]) -> Result<Vec<Option<usize>>>;

    fn shape(&self) -> Shape;

    fn close(self: Box<Self>) -> Result<()>;
}

/// What a store consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Sorted runs that a lookup of an absent key may probe: tables of L0, and levels or larger runs.
    pub runs: u64,
    pub tables: u64,
    pub filter_bytes: u64,
    pub index_bytes: u64,
}

impl Setup {
    pub fn version(self) -> String {
        match self.kind {
            Kind::Slatedb => "0.18.0".to_owned(),
            _ => crate::machine::version_of(&["src", "object/src", "Cargo.toml", "Cargo.lock"]),
        }
    }

    /// Names and values of what is set.
    pub fn settings(self, caches: Caches) -> Vec<(&'static str, String)> {
        match self.kind {
            Kind::Slatedb => slatedb::settings(self.memtable_bytes, caches),
            _ => criba::settings(self, caches),
        }
    }

    /// Loads all present keys, until they are in the bucket.
    pub fn load(self, bucket: &Arc<Metered>, dir: &Path, keys: Keys) -> Result<()> {
        match self.kind {
            Kind::Slatedb => slatedb::load(bucket, self.memtable_bytes, keys),
            _ => criba::load(self, bucket, dir, keys),
        }
    }

    /// Opens the store for writing on an emptied machine, calls `opened`, and compacts to one run.
    pub fn compact(self, bucket: &Arc<Metered>, dir: &Path, opened: impl FnOnce()) -> Result<()> {
        match self.kind {
            Kind::Slatedb => slatedb::compact(bucket, self.memtable_bytes, opened),
            _ => criba::compact(self, bucket, dir, opened),
        }
    }

    pub fn open(
        self,
        bucket: &Arc<Metered>,
        dir: &Path,
        caches: Caches,
    ) -> Result<Box<dyn Reader>> {
        Ok(match self.kind {
            Kind::Slatedb => Box::new(slatedb::Slate::open(bucket, dir, caches)?),
            _ => Box::new(criba::Criba::open(bucket, dir, caches)?),
        })
    }
}
