//! The filter of a table: read as the manifest describes it, verified, resident; or rebuilt into a file
//! beside the table. See format.md, "Filter".

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

mod block;
mod header;
mod load;
mod memory;
mod portion;

use std::io;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) use self::block::{Filter, FilterId, block_bits, build};
pub(crate) use self::header::{FilterHeader, is_of_old_kind};
pub(crate) use self::memory::{FilterMemory, resident_bytes};
pub(crate) use self::portion::Portion;
use crate::codec::{ChecksumAt, u32_at};
use crate::error::{Error, IoContext, Result};
use crate::filter::{KeyHashes, LookupKey, PrefixExtractor, PrefixHash, machine_memory};
use crate::iter::{Cursor, Direction};
use crate::key::Seq;
use crate::ledger::Verdict;
use crate::names::FileName;
use crate::sealed::SealedBytes;
use crate::sstable::cursor::{ReadPlan, TableCursor};
use crate::sstable::env::TableEnv;
use crate::sstable::format::{
    BlockHandle, BlockType, FilterMeta, TRAILER_BYTES, TableMeta, check_block, seal_block,
};
use crate::sstable::large_block::{BlockCheck, LARGE_BYTES, check_if_large};
use crate::sstable::reader::Table;
use crate::sync::{AtomicBool, Ordering};
use crate::vfs::VfsFile;
use criba_filter::store::Recipe;

#[derive(Debug)]
pub(crate) enum FilterState {
    /// No filter is wanted for this table.
    None,
    /// Verified and in use, as a whole or in part.
    Active(Filter),
    /// Stored, but not resident, because of the memory budget.
    NotResident(FilterHeader),
    /// Unusable, for this reason.
    Degraded(String),
}

/// The filter of a table, in the manifest and in memory. Dropping an obsolete one removes its file.
#[derive(Debug)]
pub(crate) struct TableFilter {
    env: Arc<TableEnv>,
    table: u64,
    pub(crate) meta: FilterMeta,
    pub(crate) state: FilterState,
    obsolete: AtomicBool,
}

impl TableFilter {
    pub(crate) fn new(
        env: &Arc<TableEnv>,
        table: u64,
        meta: FilterMeta,
        state: FilterState,
    ) -> Self {
        let obsolete = AtomicBool::new(false);
        Self { env: Arc::clone(env), table, meta, state, obsolete }
    }

    pub(crate) fn in_state(&self, state: FilterState) -> Self {
        Self::new(&self.env, self.table, self.meta, state)
    }

    /// What the filter says. No I/O.
    #[inline]
    pub(crate) fn verdict(&self, key: &LookupKey<'_>) -> Verdict {
        match &self.state {
            FilterState::None => Verdict::Unfiltered,
            FilterState::NotResident(_) => Verdict::NotResident,
            FilterState::Degraded(_) => Verdict::Degraded,
            FilterState::Active(filter) if filter.may_contain(key) => Verdict::Maybe,
            FilterState::Active(_) => Verdict::No,
        }
    }

    /// The filter's answer for all keys with these prefixes, the shortest first. No I/O.
    pub(crate) fn prefix_verdict(
        &self,
        extractor: PrefixExtractor,
        prefixes: &[PrefixHash],
    ) -> Verdict {
        match &self.state {
            FilterState::None => Verdict::Unfiltered,
            FilterState::NotResident(_) => Verdict::NotResident,
            FilterState::Degraded(_) => Verdict::Degraded,
            FilterState::Active(filter) => match filter.may_contain_prefixes(extractor, prefixes) {
                Some(true) => Verdict::Maybe,
                Some(false) => Verdict::No,
                None => Verdict::Unfiltered,
            },
        }
    }

    /// Lets the last reference remove the filter's own file. The manifest must durably name another filter,
    /// or not name the table.
    pub(crate) fn make_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }
}

impl Drop for TableFilter {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire)
            && self.env.birth.is_this_process()
            && let Some(name) = self.meta.file_of(self.table)
        {
            // Nothing refers to the file. Left behind by a failure, it goes at the next open.
            let _ = self.env.dir.remove(name);
        }
    }
}

impl FilterMeta {
    /// The own file of this filter of a table, if it has one.
    pub(crate) fn file_of(&self, table: u64) -> Option<FileName> {
        let Self { generation, bytes, .. } = *self;
        (generation > 0 && bytes > 0).then_some(FileName::Filter { table, generation })
    }
}

/// The piece of a file that is read at once.
const PIECE_BYTES: u64 = 64 << 10;

/// Whether a filter file soundly names another store's hash key. Reads it piece by piece: its length bounds no
/// allocation.
pub(crate) fn is_under_another_key(env: &TableEnv, table: u64, generation: u64) -> Result<bool> {
    let name = FileName::Filter { table, generation };
    let path = env.path_of(name);
    let file = env.dir.open_file(name).context("open", &path)?;
    let length = file.length().context("find the length", &path)?;
    let read = |offset: u64, length: u64| {
        let read = file.read_new(length as usize, offset);
        read.context(format_args!("read {length} bytes at offset {offset}"), &path)
    };
    let Some(end) = length.checked_sub(4) else { return Ok(false) };
    let header = read(0, end.min(FilterHeader::BYTES as u64))?;
    let found = FilterHeader::fingerprint_of(&header);
    if found.is_none_or(|found| found == env.hash_key.fingerprint()) {
        return Ok(false);
    }
    let mut checksum = ChecksumAt::new(table, generation);
    for offset in (0..end).step_by(PIECE_BYTES as usize) {
        checksum.update(&read(offset, PIECE_BYTES.min(end - offset))?);
    }
    Ok(u32_at(&read(end, 4)?, 0) == Some(checksum.finish()))
}

/// A table and the filter in use.
#[derive(Debug, Clone)]
pub(crate) struct OpenTable {
    pub(crate) table: Arc<Table>,
    pub(crate) filter: Arc<TableFilter>,
}

impl OpenTable {
    /// This table with the number of its ingest. No other thread has the table yet.
    pub(crate) fn with_number(mut self, number: Seq) -> Self {
        let alone = Arc::get_mut(&mut self.table);
        debug_assert!(alone.is_some(), "a table gets its number before it is installed");
        if let Some(table) = alone {
            table.set_number(number);
        }
        self
    }

    pub(crate) fn record(&self) -> TableMeta {
        TableMeta { filter: self.filter.meta, ..self.table.meta().clone() }
    }

    /// The file of the filter, and the offset in it.
    pub(crate) fn filter_location(&self) -> (PathBuf, u64) {
        match self.filter.meta.file_of(self.table.id()) {
            Some(name) => (self.table.env().dir.path_of(name), 0),
            None => (self.table.path(), self.table.filter_block().offset),
        }
    }

    /// Probes the filter with every key of the table. Fails if it is degraded or denies a key. The hashes are
    /// those of the filter's recipe.
    pub(crate) fn verify_filter(&self, hashes: &KeyHashes) -> Result<()> {
        let (path, offset) = self.filter_location();
        match &self.filter.state {
            FilterState::None | FilterState::NotResident(_) => Ok(()),
            FilterState::Active(filter) => {
                match hashes.iter().position(|hash| !filter.may_contain_hash(hash)) {
                    None => Ok(()),
                    Some(key) => Err(Error::FilterLies { path, key: key as u64 }),
                }
            }
            FilterState::Degraded(reason) => {
                Err(Error::corrupt(&path, offset, "a sound filter", reason))
            }
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "`map_err` gives it by value")]
fn unreadable(error: io::Error) -> String {
    format!("it cannot be read: {error}")
}

pub(super) struct FilterSource {
    pub(super) file: Arc<dyn VfsFile>,
    pub(super) block: BlockHandle,
    /// Inputs of the checksum: the salt and the offset in the table; or the table and the generation of a file.
    pub(super) salt: u64,
    pub(super) bound_to: u64,
}

impl Table {
    /// Opens a table of the manifest with one disk read, and one more for the filter. Everything but the
    /// filter must be sound; an unsound filter is degraded.
    pub(crate) fn open(env: &Arc<TableEnv>, meta: TableMeta) -> Result<OpenTable> {
        let table = Self::open_data(env, meta)?;
        let filter = Arc::new(table.load_filter(table.meta().filter));
        Ok(OpenTable { table, filter })
    }

    /// Reads the filter of `meta` into sealed memory with one disk read. The table stays usable whatever is
    /// wrong with the filter.
    pub(crate) fn load_filter(&self, meta: FilterMeta) -> TableFilter {
        self.filter_from(meta, |source| self.read_filter(source, meta).map(FilterState::Active))
    }

    /// As `load_filter`, but reads only the header, and nothing is resident.
    pub(crate) fn load_filter_header(&self, meta: FilterMeta) -> TableFilter {
        let stored = |source: &FilterSource| {
            let mut header = [0; FilterHeader::BYTES];
            let length = header.len().min(source.block.length as usize);
            let header = header.get_mut(..length).unwrap_or_default();
            let read = source.file.read_exact_at(header, source.block.offset);
            self.env().ledger.open_reads.count(length as u64);
            read.map_err(unreadable)?;
            let (length, keys) = (source.block.length as usize, self.meta().keys);
            FilterHeader::decode(header, length, keys, &self.env().hash_key)
        };
        self.filter_from(meta, |source| stored(source).map(FilterState::NotResident))
    }

    fn filter_from(
        &self,
        meta: FilterMeta,
        load: impl FnOnce(&FilterSource) -> std::result::Result<FilterState, String>,
    ) -> TableFilter {
        let source = self.filter_source(meta);
        let state = source.and_then(|source| source.as_ref().map_or(Ok(FilterState::None), load));
        TableFilter::new(self.env(), self.id(), meta, state.unwrap_or_else(FilterState::Degraded))
    }

    /// Finds the filter block of `meta`; `None` if there is none.
    pub(super) fn filter_source(
        &self,
        meta: FilterMeta,
    ) -> std::result::Result<Option<FilterSource>, String> {
        let env = self.env();
        if meta.generation == 0 {
            let block = self.filter_block();
            if block.is_none() {
                return Ok(None);
            }
            let file = env.files.get(self.id(), &env.dir).map_err(unreadable)?;
            let source = FilterSource { file, block, salt: self.salt(), bound_to: block.offset };
            self.check_if_long(&source)?;
            return Ok(Some(source));
        }
        let Some(name) = meta.file_of(self.id()) else { return Ok(None) };
        let file = env.dir.open_file(name).map_err(unreadable)?;
        // Before memory is taken for what the manifest promises.
        let length = file.length().map_err(unreadable)?;
        if Some(length) != meta.bytes.checked_add(TRAILER_BYTES as u64) {
            return Err(format!("its file has {length} bytes"));
        }
        let block = BlockHandle { offset: 0, length: meta.bytes };
        let source = FilterSource { file, block, salt: self.id(), bound_to: meta.generation };
        self.check_if_long(&source)?;
        Ok(Some(source))
    }

    /// Compares the length of a long filter with its header before all of it is read.
    fn check_if_long(&self, source: &FilterSource) -> std::result::Result<(), String> {
        let FilterSource { file, block, .. } = source;
        if block.length <= LARGE_BYTES {
            return Ok(());
        }
        let env = self.env();
        env.ledger.check_reads.count(FilterHeader::BYTES as u64);
        let header = file.read_new(FilterHeader::BYTES, block.offset).map_err(unreadable)?;
        let length = block.length as usize;
        match FilterHeader::decode(&header, length, self.meta().keys, &env.hash_key) {
            // The checksum decides first whether it is damaged.
            Err(reason) if !is_of_old_kind(&reason) => Err(reason),
            _ => Ok(()),
        }
    }

    /// Reads a whole filter with one disk read. Fails with what is wrong with it.
    pub(super) fn read_filter(
        &self,
        source: &FilterSource,
        meta: FilterMeta,
    ) -> std::result::Result<Filter, String> {
        let env = self.env();
        let FilterSource { file, block, salt, bound_to } = source;
        let resident = env.filter_memory.meter().bytes();
        if block.length > LARGE_BYTES && resident.saturating_add(block.length) > machine_memory() {
            let (length, memory) = (block.length, machine_memory());
            return Err(format!(
                "with its {length} bytes, filters have more than this machine's memory of {memory}"
            ));
        }
        let of = BlockType::Filter;
        let checked = BlockCheck { block: *block, of, salt: *salt, bound_to: *bound_to };
        check_if_large(env, &**file, checked)
            .map_err(unreadable)?
            .map_err(|found| format!("its block has {found}"))?;
        let length = block.length as usize + TRAILER_BYTES;
        let read = |buffer: &mut [u8]| file.read_exact_at(buffer, block.offset);
        let memory = SealedBytes::metered(length, env.filter_memory.meter(), read);
        env.ledger.open_reads.count(length as u64);
        let memory = memory.map_err(unreadable)?;
        let length = check_block(&memory, BlockType::Filter, *salt, *bound_to)
            .map_err(|found| format!("its block has {found}"))?
            .len();
        if u32_at(&memory, length + 1) != Some(meta.checksum) {
            return Err("it is not the filter that the manifest names".into());
        }
        Filter::decode(memory, length, self.meta().keys, &env.hash_key)
    }

    /// The hashes of the distinct user keys and of their prefixes, from a scan of all data blocks. Calls
    /// `cancelled` now and then.
    pub(crate) fn key_hashes(
        self: &Arc<Self>,
        recipe: &Recipe,
        extractor: Option<PrefixExtractor>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<KeyHashes> {
        let (table, plan) = (Arc::clone(self), ReadPlan::Rebuilding);
        let mut cursor = TableCursor::new(table, Direction::Forward, Bound::Unbounded, plan)?;
        let mut hashes = KeyHashes::new(recipe.hash, &self.env().hash_key, extractor);
        let mut entries = 0_u64;
        while let Some(entry) = cursor.entry() {
            if entries.is_multiple_of(4096) && cancelled() {
                return Err(Error::Closed);
            }
            entries += 1;
            hashes.add(entry.key);
            cursor.advance()?;
        }
        let (found, meta) = (hashes.counts().keys, self.meta());
        if (found, entries) != (meta.keys, meta.entries) {
            let expected = format!("{} distinct keys in {} entries", meta.keys, meta.entries);
            return Err(Error::corrupt(&self.path(), 0, expected, format!("{found} in {entries}")));
        }
        Ok(hashes)
    }

    /// Writes a filter of these hashes beside the table, in a synced file of a later generation than
    /// `generation`. The caller makes the manifest refer to it.
    pub(crate) fn write_filter(
        &self,
        recipe: &Recipe,
        hashes: &KeyHashes,
        mut generation: u64,
    ) -> Result<FilterMeta> {
        let (env, table) = (self.env(), self.id());
        let new = loop {
            generation += 1;
            match env.dir.create(FileName::Filter { table, generation }) {
                // Left by a failure, and not yet removed. It is never written over.
                Err(error) if error.is_io(io::ErrorKind::AlreadyExists) => {}
                new => break new?,
            }
        };
        let id = FilterId { table, generation };
        let mut bytes = build(recipe, &env.hash_key, id, hashes);
        let length = bytes.len() as u64;
        seal_block(&mut bytes, BlockType::Filter, table, generation);
        let written = new.file().append(&bytes);
        written.context(format_args!("write {} bytes", bytes.len()), new.path())?;
        new.file().sync_all().context("sync", new.path())?;
        env.dir.sync()?;
        new.keep();
        env.ledger.filter_writes.count(bytes.len() as u64);
        let checksum = bytes.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        Ok(FilterMeta { generation, bytes: length, checksum })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::FilterPolicy;
    use crate::sstable::samples::{open_table, recipe};

    #[test]
    fn a_new_filter_is_never_written_over_what_a_failure_left() {
        let dir = crate::tempdir::tempdir();
        let (env, open) = open_table(dir.path());
        let recipe = recipe(&FilterPolicy::default());
        let hashes = open.table.key_hashes(&recipe, None, &|| false).expect("sound");
        let path =
            |generation| dir.path().join(FileName::Filter { table: 1, generation }.to_string());
        for generation in [4, 5] {
            std::fs::write(path(generation), "left").expect("writable");
        }
        let newer = open.table.write_filter(&recipe, &hashes, 3).expect("written");
        assert_eq!(newer.generation, 6);
        for generation in [4, 5] {
            assert_eq!(std::fs::read(path(generation)).expect("still there"), b"left");
        }

        let filter = Arc::new(open.table.load_filter(newer));
        let with_newer = OpenTable { table: Arc::clone(&open.table), filter };
        with_newer.verify_filter(&hashes).expect("a filter of the table's keys");
        assert_eq!(open.record(), *open.table.meta());
        assert_eq!(with_newer.record(), TableMeta { filter: newer, ..open.record() });

        // Any other failure is an error, not a reason for another name.
        std::fs::remove_dir_all(env.dir.path()).expect("removed");
        open.table.write_filter(&recipe, &hashes, 6).expect_err("no directory");
    }

    #[test]
    fn long_filters_stay_within_the_memory_of_the_machine() {
        let dir = crate::tempdir::tempdir();
        let (env, open) = open_table(dir.path());
        let is_degraded = |bits: u64, generation| {
            let recipe = recipe(&FilterPolicy::classic().with_geometry(bits, 3));
            let hashes = open.table.key_hashes(&recipe, None, &|| false).expect("sound");
            let meta = open.table.write_filter(&recipe, &hashes, generation).expect("written");
            matches!(open.table.load_filter(meta).state, FilterState::Degraded(_))
        };
        let long = 8 * LARGE_BYTES;
        assert!(!is_degraded(long, 4));
        let meter = env.filter_memory.meter();
        let all = crate::sealed::Metered::new(meter, machine_memory() - LARGE_BYTES);
        assert!(is_degraded(long, 5) && !is_degraded(1024, 6));
        drop(all);
        assert!(!is_degraded(long, 7));
    }
}
