//! Blocks of many mebibytes are checked piece by piece before memory is taken for them: a length that a damaged or
//! forged file claims costs no memory.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::io;

use super::env::TableEnv;
use super::format::{BlockHandle, BlockType, TRAILER_BYTES};
use crate::codec::{ChecksumAt, u32_at};
use crate::vfs::VfsFile;

/// Memory for longer blocks is taken after the check.
pub(super) const LARGE_BYTES: u64 = 16 << 20;
const PIECE_BYTES: u64 = 1 << 20;

/// A block of a file, and what its checksum is bound to.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockCheck {
    pub(super) block: BlockHandle,
    pub(super) of: BlockType,
    pub(super) salt: u64,
    /// The offset, or the generation of a filter file.
    pub(super) bound_to: u64,
}

impl BlockCheck {
    pub(super) fn is_large(self) -> bool {
        self.block.length > LARGE_BYTES
    }
}

/// Checks type and checksum of a block if it is long. Returns what is wrong with it.
pub(super) fn check_if_large(
    env: &TableEnv,
    file: &dyn VfsFile,
    block_check: BlockCheck,
) -> io::Result<Result<(), String>> {
    if block_check.is_large() { check(env, file, block_check) } else { Ok(Ok(())) }
}

/// Checks type and checksum of a block. Returns what is wrong with it.
pub(super) fn check(
    env: &TableEnv,
    file: &dyn VfsFile,
    block_check: BlockCheck,
) -> io::Result<Result<(), String>> {
    let BlockCheck { block, of, salt, bound_to } = block_check;
    let read = |offset: u64, length: u64| {
        env.ledger.check_reads.count(length);
        file.read_new(length as usize, offset)
    };
    let Some(end) = block.end() else { return Ok(Err("an offset beyond every file".into())) };
    let (trailer_at, mut checksum) = (end - TRAILER_BYTES as u64, ChecksumAt::new(salt, bound_to));
    for offset in (block.offset..trailer_at).step_by(PIECE_BYTES as usize) {
        checksum.update(&read(offset, PIECE_BYTES.min(trailer_at - offset))?);
    }
    let trailer = read(trailer_at, TRAILER_BYTES as u64)?;
    checksum.update(trailer.get(..1).unwrap_or_default());
    let (stored, computed) = (u32_at(&trailer, 1), checksum.finish());
    Ok(if stored != Some(computed) {
        let stored = stored.unwrap_or_default();
        Err(format!("a wrong checksum: {stored:#010x} stored, {computed:#010x} computed"))
    } else if trailer.first() != Some(&(of as u8)) {
        Err(format!("a block of type {}", trailer.first().copied().unwrap_or_default()))
    } else {
        Ok(())
    })
}
