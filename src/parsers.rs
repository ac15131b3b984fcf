//! Parsers and writers of the file format, for the fuzz targets in `fuzz/`. Not part of the interface.

use std::ops::Bound;
use std::path::Path;

use crate::batch::{Batch, for_each_entry};
use crate::error::{Error, Result};
use crate::iter::{Cursor, Direction};
use crate::key::{EntryKind, EntryRef};
use crate::random::RandomSource;
use crate::sealed::{Seal, SealedBytes};
use crate::sstable::{self, OpenTable, ReadPlan, TableCursor, TableEnv, TableSettings};
use crate::sstable::{Filter, Portion};
use crate::store_dir::StoreDir;
use crate::sync::Arc;
use crate::version::{self, Manifest, TableSet};
use crate::vfs::Vfs;
use crate::wal::{FileHeader, Item, LogError, LogKind, LogReader, Logs, LostTail, replay};
use criba_filter::store::HashKey;

pub type HashKeyBytes = [u8; HashKey::BYTES];

/// Key, sequence number, kind and value.
pub type Entry = (Vec<u8>, u64, EntryKind, Vec<u8>);

fn owned(entry: &EntryRef<'_>) -> Entry {
    (entry.key.to_vec(), entry.seq, entry.kind, entry.value.to_vec())
}

/// The entries of a batch, the first with the sequence number `seq`, and the parser's count.
pub fn batch_entries(bytes: &[u8], seq: u64) -> Option<(Vec<Entry>, u64)> {
    let mut entries = Vec::new();
    let count = for_each_entry(bytes, seq, |entry| entries.push(owned(&entry)))?;
    Some((entries, count))
}

pub fn batch_bytes(batch: Batch) -> Result<Vec<u8>> {
    batch.into_encoded().map(|encoded| encoded.ops)
}

/// What follows the last frame of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEnd {
    /// An end frame. The next writes are in the log `next`.
    Closed { next: u64 },
    /// Only zeros.
    Eof,
    /// Damage, or a frame that a crash cut short.
    Damage { offset: u64 },
}

fn opened(vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<StoreDir> {
    let missing = || Error::NotAStore { path: dir.to_owned(), found: "nothing".into() };
    StoreDir::open(vfs, dir, 0o600)?.ok_or_else(missing)
}

/// The hash key of the logs.
const HASH_KEY: HashKey = HashKey::new([0; HashKey::BYTES]);

/// Reads a log. Calls `record` with the sequence number, offset and payload of each record. Returns the
/// store's id and the end; `None` if the header is damaged.
pub fn read_log(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    number: u64,
    mut record: impl FnMut(u64, u64, Vec<u8>),
) -> Result<Option<(u64, LogEnd)>> {
    let salt = HASH_KEY.salt_of_log(number);
    let mut reader = LogReader::open(&opened(vfs, dir)?, LogKind::Wal, number, Some(salt))?;
    let header = reader.header()?.ok().filter(|header| header.salt == salt);
    let Some(header) = header else { return Ok(None) };
    loop {
        let end = match reader.next()? {
            Item::Record { seq, offset, payload } => {
                record(seq, offset, payload);
                continue;
            }
            Item::End { next } => LogEnd::Closed { next },
            Item::Eof => LogEnd::Eof,
            Item::Damage { offset, .. } => LogEnd::Damage { offset },
        };
        return Ok(Some((header.store, end)));
    }
}

/// Replays one log from the sequence number `first` on. `apply` returns the number of entries of a record.
/// Returns what was dropped.
pub fn replay_log(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    store: u64,
    number: u64,
    first: u64,
    mut apply: impl FnMut(u64, &[u8]) -> u64,
) -> Result<Option<LostTail>> {
    let dir = &opened(vfs, dir)?;
    let numbers = vec![number];
    let logs = Logs { dir, store, hash_key: &HASH_KEY, numbers, first: number, first_seq: first };
    let replayed = replay(&logs, |record| Ok(apply(record.seq, record.payload)))?;
    Ok(replayed.lost)
}

#[derive(Debug)]
pub struct LogWriter(crate::wal::LogWriter);

impl LogWriter {
    pub fn create(vfs: &Arc<dyn Vfs>, dir: &Path, number: u64, store: u64) -> Result<Self> {
        let dir = opened(vfs, dir)?;
        let header = FileHeader { features: 0, store, salt: HASH_KEY.salt_of_log(number) };
        let log = crate::wal::LogWriter::create(&dir, LogKind::Wal, number, header, true)?;
        Ok(Self(log.keep()))
    }

    pub fn append(&mut self, records: &[(u64, Vec<u8>)]) -> Result<()> {
        let records = records.iter().map(|(seq, payload)| (*seq, payload.as_slice()));
        self.0.append(records).map(|_| ()).map_err(LogError::into_error)
    }

    pub fn sync(&mut self) -> Result<()> {
        self.0.sync().map_err(LogError::into_error)
    }

    /// Closes the log. The log `next` begins with the sequence number `seq`.
    pub fn finish(&mut self, next: u64, seq: u64) -> Result<()> {
        self.0.finish(next, seq).map_err(LogError::into_error)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    tables: TableSet,
    store: u64,
}

impl Recorded {
    /// The tables of a manifest, and what was dropped of its last edit.
    pub fn read(vfs: &Arc<dyn Vfs>, dir: &Path, manifest: u64) -> Result<(Self, Option<LostTail>)> {
        let (tables, store, lost) = Manifest::read(&opened(vfs, dir)?, manifest)?;
        Ok((Self { tables, store }, lost))
    }

    /// Writes a manifest of one edit.
    pub fn write(&self, vfs: &Arc<dyn Vfs>, dir: &Path, manifest: u64) -> Result<()> {
        let dir = opened(vfs, dir)?;
        let random = RandomSource::default();
        Manifest::create(&dir, manifest, self.store, random, self.tables.clone())
            .map(Manifest::keep)
    }

    pub fn hash_key(&self) -> HashKeyBytes {
        *self.tables.hash_key.bytes()
    }
}

#[derive(Debug, PartialEq)]
pub struct Edit(version::Edit);

impl Edit {
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        version::Edit::decode(bytes).map(Self)
    }

    pub fn encode(&self) -> Vec<u8> {
        self.0.encode()
    }
}

pub fn read_current(vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<Option<u64>> {
    version::read_current(&opened(vfs, dir)?)
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FilterHeader(sstable::FilterHeader);

impl FilterHeader {
    /// Decodes a filter block of a table with `keys` keys.
    pub fn decode(bytes: &[u8], keys: u64, key: HashKeyBytes) -> std::result::Result<Self, String> {
        sstable::FilterHeader::decode(bytes, bytes.len(), keys, &HashKey::new(key)).map(Self)
    }

    /// The portions of the filter, smallest first: the number of columns (`None` for nothing or all), the
    /// bytes, the rate.
    pub fn portions(&self) -> impl Iterator<Item = (Option<u32>, usize, f64)> {
        self.0.portions().map(|portion| {
            let columns = match portion {
                Portion::Columns(columns) => Some(columns),
                _ => None,
            };
            (columns, self.0.bytes_of(portion), self.0.rate_of(portion))
        })
    }
}

#[derive(Debug)]
pub struct TableFilter(Filter);

impl TableFilter {
    pub fn decode(bytes: &[u8], keys: u64, key: HashKeyBytes) -> std::result::Result<Self, String> {
        let memory = SealedBytes::filled(Seal::System, bytes.len(), |memory| {
            memory.copy_from_slice(bytes);
            Ok(())
        });
        let memory = memory.map_err(|error| error.to_string())?;
        Filter::decode(memory, bytes.len(), keys, &HashKey::new(key)).map(Self)
    }

    pub fn header(&self) -> FilterHeader {
        FilterHeader(*self.0.stored())
    }

    /// The resident bytes, if the whole filter is resident.
    pub fn whole_bytes(&self) -> Option<usize> {
        (self.0.portion() == Portion::Whole).then(|| self.0.header().bytes())
    }

    pub fn may_contain_hash(&self, hash: u64) -> bool {
        self.0.may_contain_hash(hash)
    }

    /// Reduces a ribbon filter to its first columns.
    pub fn narrowed(&self, columns: u32) -> std::io::Result<Self> {
        self.0.narrowed(columns).map(Self)
    }
}

#[derive(Debug)]
pub struct Table {
    env: Arc<TableEnv>,
    open: OpenTable,
}

impl Table {
    pub fn open(vfs: &Arc<dyn Vfs>, dir: &Path, number: u64, key: HashKeyBytes) -> Result<Self> {
        let dir = opened(vfs, dir)?;
        let env = |store| TableEnv::standalone(&dir, store, HashKey::new(key));
        let (mut meta, store) = sstable::Table::meta_of_file(&env(0), number)?;
        meta.id = number;
        let env = env(store);
        let open = sstable::Table::open(&env, meta)?;
        Ok(Self { env, open })
    }

    /// Reads the whole table. Calls `find` with each error.
    pub fn check(&self, find: &mut dyn FnMut(Error)) {
        self.open.check(find);
    }

    /// The newest entry of a key, up to a sequence number.
    pub fn search(&self, key: &[u8], seq: u64) -> Result<Option<(EntryKind, Vec<u8>)>> {
        if !self.open.table.meta().overlaps(key, key) {
            return Ok(None);
        }
        let found = self.open.table.search(key, seq, false).1?;
        Ok(found.entry.map(|stored| (stored.kind, stored.value.to_vec())))
    }

    pub fn entries(&self) -> Result<Vec<Entry>> {
        self.read(Direction::Forward, ReadPlan::Compaction)
    }

    pub fn entries_backward(&self) -> Result<Vec<Entry>> {
        self.read(Direction::Backward, ReadPlan::Scan)
    }

    fn read(&self, direction: Direction, plan: ReadPlan) -> Result<Vec<Entry>> {
        let table = Arc::clone(&self.open.table);
        let mut cursor = TableCursor::new(table, direction, Bound::Unbounded, plan)?;
        let mut entries = Vec::new();
        while let Some(entry) = cursor.entry() {
            entries.push(owned(&entry));
            cursor.advance()?;
        }
        Ok(entries)
    }

    /// Writes a table beside this one.
    pub fn write(&self, number: u64, entries: &[Entry]) -> Result<Self> {
        let settings = TableSettings {
            block_bytes: 200,
            compression: sstable::Compression::None,
            filter_hash: None,
            prefix: None,
            ingested_after: None,
        };
        let mut writer = sstable::TableWriter::create(&self.env, number, &settings)?;
        for (key, seq, kind, value) in entries {
            writer.add(EntryRef { key, seq: *seq, kind: *kind, value })?;
        }
        let open = sstable::Table::open(&self.env, writer.finish(None)?.keep().meta)?;
        Ok(Self { env: Arc::clone(&self.env), open })
    }
}
