//! Data blocks: entries with prefix-compressed keys, then restart points. See format.md, "Data block".

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::cmp::Ordering;
use std::num::NonZeroU64;
use std::ops::Range;

use bytes::Bytes;

use crate::codec::{Fields, PutFields, u32_at};
use crate::expiry::Stored;
use crate::key::{self, EntryKind, EntryRef, MAX_KEY_BYTES, Seq};
use crate::value::Value;
use criba_filter::store::prefetch;

/// The number of entries from one whole key to the next.
const RESTART_INTERVAL: usize = 16;
/// Bounds the memory of a decoded block, as a multiple of its length, so that a forged block cannot exhaust
/// memory. Blocks with a whole key at each restart point stay below it.
const MAX_EXPANSION: usize = 2 * RESTART_INTERVAL;
/// A block of more than one entry is no longer than this. It bounds the memory of decoded keys, too.
pub(crate) const MAX_BLOCK_OF_ENTRIES: usize = 1 << 20;
const CACHE_LINE: usize = 64;
/// The most cache lines that a search prefetches.
const MOST_PREFETCHED: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    since_restart: usize,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The length of the contents if the block ended here.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len() + 4
    }

    pub(crate) fn add(&mut self, entry: EntryRef<'_>) {
        let shared = if self.is_empty() || self.since_restart == RESTART_INTERVAL {
            self.restarts.push(self.bytes.len() as u32); // a block is shorter than that
            self.since_restart = 0;
            0
        } else {
            common_prefix(&self.last_key, entry.key)
        };
        self.since_restart += 1;
        let (_, suffix) = entry.key.split_at(shared);
        self.bytes.put_varint(shared as u64);
        self.bytes.put_varint(suffix.len() as u64);
        self.bytes.put_varint(entry.value.len() as u64);
        self.bytes.put_varint(entry.seq);
        self.bytes.put_u8(entry.kind as u8);
        self.bytes.extend_from_slice(suffix);
        self.bytes.extend_from_slice(entry.value);
        self.last_key.clear();
        self.last_key.extend_from_slice(entry.key);
    }

    /// The contents; the builder starts over.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        for &restart in &self.restarts {
            bytes.put_u32(restart);
        }
        bytes.put_u32(self.restarts.len() as u32);
        self.restarts.clear();
        self.since_restart = 0;
        self.last_key.clear();
        bytes
    }
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// Damage inside a block with a right checksum: its offset in the contents, and what was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockDamage {
    pub(crate) offset: usize,
    pub(crate) expected: &'static str,
}

const SHARES_TOO_MUCH: &str = "a key that shares no more than the one before has";

type BlockResult<T> = Result<T, BlockDamage>;

fn damage<T>(offset: usize, expected: &'static str) -> BlockResult<T> {
    Err(BlockDamage { offset, expected })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// Whether the block holds an entry of the key.
    pub(crate) holds_key: bool,
    /// The newest entry that the search may see.
    pub(crate) entry: Option<Stored>,
}

#[derive(Debug)]
pub(crate) struct Block {
    bytes: Bytes,
    /// The end of the entries and start of the restart points.
    entries_end: usize,
    restarts: usize,
    /// The number of all entries, if the table was ingested.
    number: Option<NonZeroU64>,
}

impl Clone for Block {
    /// A clone is mostly for a search, which reads the restart points first. Their cache line and that of
    /// the reference count are fetched at once.
    fn clone(&self) -> Self {
        prefetch(&self.bytes, self.entries_end);
        Self { bytes: self.bytes.clone(), ..*self }
    }
}

struct RawEntry {
    shared: usize,
    suffix: Range<usize>,
    value: Range<usize>,
    seq: Seq,
    kind: EntryKind,
}

impl Block {
    /// `number`: that of all entries, if the table was ingested.
    pub(crate) fn new(bytes: Bytes, number: Option<Seq>) -> BlockResult<Self> {
        let broken =
            BlockDamage { offset: bytes.len().saturating_sub(4), expected: "restart points" };
        let count_at = bytes.len().checked_sub(4).ok_or(broken)?;
        let restarts = u32_at(&bytes, count_at).ok_or(broken)? as usize;
        let entries_end = count_at.checked_sub(4 * restarts).ok_or(broken)?;
        if restarts == 0 || entries_end == 0 || u32_at(&bytes, entries_end) != Some(0) {
            return Err(broken);
        }
        Ok(Self { bytes, entries_end, restarts, number: number.and_then(NonZeroU64::new) })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Parses the entry at `offset`. It ends with its value.
    #[inline]
    fn entry_at(&self, offset: usize) -> BlockResult<RawEntry> {
        let parse = || {
            let rest = self.bytes.get(offset..self.entries_end)?;
            let mut fields = Fields::new(rest);
            let shared = usize::try_from(fields.varint()?).ok()?;
            let suffix_length = usize::try_from(fields.varint()?).ok()?;
            let value_length = usize::try_from(fields.varint()?).ok()?;
            let seq = match (fields.varint()?, self.number) {
                (seq, None) => seq,
                (0, Some(number)) => number.get(),
                _ => return None, // an ingested entry has no number of its own
            };
            let kind = EntryKind::of_entry(fields.u8()?, value_length)?;
            if shared.checked_add(suffix_length)? > MAX_KEY_BYTES {
                return None;
            }
            let start = self.entries_end - fields.rest().len();
            fields.bytes(suffix_length)?;
            fields.bytes(value_length)?;
            let suffix = start..start + suffix_length;
            let value = suffix.end..suffix.end + value_length;
            Some(RawEntry { shared, suffix, value, seq, kind })
        };
        parse().ok_or(BlockDamage { offset, expected: "an entry" })
    }

    fn slice(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }

    fn value(&self, range: &Range<usize>) -> Value {
        if range.end > self.bytes.len() {
            return Value::default(); // entry_at gives no such range
        }
        Value::new(self.bytes.slice(range.clone()))
    }

    fn restart(&self, number: usize) -> BlockResult<usize> {
        let at = self.entries_end + 4 * number;
        match u32_at(&self.bytes, at) {
            Some(offset) if (offset as usize) < self.entries_end => Ok(offset as usize),
            _ => damage(at, "a restart point within the entries"),
        }
    }

    /// The start of a walk that meets every entry of `key`: the last restart point with a smaller key, or the
    /// first entry. Prefetches the entries up to the next restart point.
    fn start_for(&self, key: &[u8]) -> BlockResult<usize> {
        // A walk that does not start later starts at the first one.
        let (mut low, mut high) = (1, self.restarts);
        // Restart points below `low` have smaller keys, those from `high` on have not.
        while low < high {
            let middle = low.midpoint(high);
            let offset = self.restart(middle)?;
            let entry = self.entry_at(offset)?;
            if entry.shared != 0 {
                return damage(offset, "a whole key at a restart point");
            }
            if self.slice(&entry.suffix) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let start = self.restart(low - 1)?;
        let end = if low < self.restarts { self.restart(low)? } else { self.entries_end };
        let ahead = self.bytes.get(start..end).unwrap_or_default();
        ahead.chunks(CACHE_LINE).take(MOST_PREFETCHED).for_each(|line| prefetch(line, 0));
        Ok(start)
    }

    /// Finds the newest entry of `key` with a sequence number of at most `seq`.
    ///
    /// Most keys are not decoded: an entry that shares more with its predecessor than the predecessor shares
    /// with `key` is less than `key`, as its predecessor is.
    pub(crate) fn search(&self, key: &[u8], seq: Seq) -> BlockResult<Found> {
        let mut found = Found { holds_key: false, entry: None };
        let mut at = self.start_for(key)?;
        // Length of the key of the entry before, which is not greater than `key`, and of the prefix that both
        // keys have.
        let (mut length, mut same) = (0, 0);
        while at < self.entries_end {
            let entry = self.entry_at(at)?;
            if entry.shared > length {
                return damage(at, SHARES_TOO_MUCH);
            }
            length = entry.shared + entry.suffix.len();
            if entry.shared <= same {
                let (suffix, rest) =
                    (self.slice(&entry.suffix), key.get(entry.shared..).unwrap_or_default());
                let more = common_prefix(suffix, rest);
                same = entry.shared + more;
                match (suffix.get(more), rest.get(more)) {
                    (None, None) => {
                        found.holds_key = true;
                        if entry.seq <= seq {
                            let value = self.value(&entry.value);
                            found.entry = Some(Stored { kind: entry.kind, value });
                            break;
                        }
                    }
                    (suffix, rest) if suffix > rest => break,
                    _ => {}
                }
            }
            at = entry.value.end;
        }
        Ok(found)
    }

    /// Decodes the whole block, for walks in both directions.
    pub(crate) fn decode(self) -> BlockResult<DecodedBlock> {
        self.decode_into(Spare::default())
    }

    /// Decodes the whole block into memory of an earlier one.
    pub(crate) fn decode_into(self, spare: Spare) -> BlockResult<DecodedBlock> {
        let Spare { mut keys, mut entries, .. } = spare;
        keys.clear();
        entries.clear();
        let limit = self.bytes.len() * MAX_EXPANSION;
        let (mut at, mut restarts, mut next_restart) = (0, 0, Some(0));
        let mut before = DecodedEntry { key: 0..0, seq: 0, kind: EntryKind::Put, value: 0..0 };
        while at < self.entries_end {
            let entry = self.entry_at(at)?;
            if at > 0 && self.bytes.len() > MAX_BLOCK_OF_ENTRIES {
                return damage(at, "no second entry in a block of more than a mebibyte");
            }
            // The first entry is one of them.
            if next_restart == Some(at) {
                if entry.shared != 0 {
                    return damage(at, "a whole key at a restart point");
                }
                restarts += 1;
                next_restart =
                    (restarts < self.restarts).then(|| self.restart(restarts)).transpose()?;
            }
            if entry.shared > before.key.len() {
                return damage(at, SHARES_TOO_MUCH);
            }
            let (start, suffix) = (before.key.start, self.slice(&entry.suffix));
            // Where the key differs from the one before lies behind what it shares with that.
            let rest = keys.get(start + entry.shared..before.key.end).unwrap_or_default();
            let key = match suffix.cmp(rest) {
                _ if entries.is_empty() => {
                    keys.extend_from_slice(suffix);
                    0..keys.len()
                }
                Ordering::Less => return damage(at, "keys in ascending order"),
                Ordering::Equal if before.seq <= entry.seq => {
                    return damage(at, "the entries of a key newest first");
                }
                Ordering::Equal => before.key,
                Ordering::Greater => {
                    let place = keys.len();
                    if place + entry.shared + suffix.len() > limit {
                        return damage(at, "keys in proportion to the block");
                    }
                    keys.extend_from_within(start..start + entry.shared);
                    keys.extend_from_slice(suffix);
                    place..keys.len()
                }
            };
            at = entry.value.end;
            before = DecodedEntry { key, seq: entry.seq, kind: entry.kind, value: entry.value };
            entries.push(before.clone());
        }
        if restarts < self.restarts {
            return damage(
                self.entries_end + 4 * restarts,
                "a restart point at an entry, in order",
            );
        }
        Ok(DecodedBlock { block: self, keys: keys.into(), entries })
    }
}

#[derive(Debug, Clone)]
struct DecodedEntry {
    key: Range<usize>,
    seq: Seq,
    kind: EntryKind,
    value: Range<usize>,
}

/// The memory of a block that a walk has left, for the next one.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    pub(crate) bytes: Vec<u8>,
    keys: Vec<u8>,
    entries: Vec<DecodedEntry>,
}

#[derive(Debug)]
pub(crate) struct DecodedBlock {
    block: Block,
    keys: Bytes,
    entries: Vec<DecodedEntry>,
}

impl DecodedBlock {
    /// The length of the contents.
    pub(crate) fn bytes(&self) -> usize {
        self.block.bytes()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn seqs(&self) -> impl Iterator<Item = Seq> {
        self.entries.iter().map(|entry| entry.seq)
    }

    #[inline]
    pub(crate) fn entry(&self, number: usize) -> Option<EntryRef<'_>> {
        let entry = self.entries.get(number)?;
        Some(EntryRef {
            key: self.keys.get(entry.key.clone())?,
            seq: entry.seq,
            kind: entry.kind,
            value: self.block.slice(&entry.value),
        })
    }

    /// The entry's key. A long one shares the memory of the block's keys.
    #[inline]
    pub(crate) fn key(&self, number: usize) -> Value {
        let Some(entry) = self.entries.get(number) else { return Value::default() };
        let short = self.keys.get(entry.key.clone()).and_then(Value::inline);
        short.unwrap_or_else(|| Value::new(self.keys.slice(entry.key.clone())))
    }

    /// The entry's value, sharing the block's memory.
    pub(crate) fn value(&self, number: usize) -> Value {
        self.entries.get(number).map(|entry| self.block.value(&entry.value)).unwrap_or_default()
    }

    /// The number of entries before the first whose user key fails `before`.
    pub(crate) fn partition(&self, before: impl Fn(&[u8]) -> bool) -> usize {
        self.entries.partition_point(|entry| self.keys.get(entry.key.clone()).is_some_and(&before))
    }

    /// The number of entries before a place.
    pub(crate) fn below(&self, place: (&[u8], Seq)) -> usize {
        let is_below = |entry: &DecodedEntry| {
            let key = self.keys.get(entry.key.clone()).unwrap_or_default();
            key::compare((key, entry.seq), place).is_lt()
        };
        self.entries.partition_point(is_below)
    }

    /// The memory that nothing else shares.
    pub(crate) fn into_spare(self) -> Spare {
        Spare {
            bytes: unshared(self.block.bytes),
            keys: unshared(self.keys),
            entries: self.entries,
        }
    }
}

/// The memory of bytes that have no other owner; otherwise none.
pub(super) fn unshared(bytes: Bytes) -> Vec<u8> {
    if bytes.is_unique() { bytes.into() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &'static [u8], seq: Seq, value: &'static [u8]) -> EntryRef<'static> {
        EntryRef { key, seq, kind: EntryKind::Put, value }
    }

    #[test]
    fn ingested_entries_have_the_number_of_the_manifest() {
        let of = |seqs: [Seq; 2], number| {
            let mut builder = BlockBuilder::default();
            for (key, seq) in [&b"a"[..], b"b"].into_iter().zip(seqs) {
                builder.add(entry(key, seq, b"value"));
            }
            Block::new(builder.finish().into(), number).expect("restart points")
        };
        let numbered = of([0, 0], Some(7));
        assert!(numbered.search(b"b", 7).is_ok_and(|found| found.entry.is_some()));
        let older = numbered.search(b"b", 6).expect("sound");
        assert!(older.holds_key && older.entry.is_none());
        let seqs: Vec<Seq> = numbered.decode().expect("sound").seqs().collect();
        assert_eq!(seqs, [7, 7]);
        for forged in [[0, 7], [7, 0], [0, 3]] {
            let block = of(forged, Some(7));
            assert!(block.search(b"b", 9).is_err() && block.decode().is_err(), "{forged:?}");
        }
    }

    fn sample() -> Block {
        let mut builder = BlockBuilder::default();
        for entry in [
            entry(b"", 3, b"empty key"),
            entry(b"apple", 9, b"new"),
            entry(b"apple", 5, b"old"),
            entry(b"apple", 2, b"oldest"),
            entry(b"applet", 4, b"small"),
            entry(b"b", 8, b""),
        ] {
            builder.add(entry);
        }
        builder.add(EntryRef { key: b"c", seq: 1, kind: EntryKind::Delete, value: b"" });
        for i in 0..40 {
            let key = format!("many{i:02}");
            builder.add(EntryRef {
                key: key.as_bytes(),
                seq: 7,
                kind: EntryKind::Put,
                value: b"x",
            });
        }
        let size = builder.size();
        let bytes = builder.finish();
        assert_eq!(bytes.len(), size);
        assert!(builder.is_empty());
        Block::new(bytes.into(), None).expect("sound")
    }

    /// Else a block of 40 MiB could have 1.2 GiB of decoded keys.
    #[test]
    fn a_long_block_has_one_entry() {
        let decoded = |entries: &[EntryRef<'_>]| {
            let mut builder = BlockBuilder::default();
            for &entry in entries {
                builder.add(entry);
            }
            Block::new(builder.finish().into(), None)
                .and_then(Block::decode)
                .map(|block| block.len())
        };
        let value = vec![b'v'; MAX_BLOCK_OF_ENTRIES];
        let put = |key| EntryRef { key, seq: 1, kind: EntryKind::Put, value: &value };
        assert_eq!(decoded(&[put(b"a")]), Ok(1));
        assert!(decoded(&[put(b"a"), put(b"b")]).is_err());
        let fits = EntryRef { value: &value[..1 << 18], ..put(b"a") };
        assert_eq!(decoded(&[fits, EntryRef { key: b"b", ..fits }]), Ok(2));
    }

    #[test]
    fn a_search_sees_the_newest_version_up_to_its_sequence_number() {
        let block = sample();
        let search = |key: &[u8], seq| {
            let found = block.search(key, seq).expect("sound");
            (found.holds_key, found.entry.map(|found| (found.kind, found.value.to_vec())))
        };
        let put = |value: &[u8]| Some((EntryKind::Put, value.to_vec()));
        assert_eq!(search(b"apple", 100), (true, put(b"new")));
        assert_eq!(search(b"apple", 8), (true, put(b"old")));
        assert_eq!(search(b"apple", 2), (true, put(b"oldest")));
        assert_eq!(search(b"apple", 1), (true, None));
        assert_eq!(search(b"", 3), (true, put(b"empty key")));
        assert_eq!(search(b"b", 100), (true, put(b"")));
        assert_eq!(search(b"c", 100), (true, Some((EntryKind::Delete, Vec::new()))));
        for i in 0..40 {
            assert_eq!(search(format!("many{i:02}").as_bytes(), 7), (true, put(b"x")));
        }
        for absent in [&b"a"[..], b"appl", b"apples", b"bb", b"d", b"many151", b"z"] {
            assert_eq!(search(absent, 100), (false, None), "{absent:?}");
        }
    }

    #[test]
    fn a_search_sees_each_of_more_versions_than_lie_between_restart_points() {
        let mut builder = BlockBuilder::default();
        builder.add(entry(b"before", 1, b"x"));
        for seq in (1..=5 * RESTART_INTERVAL as u64).rev() {
            let value = seq.to_string();
            let kind = EntryKind::Put;
            builder.add(EntryRef { key: b"key", seq, kind, value: value.as_bytes() });
        }
        builder.add(entry(b"later", 1, b"x"));
        let block = Block::new(builder.finish().into(), None).expect("sound");
        assert_eq!(block.restarts, 6);
        for seq in 1..=5 * RESTART_INTERVAL as u64 {
            let found = block.search(b"key", seq).expect("sound").entry;
            assert_eq!(found.expect("a version").value, seq.to_string().as_str());
        }
    }

    /// Keys have common prefixes, are prefixes of others, and have several entries; some share less with
    /// their predecessor than they could.
    #[test]
    fn a_search_finds_what_comparing_all_keys_finds() {
        let mut keys: Vec<Vec<u8>> = vec![vec![]];
        for length in 1..=4 {
            keys.extend((0..3_u32.pow(length)).map(|number| {
                (0..length).map(|place| b"abc"[(number / 3_u32.pow(place) % 3) as usize]).collect()
            }));
        }
        keys.sort();
        let mut searches = 0;
        for step in 1..=7 {
            for skip in 0..step {
                let mut builder = BlockBuilder::default();
                let held: Vec<_> = keys.iter().skip(skip).step_by(step).collect();
                for (number, key) in held.iter().enumerate() {
                    for seq in (1..=1 + number as u64 % 3).rev() {
                        let value = &seq.to_be_bytes();
                        builder.add(EntryRef { key, seq: 10 * seq, kind: EntryKind::Put, value });
                    }
                    if number % 5 == 4 {
                        builder.last_key.truncate(1);
                    }
                }
                let block = Block::new(builder.finish().into(), None).expect("sound");
                for key in &keys {
                    let number = held.iter().position(|held| *held == key);
                    for seq in [0, 10, 19, 20, 100] {
                        let newest = number.map(|number| (seq / 10).min(1 + number as u64 % 3));
                        let version = newest.filter(|newest| *newest > 0);
                        let found = block.search(key, seq).expect("sound");
                        let value = found.entry.map(|found| found.value.to_vec());
                        assert_eq!(found.holds_key, number.is_some(), "{key:?} in {held:?}");
                        assert_eq!(value, version.map(|seq| seq.to_be_bytes().to_vec()), "{key:?}");
                        searches += 1;
                    }
                }
            }
        }
        println!("{searches} searches");
    }

    #[test]
    fn neighbours_store_what_their_keys_have_in_common_once() {
        let mut builder = BlockBuilder::default();
        for i in 0..RESTART_INTERVAL as u32 {
            let key = [&[b'k'; 100][..], &i.to_be_bytes()].concat();
            builder.add(EntryRef { key: &key, seq: 1, kind: EntryKind::Put, value: b"" });
        }
        assert!(builder.size() < 104 + RESTART_INTERVAL * 10, "{}", builder.size());
    }

    #[test]
    fn impossible_entries_are_refused() {
        let longest = vec![b'k'; MAX_KEY_BYTES];
        let too_long = vec![b'k'; MAX_KEY_BYTES + 1];
        for (key, kind, value, sound) in [
            (longest.as_slice(), EntryKind::Put, &b"value"[..], true),
            (&longest, EntryKind::Delete, b"", true),
            (&too_long, EntryKind::Put, b"value", false),
            (&too_long, EntryKind::Delete, b"", false),
            (b"key", EntryKind::Delete, b"value", false),
        ] {
            let mut builder = BlockBuilder::default();
            builder.add(EntryRef { key, seq: 1, kind, value });
            let block = Block::new(builder.finish().into(), None).expect("restart points");
            assert_eq!(block.search(key, 1).is_ok(), sound, "{} {kind:?} {value:?}", key.len());
        }
    }

    #[test]
    fn entries_out_of_order_are_found_by_a_walk() {
        for (entries, sound) in [
            ([(&b"a"[..], 2), (b"a", 1)], true),
            ([(b"a", 1), (b"b", 1)], true),
            ([(b"a", 1), (b"a", 1)], false),
            ([(b"a", 1), (b"a", 2)], false),
            ([(b"b", 1), (b"a", 1)], false),
            ([(b"b", 1), (b"", 1)], false),
        ] {
            let mut builder = BlockBuilder::default();
            for (key, seq) in entries {
                builder.add(entry(key, seq, b"value"));
            }
            let block = Block::new(builder.finish().into(), None).expect("restart points");
            assert_eq!(block.decode().is_ok(), sound, "{entries:?}");
        }
    }

    #[test]
    fn decoding_gives_all_entries_in_order() {
        let decoded = sample().decode().expect("sound");
        let keys: Vec<_> = (0..decoded.len())
            .filter_map(|i| decoded.entry(i))
            .map(|e| (e.key.to_vec(), e.seq))
            .collect();
        assert_eq!(decoded.len(), 47);
        assert_eq!(keys[3], (b"apple".to_vec(), 2));
        assert_eq!(decoded.value(4), "small");
        assert_eq!(decoded.partition(|key| key < b"apple".as_slice()), 1);
        assert_eq!(decoded.partition(|key| key <= b"apple".as_slice()), 4);
    }

    #[test]
    fn keys_expand_within_a_bound() {
        let key = |i: u32| [vec![b'k'; 60_000], i.to_be_bytes().to_vec()].concat();
        let mut builder = BlockBuilder::default();
        for i in 0..200 {
            builder.add(EntryRef { key: &key(i), seq: 1, kind: EntryKind::Put, value: b"" });
        }
        let contents = builder.finish();
        let decode =
            |contents: &[u8]| Block::new(contents.to_vec().into(), None).and_then(Block::decode);
        assert_eq!(decode(&contents).map(|block| block.len()), Ok(200));
        // The same keys with one restart point only: 12 MB out of 62 KB.
        let mut forged = Vec::new();
        for i in 0..200 {
            let (shared, key) = (if i == 0 { 0 } else { 60_000 }, key(i));
            for field in [shared, key.len() - shared, 0, 1] {
                forged.put_varint(field as u64);
            }
            forged.put_u8(EntryKind::Put as u8);
            forged.extend_from_slice(&key[shared..]);
        }
        forged.put_u32(0);
        forged.put_u32(1);
        let refused = decode(&forged).expect_err("out of proportion");
        assert_eq!(refused.expected, "keys in proportion to the block");
    }

    /// A search starts at restart points and may miss a contradiction; a walk finds it.
    #[test]
    fn restart_points_that_are_none_are_found_by_a_walk() {
        let sound = sample();
        let (restarts, entries_end) = (sound.restarts, sound.entries_end);
        assert_eq!(restarts, 3);
        let restart = |number| sound.restart(number).expect("sound");
        let [second, third] = [restart(1), restart(2)];
        for (number, forged) in [
            (1, second + 1),
            (1, second - 1),
            (1, 0),
            (1, third),
            (2, second),
            (2, third + 8),
            (2, entries_end - 1),
            (2, entries_end),
        ] {
            let mut bytes = sound.bytes.to_vec();
            let at = entries_end + 4 * number;
            bytes[at..at + 4].copy_from_slice(&(forged as u32).to_le_bytes());
            let block = Block::new(bytes.into(), None).expect("a first restart point");
            let damage = block.decode().expect_err("a wrong restart point");
            // Where the second is the third, the third is one too many.
            let wrong = if (number, forged) == (1, third) { 2 } else { number };
            assert_eq!(
                damage.offset,
                entries_end + 4 * wrong,
                "restart point {number} at {forged}"
            );
        }
    }

    #[test]
    fn no_bytes_make_a_block_panic() {
        let bytes = sample().bytes.to_vec();
        let mut tried = 0;
        for at in 0..bytes.len() {
            for value in [0, 1, 2, 5, 0x7f, 0x80, 0xff, bytes[at] ^ 1] {
                let mut forged = bytes.clone();
                forged[at] = value;
                if let Ok(block) = Block::new(forged.into(), None) {
                    let _ = block.search(b"apple", 100);
                    let _ = block.search(b"zzz", 100);
                    let _ = block.decode();
                }
                tried += 1;
            }
            if let Ok(block) = Block::new(bytes[..at].to_vec().into(), None) {
                let _ = block.search(b"applet", 100);
                let _ = block.decode();
            }
        }
        assert!(tried > 500);
    }
}
