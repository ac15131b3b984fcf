//! The parts of a table's file, for file layers.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::path::Path;

use super::format::{FOOTER_BYTES, Footer, check_data_block};
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
}
