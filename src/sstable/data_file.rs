//! The file of a table, to read data blocks of: each block is verified at its place.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::path::PathBuf;

use bytes::Bytes;

use super::block::{Block, BlockDamage};
use super::env::TableEnv;
use super::format::{BlockHandle, BlockType, TRAILER_BYTES, check_block};
use super::large_block::{BlockCheck, check_if_large};
use crate::error::{Error, IoContext, Result};
use crate::key::Seq;
use crate::names::FileName;

#[derive(Clone, Copy)]
pub(crate) struct DataFile<'a> {
    pub(crate) env: &'a TableEnv,
    pub(crate) id: u64,
    /// The salt of the checksums of blocks.
    pub(crate) salt: u64,
    /// The number of all entries, if the table was ingested.
    pub(crate) number: Option<Seq>,
}

impl DataFile<'_> {
    pub(crate) fn path(self) -> PathBuf {
        self.env.path_of(FileName::Table(self.id))
    }

    /// Reads and verifies a data block.
    pub(crate) fn block(self, handle: BlockHandle) -> Result<Block> {
        self.check_if_large(handle)?;
        let length = handle.length + TRAILER_BYTES as u64;
        self.verified(&self.read_into(Vec::new(), handle.offset, length)?.into(), handle)
    }

    /// Checks a data block of many mebibytes before memory is taken for it.
    pub(crate) fn check_if_large(self, block: BlockHandle) -> Result<()> {
        let place =
            BlockCheck { block, of: BlockType::Data, salt: self.salt, bound_to: block.offset };
        if !place.is_large() {
            return Ok(());
        }
        let file = self.env.files.get(self.id, &self.env.dir);
        file.and_then(|file| check_if_large(self.env, &*file, place))
            .context(format_args!("read a block at offset {}", block.offset), &self.path())?
            .map_err(|found| self.wrong_checksum(block, found))
    }

    /// Reads into the memory of `bytes` if it suffices.
    pub(crate) fn read_into(self, mut bytes: Vec<u8>, offset: u64, length: u64) -> Result<Vec<u8>> {
        let file = self.env.files.get(self.id, &self.env.dir);
        let read = file.and_then(|file| {
            if bytes.capacity() < length as usize {
                return file.read_new(length as usize, offset);
            }
            bytes.resize(length as usize, 0);
            file.read_exact_at(&mut bytes, offset).map(|()| bytes)
        });
        read.map_err(|source| Error::Io {
            action: format!("read {length} bytes at offset {offset}"),
            path: self.path(),
            source: source.into(),
        })
    }

    /// The data block in bytes that were read.
    pub(crate) fn verified(self, bytes: &Bytes, handle: BlockHandle) -> Result<Block> {
        let contents = check_block(bytes, BlockType::Data, self.salt, handle.offset)
            .map_err(|found| self.wrong_checksum(handle, found))?;
        Block::new(bytes.slice_ref(contents), self.number)
            .map_err(|damage| self.damaged(handle, damage))
    }

    fn wrong_checksum(self, handle: BlockHandle, found: String) -> Error {
        Error::corrupt(&self.path(), handle.offset, "a data block", found)
    }

    /// The error of damage in a block.
    pub(crate) fn damaged(self, handle: BlockHandle, damage: BlockDamage) -> Error {
        let offset = handle.offset + damage.offset as u64;
        Error::corrupt(&self.path(), offset, damage.expected, "an invalid block")
    }
}
