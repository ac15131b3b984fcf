//! Reads what is sound of a damaged table: each block that passes its checks, found by the index, or without
//! it by the blocks' checksums.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;

use crate::codec::{ChecksumAt, u32_at};
use crate::error::{Error, Result};
use crate::key::{EntryRef, Seq};
use crate::key_range::KeyBounds;
use crate::names::FileName;
use crate::sstable::{
    BlockDamage, BlockHandle, BlockType, DataFile, DecodedBlock, FOOTER_BYTES, Footer, FooterError,
    Index, MAX_BLOCK_BYTES, TRAILER_BYTES, Table, TableEnv, TableMeta, check_block,
};
use crate::vfs::VfsFile;

/// The bytes that a damaged file is read by, so that a bad sector costs no more than them.
const SECTOR_BYTES: usize = 4096;
/// The bytes that a search reads at once.
const PIECE_BYTES: usize = 64 << 10;

/// Entries that cannot be read.
#[derive(Debug)]
pub(crate) struct LostEntries {
    pub(crate) error: Error,
    /// No other key can be among them …
    pub(crate) keys: KeyBounds,
    /// … and no greater sequence number.
    pub(crate) newest: Seq,
}

/// Walks the sound entries of a table, in order.
#[derive(Debug)]
pub(crate) struct SalvageCursor {
    env: Arc<TableEnv>,
    id: u64,
    /// What is known of the table; `None` without manifest and footer.
    meta: Option<TableMeta>,
    /// Whether that is the manifest's record.
    is_named: bool,
    parts: Vec<Part>,
    /// The next part.
    next: usize,
    current: Option<(DecodedBlock, usize)>,
}

/// A data block, and a key that is at least its last one and less than the next block's first one.
#[derive(Debug)]
struct Part {
    place: BlockHandle,
    end: Vec<u8>,
    /// Whether entries of `end` may follow in the next block.
    is_cut: bool,
}

impl SalvageCursor {
    /// A cursor before the first entry of table `id`, to be advanced. Calls `lose` for entries that the table
    /// must have and that are in none of the blocks found.
    ///
    /// `named` is the manifest's record; without it, that in the file counts.
    pub(crate) fn open(
        env: &Arc<TableEnv>,
        id: u64,
        named: Option<TableMeta>,
        lose: &mut dyn FnMut(LostEntries),
    ) -> Result<Self> {
        let is_named = named.is_some();
        let found = named.map_or_else(|| Ok(Table::meta_of_file(env, id)?.0), Ok);
        let (env, meta) = (Arc::clone(env), found.as_ref().ok().cloned());
        let mut cursor =
            Self { env, id, meta, is_named, parts: Vec::new(), next: 0, current: None };
        let error = match found.and_then(|meta| Table::open_data(&cursor.env, meta)) {
            Ok(table) => {
                cursor.parts = parts(&table.index());
                return Ok(cursor);
            }
            Err(error @ Error::Unsupported { .. }) => return Err(error),
            Err(error) => error,
        };
        if !cursor.find_blocks()? {
            let keys = (cursor.begin(cursor.parts.len()), cursor.largest());
            lose(LostEntries { error, keys, newest: cursor.newest() });
        }
        Ok(cursor)
    }

    pub(crate) fn entry(&self) -> Option<EntryRef<'_>> {
        let (block, number) = self.current.as_ref()?;
        block.entry(*number)
    }

    /// Moves to the next sound entry. Calls `lose` for each block in between that is not sound.
    pub(crate) fn advance(&mut self, lose: &mut dyn FnMut(LostEntries)) {
        if let Some((block, number)) = &mut self.current {
            *number += 1;
            if *number < block.len() {
                return;
            }
        }
        self.current = None;
        while let Some(part) = self.parts.get(self.next) {
            let (keys, place) =
                ((self.begin(self.next), Bound::Included(part.end.clone())), part.place);
            let read = self.read(place, &keys);
            self.next += 1;
            match read {
                Ok(block) => {
                    self.current = Some((block, 0));
                    return;
                }
                Err(error) => lose(LostEntries { error, keys, newest: self.newest() }),
            }
        }
    }

    fn path(&self) -> PathBuf {
        self.env.path_of(FileName::Table(self.id))
    }

    fn newest(&self) -> Seq {
        // Nothing names an ingested table with the number 0.
        let is_numbered =
            |meta: &&TableMeta| !meta.is_ingested || (self.is_named && meta.max_seq > 0);
        let known = self.meta.as_ref().filter(is_numbered);
        known.map_or(Seq::MAX, |meta| meta.max_seq)
    }

    fn largest(&self) -> Bound<Vec<u8>> {
        let meta = self.meta.as_ref();
        meta.map_or(Bound::Unbounded, |meta| Bound::Included(meta.largest.clone()))
    }

    /// Where the keys of a part begin.
    fn begin(&self, number: usize) -> Bound<Vec<u8>> {
        match number.checked_sub(1).and_then(|before| self.parts.get(before)) {
            Some(Part { end, is_cut: true, .. }) => Bound::Included(end.clone()),
            Some(Part { end, .. }) => Bound::Excluded(end.clone()),
            None => {
                let meta = self.meta.as_ref();
                meta.map_or(Bound::Unbounded, |meta| Bound::Included(meta.smallest.clone()))
            }
        }
    }

    fn file(&self) -> DataFile<'_> {
        DataFile::of(&self.env, self.id, self.meta.as_ref())
    }

    /// Reads a block that has only keys within these bounds, and checks everything.
    fn read(&self, place: BlockHandle, keys: &KeyBounds) -> Result<DecodedBlock> {
        let damaged = |damage| self.file().damaged(place, damage);
        let block = self.file().block(place)?.decode().map_err(damaged)?;
        let ends = block.entry(0).zip(block.entry(block.len().saturating_sub(1)));
        let in_place = ends.is_some_and(|(first, last)| {
            let begins = match &keys.0 {
                Bound::Unbounded => true,
                Bound::Included(key) => key.as_slice() <= first.key,
                Bound::Excluded(key) => key.as_slice() < first.key,
            };
            begins && !matches!(&keys.1, Bound::Included(key) if last.key > key.as_slice())
        });
        let seqs = self.meta.as_ref().map_or(1..=Seq::MAX, |meta| meta.min_seq..=meta.max_seq);
        if in_place && block.seqs().all(|seq| seqs.contains(&seq)) {
            return Ok(block);
        }
        let expected = "keys and sequence numbers that belong into this block";
        Err(damaged(BlockDamage { offset: 0, expected }))
    }

    /// Finds the blocks of a table that does not open. Returns whether they have all entries of the table.
    /// Without manifest and footer, nothing has the salt of its blocks.
    fn find_blocks(&mut self) -> Result<bool> {
        let Some(meta) = self.meta.clone() else { return Ok(false) };
        let file = self.env.files.get(self.id, &self.env.dir);
        let Some((length, file)) = file.ok().and_then(|file| Some((file.length().ok()?, file)))
        else {
            return Ok(false);
        };
        let file =
            DamagedFile { file: &*file, end: length.min(meta.size), salt: meta.random.salt() };
        Ok(!self.is_foreign(&file, &meta)?
            && (self.find_index(&file, &meta) || self.find_parts(&file, &meta)))
    }

    /// Whether the file has a sound footer that is another table's. A file without a sound footer is taken for
    /// this table: its blocks have its salt, and all else is checked.
    fn is_foreign(&self, file: &DamagedFile<'_>, meta: &TableMeta) -> Result<bool> {
        let Some(offset) = file.end.checked_sub(FOOTER_BYTES as u64) else { return Ok(false) };
        let footer = file.read(offset, FOOTER_BYTES);
        match Footer::decode(&footer, offset) {
            Ok(found) => {
                let of_table = Footer::checksum(&footer) == meta.footer_checksum;
                Ok(!of_table || found.store != self.env.store)
            }
            Err(FooterError::Damaged(_)) => Ok(false),
            Err(error) => Err(error.into_error(&self.path(), offset)),
        }
    }

    /// Finds a sound index where the manifest or the footer says that it begins. Returns whether it is there.
    fn find_index(&mut self, file: &DamagedFile<'_>, meta: &TableMeta) -> bool {
        let found = file.find_block(meta.index_offset, &[BlockType::Index]);
        let bytes = found.map(|at| file.read(at.offset, at.length as usize + TRAILER_BYTES));
        // Verified again: a second read may have other bytes.
        let contents = bytes.as_deref().and_then(|bytes| {
            check_block(bytes, BlockType::Index, file.salt, meta.index_offset).ok()
        });
        let index = contents.and_then(Index::new).filter(|index| {
            index.check(&meta.largest).is_some() && index.data_end() <= meta.index_offset
        });
        self.parts = index.map_or(Vec::new(), |index| parts(&index));
        !self.parts.is_empty()
    }

    /// Finds the data blocks of the file without its index, up to the first that is not sound. Returns whether
    /// they have all entries of the table.
    fn find_parts(&mut self, file: &DamagedFile<'_>, meta: &TableMeta) -> bool {
        let (mut offset, mut entries) = (0, 0);
        let types = [BlockType::Data, BlockType::CompressedData];
        while let Some(place) = file.find_block(offset, &types) {
            let keys = (self.begin(self.parts.len()), self.largest());
            let Ok(block) = self.read(place, &keys) else { break };
            let Some(last) = block.entry(block.len() - 1) else { break };
            self.parts.push(Part { place, end: last.key.to_vec(), is_cut: true });
            entries += block.len() as u64;
            offset = place.end().unwrap_or(u64::MAX);
        }
        meta.entries == entries
    }
}

/// The file of a table, of which parts cannot be read.
struct DamagedFile<'a> {
    file: &'a dyn VfsFile,
    /// The end of the file, or the length that it must have.
    end: u64,
    salt: u64,
}

impl DamagedFile<'_> {
    /// At most `length` bytes at `offset`, with zeros where they cannot be read.
    fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let length = self.end.saturating_sub(offset).min(length as u64) as usize;
        self.file.read_new(length, offset).unwrap_or_else(|_| {
            let mut bytes = vec![0; length];
            for (number, sector) in bytes.chunks_mut(SECTOR_BYTES).enumerate() {
                let at = offset + (number * SECTOR_BYTES) as u64;
                if self.file.read_exact_at(sector, at).is_err() {
                    sector.fill(0);
                }
            }
            bytes
        })
    }

    /// The block of one of these types at an offset: its end is where its checksum is right. Reads the file piece by piece.
    fn find_block(&self, offset: u64, of: &[BlockType]) -> Option<BlockHandle> {
        let is_type = |byte: u8| of.iter().any(|of| byte == *of as u8);
        let mut checksum = ChecksumAt::new(self.salt, offset);
        let end = self.end.min(offset.saturating_add(MAX_BLOCK_BYTES));
        for start in (offset..end).step_by(PIECE_BYTES) {
            let bytes = self.read(start, PIECE_BYTES + size_of::<u32>());
            let piece = bytes.get(..PIECE_BYTES.min(bytes.len())).unwrap_or_default();
            let mut behind = 0;
            // Only the byte of the type can end the block.
            for (at, _) in piece.iter().enumerate().filter(|(_, byte)| is_type(**byte)) {
                checksum.update(piece.get(behind..=at)?);
                behind = at + 1;
                if u32_at(&bytes, behind) == Some(checksum.clone().finish()) {
                    return Some(BlockHandle { offset, length: start + at as u64 - offset });
                }
            }
            checksum.update(piece.get(behind..)?);
        }
        None
    }
}

fn parts(index: &Index<'_>) -> Vec<Part> {
    let cuts: BTreeSet<u32> = index.cuts().map(|(number, _)| number).collect();
    let part = |number| {
        let (place, end) = (index.block(number)?, index.separator(number)?.to_vec());
        Some(Part { place, end, is_cut: cuts.contains(&(number as u32)) })
    };
    (0..index.len()).filter_map(part).collect()
}
