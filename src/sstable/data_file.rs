//! The file of a table, to read data blocks of: each block is verified at its place.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::path::PathBuf;

use bytes::Bytes;

use super::block::{Block, BlockDamage};
use super::compression::decompress;
use super::env::TableEnv;
use super::format::{BlockHandle, BlockType, TRAILER_BYTES, TableMeta, check_data_block};
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
    /// Whether the table has compressed blocks.
    pub(crate) is_compressed: bool,
}

impl<'a> DataFile<'a> {
    /// Without `meta` there is no block to check.
    pub(crate) fn of(env: &'a TableEnv, id: u64, meta: Option<&TableMeta>) -> Self {
        Self {
            env,
            id,
            salt: meta.map_or(0, |meta| meta.random.salt()),
            number: meta.and_then(TableMeta::number),
            is_compressed: meta.is_some_and(|meta| meta.contents_bytes.is_some()),
        }
    }

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
            .map_err(|found| self.wrong(block, found))
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

    /// The data block in bytes that were read, decompressed.
    pub(crate) fn verified(self, bytes: &Bytes, handle: BlockHandle) -> Result<Block> {
        let checked = check_data_block(bytes, self.is_compressed, self.salt, handle.offset);
        let (is_compressed, stored) = checked.map_err(|found| self.wrong(handle, found))?;
        let contents = if is_compressed {
            decompress(stored).map_err(|found| self.wrong(handle, found))?.into()
        } else {
            bytes.slice_ref(stored)
        };
        Block::new(contents, self.number).map_err(|damage| self.damaged(handle, damage))
    }

    fn wrong(self, handle: BlockHandle, found: String) -> Error {
        Error::corrupt(&self.path(), handle.offset, "a data block", found)
    }

    /// The error of damage in a block. An offset in contents that may be decompressed is none in the file.
    pub(crate) fn damaged(self, handle: BlockHandle, damage: BlockDamage) -> Error {
        let BlockDamage { offset, expected } = damage;
        if self.is_compressed {
            let expected = format!("{expected} at offset {offset} of a data block's contents");
            return Error::corrupt(&self.path(), handle.offset, expected, "an invalid block");
        }
        let offset = handle.offset + offset as u64;
        Error::corrupt(&self.path(), offset, expected, "an invalid block")
    }
}
