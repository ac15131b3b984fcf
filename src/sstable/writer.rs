//! Writes a table: takes entries in internal-key order, makes a synced file.

use super::block::{BlockBuilder, MAX_BLOCK_OF_ENTRIES};
use super::compression::Compression;
use super::env::TableEnv;
use super::expiries::ExpiryCounts;
use super::filter::{FilterId, build};
use super::format::{
    BlockHandle, BlockType, FILTER_ALIGNMENT, FilterMeta, Footer, MAX_BLOCK_BYTES, Properties,
    TableMeta, TableRandom, seal_block,
};
use super::index::{IndexBuilder, separator};
use crate::error::{Error, IoContext, Result};
use crate::filter::{KeyCounts, KeyHashes, PrefixExtractor};
use crate::key::{EntryKind, EntryRef, Seq};
use crate::ledger::Io;
use crate::names::FileName;
use crate::random::Purpose;
use crate::store_dir::NewFile;
use criba_filter::HashFunction;
use criba_filter::store::{HashKey, Recipe};

/// From this length of the index on, blocks are as long as they may be: separators of 64 KiB, one in each block of
/// 4 KiB, would make it longer than a block may be.
const LONG_INDEX_BYTES: usize = if cfg!(test) { 1 << 18 } else { 1 << 28 };
/// The bytes of data blocks that are written at once.
const WRITE_BUFFER_BYTES: usize = 256 * 1024;

#[derive(Debug, Clone)]
pub(crate) struct TableSettings {
    /// The size that data blocks stay below. A larger entry has its own block.
    pub(crate) block_bytes: usize,
    pub(crate) compression: Compression,
    /// The hash of the filters; `None` without filters.
    pub(crate) filter_hash: Option<HashFunction>,
    /// The prefixes that the filter has beside the keys.
    pub(crate) prefix: Option<PrefixExtractor>,
    /// See [`Properties::ingested_after`].
    pub(crate) ingested_after: Option<Seq>,
}

/// A table that is being written. Its file is removed if it is dropped before the table is finished.
#[derive(Debug)]
pub(crate) struct TableWriter {
    file: NewFile,
    id: u64,
    store: u64,
    random: TableRandom,
    hash_key: HashKey,
    settings: TableSettings,
    block: BlockBuilder,
    index: IndexBuilder,
    /// Finished bytes that are not in the file yet.
    buffer: Vec<u8>,
    /// The length of the file, buffer included.
    offset: u64,
    /// `None` if no filter is wanted.
    hashes: Option<KeyHashes>,
    /// The distinct prefixes, if no filter counts them.
    prefixes: u64,
    properties: Properties,
    expiries: ExpiryCounts,
    /// The bytes of the contents of all data blocks, decompressed.
    contents_bytes: u64,
    is_compressed: bool,
    /// The sequence number of the last entry.
    last_seq: Seq,
    io: Io,
}

/// A complete, synced table that the manifest does not name yet. It removes its file when it is dropped, unless
/// that is kept.
#[derive(Debug)]
pub(crate) struct FinishedTable {
    pub(crate) file: NewFile,
    pub(crate) meta: TableMeta,
    /// The input of its filter, to prove it with.
    pub(crate) hashes: Option<KeyHashes>,
    pub(crate) io: Io,
}

#[cfg(any(test, feature = "testing"))]
impl FinishedTable {
    pub(crate) fn keep(self) -> Self {
        self.file.keep();
        self
    }
}

impl TableWriter {
    pub(crate) fn create(env: &TableEnv, id: u64, settings: &TableSettings) -> Result<Self> {
        let random = |half| env.random.number(Purpose::SaltOfTable { id, half });
        let random = TableRandom::new(random(0)?, random(1)?);
        Ok(Self {
            file: env.dir.create(FileName::Table(id))?,
            id,
            store: env.store,
            random,
            hash_key: env.hash_key,
            settings: settings.clone(),
            block: BlockBuilder::default(),
            index: IndexBuilder::default(),
            buffer: Vec::new(),
            offset: 0,
            hashes: settings
                .filter_hash
                .map(|hash| KeyHashes::new(hash, &env.hash_key, settings.prefix)),
            prefixes: 0,
            properties: Properties {
                ingested_after: settings.ingested_after,
                ..Properties::default()
            },
            expiries: ExpiryCounts::default(),
            contents_bytes: 0,
            is_compressed: false,
            last_seq: 0,
            io: Io::default(),
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.properties.entries == 0
    }

    pub(crate) fn first_key(&self) -> &[u8] {
        &self.properties.smallest
    }

    pub(crate) fn last_key(&self) -> &[u8] {
        &self.properties.largest
    }

    pub(crate) fn data_bytes(&self) -> u64 {
        self.offset + self.block.size() as u64
    }

    /// Adds the next entry, in internal-key order.
    pub(crate) fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        let new_key = self.is_empty() || entry.key != self.last_key();
        // An upper bound: a restart point, and five varints.
        let size = self.block.size() + entry.key.len() + entry.value.len() + 16;
        debug_assert!(self.is_empty() || entry.key >= self.last_key(), "entries come in order");
        if new_key {
            if !self.block.is_empty() && size > self.block_bytes() {
                let separator = separator(self.last_key(), entry.key);
                self.finish_block(&separator)?;
            }
            if self.is_empty() {
                self.properties.smallest = entry.key.to_vec();
                self.properties.min_seq = entry.seq;
            }
            if let Some(hashes) = &mut self.hashes {
                hashes.add(entry.key);
            } else if let Some(extractor) = self.settings.prefix {
                let before = (!self.is_empty()).then(|| self.last_key());
                self.prefixes += extractor.new_prefixes(before, entry.key).count() as u64;
            }
            self.properties.largest.clear();
            self.properties.largest.extend_from_slice(entry.key);
        } else if size > MAX_BLOCK_OF_ENTRIES {
            // Within a key only a block that would be too long is cut, and the index says at which entry: one read
            // finds any version of a key.
            let key = entry.key.to_vec();
            self.finish_block(&key)?;
            self.index.cut(self.last_seq);
        }
        if !new_key {
            self.properties.hidden_bytes += (entry.key.len() + entry.value.len()) as u64;
        }
        self.last_seq = entry.seq;
        self.block.add(entry);
        self.expiries.add(&entry);
        let properties = &mut self.properties;
        properties.entries += 1;
        properties.keys += u64::from(new_key);
        properties.tombstones += u64::from(entry.kind == EntryKind::Delete);
        properties.key_bytes += entry.key.len() as u64;
        properties.value_bytes += entry.value.len() as u64;
        properties.min_seq = properties.min_seq.min(entry.seq);
        properties.max_seq = properties.max_seq.max(entry.seq);
        Ok(())
    }

    /// The length beyond which a block ends. A long index grows by 64 KiB at most for each mebibyte of data.
    fn block_bytes(&self) -> usize {
        let block_bytes = self.settings.block_bytes;
        if self.index.bytes() < LONG_INDEX_BYTES {
            block_bytes
        } else {
            block_bytes.max(MAX_BLOCK_OF_ENTRIES)
        }
    }

    fn finish_block(&mut self, separator: &[u8]) -> Result<()> {
        let contents = self.block.finish();
        self.index.add(separator, self.offset);
        self.contents_bytes += contents.len() as u64;
        match self.settings.compression.compress(&contents) {
            None => self.push_block(contents, BlockType::Data),
            Some(stored) => {
                self.is_compressed = true;
                self.push_block(stored, BlockType::CompressedData)
            }
        };
        if self.buffer.len() >= WRITE_BUFFER_BYTES { self.write_buffer() } else { Ok(()) }
    }

    /// Seals a block and buffers it. Returns its checksum too.
    fn push_block(&mut self, mut contents: Vec<u8>, block_type: BlockType) -> (BlockHandle, u32) {
        let handle = BlockHandle { offset: self.offset, length: contents.len() as u64 };
        seal_block(&mut contents, block_type, self.random.salt(), self.offset);
        let checksum = contents.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        self.push(&contents);
        (handle, checksum)
    }

    fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        self.offset += bytes.len() as u64;
    }

    fn write_buffer(&mut self) -> Result<()> {
        let written = self.file.file().append(&self.buffer);
        written.context(format_args!("write {} bytes", self.buffer.len()), self.file.path())?;
        self.io.calls += 1;
        self.io.bytes += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    pub(crate) fn key_counts(&self) -> KeyCounts {
        let counted = KeyCounts { keys: self.properties.keys, prefixes: self.prefixes };
        self.hashes.as_ref().map_or(counted, KeyHashes::counts)
    }

    /// Writes filter, index, properties and footer, and syncs the file. The table has at least one entry. The
    /// filter, if any, uses the hash of the settings.
    pub(crate) fn finish(mut self, filter_recipe: Option<Recipe>) -> Result<FinishedTable> {
        let largest = self.properties.largest.clone();
        self.finish_block(&largest)?;
        let data_end = self.offset;
        self.properties.data_blocks = self.index.blocks() as u64;
        self.properties.expiries = self.expiries.expiries();
        self.properties.contents_bytes = self.is_compressed.then_some(self.contents_bytes);

        let (mut filter, mut filter_checksum) = (BlockHandle::default(), 0);
        if let (Some(recipe), Some(hashes)) = (&filter_recipe, &self.hashes) {
            let place = FilterId { table: self.id, generation: 0 };
            let contents = build(recipe, &self.hash_key, place, hashes);
            let padding = self.offset.next_multiple_of(FILTER_ALIGNMENT) - self.offset;
            self.push(&[0; FILTER_ALIGNMENT as usize][..padding as usize]);
            (filter, filter_checksum) = self.push_block(contents, BlockType::Filter);
        }
        if self.index.bytes() as u64 > MAX_BLOCK_BYTES {
            let found = format!("one of {} bytes", self.index.bytes());
            return Err(Error::corrupt(
                self.file.path(),
                0,
                "an index that a reader accepts",
                found,
            ));
        }
        let index = std::mem::take(&mut self.index).finish(data_end);
        let (index, _) = self.push_block(index, BlockType::Index);
        let properties = self.properties.encode();
        let (properties, _) = self.push_block(properties, BlockType::Properties);
        let footer = Footer {
            filter,
            index,
            properties,
            range_tombstones: BlockHandle::default(),
            table: self.id,
            store: self.store,
            random: self.random,
            is_ingested: self.properties.is_ingested(),
            has_expiries: self.properties.expiries.is_some(),
            is_compressed: self.is_compressed,
        };
        let footer_bytes = footer.encode(self.offset);
        self.push(&footer_bytes);
        self.write_buffer()?;
        self.file.file().sync_all().context("sync", self.file.path())?;

        let filter = FilterMeta { generation: 0, bytes: filter.length, checksum: filter_checksum };
        let prefixes = self.settings.prefix.map(|_| self.key_counts().prefixes);
        let meta = TableMeta::of(&footer, &footer_bytes, self.offset, filter, &self.properties);
        let meta = TableMeta { prefixes, ..meta };
        Ok(FinishedTable { file: self.file, meta, hashes: self.hashes, io: self.io })
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::TRAILER_BYTES;
    use super::super::reader::Table;
    use super::super::samples::{env, put, writer};
    use super::*;

    const BLOCK_BYTES: usize = 500;

    #[test]
    fn a_long_index_grows_slowly() {
        let dir = crate::tempdir::tempdir();
        let env = env(dir.path());
        let mut writer = writer(&env, 1, BLOCK_BYTES, None);
        let key = |number: usize| [vec![b'k'; 1 << 15], number.to_be_bytes().to_vec()].concat();
        for number in 0..100 {
            writer.add(put(&key(number), 1, b"value")).expect("written");
        }
        let finished = writer.finish(None).expect("finished").keep();
        let table = Table::open(&env, finished.meta).expect("sound").table;
        // A block for each of the first eight keys, and one for all others, which share their first 32 KiB.
        let blocks = (0..table.index().len()).map(|number| {
            let handle = table.handle(number).expect("a block");
            table.file().block(handle).expect("sound").decode().expect("sound").len()
        });
        assert_eq!(blocks.collect::<Vec<_>>(), [1, 1, 1, 1, 1, 1, 1, 1, 92]);
    }

    #[test]
    fn a_block_ends_where_the_next_entry_might_not_fit() {
        let dir = crate::tempdir::tempdir();
        let env = env(dir.path());
        let mut writer = writer(&env, 1, BLOCK_BYTES, None);
        let entry = |i: usize| {
            let bytes = if i == 50 { 2 * BLOCK_BYTES } else { 7 * i % 60 };
            (format!("key {i:03}"), vec![b'v'; bytes])
        };
        let mut before = writer.data_bytes();
        for (key, value) in (0..200).map(entry) {
            writer.add(put(key.as_bytes(), 1, &value)).expect("written");
            let more = writer.data_bytes() - before;
            assert!(more as usize >= value.len() + 5, "{key}: {more} bytes more");
            before += more;
        }
        let finished = writer.finish(None).expect("finished").keep();
        assert_eq!((finished.io.calls, finished.io.bytes), (1, finished.meta.size));
        let table = Table::open(&env, finished.meta).expect("sound").table;
        assert!(before >= table.index().data_end() - TRAILER_BYTES as u64);

        let mut next = 0;
        for number in 0..table.index().len() {
            let handle = table.handle(number).expect("a block");
            let block = table.file().block(handle).and_then(|block| {
                block.decode().map_err(|damage| table.file().damaged(handle, damage))
            });
            let entries = block.expect("sound").len();
            let alone = entries == 1 && entry(next).1.len() > BLOCK_BYTES;
            assert!(handle.length as usize <= BLOCK_BYTES || alone, "{handle:?}");
            next += entries;
            let (key, value) = entry(next);
            let with_next = handle.length as usize + key.len() + value.len() + 16;
            assert!(with_next > BLOCK_BYTES || next == 200, "{handle:?} has room for {key}");
        }
        assert_eq!(next, 200);
    }

    #[test]
    fn a_long_table_is_written_piece_by_piece() {
        let dir = crate::tempdir::tempdir();
        let mut writer = writer(&env(dir.path()), 1, BLOCK_BYTES, None);
        for i in 0..300_u32 {
            writer.add(put(&i.to_be_bytes(), 1, &[b'v'; 4096])).expect("written");
            assert!(writer.buffer.len() < WRITE_BUFFER_BYTES);
        }
        let finished = writer.finish(None).expect("finished").keep();
        let pieces = finished.meta.size.div_ceil(WRITE_BUFFER_BYTES as u64);
        assert_eq!((finished.io.calls, finished.io.bytes), (pieces, finished.meta.size));
    }
}
