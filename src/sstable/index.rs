//! The index: the one block that may hold a key. See format.md, "Index block".
//!
//! It is not decoded; [`Blocks`] beside it serve the search. Opening a table checks all of it, so a search
//! cannot meet damage.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use super::format::{BlockHandle, MAX_BLOCK_BYTES, TRAILER_BYTES};
use crate::codec::{Fields, PutFields, u32_at};
use crate::fences::Fences;
use crate::key::Seq;

/// The fixed part of an entry: offset of the block, length of the separator.
const ENTRY_BYTES: usize = 10;
/// A cut, for a block that ends within a key: the number of the block, and its oldest sequence number of the key.
const CUT_BYTES: usize = 12;
/// After entries and cuts: number of cuts, end of the data, number of entries.
const TAIL_BYTES: usize = 16;

/// Collects the blocks of a table, which are adjacent.
#[derive(Debug, Default)]
pub(crate) struct IndexBuilder {
    entries: Vec<u8>,
    offsets: Vec<u32>,
    cuts: Vec<u8>,
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

    /// Says that the last block ends within its separator, after the entry with this sequence number.
    pub(crate) fn cut(&mut self, oldest: Seq) {
        self.cuts.put_u32(self.offsets.len().saturating_sub(1) as u32);
        self.cuts.put_u64(oldest);
    }

    pub(crate) fn blocks(&self) -> usize {
        self.offsets.len()
    }

    /// The length of the contents.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.len() + 4 * self.offsets.len() + self.cuts.len() + TAIL_BYTES
    }

    /// The contents, for data that ends at `data_end`.
    pub(crate) fn finish(self, data_end: u64) -> Vec<u8> {
        let mut bytes = self.entries;
        for &offset in &self.offsets {
            bytes.put_u32(offset);
        }
        bytes.extend_from_slice(&self.cuts);
        bytes.put_u32((self.cuts.len() / CUT_BYTES) as u32);
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
    cuts: &'a [u8],
    data_end: u64,
}

impl<'a> Index<'a> {
    /// An index of no blocks.
    pub(crate) const EMPTY: Self = Self { entries: &[], offsets: &[], cuts: &[], data_end: 0 };

    /// Splits the contents into parts; `None` if they do not fit.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Self> {
        let (front, tail) = bytes.split_at_checked(bytes.len().checked_sub(TAIL_BYTES)?)?;
        let mut tail = Fields::new(tail);
        let (cuts, data_end, count) = (tail.u32()? as usize, tail.u64()?, tail.u32()? as usize);
        let cuts_start = front.len().checked_sub(cuts.checked_mul(CUT_BYTES)?)?;
        let (front, cuts) = front.split_at_checked(cuts_start)?;
        let offsets_start = front.len().checked_sub(count.checked_mul(4)?)?;
        let (entries, offsets) = front.split_at_checked(offsets_start)?;
        Some(Self { entries, offsets, cuts, data_end })
    }

    /// Whether the index is sound: entries and blocks adjacent from offset 0, no block too long, separators
    /// ascending up to the largest key of the table. Those of blocks of one key are equal, and these blocks end
    /// at descending sequence numbers.
    pub(crate) fn check(&self, largest: &[u8]) -> Option<()> {
        let mut expected_entry = 0;
        let mut expected_start = 0;
        let mut before: Option<(&[u8], Option<Seq>)> = None;
        let mut cuts = self.cuts().peekable();
        for number in 0..self.len() {
            let (handle, separator) = (self.block(number)?, self.separator(number)?);
            if u32_at(self.offsets, 4 * number)? as usize != expected_entry {
                return None;
            }
            expected_entry += ENTRY_BYTES + separator.len();
            if handle.offset != expected_start || !(1..=MAX_BLOCK_BYTES).contains(&handle.length) {
                return None;
            }
            expected_start = handle.end()?;
            let oldest = cuts.next_if(|(cut, _)| *cut as usize == number).map(|(_, oldest)| oldest);
            let follows = match before {
                None => true,
                Some((key, Some(newer))) if key == separator => {
                    oldest.is_none_or(|oldest| oldest < newer)
                }
                Some((key, _)) => key < separator,
            };
            if !follows {
                return None;
            }
            before = Some((separator, oldest));
        }
        let complete = expected_entry == self.entries.len()
            && expected_start == self.data_end
            && cuts.next().is_none();
        (complete && before == Some((largest, None))).then_some(())
    }

    /// The blocks that end within a key: number, and oldest sequence number of that key.
    pub(crate) fn cuts(&self) -> impl Iterator<Item = (u32, Seq)> + use<'a> {
        self.cuts.chunks_exact(CUT_BYTES).filter_map(|cut| {
            let mut fields = Fields::new(cut);
            Some((fields.u32()?, fields.u64()?))
        })
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
    /// See [`Index::cuts`]. Nearly always empty.
    cuts: Box<[(u32, Seq)]>,
}

impl Blocks {
    /// Blocks of an index that was checked.
    pub(super) fn new(index: &Index<'_>) -> Self {
        let numbers = 0..index.len();
        let starts = numbers.clone().filter_map(|number| Some(index.block(number)?.offset));
        let starts = starts.chain([index.data_end()]).collect();
        let separators = numbers.map(|number| index.separator(number).unwrap_or_default());
        Self { fences: Fences::new(separators), starts, cuts: index.cuts().collect() }
    }

    /// The number of the block that may hold `key`: the first whose separator is not less. The number of
    /// blocks for a key beyond the table's range.
    pub(super) fn number_for(&self, key: &[u8], index: &Index<'_>) -> usize {
        self.fences.below(key, |number| index.separator(number).unwrap_or_default() < key)
    }

    /// The oldest sequence number that a block has of its separator, if it ends within that key.
    pub(super) fn oldest_before_cut(&self, number: usize) -> Option<Seq> {
        let at =
            self.cuts.binary_search_by_key(&(number as u64), |(cut, _)| u64::from(*cut)).ok()?;
        self.cuts.get(at).map(|(_, oldest)| *oldest)
    }

    /// The number of the block that may hold `key` up to `seq`.
    pub(super) fn number_up_to(&self, key: &[u8], seq: Seq, index: &Index<'_>) -> usize {
        let first = self.number_for(key, index);
        self.behind_cuts(key, first, index, |oldest| seq < oldest)
    }

    /// The number of the last block that may hold `key`, from the first one.
    pub(super) fn number_behind_cuts(&self, key: &[u8], first: usize, index: &Index<'_>) -> usize {
        self.behind_cuts(key, first, index, |_| true)
    }

    /// Passes over blocks that end within `key` at a sequence number that `passes`.
    #[inline]
    fn behind_cuts(
        &self,
        key: &[u8],
        first: usize,
        index: &Index<'_>,
        passes: impl Fn(Seq) -> bool,
    ) -> usize {
        let mut number = first;
        while !self.cuts.is_empty()
            && self.oldest_before_cut(number).is_some_and(&passes)
            && index.separator(number) == Some(key)
        {
            number += 1;
        }
        number
    }

    pub(super) fn memory(&self) -> usize {
        self.fences.memory() + size_of_val(&*self.starts) + size_of_val(&*self.cuts)
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
    fn of_a_key_in_several_blocks_the_sequence_number_gives_one() {
        let build = |cuts: &[(usize, Seq)]| {
            let mut builder = IndexBuilder::default();
            for (number, separator) in [b"a", b"k", b"k", b"k", b"z"].iter().enumerate() {
                builder.add(*separator, 50 * number as u64);
                for (_, oldest) in cuts.iter().filter(|(cut, _)| *cut == number) {
                    builder.cut(*oldest);
                }
            }
            builder.finish(250)
        };
        let bytes = build(&[(1, 70), (2, 40)]);
        let index = Index::new(&bytes).expect("sound");
        assert_eq!(index.check(b"z"), Some(()));
        let blocks = Blocks::new(&index);
        for (key, seq, block) in [
            (b"a", 1, 0),
            (b"b", 1, 1),
            (b"k", 90, 1),
            (b"k", 70, 1),
            (b"k", 69, 2),
            (b"k", 40, 2),
            (b"k", 39, 3),
            (b"k", 0, 3),
            (b"l", 0, 4),
        ] {
            assert_eq!(blocks.number_up_to(key, seq, &index), block, "{key:?} {seq}");
        }
        for (unsound, why) in [
            (&[(1, 70)][..], "equal separators without a cut"),
            (&[(1, 40), (2, 40)], "not descending"),
            (&[(1, 70), (2, 40), (4, 9)], "nothing behind"),
            (&[(1, 70), (1, 60), (2, 40)], "two of one block"),
        ] {
            let bytes = build(unsound);
            assert_eq!(Index::new(&bytes).and_then(|index| index.check(b"z")), None, "{why}");
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
