//! Reads a table: one read to open it, then at most one data block per lookup.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::block::Found;
use super::data_file::DataFile;
use super::env::TableEnv;
use super::format::{
    BlockHandle, BlockType, FILTER_ALIGNMENT, FOOTER_BYTES, FilterMeta, Footer, MAX_BLOCK_BYTES,
    MAX_PROPERTIES_BYTES, Properties, TRAILER_BYTES, TableMeta, check_block,
};
use super::index::{Blocks, Index};
use super::large_block::{BlockCheck, LARGE_BYTES, check_if_large};
use crate::codec::u32_at;
use crate::error::{Error, IoContext, Result};
use crate::key::Seq;
use crate::ledger::BlockFetch;
use crate::names::{FileName, Origin};
use crate::sealed::{Metered, Seal, SealedBytes, mapped_bytes};
use crate::sync::{AtomicBool, Instant, OnceLock, Ordering};
use crate::vfs::{AccessHint, VfsFile};

/// A read that takes longer than this, and than a nanosecond a byte, is of the disk. Reads from the page cache take
/// a few microseconds, those of a fast disk 35.
const SLOW_READ: Duration = Duration::from_micros(20);

/// An open table. Dropping an obsolete one removes its file.
#[derive(Debug)]
pub(crate) struct Table {
    env: Arc<TableEnv>,
    meta: TableMeta,
    properties: Properties,
    /// The file from the index to its end.
    tail: SealedBytes,
    index: BlockHandle,
    blocks: Blocks,
    /// The filter block in the table, in use or not.
    filter: BlockHandle,
    obsolete: AtomicBool,
    damage: OnceLock<Error>,
    /// Memory of `tail` and `blocks`.
    _memory: Metered,
}

impl Table {
    /// Starts readahead of what opening this table will read.
    pub(crate) fn announce(env: &TableEnv, meta: &TableMeta, with_filter: bool) -> Result<()> {
        let filter_bytes = match meta.filter {
            FilterMeta { generation: 0, bytes: 1.., .. } if with_filter => {
                meta.filter.bytes.saturating_add(TRAILER_BYTES as u64)
            }
            _ => 0, // none, or in a file of its own
        };
        // Whether the file has all this shows when it is opened.
        let offset = meta.index_offset.saturating_sub(filter_bytes);
        let length = meta.size.saturating_sub(offset);
        // Only a hint: what does not take it reads just as well.
        let _ = Self::file_of(env, meta)?.hint(AccessHint::WillNeed { offset, length });
        Ok(())
    }

    fn file_of(env: &TableEnv, meta: &TableMeta) -> Result<Arc<dyn VfsFile>> {
        let path = env.path_of(FileName::Table(meta.id));
        match env.files.get(meta.id, &env.dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(Error::Missing { path, named_by: "the manifest".into() })
            }
            other => other.context("open", &path),
        }
    }

    /// Opens a table with one disk read, without its filter. Everything read must be sound.
    pub(crate) fn open_data(env: &Arc<TableEnv>, meta: TableMeta) -> Result<Arc<Self>> {
        let path = env.path_of(FileName::Table(meta.id));
        let file = Self::file_of(env, &meta)?;
        let length = file.length().context("find the length", &path)?;
        if length != meta.size {
            let expected = format!("a table of {} bytes", meta.size);
            return Err(Error::corrupt(&path, length, expected, format!("{length} bytes")));
        }
        let wrong_tail = || {
            Error::corrupt(
                &path,
                meta.index_offset,
                "index, properties and footer",
                "no room for them",
            )
        };
        let tail_length =
            length.checked_sub(meta.index_offset).filter(|&tail| tail >= FOOTER_BYTES as u64);
        let tail_length = tail_length.ok_or_else(wrong_tail)? as usize;
        if tail_length as u64 > LARGE_BYTES {
            check_large_tail(env, &path, &*file, &meta)?;
        }
        let seal = Seal::for_files_of(&env.dir);
        let tail = SealedBytes::filled(seal, tail_length, |buffer| {
            file.read_exact_at(buffer, meta.index_offset)
        })
        .context(format_args!("read {tail_length} bytes at offset {}", meta.index_offset), &path)?;
        env.ledger.open_reads.count(tail_length as u64);

        let footer_offset = length - FOOTER_BYTES as u64;
        let footer_bytes = tail.get(tail_length - FOOTER_BYTES..).unwrap_or_default();
        let footer = decode_footer(&path, footer_bytes, footer_offset)?;
        check_footer(&path, &footer, footer_bytes, footer_offset, env.store, &meta)?;
        let salt = meta.random.salt();
        let block_in_tail = |handle: BlockHandle, block_type, what: &str| {
            let start = (handle.offset - meta.index_offset) as usize;
            let bytes = tail.get(start..start + handle.length as usize + TRAILER_BYTES);
            check_block(bytes.unwrap_or_default(), block_type, salt, handle.offset)
                .map_err(|found| Error::corrupt(&path, handle.offset, what, found))
        };
        let index_bytes = block_in_tail(footer.index, BlockType::Index, "an index block")?;
        let properties =
            block_in_tail(footer.properties, BlockType::Properties, "a properties block")?;
        let is_named = |properties: &Properties| {
            let mut found = TableMeta::of(&footer, footer_bytes, length, meta.filter, properties);
            if found.is_ingested {
                found.set_number(meta.max_seq);
            }
            // The number of prefixes is in the manifest alone, and so is that of an ingested table.
            properties.agree_with(&footer)
                && found.filter == meta.filter
                && found.is_of_same_table(&meta)
        };
        let properties = Properties::decode(properties).filter(is_named);
        let properties = properties.ok_or_else(|| {
            let expected = "the properties that the manifest has for this table";
            Error::corrupt(&path, footer.properties.offset, expected, "different ones")
        })?;
        let blocks = read_index(index_bytes, &meta, &footer, &properties)
            .map_err(|found| Error::corrupt(&path, footer.index.offset, "an index", found))?;

        let index = BlockHandle { offset: 0, length: footer.index.length };
        let obsolete = AtomicBool::new(false);
        let bytes = mapped_bytes(tail_length) + blocks.memory() as u64;
        let (env, filter) = (Arc::clone(env), footer.filter);
        Ok(Arc::new(Self {
            _memory: Metered::new(&env.index_memory, bytes),
            env,
            meta,
            properties,
            tail,
            index,
            blocks,
            filter,
            obsolete,
            damage: OnceLock::default(),
        }))
    }

    /// What a sound footer of any version says that the file is. Reads the footer alone.
    pub(crate) fn origin(env: &TableEnv, id: u64) -> Result<Option<Origin>> {
        let (_, offset, bytes) = Self::footer_bytes(env, id)?;
        Ok(Footer::origin(&bytes, offset))
    }

    /// A file, the offset and the bytes of its footer.
    fn footer_bytes(env: &TableEnv, id: u64) -> Result<(Arc<dyn VfsFile>, u64, Vec<u8>)> {
        let name = FileName::Table(id);
        let path = env.path_of(name);
        let file = env.dir.open_file(name).context("open", &path)?;
        let length = file.length().context("find the length", &path)?;
        let offset = length.checked_sub(FOOTER_BYTES as u64).ok_or_else(|| {
            Error::corrupt(&path, 0, "an SSTable", format!("a file of {length} bytes"))
        })?;
        let bytes = file.read_new(FOOTER_BYTES, offset);
        let bytes = bytes.context(format_args!("read the footer at offset {offset}"), &path)?;
        Ok((file, offset, bytes))
    }

    /// The manifest's record of a table without a store, from its footer and properties.
    pub(crate) fn meta_of_file(env: &TableEnv, id: u64) -> Result<(TableMeta, u64)> {
        let path = env.path_of(FileName::Table(id));
        let (file, offset, bytes) = Self::footer_bytes(env, id)?;
        let footer = decode_footer(&path, &bytes, offset)?;
        let length = file.length().context("find the length", &path)?;
        let read = |offset: u64, length: u64| {
            let bytes = file.read_new(length as usize, offset);
            bytes.context(format_args!("read {length} bytes at offset {offset}"), &path)
        };
        let broken = |found: String| {
            Error::corrupt(&path, footer.properties.offset, "a properties block", found)
        };
        let is_short = footer.properties.length <= MAX_PROPERTIES_BYTES;
        let end = footer.properties.end().filter(|&end| is_short && end <= length);
        let end = end.ok_or_else(|| broken("an invalid offset or length".into()))?;
        let block = read(footer.properties.offset, end - footer.properties.offset)?;
        let contents = check_block(
            &block,
            BlockType::Properties,
            footer.random.salt(),
            footer.properties.offset,
        )
        .map_err(broken)?;
        let properties = Properties::decode(contents)
            .filter(|properties| properties.agree_with(&footer))
            .ok_or_else(|| broken("properties that contradict each other".into()))?;
        let filter_checksum = match footer.filter.end().filter(|&end| 4 <= end && end <= length) {
            Some(end) if !footer.filter.is_none() => {
                u32_at(&read(end - 4, 4)?, 0).unwrap_or_default()
            }
            _ => 0,
        };
        let (bytes_of_filter, generation) = (footer.filter.length, 0);
        let filter = FilterMeta { generation, bytes: bytes_of_filter, checksum: filter_checksum };
        let meta = TableMeta::of(&footer, &bytes, length, filter, &properties);
        Ok((meta, footer.store))
    }

    pub(crate) fn id(&self) -> u64 {
        self.meta.id
    }

    /// The salt of the checksums of blocks.
    pub(super) fn salt(&self) -> u64 {
        self.meta.random.salt()
    }

    pub(crate) fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// Gives an ingested table its number, before other threads have the table.
    pub(crate) fn set_number(&mut self, number: Seq) {
        self.meta.set_number(number);
    }

    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The bytes of all data blocks, without type and checksum: as they are stored, and decompressed.
    pub(crate) fn data_bytes(&self) -> (u64, u64) {
        let trailers = self.index().len() as u64 * TRAILER_BYTES as u64;
        let stored = self.index().data_end().saturating_sub(trailers);
        (stored, self.meta.contents_bytes.unwrap_or(stored))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.env.path_of(FileName::Table(self.meta.id))
    }

    /// Lets the last reference remove the file. The manifest must durably have dropped the table.
    pub(crate) fn make_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// The damage of a block that a task met, since the table was opened.
    #[inline]
    pub(crate) fn damage(&self) -> Option<&Error> {
        self.damage.get()
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.damage().is_some()
    }

    /// Notes that a block is damaged, if a second read finds it damaged, too: the first bytes may have changed on
    /// their way from the disk.
    pub(super) fn confirm_damage(&self, number: usize) {
        if let Err(error @ Error::Corrupt { .. }) = self.decoded_block(number) {
            let _ = self.damage.set(error);
        }
    }

    /// Finds the newest entry of `key` up to `seq` in the one block that may hold it: at most one disk read.
    /// Names the block also on failure. Measures the time of the read if `timed`.
    pub(crate) fn search(
        &self,
        key: &[u8],
        seq: Seq,
        timed: bool,
    ) -> (Option<BlockFetch>, Result<Found>) {
        let number = self.blocks.number_up_to(key, seq, &self.index());
        let handle = match self.handle(number) {
            Ok(handle) => handle,
            Err(error) => return (None, Err(error)),
        };
        let place = (self.meta.id, number);
        let cached = self.env.cache.as_ref().and_then(|cache| cache.get(place));
        let bytes = handle.length + TRAILER_BYTES as u64;
        let from_cache = cached.is_some();
        let mut fetch = BlockFetch { offset: handle.offset, bytes, from_cache, slow: false };
        let found = match cached {
            Some(block) => Ok(block),
            None => {
                let began = timed.then(Instant::now);
                let block = self.file().block(handle);
                let slow = SLOW_READ.max(Duration::from_nanos(bytes));
                fetch.slow = began.is_some_and(|began| began.elapsed() > slow);
                block.inspect(|block| {
                    if let Some(cache) = &self.env.cache {
                        cache.insert(place, block.clone());
                    }
                })
            }
        }
        .and_then(|block| {
            block.search(key, seq).map_err(|damage| self.file().damaged(handle, damage))
        });
        (Some(fetch), found)
    }

    /// The block that [`search`](Self::search) would read from the disk: the cache does not have it.
    pub(crate) fn block_to_read(&self, key: &[u8], seq: Seq) -> Option<BlockHandle> {
        let number = self.blocks.number_up_to(key, seq, &self.index());
        let place = (self.meta.id, number);
        let cached = self.env.cache.as_ref().is_some_and(|cache| cache.contains(place));
        if cached { None } else { self.handle(number).ok() }
    }

    /// Announces a block to the operating system. Returns its bytes.
    pub(crate) fn announce_block(&self, block: BlockHandle) -> io::Result<u64> {
        let (offset, length) = (block.offset, block.length + TRAILER_BYTES as u64);
        let file = self.env.files.get(self.meta.id, &self.env.dir)?;
        file.hint(AccessHint::WillNeed { offset, length })?;
        Ok(length)
    }

    /// Announces bytes that a scan will probably read. Fails if the file cannot be opened.
    pub(super) fn announce_scan(&self, offset: u64, length: u64) -> Result<()> {
        let file = self.env.files.get(self.meta.id, &self.env.dir);
        let file =
            file.context(format_args!("open it to read at offset {offset}"), &self.path())?;
        // Only a hint: what does not take it reads just as well.
        let _ = file.hint(AccessHint::Scan { offset, length });
        Ok(())
    }

    pub(crate) fn env(&self) -> &Arc<TableEnv> {
        &self.env
    }

    /// The filter block in the table; empty if it was written without one.
    pub(crate) fn filter_block(&self) -> BlockHandle {
        self.filter
    }

    pub(crate) fn index(&self) -> Index<'_> {
        let bytes = self.tail.get(..self.index.length as usize).unwrap_or_default();
        // `open` parsed and checked these very bytes, and they cannot change.
        Index::new(bytes).unwrap_or(Index::EMPTY)
    }

    /// The number of the block that may hold `key`: the first whose separator is not less. The number of
    /// blocks for a key beyond the table's range.
    pub(crate) fn block_for(&self, key: &[u8]) -> usize {
        self.blocks.number_for(key, &self.index())
    }

    /// The last of the blocks with a key, the first of which is known.
    pub(super) fn last_block_of(&self, key: &[u8], first: usize) -> usize {
        self.blocks.number_behind_cuts(key, first, &self.index())
    }

    /// The oldest sequence number that a block has of its separator, if it ends within that key.
    pub(super) fn oldest_before_cut(&self, number: usize) -> Option<Seq> {
        self.blocks.oldest_before_cut(number)
    }

    pub(super) fn handle(&self, number: usize) -> Result<BlockHandle> {
        self.blocks.place(number).ok_or_else(|| {
            let expected = format!("a block number {number}");
            Error::corrupt(&self.path(), self.meta.index_offset, expected, "none")
        })
    }

    /// The file, to read data blocks of.
    pub(super) fn file(&self) -> DataFile<'_> {
        DataFile::of(&self.env, self.meta.id, Some(&self.meta))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !self.env.birth.is_this_process() {
            return;
        }
        self.env.ledger.retire(self.meta.id);
        if self.obsolete.load(Ordering::Acquire) {
            self.env.remove_table(self.meta.id);
        } else {
            self.env.files.forget(self.meta.id);
        }
    }
}

/// Checks footer, index and properties of a table with a long index before memory is taken for them.
fn check_large_tail(
    env: &TableEnv,
    path: &Path,
    file: &dyn VfsFile,
    meta: &TableMeta,
) -> Result<()> {
    let offset = meta.size.saturating_sub(FOOTER_BYTES as u64);
    env.ledger.check_reads.count(FOOTER_BYTES as u64);
    let read = file.read_new(FOOTER_BYTES, offset);
    let bytes = read.context(format_args!("read the footer at offset {offset}"), path)?;
    let footer = decode_footer(path, &bytes, offset)?;
    check_footer(path, &footer, &bytes, offset, env.store, meta)?;
    let (block, of) = (footer.index, BlockType::Index);
    let place = BlockCheck { block, of, salt: meta.random.salt(), bound_to: block.offset };
    check_if_large(env, file, place)
        .context(format_args!("read a block at offset {}", block.offset), path)?
        .map_err(|found| Error::corrupt(path, block.offset, "an index block", found))
}

fn decode_footer(path: &Path, bytes: &[u8], offset: u64) -> Result<Footer> {
    Footer::decode(bytes, offset).map_err(|error| error.into_error(path, offset))
}

/// The index of a table; or what is wrong with it.
fn read_index(
    bytes: &[u8],
    meta: &TableMeta,
    footer: &Footer,
    properties: &Properties,
) -> std::result::Result<Blocks, String> {
    let index = Index::new(bytes).ok_or("an invalid index block")?;
    let end = index.data_end();
    let begins = if footer.filter.is_none() { meta.index_offset } else { footer.filter.offset };
    let aligned = if footer.filter.is_none() {
        Some(end)
    } else {
        end.checked_next_multiple_of(FILTER_ALIGNMENT)
    };
    if aligned != Some(begins) {
        return Err(format!("data blocks that end at {end}, where the next block is at {begins}"));
    }
    if index.len() as u64 != properties.data_blocks {
        return Err(format!(
            "{} blocks, where the table has {}",
            index.len(),
            properties.data_blocks
        ));
    }
    index
        .check(&meta.largest)
        .ok_or("blocks or keys out of order, or beyond the table's largest key")?;
    Ok(Blocks::new(&index))
}

/// Checks that the footer is the manifest's, and that its parts are adjacent.
fn check_footer(
    path: &Path,
    footer: &Footer,
    bytes: &[u8],
    offset: u64,
    store: u64,
    meta: &TableMeta,
) -> Result<()> {
    let corrupt =
        |expected: String, found: String| Err(Error::corrupt(path, offset, expected, found));
    if footer.store != store {
        return corrupt(
            format!("a table of store {store:016x}"),
            format!("store {:016x}", footer.store),
        );
    }
    if footer.table != meta.id {
        return corrupt(format!("table {}", meta.id), format!("table {}", footer.table));
    }
    // Two tables of one number and store are told apart, also if a checksum is the same.
    if footer.random != meta.random {
        let expected = "the random bytes that the manifest has for this table".into();
        return corrupt(expected, "different ones".into());
    }
    let checksum = Footer::checksum(bytes);
    if checksum != meta.footer_checksum {
        let expected = format!(
            "the footer with checksum {:#010x} that the manifest names",
            meta.footer_checksum
        );
        return corrupt(expected, format!("one with checksum {checksum:#010x}"));
    }
    if !footer.range_tombstones.is_none() {
        return Err(Error::Unsupported {
            path: path.to_owned(),
            supported: "tables without range tombstones".into(),
            found: "range tombstones".into(),
        });
    }
    let filter_fits = footer.filter.is_none() || footer.filter.end() == Some(footer.index.offset);
    let in_order = footer.index.length <= MAX_BLOCK_BYTES
        && footer.properties.length <= MAX_PROPERTIES_BYTES
        && footer.index.offset == meta.index_offset
        && footer.index.end() == Some(footer.properties.offset)
        && footer.properties.end() == Some(offset)
        && (meta.filter.generation > 0 || footer.filter.length == meta.filter.bytes)
        && filter_fits;
    if !in_order {
        return corrupt("filter, index and properties in a row".into(), "invalid offsets".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::block::BlockDamage;
    use super::super::format::TableRandom;
    use super::super::samples::{STORE, env, properties, put, recipe, writer};
    use super::*;
    use crate::filter::FilterPolicy;

    fn sample_meta() -> TableMeta {
        TableMeta {
            id: 7,
            size: 1000,
            index_offset: 500,
            footer_checksum: 0,
            random: TableRandom::new(3, 4),
            filter: FilterMeta { generation: 0, bytes: 100, checksum: 1 },
            entries: 9,
            tombstones: 3,
            keys: 8,
            hidden_bytes: 5,
            prefixes: None,
            is_ingested: false,
            expiries: None,
            contents_bytes: None,
            min_seq: 5,
            max_seq: 20,
            smallest: b"a".to_vec(),
            largest: b"k".to_vec(),
        }
    }

    #[test]
    fn properties_that_differ_in_anything_are_not_those_of_the_manifest() {
        let (meta, of) = (sample_meta(), properties);
        let footer = Footer {
            filter: BlockHandle { offset: 400, length: 95 },
            index: BlockHandle { offset: 500, length: 200 },
            properties: BlockHandle { offset: 700, length: 167 },
            range_tombstones: BlockHandle::default(),
            table: 7,
            store: STORE,
            random: meta.random,
            is_ingested: false,
            has_expiries: false,
            is_compressed: false,
        };
        let record = |properties: &Properties| {
            let meta = TableMeta::of(&footer, &[], meta.size, meta.filter, properties);
            TableMeta { footer_checksum: 0, ..meta }
        };
        assert_eq!(record(&of()), meta);
        for other in [
            Properties { entries: 10, ..of() },
            Properties { tombstones: 2, ..of() },
            Properties { keys: 7, ..of() },
            Properties { hidden_bytes: 4, ..of() },
            Properties { contents_bytes: Some(700), ..of() },
            Properties { min_seq: 6, ..of() },
            Properties { max_seq: 19, ..of() },
            Properties { smallest: b"b".to_vec(), ..of() },
            Properties { largest: b"j".to_vec(), ..of() },
        ] {
            assert_ne!(record(&other), meta);
        }
    }

    #[test]
    fn a_footer_that_differs_in_anything_is_not_the_one_of_the_manifest() {
        // Filter, index, properties and footer, one after the other.
        let sound = Footer {
            filter: BlockHandle { offset: 395, length: 100 },
            index: BlockHandle { offset: 500, length: 195 },
            properties: BlockHandle { offset: 700, length: 167 },
            range_tombstones: BlockHandle::default(),
            table: 7,
            store: STORE,
            random: sample_meta().random,
            is_ingested: false,
            has_expiries: false,
            is_compressed: false,
        };
        let at = 872;
        let check = |footer: &Footer, generation, footer_checksum: Option<u32>| {
            let bytes = footer.encode(at);
            let mut meta = sample_meta();
            meta.filter.generation = generation;
            meta.footer_checksum = footer_checksum.unwrap_or(Footer::checksum(&bytes));
            check_footer(Path::new("table"), footer, &bytes, at, STORE, &meta)
        };
        check(&sound, 0, None).expect("sound");
        check(&sound, 0, Some(1)).expect_err("another checksum");

        let without_filter = Footer { filter: BlockHandle::default(), ..sound };
        let shorter_filter = Footer { filter: BlockHandle { offset: 400, length: 95 }, ..sound };
        for footer in [without_filter, shorter_filter] {
            check(&footer, 0, None).expect_err("the manifest names a filter of another length");
            check(&footer, 1, None).expect("its filter lies beside it");
        }
        let moved = |handle: BlockHandle| BlockHandle { offset: handle.offset + 1, ..handle };
        let longer = |handle: BlockHandle| BlockHandle { length: handle.length + 1, ..handle };
        for other in [
            Footer { store: STORE + 1, ..sound },
            Footer { table: 8, ..sound },
            Footer { random: TableRandom::new(8, 9), ..sound },
            Footer { range_tombstones: sound.index, ..sound },
            Footer { filter: moved(sound.filter), ..sound },
            Footer { index: moved(sound.index), ..sound },
            Footer { index: longer(sound.index), ..sound },
            Footer { properties: moved(sound.properties), ..sound },
            Footer { properties: longer(sound.properties), ..sound },
            // In a row, but not where the manifest has them.
            Footer {
                filter: BlockHandle { offset: 396, length: 100 },
                index: BlockHandle { offset: 501, length: 194 },
                ..sound
            },
        ] {
            for generation in [0, 1] {
                check(&other, generation, None).expect_err("another footer");
            }
        }
    }

    #[test]
    fn a_table_alone_has_its_own_metadata() {
        let dir = crate::tempdir::tempdir();
        let env = env(dir.path());
        let recipe = recipe(&FilterPolicy::default());
        for (id, recipe) in [(1, None), (2, Some(recipe))] {
            let mut writer = writer(&env, id, 100, recipe.as_ref());
            for i in 0..50_u64 {
                writer.add(put(&i.to_be_bytes(), i + 9, b"v")).expect("written");
            }
            let meta = writer.finish(recipe).expect("finished").keep().meta;
            let read = Table::meta_of_file(&env, id).expect("sound");
            assert_eq!(read, (meta, STORE));
        }
    }

    #[test]
    fn an_error_within_a_block_has_the_offset_in_the_file() {
        let dir = crate::tempdir::tempdir();
        let env = env(dir.path());
        let mut writer = writer(&env, 1, 100, None);
        writer.add(put(b"key", 1, b"value")).expect("written");
        let meta = writer.finish(None).expect("finished").keep().meta;
        let table = Table::open(&env, meta).expect("sound").table;
        let handle = BlockHandle { offset: 100, length: 50 };
        let damage = BlockDamage { offset: 7, expected: "an entry" };
        for (is_compressed, place, expected) in [
            (false, 107, "an entry"),
            (true, 100, "an entry at offset 7 of a data block's contents"),
        ] {
            let file = DataFile { is_compressed, ..table.file() };
            match file.damaged(handle, damage) {
                Error::Corrupt { path, offset, expected: found, .. } => {
                    assert_eq!((path, offset), (table.path(), place));
                    assert_eq!(found, expected);
                }
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn only_a_table_that_is_not_there_is_missing() {
        let dir = crate::tempdir::tempdir();
        let env = env(dir.path());
        let open = || Table::open(&env, sample_meta()).map(|_| ()).expect_err("no table");
        assert!(matches!(open(), Error::Missing { .. }), "{}", open());
        let path = dir.path().join(FileName::Table(sample_meta().id).to_string());
        std::os::unix::fs::symlink(&path, &path).expect("a link to itself, which none can open");
        assert!(matches!(open(), Error::Io { .. }), "{}", open());
    }
}
