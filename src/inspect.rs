//! One table file looked at on its own, without its store.

use std::ffi::OsStr;
use std::fmt;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::filter::{
    FilterHeader, FilterKind, Geometry, HashFunction, HashKey, LookupHash, PrefixExtractor,
};
use crate::iter::{Cursor, Direction};
use crate::key::EntryKind;
use crate::ledger::Verdict;
use crate::names::FileName;
use crate::sstable::{FilterState, OpenTable, ReadPlan, Table, TableCursor, TableEnv, TableFilter};
use crate::value::Value;
use crate::version::{Manifest, read_current};
use crate::vfs::{RealVfs, Vfs};

/// The state of a table's filter.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum FilterInfo {
    /// None is wanted for this table.
    None,
    /// In use.
    #[non_exhaustive]
    Active {
        /// Its kind.
        kind: FilterKind,
        /// The hash that it was made over.
        hash: HashFunction,
        /// 0 for the filter block within the table; later ones lie in files beside it.
        generation: u64,
        /// Its shape.
        geometry: Geometry,
        /// Header and array, as they are in memory.
        bytes: usize,
        /// The false-positive rate that its finished bits give.
        predicted_rate: f64,
        /// The distinct prefixes that it knows beside the keys.
        prefixes: u64,
        /// What a prefix is for it; `None` if it knows none, or those of a rule unknown to this
        /// version.
        extractor: Option<PrefixExtractor>,
        /// The filter in the file. A budget for filters may leave in memory the first columns only
        /// of a ribbon; then the shape, the bytes and the rate above are those of what is resident,
        /// and these are larger, and lower. Otherwise they are the same.
        stored: FilterShape,
        /// What was wrong with the stored filter when it was to be brought back into memory. What is
        /// resident was verified before, and serves on.
        damaged: Option<String>,
    },
    /// None of it is in memory, because of the budget for filters
    /// ([`Options::filter_memory`](crate::Options::filter_memory)); the table answers "maybe".
    #[non_exhaustive]
    NotResident {
        /// Its kind.
        kind: FilterKind,
        /// The hash that it was made over.
        hash: HashFunction,
        /// The filter in the file.
        stored: FilterShape,
    },
    /// Not to be trusted, so the table answers "maybe".
    Degraded {
        /// What is wrong with it.
        reason: String,
    },
}

/// The shape of a filter, and what comes of it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct FilterShape {
    /// Its shape.
    pub geometry: Geometry,
    /// Header and array.
    pub bytes: usize,
    /// The false-positive rate that its finished bits give.
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
    /// The filter's size in memory, in bytes; 0 unless it is in use.
    pub fn bytes(&self) -> usize {
        if let Self::Active { bytes, .. } = self { *bytes } else { 0 }
    }

    /// The filter's size in its file, in bytes; 0 if there is none, or none to be trusted.
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
            Self::NotResident { kind, hash, stored } => {
                let FilterShape { bytes, predicted_rate, .. } = stored;
                write!(
                    f,
                    "{kind}, over {hash}, {bytes} bytes, a rate of {predicted_rate:.2e}, not "
                )?;
                f.write_str("in memory")
            }
            Self::Degraded { reason } => write!(f, "degraded: {reason}"),
        }
    }
}

impl From<&TableFilter> for FilterInfo {
    fn from(TableFilter { meta, state, .. }: &TableFilter) -> Self {
        match state {
            FilterState::None => Self::None,
            FilterState::Active(filter) => Self::Active {
                kind: filter.header().kind,
                hash: filter.header().hash,
                generation: meta.generation,
                geometry: filter.header().geometry,
                bytes: filter.header().bytes(),
                predicted_rate: filter.header().predicted_rate,
                prefixes: filter.header().prefixes,
                extractor: filter.header().extractor(),
                stored: filter.stored().into(),
                damaged: filter.damage().map(str::to_owned),
            },
            FilterState::NotResident(stored) => {
                Self::NotResident { kind: stored.kind, hash: stored.hash, stored: stored.into() }
            }
            FilterState::Degraded(reason) => Self::Degraded { reason: reason.clone() },
        }
    }
}

/// What a table says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableProperties {
    /// The table's id.
    pub id: u64,
    /// The id of the store that it belongs to.
    pub store: u64,
    /// The file's length in bytes.
    pub file_bytes: u64,
    /// Changes held, tombstones included.
    pub entries: u64,
    /// Tombstones held.
    pub tombstones: u64,
    /// Distinct user keys held.
    pub keys: u64,
    /// Data blocks.
    pub data_blocks: u64,
    /// Bytes of all user keys, before prefix compression.
    pub key_bytes: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// The oldest sequence number held.
    pub min_seq: u64,
    /// The newest sequence number held.
    pub max_seq: u64,
    /// The first user key.
    pub smallest: Value,
    /// The last user key.
    pub largest: Value,
}

/// A data block, as the index names it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexEntry {
    /// Where the block starts in the file.
    pub offset: u64,
    /// Its length in bytes, trailer included.
    pub bytes: u64,
    /// Not less than the block's last key, and less than the next block's first.
    pub separator: Value,
}

/// One change that a table holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableEntry {
    /// The user key.
    pub key: Value,
    /// The change's sequence number.
    pub seq: u64,
    /// What it does to the key.
    pub kind: EntryKind,
    /// The value; empty for a tombstone.
    pub value: Value,
}

/// An SSTable opened on its own, to be looked at. Its index and footer must be sound; its filter may
/// be degraded.
#[derive(Debug)]
pub struct TableFile {
    open: OpenTable,
    secret: HashKey,
    store: u64,
}

impl TableFile {
    /// Opens a table file, whose name is `NNNNNN.sst`. Reads its footer, properties, index and
    /// filter, and locks nothing. From the manifest beside it come the key of its hash, without which
    /// a filter over a keyed hash is degraded, and which filter it has, if not the one within it.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`], which names the part that is damaged;
    /// [`Error::Unsupported`] for a newer version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path.as_ref(), &(Arc::new(RealVfs) as Arc<dyn Vfs>))
    }

    fn open_with(path: &Path, vfs: &Arc<dyn Vfs>) -> Result<Self> {
        let name = path.file_name().and_then(OsStr::to_str).and_then(FileName::parse);
        let Some(FileName::Table(id)) = name else {
            let found = "another name";
            return Err(Error::corrupt(
                path,
                0,
                "a table file, named by its number (000001.sst)",
                found,
            ));
        };
        let dir = path.parent().unwrap_or(Path::new("")).to_owned();
        // A table that lies alone, or beside a damaged manifest, can be looked at all the same.
        let manifest = read_current(vfs.as_ref(), &dir).ok().flatten();
        let set = manifest.and_then(|number| Manifest::read(vfs.as_ref(), &dir, number).ok());
        let secret = set.as_ref().and_then(|(set, ..)| set.hash_key);
        let secret = secret.unwrap_or(HashKey::new([0; HashKey::BYTES]));
        let env = |store| TableEnv::alone(vfs, &dir, store, secret);
        let (mut meta, store) = Table::meta_of_file(&env(0), id)?;
        // The manifest may name a later filter, in a file beside the table.
        let known = set.as_ref().and_then(|(set, ..)| set.tables.get(&id)).map(|(_, known)| known);
        if let Some(known) = known.filter(|known| known.footer_checksum == meta.footer_checksum)
            && known.filter.generation > 0
        {
            meta.filter = known.filter;
        }
        meta.id = id; // a file under another table's name is told apart by its footer
        let open = Table::open(&env(store), meta)?;
        Ok(Self { open, secret, store })
    }

    /// What the table says of itself.
    pub fn properties(&self) -> TableProperties {
        let table = &self.open.table;
        let (meta, properties) = (table.meta(), table.properties());
        TableProperties {
            id: meta.id,
            store: self.store,
            file_bytes: meta.size,
            entries: properties.entries,
            tombstones: properties.tombstones,
            keys: properties.keys,
            data_blocks: properties.data_blocks,
            key_bytes: properties.key_bytes,
            value_bytes: properties.value_bytes,
            min_seq: properties.min_seq,
            max_seq: properties.max_seq,
            smallest: Value::copied(&properties.smallest),
            largest: Value::copied(&properties.largest),
        }
    }

    /// The state of its filter.
    pub fn filter(&self) -> FilterInfo {
        self.open.filter.as_ref().into()
    }

    /// What its filter says of a key. No I/O.
    pub fn verdict(&self, key: impl AsRef<[u8]>) -> Verdict {
        self.open.filter.verdict(&LookupHash::new(key.as_ref(), &self.secret))
    }

    /// Its data blocks, in order.
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

    /// Its entries, in order. Reads and verifies every data block. After an error the iterator ends.
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
            let entry =
                TableEntry { key, seq: entry.seq, kind: entry.kind, value: current.value() };
            let advanced = current.advance();
            cursor = Some(advanced.map(|()| current));
            Some(Ok(entry))
        })
    }
}
