//! The index: the one block that may hold a key. See format.md, "Index block".
//!
//! It is not decoded; [`Blocks`] beside it serve the search. Opening a table checks all of it, so a search
//! cannot meet damage.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use super::format::{BlockHandle, TRAILER_BYTES};
use crate::codec::{Fields, PutFields, u32_at};
use crate::fences::Fences;

/// The fixed part of an entry: offset of the block, length of the separator.
const ENTRY_BYTES: usize = 10;
/// After the entries: end of the data, number of entries.
const TAIL_BYTES: usize = 12;

/// Collects the blocks of a table, which are adjacent.
#[derive(Debug, Default)]
pub(crate) struct IndexBuilder {
    entries: Vec<u8>,
    offsets: Vec<u32>,
}

impl IndexBuilder {
    /// Adds the block at `offset`. `separator` is at least its last key, and less than the first key of the
    /// next block.
    pub(crate) fn add(&mut self, separator: &[u8], offset: u64) {
        self.offsets.push(self.entries.len() as u32);
        self.entries.put_u64(offset);
        self.entries.put_u16(separator.len() as u16);
        self.entries.extend_from_slice(separator);
    }

    pub(crate) fn blocks(&self) -> usize {
        self.offsets.len()
    }

    /// The contents, for data that ends at `data_end`.
    pub(crate) fn finish(self, data_end: u64) -> Vec<u8> {
        let mut bytes = self.entries;
        for &offset in &self.offsets {
            bytes.put_u32(offset);
        }
        bytes.put_u64(data_end);
        bytes.put_u32(self.offsets.len() as u32);
        bytes
    }
}

/// A short key that is at least `last` and less than `next`, where `last < next`.
pub(crate) fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let shared = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    match (last.get(shared), next.get(shared), last.get(..=shared)) {
        (Some(&a), Some(&b), Some(prefix)) if a + 1 < b => {
            let mut shortened = prefix.to_vec();
            if let Some(end) = shortened.last_mut() {
                *end += 1;
            }
            shortened
        }
        _ => last.to_vec(),
    }
}

/// A reader of the contents of an index block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Index<'a> {
    entries: &'a [u8],
    offsets: &'a [u8],
    data_end: u64,
}

impl<'a> Index<'a> {
    /// An index of no blocks.
    pub(crate) const EMPTY: Self = Self { entries: &[], offsets: &[], data_end: 0 };

    /// Splits the contents into parts; `None` if they do not fit.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Self> {
        let (front, tail) = bytes.split_at_checked(bytes.len().checked_sub(TAIL_BYTES)?)?;
        let mut tail = Fields::new(tail);
        let (data_end, count) = (tail.u64()?, tail.u32()? as usize);
        let offsets_start = front.len().checked_sub(count.checked_mul(4)?)?;
        let (entries, offsets) = front.split_at_checked(offsets_start)?;
        Some(Self { entries, offsets, data_end })
    }

    /// Whether the index is sound: entries and blocks adjacent from offset 0, separators ascending up to the
    /// largest key of the table.
    pub(crate) fn check(&self, largest: &[u8]) -> Option<()> {
        let mut expected_entry = 0;
        let mut expected_start = 0;
        let mut before: Option<&[u8]> = None;
        for number in 0..self.len() {
            let (handle, separator) = (self.block(number)?, self.separator(number)?);
            if u32_at(self.offsets, 4 * number)? as usize != expected_entry {
                return None;
            }
            expected_entry += ENTRY_BYTES + separator.len();
            if handle.offset != expected_start || handle.length == 0 {
                return None;
            }
            expected_start = handle.end()?;
            if before.is_some_and(|before| before >= separator) {
                return None;
            }
            before = Some(separator);
        }
        let complete = expected_entry == self.entries.len() && expected_start == self.data_end;
        (complete && before == Some(largest)).then_some(())
    }

    pub(crate) fn len(&self) -> usize {
        self.offsets.len() / 4
    }

    pub(crate) fn data_end(&self) -> u64 {
        self.data_end
    }

    fn entry(&self, number: usize) -> Option<(u64, &'a [u8])> {
        let at = u32_at(self.offsets, number.checked_mul(4)?)? as usize;
        let mut fields = Fields::new(self.entries.get(at..)?);
        let (offset, length) = (fields.u64()?, fields.u16()?);
        Some((offset, fields.bytes(usize::from(length))?))
    }

    /// Where a block lies.
    pub(crate) fn block(&self, number: usize) -> Option<BlockHandle> {
        let (offset, _) = self.entry(number)?;
        let end = if number + 1 == self.len() { self.data_end } else { self.entry(number + 1)?.0 };
        let length = end.checked_sub(offset)?.checked_sub(TRAILER_BYTES as u64)?;
        Some(BlockHandle { offset, length })
    }

    pub(crate) fn separator(&self, number: usize) -> Option<&'a [u8]> {
        Some(self.entry(number)?.1)
    }
}

/// The search structure of an index: 16 bytes a block, nothing to decode.
#[derive(Debug)]
pub(super) struct Blocks {
    fences: Fences,
    /// The starts of the blocks, and the end of the last one.
    starts: Box<[u64]>,
}

impl Blocks {
    /// Of an index that was checked.
    pub(super) fn new(index: &Index<'_>) -> Self {
        let numbers = 0..index.len();
        let starts = numbers.clone().filter_map(|number| Some(index.block(number)?.offset));
        let starts = starts.chain([index.data_end()]).collect();
        let separators = numbers.map(|number| index.separator(number).unwrap_or_default());
        Self { fences: Fences::new(separators), starts }
    }

    /// The number of the block that may hold `key`: the first whose separator is not less. The number of
    /// blocks for a key beyond the table's range.
    pub(super) fn number_for(&self, key: &[u8], index: &Index<'_>) -> usize {
        self.fences.below(key, |number| index.separator(number).unwrap_or_default() < key)
    }

    pub(super) fn memory(&self) -> usize {
        self.fences.memory() + size_of_val(&*self.starts)
    }

    pub(super) fn place(&self, number: usize) -> Option<BlockHandle> {
        let [offset, end] = *self.starts.get(number..)?.first_chunk()?;
        let length = end.checked_sub(offset)?.checked_sub(TRAILER_BYTES as u64)?;
        Some(BlockHandle { offset, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_short_and_in_between() {
        for (last, next, expected) in [
            (&b"apple"[..], &b"cherry"[..], &b"b"[..]),
            (b"apple", b"banana", b"apple"), // a and b are neighbours
            (b"abcdef", b"abzz", b"abd"),
            (b"ab", b"abc", b"ab"),
            (b"", b"a", b""),
            (b"a\xff", b"b", b"a\xff"),
            (b"a\xfe", b"a\xff\x01", b"a\xfe"),
        ] {
            let separator = separator(last, next);
            assert_eq!(separator, expected);
            assert!(last <= separator.as_slice() && separator.as_slice() < next);
        }
    }

    #[test]
    fn every_key_has_exactly_one_block_gaps_included() {
        let mut builder = IndexBuilder::default();
        builder.add(b"c", 0);
        builder.add(b"m", 100);
        builder.add(b"zebra", 250);
        let bytes = builder.finish(300);
        let index = Index::new(&bytes).expect("sound");
        assert_eq!(index.check(b"zebra"), Some(()));
        let blocks = Blocks::new(&index);
        for (key, block) in
            [(&b""[..], 0), (b"c", 0), (b"ca", 1), (b"m", 1), (b"n", 2), (b"zebra", 2), (b"zz", 3)]
        {
            assert_eq!(blocks.number_for(key, &index), block, "{key:?}");
        }
        assert_eq!(index.block(0), Some(BlockHandle { offset: 0, length: 95 }));
        assert_eq!(index.block(2), Some(BlockHandle { offset: 250, length: 45 }));
        assert_eq!(index.block(3), None);
        for number in 0..5 {
            assert_eq!(blocks.place(number), index.block(number));
        }
    }

    #[test]
    fn an_unsound_index_is_refused() {
        let build = |blocks: &[(&[u8], u64)], end| {
            let mut builder = IndexBuilder::default();
            for (separator, offset) in blocks {
                builder.add(separator, *offset);
            }
            builder.finish(end)
        };
        let check = |bytes: &[u8]| Index::new(bytes).and_then(|index| index.check(b"z"));
        assert_eq!(check(&build(&[(b"a", 0), (b"z", 50)], 90)), Some(()));
        assert_eq!(check(&build(&[], 0)), None, "no block");
        assert_eq!(check(&build(&[(b"a", 1), (b"z", 50)], 90)), None, "a gap before the first");
        assert_eq!(check(&build(&[(b"a", 0), (b"z", 3)], 90)), None, "a block without room");
        assert_eq!(check(&build(&[(b"z", 0), (b"a", 50)], 90)), None, "separators out of order");
        assert_eq!(check(&build(&[(b"a", 0), (b"y", 50)], 90)), None, "not up to the largest key");
        assert_eq!(check(&build(&[(b"a", 50), (b"z", 0)], 90)), None, "blocks out of order");
        let sound = build(&[(b"z", 0)], 90);
        assert_eq!(sound.len(), ENTRY_BYTES + 1 + 4 + TAIL_BYTES);
        for length in 0..sound.len() {
            assert_eq!(check(&sound[..length]), None, "cut to {length}");
        }
        let mut longer = sound.clone();
        longer.insert(ENTRY_BYTES + 1, 0);
        assert_eq!(check(&longer), None, "a byte that belongs to no entry");
    }
}
