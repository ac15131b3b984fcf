//! The parts of a table's file, for file layers.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::path::Path;

use super::format::{BlockType, FOOTER_BYTES, Footer, check_block, check_data_block};
use crate::error::{Error, IoContext, Result};
use crate::vfs::VfsFile;

/// The parts of an SSTable, from its footer: for a [file layer](crate::vfs) that keeps them in different places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableLayout {
    footer: Footer,
    bytes: u64,
}

impl TableLayout {
    /// Reads the footer of a file of `bytes` bytes. One read.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`]; [`Error::Unsupported`]. `path` is the one in the error.
    pub fn read(file: &dyn VfsFile, bytes: u64, path: &Path) -> Result<Self> {
        let offset = bytes.checked_sub(FOOTER_BYTES as u64).ok_or_else(|| {
            Error::corrupt(path, 0, "an SSTable", format!("a file of {bytes} bytes"))
        })?;
        let read = file.read_new(FOOTER_BYTES, offset);
        let read = read.context(format_args!("read the footer at offset {offset}"), path)?;
        let footer =
            Footer::decode(&read, offset).map_err(|error| error.into_error(path, offset))?;
        let layout = Self { footer, bytes };
        if layout.tail_offset() > offset {
            let found = format!("one that begins at offset {}", layout.tail_offset());
            return Err(Error::corrupt(path, offset, "a tail before the footer", found));
        }
        Ok(layout)
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where the tail begins: filter, index, properties and footer. Data blocks are before it.
    pub fn tail_offset(&self) -> u64 {
        let Footer { filter, index, .. } = self.footer;
        if filter.is_none() { index.offset } else { filter.offset }
    }

    /// The number of the table.
    pub fn number(&self) -> u64 {
        self.footer.table
    }

    /// The id of the store.
    pub fn store(&self) -> u64 {
        self.footer.store
    }

    /// The random bytes of the table: two tables of one number differ in them.
    pub fn random(&self) -> [u8; 16] {
        self.footer.random.bytes()
    }

    /// Whether these bytes are one data block at its place: its checksum, which is bound to the place, is right.
    pub fn is_data_block(&self, offset: u64, bytes: &[u8]) -> bool {
        check_data_block(bytes, self.footer.is_compressed, self.footer.random.salt(), offset)
            .is_ok()
    }

    /// Whether these bytes are the tail of a table of `table_bytes` bytes: the checksums of its footer, filter, index
    /// and properties, which are bound to their places, are right.
    pub fn is_tail(bytes: &[u8], table_bytes: u64) -> bool {
        let Some(from) = table_bytes.checked_sub(bytes.len() as u64) else { return false };
        let Some(footer) = bytes.last_chunk::<FOOTER_BYTES>() else { return false };
        let offset = table_bytes - FOOTER_BYTES as u64;
        let Ok(footer) = Footer::decode(footer, offset) else { return false };
        let layout = Self { footer, bytes: table_bytes };
        let Footer { filter, index, properties, random, .. } = footer;
        let blocks = [
            (filter, BlockType::Filter),
            (index, BlockType::Index),
            (properties, BlockType::Properties),
        ];
        layout.tail_offset() == from
            && blocks.into_iter().filter(|(block, _)| !block.is_none()).all(|(block, of)| {
                let places = block.offset.checked_sub(from).zip(block.end());
                let stored = places.and_then(|(start, end)| {
                    bytes.get(start as usize..end.checked_sub(from)? as usize)
                });
                stored.is_some_and(|stored| {
                    check_block(stored, of, random.salt(), block.offset).is_ok()
                })
            })
    }

    /// Whether these bytes are a filter file of the table `number`, of this generation: its checksum is right.
    pub fn is_filter_file(bytes: &[u8], number: u64, generation: u64) -> bool {
        check_block(bytes, BlockType::Filter, number, generation).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sstable::samples::open_table;

    #[test]
    fn no_wrong_byte_of_a_tail_passes() {
        let dir = crate::tempdir::tempdir();
        let (_, open) = open_table(dir.path());
        let table = std::fs::read(open.table.path()).expect("readable");
        let start = open.table.filter_block().offset as usize;
        let length = table.len() as u64;
        assert!(TableLayout::is_tail(&table[start..], length));
        for wrong in [start - 1, start + 1, table.len() - 1, table.len()] {
            assert!(!TableLayout::is_tail(&table[wrong..], length), "from {wrong}");
        }
        let mut wrong = table.clone();
        for at in start..table.len() {
            wrong[at] ^= 1;
            assert!(!TableLayout::is_tail(&wrong[start..], length), "byte {at}");
            wrong[at] ^= 1;
        }
    }
}
