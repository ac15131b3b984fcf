//! One table file, without its store.

use std::ffi::OsStr;
use std::fmt;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use crate::clock::at;
use crate::error::{Error, IoContext, Result};
use crate::expiry::{Stored, system_time};
use crate::filter::{LookupKey, PrefixExtractor};
use crate::iter::{Cursor, Direction};
use crate::key::EntryKind;
use crate::ledger::Verdict;
use crate::names::FileName;
use crate::sstable::{Expiries, FilterHeader};
use crate::sstable::{FilterState, OpenTable, ReadPlan, Table, TableCursor, TableEnv, TableFilter};
use crate::store_dir::StoreDir;
use crate::value::Value;
use crate::version::{Manifest, read_current};
use crate::vfs::{RealVfs, Vfs};
use criba_filter::store::HashKey;
use criba_filter::{FilterKind, Geometry, HashFunction};

/// The state of a table's filter.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FilterInfo {
    /// The table has no filter.
    None,
    /// The filter is resident, whole or in part.
    #[non_exhaustive]
    Active {
        /// The kind.
        kind: FilterKind,
        /// The hash.
        hash: HashFunction,
        /// 0 for the filter block of the table, greater for a filter file.
        generation: u64,
        /// The shape of the resident part.
        geometry: Geometry,
        /// Bytes of the resident part, header included.
        bytes: usize,
        /// The false-positive rate of the resident part, computed from its bits.
        predicted_rate: f64,
        /// The fraction of keys and probes that the first layer of a ribbon bumps to the next one; `None` for a
        /// filter without layers.
        bumped: Option<f64>,
        /// Distinct prefixes in the filter.
        prefixes: u64,
        /// The rule of the prefixes; `None` without prefixes, or for an unknown rule.
        extractor: Option<PrefixExtractor>,
        /// The whole filter. It is larger than the resident part if the budget keeps only the first columns
        /// of a ribbon filter in memory.
        stored: FilterShape,
        /// The damage that was found when more of the filter was read. The resident part is sound.
        damaged: Option<String>,
    },
    /// The budget ([`Options::filter_memory`](crate::Options::filter_memory)) keeps no part of the filter in
    /// memory. It answers "maybe".
    #[non_exhaustive]
    NotResident {
        /// The kind.
        kind: FilterKind,
        /// The hash.
        hash: HashFunction,
        /// The filter in the file.
        stored: FilterShape,
    },
    /// The filter is damaged or unreadable. It answers "maybe".
    Degraded {
        /// What is wrong with the filter.
        reason: String,
    },
}

/// The shape, size and rate of a filter.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct FilterShape {
    /// The shape.
    pub geometry: Geometry,
    /// The bytes, header included.
    pub bytes: usize,
    /// The false-positive rate, computed from the bits.
    pub predicted_rate: f64,
}

impl From<&FilterHeader> for FilterShape {
    fn from(stored: &FilterHeader) -> Self {
        Self {
            geometry: stored.geometry,
            bytes: stored.bytes(),
            predicted_rate: stored.predicted_rate,
        }
    }
}

impl FilterInfo {
    /// Resident bytes, header included.
    pub fn bytes(&self) -> usize {
        if let Self::Active { bytes, .. } = self { *bytes } else { 0 }
    }

    /// Bytes in the file, header included. 0 for a degraded filter.
    pub fn stored_bytes(&self) -> usize {
        match self {
            Self::Active { stored, .. } | Self::NotResident { stored, .. } => stored.bytes,
            Self::None | Self::Degraded { .. } => 0,
        }
    }
}

impl fmt::Display for FilterInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Active { kind, hash, bytes, predicted_rate, .. } => {
                write!(f, "{kind}, over {hash}, {bytes} bytes, a rate of {predicted_rate:.2e}")
            }
            Self::NotResident {
                kind,
                hash,
                stored: FilterShape { bytes, predicted_rate: rate, .. },
            } => {
                write!(f, "{kind}, over {hash}, {bytes} bytes, a rate of {rate:.2e}, not in memory")
            }
            Self::Degraded { reason } => write!(f, "degraded: {reason}"),
        }
    }
}

impl From<&TableFilter> for FilterInfo {
    fn from(TableFilter { meta, state, .. }: &TableFilter) -> Self {
        match state {
            FilterState::None => Self::None,
            FilterState::Active(filter) => {
                let header = filter.header();
                Self::Active {
                    kind: header.kind,
                    hash: header.hash,
                    generation: meta.generation,
                    geometry: header.geometry,
                    bytes: header.bytes(),
                    predicted_rate: header.predicted_rate,
                    bumped: filter.bumped(),
                    prefixes: header.prefixes,
                    extractor: header.extractor(),
                    stored: filter.stored().into(),
                    damaged: filter.damage().map(str::to_owned),
                }
            }
            FilterState::NotResident(stored) => {
                Self::NotResident { kind: stored.kind, hash: stored.hash, stored: stored.into() }
            }
            FilterState::Degraded(reason) => Self::Degraded { reason: reason.clone() },
        }
    }
}

/// The properties block of a table, and the length of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableProperties {
    /// The table's id.
    pub id: u64,
    /// The store's id.
    pub store: u64,
    /// The file's length in bytes.
    pub file_bytes: u64,
    /// Bytes of the data blocks, as the file has them.
    pub data_bytes: u64,
    /// Bytes of the data blocks, decompressed: more than [`data_bytes`](Self::data_bytes) only if the table has
    /// [compressed](crate::Options::compression) blocks.
    pub contents_bytes: u64,
    /// Entries, tombstones included.
    pub entries: u64,
    /// Tombstones.
    pub tombstones: u64,
    /// Distinct user keys.
    pub keys: u64,
    /// Data blocks.
    pub data_blocks: u64,
    /// Bytes of all user keys, before prefix compression.
    pub key_bytes: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// The oldest sequence number; of an ingested table that of the manifest, or the least possible one if the
    /// manifest does not name it.
    pub min_seq: u64,
    /// The newest sequence number.
    pub max_seq: u64,
    /// Whether the table was [ingested](crate::Db::ingest): its entries have one number, which the manifest has.
    pub ingested: bool,
    /// The first user key.
    pub smallest: Value,
    /// The last user key.
    pub largest: Value,
    /// When the entries expire; `None` if none of them does.
    pub expiries: Option<TableExpiries>,
}

/// When the entries of a table expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableExpiries {
    /// The earliest expiry of an entry.
    pub earliest: SystemTime,
    /// The time at which a quarter of the bytes has expired: a compaction is due.
    pub quarter: Option<SystemTime>,
    /// The time at which all entries have expired: the table can go without a read.
    pub all: Option<SystemTime>,
}

impl From<Expiries> for TableExpiries {
    fn from(expiries: Expiries) -> Self {
        Self {
            earliest: at(expiries.earliest),
            quarter: system_time(expiries.quarter()),
            all: system_time(expiries.all()),
        }
    }
}

/// A data block in a table's index.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexEntry {
    /// The offset in the file.
    pub offset: u64,
    /// The bytes, trailer included.
    pub bytes: u64,
    /// A key not less than the last key of this block, and less than the first key of the next block.
    pub separator: Value,
}

/// An entry of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableEntry {
    /// The user key.
    pub key: Value,
    /// The sequence number.
    pub seq: u64,
    /// Whether the entry is a put, with or without an expiry, or a tombstone.
    pub kind: EntryKind,
    /// The value; empty for a tombstone.
    pub value: Value,
    /// When the entry expires.
    pub expiry: Option<SystemTime>,
}

/// An SSTable opened without its store. Its filter may be degraded.
#[derive(Debug)]
pub struct TableFile {
    open: OpenTable,
    hash_key: HashKey,
    store: u64,
}

impl TableFile {
    /// Opens a file named `NNNNNN.sst`. Reads the footer, properties, index and filter; takes no lock. A
    /// filter over a keyed hash is degraded without the store's hash key, which the manifest in the same
    /// directory has.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`]; [`Error::Unsupported`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = path.file_name().and_then(OsStr::to_str).and_then(FileName::parse);
        let Some(FileName::Table(id)) = name else {
            std::fs::File::open(path).context("open", path)?;
            let expected = "a table file, named by its number (000001.sst)";
            return Err(Error::corrupt(path, 0, expected, "an invalid name"));
        };
        let parent = path.parent().filter(|dir| *dir != Path::new(""));
        let vfs: Arc<dyn Vfs> = Arc::new(RealVfs);
        let dir = StoreDir::open(&vfs, parent.unwrap_or(Path::new(".")), 0)?; // no file is made
        let Some(dir) = &dir else {
            return Err(std::io::ErrorKind::NotFound.into()).context("open", path);
        };
        // A missing or damaged manifest is no error.
        let manifest = read_current(dir).ok().flatten();
        let set = manifest.and_then(|number| Manifest::read(dir, number).ok());
        let set = set.map(|(set, ..)| set);
        let hash_key = set.as_ref().map_or(HashKey::new([0; HashKey::BYTES]), |set| set.hash_key);
        let env = |store| TableEnv::standalone(dir, store, hash_key);
        let (mut meta, store) = Table::meta_of_file(&env(0), id)?;
        if let Some((_, known)) = set.as_ref().and_then(|set| set.tables.get(&id))
            && known.footer_checksum == meta.footer_checksum
        {
            if known.filter.generation > 0 {
                meta.filter = known.filter;
            }
            if meta.is_ingested {
                meta.set_number(known.max_seq);
            }
        }
        meta.id = id; // the checksum of the footer fails if the file has the name of another table
        let open = Table::open(&env(store), meta)?;
        Ok(Self { open, hash_key, store })
    }

    /// The table's properties.
    pub fn properties(&self) -> TableProperties {
        let table = &self.open.table;
        let (meta, properties) = (table.meta(), table.properties());
        let (data_bytes, contents_bytes) = table.data_bytes();
        TableProperties {
            id: meta.id,
            store: self.store,
            file_bytes: meta.size,
            data_bytes,
            contents_bytes,
            entries: properties.entries,
            tombstones: properties.tombstones,
            keys: properties.keys,
            data_blocks: properties.data_blocks,
            key_bytes: properties.key_bytes,
            value_bytes: properties.value_bytes,
            min_seq: meta.min_seq,
            max_seq: meta.max_seq,
            ingested: meta.is_ingested,
            smallest: Value::copied(&properties.smallest),
            largest: Value::copied(&properties.largest),
            expiries: properties.expiries.map(TableExpiries::from),
        }
    }

    /// The state of the filter. No I/O.
    pub fn filter(&self) -> FilterInfo {
        self.open.filter.as_ref().into()
    }

    /// The filter's verdict on a key. No I/O.
    pub fn verdict(&self, key: impl AsRef<[u8]>) -> Verdict {
        let key = LookupKey::new(key.as_ref(), &self.hash_key, HashFunction::SipHash13);
        self.open.filter.verdict(&key)
    }

    /// The data blocks, in order. No I/O.
    pub fn index(&self) -> Vec<IndexEntry> {
        let index = self.open.table.index();
        let entry = |number| {
            let handle = index.block(number)?;
            Some(IndexEntry {
                offset: handle.offset,
                bytes: handle.end()? - handle.offset,
                separator: Value::copied(index.separator(number)?),
            })
        };
        (0..index.len()).filter_map(entry).collect()
    }

    /// The entries, in order. Reads each data block once. Ends after an error.
    pub fn entries(&self) -> impl Iterator<Item = Result<TableEntry>> + use<> {
        let table = Arc::clone(&self.open.table);
        let (direction, plan) = (Direction::Forward, ReadPlan::Compaction);
        let mut cursor = Some(TableCursor::new(table, direction, Bound::Unbounded, plan));
        std::iter::from_fn(move || {
            let mut current = match cursor.take()? {
                Ok(current) => current,
                Err(error) => return Some(Err(error)),
            };
            let entry = current.entry()?;
            let key = Value::copied(entry.key);
            let (seq, kind) = (entry.seq, entry.kind);
            let stored = Stored { kind, value: current.value() };
            let expiry = stored.expiry().and_then(system_time);
            let entry = TableEntry { key, seq, kind, value: stored.into_value(), expiry };
            let advanced = current.advance();
            cursor = Some(advanced.map(|()| current));
            Some(Ok(entry))
        })
    }
}
