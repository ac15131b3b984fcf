//! Checks a whole table and reports everything that is wrong with it.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use super::block::{BlockDamage, DecodedBlock};
use super::env::TableEnv;
use super::expiries::ExpiryCounts;
use super::filter::{FilterState, OpenTable, is_of_old_kind};
use super::format::{BlockType, FilterMeta, Properties};
use super::large_block::{self, BlockCheck};
use super::reader::Table;
use crate::error::{Error, IoContext, Result};
use crate::filter::{LookupKey, PrefixHash};
use crate::key::EntryKind;

#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub(crate) blocks: u64,
    pub(crate) entries: u64,
    pub(crate) keys: u64,
    pub(crate) of_keys: ProbeCount,
    /// The distinct prefixes, if the filter has prefixes.
    pub(crate) of_prefixes: ProbeCount,
    /// Damage of the filter block in the table, if a filter beside the table has replaced it.
    pub(crate) unused_filter: Option<Error>,
    /// The filter in use, if it is sound and of a kind that stores no longer have.
    pub(crate) old_filter: Option<Error>,
}

/// The number of probes of a filter, and of those that it denied.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProbeCount {
    pub(crate) probed: u64,
    pub(crate) denied: u64,
}

/// The probes of one kind, and the first denied one.
#[derive(Default)]
struct Probes {
    counts: ProbeCount,
    first_denied: Option<Vec<u8>>,
}

impl Probes {
    fn count(&mut self, what: &[u8], passes: bool) {
        self.counts.probed += 1;
        if !passes {
            self.counts.denied += 1;
            self.first_denied.get_or_insert_with(|| what.to_vec());
        }
    }

    /// What is wrong, if anything was denied.
    fn finding(&self, nouns: &str) -> Option<String> {
        let ProbeCount { probed, denied } = self.counts;
        self.first_denied.as_ref().map(|first| {
            let first = first.escape_ascii().to_string();
            format!("one that denies {denied} of {probed} {nouns}, first {first:?}")
        })
    }
}

impl OpenTable {
    /// Checks everything that opening the table does not: checksum and place of each block, order and number
    /// of entries and keys, the state of the filter, and its answer for each key and prefix. Calls `find` for
    /// each error. Reads the whole file.
    pub(crate) fn check(&self, find: &mut dyn FnMut(Error)) -> Checked {
        let mut checked = Checked::default();
        let (path, offset) = self.filter_location();
        let filter = match &self.filter.state {
            FilterState::None | FilterState::NotResident(_) => None,
            FilterState::Active(filter) => Some(filter),
            FilterState::Degraded(reason) => {
                let error = Error::corrupt(&path, offset, "a sound filter", reason);
                if is_of_old_kind(reason) {
                    checked.old_filter = Some(error);
                } else {
                    find(error);
                }
                None
            }
        };
        self.table.check_padding().unwrap_or_else(&mut *find);

        let TableEnv { hash_key, prefix_hash_key, .. } = &**self.table.env();
        if self.filter.meta.generation > 0 {
            checked.unused_filter = self.table.check_filter_block().err();
        }
        let mut seen = Properties::default();
        let mut expiries = ExpiryCounts::default();
        let (mut keys, mut prefixes) = (Probes::default(), Probes::default());
        // A scan uses the prefix filter only if the extractor of its store made it.
        let extractor = filter.and_then(|filter| filter.header().extractor());
        let (mut whole, mut contents_bytes) = (true, 0);
        for number in 0..self.table.index().len() {
            checked.blocks += 1;
            let block = match self.table.decoded_block(number) {
                Ok(block) => block,
                Err(error) => {
                    find(error);
                    whole = false;
                    continue;
                }
            };
            contents_bytes += block.bytes() as u64;
            for entry in (0..block.len()).filter_map(|number| block.entry(number)) {
                if seen.entries == 0 {
                    seen.smallest = entry.key.to_vec();
                    seen.min_seq = entry.seq;
                }
                let before = (seen.entries > 0).then_some(seen.largest.as_slice());
                if before == Some(entry.key) {
                    seen.hidden_bytes += (entry.key.len() + entry.value.len()) as u64;
                } else {
                    if let Some(filter) = filter {
                        let key = LookupKey::new(entry.key, hash_key, filter.header().hash);
                        keys.count(entry.key, filter.may_contain(&key));
                    }
                    if let (Some(filter), Some(extractor)) = (filter, extractor) {
                        for prefix in extractor.new_prefixes(before, entry.key) {
                            let hash = PrefixHash::new(prefix, prefix_hash_key);
                            let passes = filter.may_contain_hash(hash.get(filter.header().hash));
                            prefixes.count(prefix, passes);
                        }
                    }
                    seen.keys += 1;
                    seen.largest.clear();
                    seen.largest.extend_from_slice(entry.key);
                }
                expiries.add(&entry);
                seen.entries += 1;
                seen.tombstones += u64::from(entry.kind == EntryKind::Delete);
                seen.key_bytes += entry.key.len() as u64;
                seen.value_bytes += entry.value.len() as u64;
                seen.min_seq = seen.min_seq.min(entry.seq);
                seen.max_seq = seen.max_seq.max(entry.seq);
            }
        }
        seen.data_blocks = checked.blocks;
        seen.expiries = expiries.expiries();
        // No compressed block has the length of its contents.
        let is_compressed = contents_bytes != self.table.data_bytes().0;
        seen.contents_bytes = is_compressed.then_some(contents_bytes);
        if self.table.properties().hidden_bytes == 0 {
            // The table may be older than this field.
            seen.hidden_bytes = 0;
        }
        if self.table.properties().is_ingested() {
            // Each block was checked to have no numbers.
            (seen.min_seq, seen.max_seq) = (0, 0);
            seen.ingested_after = self.table.properties().ingested_after;
        }
        (checked.entries, checked.keys) = (seen.entries, seen.keys);
        (checked.of_keys, checked.of_prefixes) = (keys.counts, prefixes.counts);
        for found in [keys.finding("keys"), prefixes.finding("prefixes")].into_iter().flatten() {
            let expected = "a filter that has every key and prefix of its table";
            find(Error::corrupt(&path, offset, expected, found));
        }
        if whole && seen != *self.table.properties() {
            let expected =
                format!("the contents that the properties describe: {:?}", self.table.properties());
            find(Error::corrupt(&self.table.path(), 0, expected, format!("{seen:?}")));
        }
        checked
    }
}

impl Table {
    pub(super) fn decoded_block(&self, number: usize) -> Result<DecodedBlock> {
        let handle = self.handle(number)?;
        let block = self.file().block(handle)?;
        let decoded = block.decode().map_err(|damage| self.file().damaged(handle, damage))?;
        self.check_place(&decoded, number).map_err(|damage| self.file().damaged(handle, damage))?;
        Ok(decoded)
    }

    /// Checks a block against the index and the manifest. Blocks that are in order and in their place make a
    /// table in order; merges rely on it.
    pub(super) fn check_place(
        &self,
        block: &DecodedBlock,
        number: usize,
    ) -> std::result::Result<(), BlockDamage> {
        let (index, meta) = (self.index(), self.meta());
        let ends = block.entry(0).zip(block.entry(block.len().saturating_sub(1)));
        let in_place = ends.is_some_and(|(first, last)| {
            let starts = match number.checked_sub(1) {
                None => first.key == meta.smallest,
                Some(before) => index.separator(before).is_some_and(|key| {
                    let goes_on = |newer| key == first.key && first.seq < newer;
                    key < first.key || self.oldest_before_cut(before).is_some_and(goes_on)
                }),
            };
            let ends = index.separator(number).is_some_and(|separator| {
                match self.oldest_before_cut(number) {
                    Some(oldest) => (last.key, last.seq) == (separator, oldest),
                    None => last.key <= separator,
                }
            });
            starts && ends
        });
        let seqs = meta.min_seq..=meta.max_seq;
        if in_place && block.seqs().all(|seq| seqs.contains(&seq)) {
            return Ok(());
        }
        let expected = "keys and sequence numbers that belong into this block";
        Err(BlockDamage { offset: 0, expected })
    }

    /// Checks that the padding before the filter block is zero: no checksum covers it.
    fn check_padding(&self) -> Result<()> {
        let (start, block) = (self.index().data_end(), self.filter_block());
        let end = if block.is_none() { start } else { block.offset };
        let bytes = self.file().read_into(Vec::new(), start, end.saturating_sub(start))?;
        match bytes.iter().position(|&byte| byte != 0) {
            None => Ok(()),
            Some(at) => {
                let offset = start + at as u64;
                Err(Error::corrupt(
                    &self.path(),
                    offset,
                    "zeros up to the filter",
                    "bytes that are not zero",
                ))
            }
        }
    }

    /// Checks the checksum of the filter block in the table.
    fn check_filter_block(&self) -> Result<()> {
        let block = self.filter_block();
        let damaged = |found| Error::corrupt(&self.path(), block.offset, "a filter block", found);
        let own = FilterMeta::default(); // generation 0
        let Some(source) = self.filter_source(own).map_err(damaged)? else { return Ok(()) };
        let (of, salt) = (BlockType::Filter, source.salt);
        let whole = BlockCheck { block, of, salt, bound_to: source.bound_to };
        large_block::check(self.env(), &*source.file, whole)
            .context(format_args!("read a block at offset {}", block.offset), &self.path())?
            .map_err(damaged)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::block::{Block, BlockBuilder};
    use super::super::format::TRAILER_BYTES;
    use super::super::samples::{open_table, put, recipe};
    use super::*;
    use crate::filter::FilterPolicy;
    use crate::key::Seq;

    fn flip(table: &Table, offset: u64) {
        let mut bytes = std::fs::read(table.path()).expect("readable");
        bytes[offset as usize] ^= 1;
        std::fs::write(table.path(), bytes).expect("writable");
    }

    fn findings(open: &OpenTable) -> Vec<u64> {
        let mut offsets = Vec::new();
        let checked = open.check(&mut |error| offsets.push(offset_of(open, error)));
        offsets.extend(checked.unused_filter.map(|error| offset_of(open, error)));
        offsets
    }

    fn offset_of(open: &OpenTable, error: Error) -> u64 {
        match error {
            Error::Corrupt { path, offset, .. } if path == open.table.path() => offset,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn bytes_between_data_and_filter_are_zeros() {
        let dir = crate::tempdir::tempdir();
        let (_env, open) = open_table(dir.path());
        let (start, end) = (open.table.index().data_end(), open.table.filter_block().offset);
        assert!(end - start > 2, "the sample has padding");
        assert_eq!(findings(&open), []);
        for offset in start..end {
            flip(&open.table, offset);
            assert_eq!(findings(&open), [offset]);
            flip(&open.table, offset);
        }
    }

    #[test]
    fn a_damaged_filter_block_is_found_once_whether_it_is_in_use_or_not() {
        let dir = crate::tempdir::tempdir();
        let (env, open) = open_table(dir.path());
        let recipe = recipe(&FilterPolicy::default());
        let hashes = open.table.key_hashes(&recipe, None, &|| false).expect("sound");
        let newer = open.table.write_filter(&recipe, &hashes, 0).expect("written");
        let block = open.table.filter_block();
        for offset in [block.offset, block.offset + block.length + TRAILER_BYTES as u64 - 1] {
            for filter in [open.table.meta().filter, newer] {
                let reopen = || {
                    let filter = Arc::new(open.table.load_filter(filter));
                    OpenTable { table: Arc::clone(&open.table), filter }
                };
                assert_eq!(findings(&reopen()), []);
                flip(&open.table, offset);
                env.files.forget(open.table.id());
                assert_eq!(findings(&reopen()), [block.offset], "{filter:?}");
                flip(&open.table, offset);
            }
        }
    }

    #[test]
    fn a_block_keeps_to_its_place_and_to_its_tables_sequence_numbers() {
        let dir = crate::tempdir::tempdir();
        let (_env, open) = open_table(dir.path());
        let table = &open.table;
        assert!(table.index().len() > 3);
        let is_in_place = |entries: &[(&[u8], Seq)], number| {
            let mut builder = BlockBuilder::default();
            for &(key, seq) in entries {
                builder.add(put(key, seq, b""));
            }
            let block = Block::new(builder.finish().into(), None).and_then(Block::decode);
            table.check_place(&block.expect("sound"), number).is_ok()
        };
        let [end, next_end] = [0, 1].map(|number| table.index().separator(number).expect("one"));
        let behind = |key: &[u8]| [key, b"+"].concat();
        assert!(is_in_place(&[(b"k00", 100), (end, 139)], 0));
        assert!(!is_in_place(&[(b"k000", 100), (end, 139)], 0), "not the table's first key");
        assert!(!is_in_place(&[(b"k00", 100), (&behind(end), 139)], 0), "beyond its end");
        assert!(is_in_place(&[(&behind(end), 100), (next_end, 139)], 1));
        assert!(!is_in_place(&[(end, 100), (next_end, 139)], 1), "a key of the block before");
        assert!(!is_in_place(&[(&behind(end), 100), (&behind(next_end), 139)], 1));
        assert!(!is_in_place(&[(&behind(end), 99), (next_end, 139)], 1), "too old");
        assert!(!is_in_place(&[(&behind(end), 100), (next_end, 140)], 1), "too new");
    }
}
