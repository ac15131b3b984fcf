//! Walks a table in both directions, for scans and compactions.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;

use super::block::{DecodedBlock, Spare, unshared};
use super::format::{BlockHandle, TRAILER_BYTES};
use super::reader::Table;
use crate::error::{Error, Result};
use crate::iter::{Cursor, Direction};
use crate::key::{EntryRef, Seq};
use crate::value::Value;

/// The bytes that a compaction reads at once.
const READAHEAD_BYTES: u64 = 256 * 1024;

/// The bytes that a scan announces after its first block. Each later announcement is eight times as long, up to the
/// longest.
const FIRST_ANNOUNCED: u64 = 64 * 1024;
const MOST_ANNOUNCED: u64 = 4 << 20;

/// The purpose of a walk, which determines how it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadPlan {
    /// Block by block. Uses the cache, but adds nothing to it.
    Scan,
    /// Many blocks at once, forward, without the cache.
    Compaction,
    /// As `Compaction`, for a rebuild; counted separately.
    Rebuilding,
}

#[derive(Debug)]
pub(crate) struct TableCursor {
    table: Arc<Table>,
    direction: Direction,
    plan: ReadPlan,
    /// The current block and the entry in it; `None` past the end.
    current: Option<(DecodedBlock, usize)>,
    number: usize,
    /// Bytes read ahead, and the offset of the first one.
    ahead: (u64, Bytes),
    /// The block that the scan read last.
    read: Option<usize>,
    /// The length and the end of what the scan announced.
    announced: (u64, u64),
    /// The memory of the block before.
    spare: Spare,
}

impl TableCursor {
    /// A cursor at the first entry, in `direction`, with a user key within `start`.
    pub(crate) fn new(
        table: Arc<Table>,
        direction: Direction,
        start: Bound<&[u8]>,
        plan: ReadPlan,
    ) -> Result<Self> {
        let ahead = (0, Bytes::new());
        let spare = Spare::default();
        let (current, number, read, announced) = (None, 0, None, (0, 0));
        let mut cursor =
            Self { table, direction, plan, current, number, ahead, read, announced, spare };
        let index = cursor.table.index();
        let blocks = index.len();
        let number = match start {
            Bound::Unbounded if direction == Direction::Forward => 0,
            Bound::Unbounded => blocks.saturating_sub(1),
            Bound::Included(key) | Bound::Excluded(key) => {
                let first = cursor.table.block_for(key);
                // If a key is in several blocks, a walk begins before or behind all of them.
                let is_behind = matches!(
                    (direction, start),
                    (Direction::Forward, Bound::Excluded(_))
                        | (Direction::Backward, Bound::Included(_))
                );
                let number = if is_behind { cursor.table.last_block_of(key, first) } else { first };
                match direction {
                    Direction::Forward => number,
                    Direction::Backward => number.min(blocks.saturating_sub(1)),
                }
            }
        };
        if number >= blocks {
            return Ok(cursor);
        }
        cursor.load(number)?;
        let Some((block, position)) = &mut cursor.current else { return Ok(cursor) };
        match direction {
            Direction::Forward => {
                *position = match start {
                    Bound::Unbounded => 0,
                    Bound::Included(key) => block.partition(|k| k < key),
                    Bound::Excluded(key) => block.partition(|k| k <= key),
                };
                if *position == block.len() {
                    cursor.next_block()?;
                }
            }
            Direction::Backward => {
                let before = match start {
                    Bound::Unbounded => block.len(),
                    Bound::Included(key) => block.partition(|k| k <= key),
                    Bound::Excluded(key) => block.partition(|k| k < key),
                };
                if before == 0 {
                    cursor.next_block()?;
                } else {
                    *position = before - 1;
                }
            }
        }
        Ok(cursor)
    }

    /// Loads a block and moves to its first entry; backward, to its last.
    fn load(&mut self, number: usize) -> Result<()> {
        let loaded = self.try_load(number);
        if self.plan != ReadPlan::Scan && matches!(loaded, Err(Error::Corrupt { .. })) {
            self.table.confirm_damage(number);
        }
        loaded
    }

    fn try_load(&mut self, number: usize) -> Result<()> {
        if let Some((block, _)) = self.current.take() {
            self.spare = block.into_spare();
        }
        let handle = self.table.handle(number)?;
        let block = match self.plan {
            ReadPlan::Scan => {
                let cache = self.table.env().cache.as_ref();
                match cache.and_then(|cache| cache.get((self.table.id(), number))) {
                    Some(block) => block,
                    None => {
                        let length = handle.length + TRAILER_BYTES as u64;
                        self.table.file().check_if_large(handle)?;
                        self.table.env().ledger.scan_reads.count(length);
                        if self.direction == Direction::Forward {
                            self.announce(number, handle)?;
                        }
                        let spare = std::mem::take(&mut self.spare.bytes);
                        let bytes = self.table.file().read_into(spare, handle.offset, length)?;
                        self.table.file().verified(&bytes.into(), handle)?
                    }
                }
            }
            ReadPlan::Compaction | ReadPlan::Rebuilding => {
                let bytes = self.read_ahead(handle)?;
                self.table.file().verified(&bytes, handle)?
            }
        };
        let spare = std::mem::take(&mut self.spare);
        let block =
            block.decode_into(spare).map_err(|damage| self.table.file().damaged(handle, damage))?;
        self.table
            .check_place(&block, number)
            .map_err(|damage| self.table.file().damaged(handle, damage))?;
        let position = match self.direction {
            Direction::Forward => 0,
            Direction::Backward => block.len().saturating_sub(1),
        };
        self.number = number;
        self.current = Some((block, position));
        Ok(())
    }

    /// Announces a block and those behind it, if the block before was read, too.
    fn announce(&mut self, number: usize, handle: BlockHandle) -> Result<()> {
        let before = self.read.replace(number);
        let (length, end) = self.announced;
        if before.map(|before| before + 1) != Some(number) || handle.offset < end {
            return Ok(());
        }
        let length = (8 * length).clamp(FIRST_ANNOUNCED, MOST_ANNOUNCED);
        // Whole blocks: a file layer that fetches what is announced would fetch a block of which it has a part again.
        let index = self.table.index();
        let ends = (number + 1..index.len()).filter_map(|next| index.block(next)?.end());
        let most = handle.offset + length;
        let first = handle.end().unwrap_or(most);
        let end = ends.take_while(|&end| end <= most).last().unwrap_or(first);
        self.announced = (length, end);
        self.table.announce_scan(handle.offset, end - handle.offset)
    }

    fn read_ahead(&mut self, handle: BlockHandle) -> Result<Bytes> {
        let length = handle.length + TRAILER_BYTES as u64;
        let held = |ahead: &(u64, Bytes)| {
            let start = handle.offset.checked_sub(ahead.0)? as usize;
            let end = start + length as usize;
            (end <= ahead.1.len()).then(|| ahead.1.slice(start..end))
        };
        if let Some(bytes) = held(&self.ahead) {
            return Ok(bytes);
        }
        self.table.file().check_if_large(handle)?;
        let data_left = self.table.index().data_end().saturating_sub(handle.offset);
        let bytes = READAHEAD_BYTES.min(data_left).max(length);
        let ledger = &self.table.env().ledger;
        match self.plan {
            ReadPlan::Rebuilding => ledger.rebuild_reads.count(bytes),
            _ => ledger.compaction_reads.count(bytes),
        }
        let spare = unshared(std::mem::take(&mut self.ahead.1));
        self.ahead =
            (handle.offset, self.table.file().read_into(spare, handle.offset, bytes)?.into());
        Ok(self.ahead.1.slice(..length as usize))
    }

    fn next_block(&mut self) -> Result<()> {
        let next = match self.direction {
            Direction::Forward => Some(self.number + 1).filter(|&n| n < self.table.index().len()),
            Direction::Backward => self.number.checked_sub(1),
        };
        match next {
            Some(number) => self.load(number),
            None => {
                self.current = None;
                Ok(())
            }
        }
    }
}

impl Cursor for TableCursor {
    fn entry(&self) -> Option<EntryRef<'_>> {
        let (block, position) = self.current.as_ref()?;
        block.entry(*position)
    }

    fn key(&self) -> Value {
        self.current.as_ref().map(|(block, position)| block.key(*position)).unwrap_or_default()
    }

    fn value(&self) -> Value {
        self.current.as_ref().map(|(block, position)| block.value(*position)).unwrap_or_default()
    }

    fn advance(&mut self) -> Result<()> {
        let Some((block, position)) = &mut self.current else { return Ok(()) };
        let next = match self.direction {
            Direction::Forward => Some(*position + 1).filter(|&next| next < block.len()),
            Direction::Backward => position.checked_sub(1),
        };
        match next {
            Some(next) => {
                *position = next;
                Ok(())
            }
            None => self.next_block(),
        }
    }

    /// Skips within the block. A key in several blocks has a mebibyte of entries in each.
    fn skip_versions(&mut self, seq: Seq) -> Result<()> {
        let Some((block, position)) = &mut self.current else { return Ok(()) };
        let Some(old) = block.entry(*position) else { return Ok(()) };
        let next = match self.direction {
            Direction::Forward => {
                let up_to = if old.seq > seq { seq } else { 0 };
                Some(block.below((old.key, up_to))).filter(|&next| next < block.len())
            }
            Direction::Backward => {
                let newest = block.below((old.key, seq));
                let before = block.below((old.key, Seq::MAX)).checked_sub(1);
                if newest < *position { Some(newest) } else { before }
            }
        };
        match next {
            Some(next) => {
                *position = next;
                Ok(())
            }
            None => self.next_block(),
        }
    }

    fn at_end(&self) -> bool {
        self.current.is_none()
    }
}
