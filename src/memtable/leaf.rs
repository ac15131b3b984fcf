//! Some consecutive entries of a memtable.

use std::cell::Cell;
use std::ops::Range;

use bytes::Bytes;

use super::search_key::{Edge, SearchKey};
use crate::fences::{Fences, reserve_quarter};
use crate::key::{EntryKind, EntryRef, Seq};
use crate::sync::Arc;
use crate::value::Value;
use criba_filter::store::prefetch;

/// The most entries of a leaf; few under shuttle, so that schedules split leaves.
const LEAF_ENTRIES: usize = if cfg!(criba_shuttle) { 2 } else { 128 };

/// The most bytes of keys and values in a leaf; longer entries are stored apart.
const LEAF_BYTES: usize = 32 << 10;
const LONGEST_WITHIN: usize = 1 << 10;

/// The average overhead of an allocation.
const ALLOCATION_BYTES: usize = 16;

#[derive(Debug, Clone, Default)]
pub(super) struct Leaf {
    /// The first target of the leaf; `None` for the first leaf.
    pub(super) start: Option<Edge>,
    /// The first target of the next leaf; `None` for the last leaf.
    pub(super) end: Option<Edge>,
    /// The entries in order of insertion.
    slots: Vec<Slot>,
    /// The slot numbers in key order: an insertion moves only these bytes.
    order: Vec<u8>,
    /// Fences of the keys, in key order.
    fences: Fences,
    /// Keys and values in order of insertion.
    bytes: Vec<u8>,
    /// Long entries: key, then value.
    apart: Vec<Arc<[u8]>>,
    apart_bytes: usize,
    /// Whether an entry after the last one began the next leaf.
    began_another: bool,
    /// The number of puts without a newer entry of their key in this leaf.
    shown_puts: usize,
    newest: Seq,
}

/// The location of an entry, and its fixed fields.
#[derive(Debug, Clone, Copy)]
struct Slot {
    seq: Seq,
    /// The offset of key and value in the leaf's bytes, or the number of a long entry.
    at: u32,
    length: u32,
    key_length: u16,
    kind: EntryKind,
    /// Whether the leaf has a newer entry of the key.
    is_older: bool,
}

impl Slot {
    fn is_shown_put(&self) -> bool {
        self.kind != EntryKind::Delete && !self.is_older
    }

    fn lies_apart(&self) -> bool {
        self.length as usize > LONGEST_WITHIN
    }
}

impl Leaf {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    fn slot(&self, number: usize) -> Option<&Slot> {
        self.order.get(number).map(|&slot| &self.slots[usize::from(slot)])
    }

    pub(super) fn entry(&self, number: usize) -> Option<EntryRef<'_>> {
        let slot = self.slot(number)?;
        let data = if slot.lies_apart() {
            &self.apart[slot.at as usize]
        } else {
            &self.bytes[slot.at as usize..][..slot.length as usize]
        };
        let (key, value) = data.split_at(usize::from(slot.key_length));
        Some(EntryRef { key, seq: slot.seq, kind: slot.kind, value })
    }

    /// Prefetches a key, which mostly lies in two cache lines.
    fn prefetch(&self, number: usize) {
        if let Some(slot) = self.slot(number).filter(|slot| !slot.lies_apart()) {
            let at = slot.at as usize;
            prefetch(&self.bytes, at);
            prefetch(&self.bytes, at + usize::from(slot.key_length));
        }
    }

    /// The value of an entry, to keep.
    pub(super) fn value(&self, number: usize) -> Value {
        if let Some(slot) = self.slot(number).filter(|slot| slot.lies_apart()) {
            let data = Bytes::from_owner(Arc::clone(&self.apart[slot.at as usize]));
            return Value::new(data.slice(usize::from(slot.key_length)..));
        }
        self.entry(number).map(|entry| Value::copied(entry.value)).unwrap_or_default()
    }

    /// The sequence number from which on a reader sees no value in this leaf, if there is one.
    pub(super) fn hidden_from(&self) -> Option<Seq> {
        (self.shown_puts == 0).then_some(self.newest)
    }

    pub(super) fn newest(&self) -> Seq {
        self.newest
    }

    /// Whether the leaf contains a target that is not before it.
    pub(super) fn reaches(&self, target: &SearchKey<'_>) -> bool {
        self.end.as_ref().is_none_or(|end| target.compare(&end.target()).is_lt())
    }

    pub(super) fn below(&self, target: &SearchKey<'_>) -> usize {
        self.search(target).0
    }

    /// The number of entries before a target, and whether the entry there has its key.
    fn search(&self, target: &SearchKey<'_>) -> (usize, bool) {
        let has_key = Cell::new(false);
        let is_below = |number| {
            let Some(entry) = self.entry(number) else { return false };
            let of_keys = entry.key.cmp(target.key);
            let is_below = of_keys.is_lt() || (of_keys.is_eq() && entry.seq > target.seq);
            if !is_below {
                has_key.set(of_keys.is_eq()); // the last one is at the target
            }
            is_below
        };
        let at =
            self.fences.below_prefetching(target.key, |number| self.prefetch(number), is_below);
        (at, has_key.get())
    }

    /// Inserts an entry of this leaf. A full leaf returns its upper part.
    pub(super) fn insert(&mut self, entry: EntryRef<'_>) -> Option<(Edge, Self)> {
        let (at, hides_next) = self.search(&SearchKey::new(entry.key, entry.seq));
        if !self.is_full() {
            self.insert_at(at, entry, hides_next);
            return None;
        }
        // What comes in ascending order fills leaves, and begins new ones behind them. Only once behind
        // each: what comes in descending order there, or one key again and again, would all begin one.
        let mut upper = if at == self.len() && !self.began_another {
            self.began_another = true;
            let mut upper = Self::default();
            upper.insert_at(0, entry, false);
            upper
        } else {
            self.split(at, entry, hides_next)
        };
        let first = upper.entry(0).unwrap_or(entry);
        let last = self.entry(self.len() - 1).unwrap_or(entry);
        let start = if first.key == last.key { Edge::within(first) } else { Edge::before(first) };
        upper.start = Some(start.clone());
        upper.end = self.end.replace(start.clone());
        Some((start, upper))
    }

    fn is_full(&self) -> bool {
        self.len() == LEAF_ENTRIES || self.bytes.len() + LONGEST_WITHIN > LEAF_BYTES
    }

    /// Keeps about half of the entries and returns the upper ones, with a new entry in its place: beside the one
    /// that it hides.
    fn split(&mut self, at: usize, entry: EntryRef<'_>, hides_next: bool) -> Self {
        let half = self.middle();
        let (lower, mut upper) = (self.part(0..half), self.part(half..self.len()));
        *self = Self { start: self.start.take(), end: self.end.take(), ..lower };
        if at > half || (at == half && hides_next) {
            upper.insert_at(at - half, entry, hides_next);
        } else {
            self.insert_at(at, entry, hides_next);
        }
        upper
    }

    /// The begin of a key near the middle, so that its entries stay together; the middle, if all there are
    /// of one key.
    fn middle(&self) -> usize {
        let half = self.len() / 2;
        let begins = |at: &usize| self.slot(*at).is_some_and(|slot| !slot.is_older);
        let mut near = (0..half / 2).flat_map(|away| [half + away, half - away]);
        near.find(begins).unwrap_or(half)
    }

    /// `hides_next`: whether the entry at `at`, which is older, has the key.
    fn insert_at(&mut self, at: usize, entry: EntryRef<'_>, hides_next: bool) {
        let length = entry.key.len() + entry.value.len();
        let place = if length > LONGEST_WITHIN {
            self.keep_apart([entry.key, entry.value].concat().into())
        } else {
            reserve_quarter(&mut self.bytes, length, 128);
            self.keep_within(&[entry.key, entry.value])
        };
        let slot = Slot {
            seq: entry.seq,
            at: place,
            length: length as u32, // both limits fit
            key_length: entry.key.len() as u16,
            kind: entry.kind,
            is_older: entry.seq < self.newest && self.has_key_before(at, entry.key),
        };
        if hides_next {
            let next = &mut self.slots[usize::from(self.order[at])];
            self.shown_puts -= usize::from(next.is_shown_put());
            next.is_older = true;
        }
        self.shown_puts += usize::from(slot.is_shown_put());
        self.newest = self.newest.max(entry.seq);
        reserve_quarter(&mut self.order, 1, 4);
        self.order.insert(at, self.slots.len() as u8); // fewer than 256
        reserve_quarter(&mut self.slots, 1, 4);
        self.slots.push(slot);
        if !self.fences.insert(at, entry.key) {
            self.fences = Fences::new(self.keys());
        }
    }

    /// Whether the entry before `at`, which is newer than one of the key at `at`, has the key.
    fn has_key_before(&self, at: usize, key: &[u8]) -> bool {
        at.checked_sub(1).and_then(|before| self.entry(before)).is_some_and(|e| e.key == key)
    }

    fn keep_within(&mut self, data: &[&[u8]]) -> u32 {
        let at = self.bytes.len() as u32;
        for data in data {
            self.bytes.extend_from_slice(data);
        }
        at
    }

    fn keep_apart(&mut self, data: Arc<[u8]>) -> u32 {
        self.apart_bytes += data.len() + ALLOCATION_BYTES;
        self.apart.push(data);
        self.apart.len() as u32 - 1
    }

    /// Some of the entries, with room for as many more.
    fn part(&self, numbers: Range<usize>) -> Self {
        let mut part = Self::default();
        let room = (2 * numbers.len()).min(LEAF_ENTRIES);
        part.slots.reserve_exact(room);
        part.order.reserve_exact(room);
        // Bytes that are made longer again and again are copied often.
        part.bytes.reserve_exact(self.bytes.len() * numbers.len() / self.len() * 3 / 2);
        for slot in numbers.filter_map(|number| self.slot(number)) {
            let at = slot.at as usize;
            let at = if slot.lies_apart() {
                part.keep_apart(Arc::clone(&self.apart[at]))
            } else {
                part.keep_within(&[&self.bytes[at..][..slot.length as usize]])
            };
            // A newer entry of the first key may be in the part before.
            let is_older = slot.is_older && !part.slots.is_empty();
            let slot = Slot { at, is_older, ..*slot };
            part.shown_puts += usize::from(slot.is_shown_put());
            part.newest = part.newest.max(slot.seq);
            part.order.push(part.slots.len() as u8);
            part.slots.push(slot);
        }
        part.fences = Fences::new(part.keys());
        part.fences.reserve(room);
        part
    }

    fn keys(&self) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
        (0..self.len()).map(|number| self.entry(number).map_or(&[][..], |entry| entry.key))
    }

    pub(super) fn memory(&self) -> usize {
        let slots = self.slots.capacity() * size_of::<Slot>() + self.order.capacity();
        let apart = self.apart.capacity() * size_of::<Arc<[u8]>>() + self.apart_bytes;
        size_of::<Self>() + slots + self.bytes.capacity() + self.fences.memory() + apart
    }
}
