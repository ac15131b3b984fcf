//! The parsers of the file format, each with its writer, for the fuzz targets in `fuzz/`: bytes in, plain
//! values out, and back. Not a part of the interface; any of it may change at any time.

use std::ops::Bound;
use std::path::Path;

use crate::batch::{Batch, for_each_change};
use crate::error::{Error, Result};
use crate::filter::{self, Filter, HashKey, Portion};
use crate::iter::{Cursor, Direction};
use crate::key::{EntryKind, EntryRef};
use crate::names::FileName;
use crate::sealed::SealedBytes;
use crate::sstable::{self, OpenTable, ReadPlan, TableCursor, TableEnv, TableSettings};
use crate::sync::Arc;
use crate::version::{self, Manifest, TableSet};
use crate::vfs::Vfs;
use crate::wal::{Item, LogError, LogKind, LogReader, LostTail, replay};

/// The key of a store's hash.
pub type Secret = [u8; HashKey::BYTES];

/// Key, sequence number, kind and value.
pub type Change = (Vec<u8>, u64, EntryKind, Vec<u8>);

fn owned(change: &EntryRef<'_>) -> Change {
    (change.key.to_vec(), change.seq, change.kind, change.value.to_vec())
}

/// The changes of a batch, the first with the sequence number `seq`, and how many the parser counts.
pub fn batch_changes(bytes: &[u8], seq: u64) -> Option<(Vec<Change>, u64)> {
    let mut changes = Vec::new();
    let count = for_each_change(bytes, seq, |change| changes.push(owned(&change)))?;
    Some((changes, count))
}

/// A batch as the log keeps it.
pub fn batch_bytes(batch: Batch) -> Result<Vec<u8>> {
    batch.into_parts().map(|(bytes, _)| bytes)
}

/// What follows the last record of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEnd {
    /// The log was closed, and writers went on in the log `next`.
    Closed { next: u64 },
    /// Nothing but zeros.
    Eof,
    /// From here on the log is not whole.
    Damage { offset: u64 },
}

/// Reads a write-ahead log: `record` gets the sequence number, offset and payload of each record. Gives
/// the id of the store and what follows the records; `None` if the header is damaged.
pub fn read_log(
    vfs: &dyn Vfs,
    dir: &Path,
    number: u64,
    mut record: impl FnMut(u64, u64, Vec<u8>),
) -> Result<Option<(u64, LogEnd)>> {
    let path = FileName::Log(number).path(dir);
    let mut reader = LogReader::open(vfs, &path, LogKind::Wal, number)?;
    let Ok(store) = reader.header(LogKind::Wal)? else { return Ok(None) };
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
        return Ok(Some((store, end)));
    }
}

/// Replays one write-ahead log from the sequence number `first` on; `apply` says how many numbers each
/// record takes. Gives what was dropped.
pub fn replay_log(
    vfs: &dyn Vfs,
    dir: &Path,
    store: u64,
    number: u64,
    first: u64,
    mut apply: impl FnMut(u64, &[u8]) -> u64,
) -> Result<Option<LostTail>> {
    let apply = |_: &Path, _, seq, payload: &[u8]| Ok(apply(seq, payload));
    replay(vfs, dir, store, &[number], number, first, apply).map(|replay| replay.lost)
}

/// Writes a write-ahead log.
#[derive(Debug)]
pub struct LogWriter(crate::wal::LogWriter);

impl LogWriter {
    pub fn create(vfs: &dyn Vfs, dir: &Path, number: u64, store: u64) -> Result<Self> {
        let path = FileName::Log(number).path(dir);
        let log = crate::wal::LogWriter::create(vfs, &path, LogKind::Wal, number, store, true);
        log.map(Self)
    }

    pub fn append(&mut self, records: &[(u64, Vec<u8>)]) -> Result<()> {
        let records = records.iter().map(|(seq, payload)| (*seq, payload.as_slice()));
        self.0.append(records).map(|_| ()).map_err(LogError::into_error)
    }

    pub fn sync(&mut self) -> Result<()> {
        self.0.sync().map_err(LogError::into_error)
    }

    /// Closes the log: writers go on in the log `next`, with `seq`.
    pub fn finish(&mut self, next: u64, seq: u64) -> Result<()> {
        self.0.finish(next, seq).map_err(LogError::into_error)
    }
}

/// What a manifest records.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    tables: TableSet,
    store: u64,
}

impl Recorded {
    /// Reads a manifest; gives also what of the last edit was dropped.
    pub fn read(vfs: &dyn Vfs, dir: &Path, manifest: u64) -> Result<(Self, Option<LostTail>)> {
        let (tables, store, lost) = Manifest::read(vfs, dir, manifest)?;
        Ok((Self { tables, store }, lost))
    }

    /// Writes a manifest of one edit.
    pub fn write(&self, vfs: &dyn Vfs, dir: &Path, manifest: u64) -> Result<()> {
        Manifest::create(vfs, dir, manifest, self.store, self.tables.clone()).map(|_| ())
    }

    pub fn secret(&self) -> Option<Secret> {
        self.tables.hash_key.map(|key| *key.bytes())
    }
}

/// An edit of a manifest.
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

/// The number of the manifest in force.
pub fn read_current(vfs: &dyn Vfs, dir: &Path) -> Result<Option<u64>> {
    version::read_current(vfs, dir)
}

/// A filter as the header of its block describes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FilterHeader(filter::FilterHeader);

impl FilterHeader {
    /// From the bytes of a filter block of a table with so many keys.
    pub fn decode(bytes: &[u8], keys: u64, secret: Secret) -> std::result::Result<Self, String> {
        filter::FilterHeader::decode(bytes, bytes.len(), keys, &HashKey::new(secret)).map(Self)
    }

    /// The parts of the filter that can be in memory, the least first: the number of columns, if it is a
    /// number of them; the bytes; the rate.
    pub fn portions(&self) -> impl Iterator<Item = (Option<u32>, usize, f64)> {
        self.0.portions().map(|portion| {
            let columns =
                if let Portion::Columns(columns) = portion { Some(columns) } else { None };
            (columns, self.0.bytes_of(portion), self.0.rate_of(portion))
        })
    }
}

/// A filter in memory.
#[derive(Debug)]
pub struct TableFilter(Filter);

impl TableFilter {
    /// From the bytes of a filter block of a table with so many keys.
    pub fn decode(bytes: &[u8], keys: u64, secret: Secret) -> std::result::Result<Self, String> {
        let memory = SealedBytes::filled(bytes.len(), |memory| {
            memory.copy_from_slice(bytes);
            Ok(())
        });
        let memory = memory.map_err(|error| error.to_string())?;
        Filter::decode(memory, bytes.len(), keys, &HashKey::new(secret)).map(Self)
    }

    pub fn header(&self) -> FilterHeader {
        FilterHeader(*self.0.stored())
    }

    /// The bytes in memory, if that is all of the filter.
    pub fn whole_bytes(&self) -> Option<usize> {
        (self.0.portion() == Portion::Whole).then(|| self.0.header().bytes())
    }

    pub fn may_contain_hash(&self, hash: u64) -> bool {
        self.0.may_contain_hash(hash)
    }

    /// The first columns of a ribbon.
    pub fn narrowed(&self, columns: u32) -> std::io::Result<Self> {
        self.0.narrowed(columns).map(Self)
    }
}

/// A table opened without its store.
#[derive(Debug)]
pub struct Table {
    env: Arc<TableEnv>,
    open: OpenTable,
}

impl Table {
    pub fn open(vfs: &Arc<dyn Vfs>, dir: &Path, number: u64, secret: Secret) -> Result<Self> {
        let env = |store| TableEnv::alone(vfs, dir, store, HashKey::new(secret));
        let (mut meta, store) = sstable::Table::meta_of_file(&env(0), number)?;
        meta.id = number;
        let env = env(store);
        let open = sstable::Table::open(&env, meta)?;
        Ok(Self { env, open })
    }

    /// Reads all of it; `find` gets each thing that is wrong.
    pub fn check(&self, find: &mut dyn FnMut(Error)) {
        self.open.check(find);
    }

    /// What a key within the range of the table had last, up to a sequence number; `None` for others.
    pub fn search(&self, key: &[u8], seq: u64) -> Result<Option<(EntryKind, Vec<u8>)>> {
        if !self.open.table.meta().overlaps(key, key) {
            return Ok(None);
        }
        let found = self.open.table.search(key, seq).1?;
        Ok(found.version.map(|(kind, value)| (kind, value.to_vec())))
    }

    pub fn entries(&self) -> Result<Vec<Change>> {
        self.read(Direction::Forward, ReadPlan::Compaction)
    }

    pub fn entries_backward(&self) -> Result<Vec<Change>> {
        self.read(Direction::Backward, ReadPlan::Scan)
    }

    fn read(&self, direction: Direction, plan: ReadPlan) -> Result<Vec<Change>> {
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
    pub fn write(&self, number: u64, entries: &[Change]) -> Result<Self> {
        let settings = TableSettings { block_bytes: 200, filter_hash: None, prefix: None };
        let mut writer = sstable::TableWriter::create(&self.env, number, &settings)?;
        for (key, seq, kind, value) in entries {
            writer.add(EntryRef { key, seq: *seq, kind: *kind, value })?;
        }
        let open = sstable::Table::open(&self.env, writer.finish(None)?.meta)?;
        Ok(Self { env: Arc::clone(&self.env), open })
    }
}
