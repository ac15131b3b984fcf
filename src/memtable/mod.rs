//! The newest changes, sorted, in memory: read by many threads while one writes.
//!
//! A memtable only grows; it is sealed when it is large enough, flushed to a table and dropped.
//! Its invariants: an entry that was inserted is visible to every later search, and its key passed
//! the memtable's filter before.

mod cursor;
mod filter;

use std::borrow::Borrow;
use std::cmp::Ordering as Order;
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use crossbeam_skiplist::SkipSet;

pub(crate) use cursor::MemtableCursor;
pub(crate) use filter::MemtableFilter;

use crate::filter::LookupHash;
use crate::key::{self, EntryKind, EntryRef, Seq};
use crate::sync::{AtomicUsize, Ordering, passing};
use crate::value::Value;

/// What an entry takes beside its key and value: the skip list's node with its tower, two
/// allocations and their headers. Measured as resident memory over many entries.
const ENTRY_OVERHEAD_BYTES: usize = 104;

/// One change. Key and value share one allocation.
#[derive(Debug, Clone)]
pub(crate) struct MemEntry {
    /// Of the key, in the skip list's own node: most comparisons follow no pointer.
    head: u64,
    data: Arc<[u8]>,
    key_length: u16,
    kind: EntryKind,
    seq: Seq,
}

impl MemEntry {
    pub(crate) fn as_ref(&self) -> EntryRef<'_> {
        let (key, value) = self.data.split_at(usize::from(self.key_length));
        EntryRef { key, seq: self.seq, kind: self.kind, value }
    }

    pub(crate) fn value(&self) -> Value {
        let data = Bytes::from_owner(Arc::clone(&self.data));
        Value::new(data.slice(usize::from(self.key_length)..))
    }
}

/// The part of an entry that the order looks at, so that a search needs no entry of its own.
trait Ordered {
    fn place(&self) -> Place<'_>;
}

/// The place of a version of a key.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    /// Of the key; decides where it can.
    head: u64,
    key: &'a [u8],
    seq: Seq,
}

impl<'a> Place<'a> {
    fn new(key: &'a [u8], seq: Seq) -> Self {
        Self { head: key::head(key), key, seq }
    }

    #[inline]
    fn compare(&self, other: &Self) -> Order {
        let by_key = || key::compare((self.key, self.seq), (other.key, other.seq));
        self.head.cmp(&other.head).then_with(by_key)
    }
}

impl Ordered for MemEntry {
    #[inline]
    fn place(&self) -> Place<'_> {
        Place { head: self.head, key: &self.data[..usize::from(self.key_length)], seq: self.seq }
    }
}

impl Ordered for Place<'_> {
    fn place(&self) -> Place<'_> {
        *self
    }
}

impl<'a> Borrow<dyn Ordered + 'a> for MemEntry {
    fn borrow(&self) -> &(dyn Ordered + 'a) {
        self
    }
}

impl Ord for dyn Ordered + '_ {
    fn cmp(&self, other: &Self) -> Order {
        self.place().compare(&other.place())
    }
}

impl PartialOrd for dyn Ordered + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Ordered + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for dyn Ordered + '_ {}

impl Ord for MemEntry {
    fn cmp(&self, other: &Self) -> Order {
        self.place().compare(&other.place())
    }
}

impl PartialOrd for MemEntry {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for MemEntry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for MemEntry {}

/// A memtable.
#[derive(Debug)]
pub(crate) struct Memtable {
    entries: SkipSet<MemEntry>,
    /// `None` for a memtable that is not looked into, but only flushed.
    filter: Option<MemtableFilter>,
    bytes: AtomicUsize,
    /// The log that holds its changes.
    log: u64,
}

impl Memtable {
    pub(crate) fn new(log: u64, filter: Option<MemtableFilter>) -> Self {
        Self { entries: SkipSet::new(), filter, bytes: AtomicUsize::new(0), log }
    }

    pub(crate) fn insert(&self, entry: EntryRef<'_>) {
        let mut data = Vec::with_capacity(entry.key.len() + entry.value.len());
        data.extend_from_slice(entry.key);
        data.extend_from_slice(entry.value);
        // The bits before the key: see the filter.
        let grown = self.filter.as_ref().map_or(0, |filter| filter.insert(entry.key));
        passing("between a memtable's bits and its entry");
        self.bytes.fetch_add(data.len() + ENTRY_OVERHEAD_BYTES + grown, Ordering::Relaxed);
        self.entries.insert(MemEntry {
            head: key::head(entry.key),
            key_length: entry.key.len() as u16, // MAX_KEY_BYTES fits
            data: data.into(),
            kind: entry.kind,
            seq: entry.seq,
        });
    }

    /// Whether the key of a lookup may be here; "no" is certain for all that is visible to it.
    pub(crate) fn may_contain(&self, lookup: &LookupHash<'_>) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_contain(lookup))
    }

    /// The newest change of `key` up to `seq`.
    pub(crate) fn get(&self, key: &[u8], seq: Seq) -> Option<(EntryKind, Value)> {
        let place = Place::new(key, seq);
        let place: &dyn Ordered = &place;
        let entry = self.entries.lower_bound(Bound::Included(place))?;
        let found = entry.value().as_ref();
        (found.key == key).then(|| (found.kind, entry.value().value()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of changes held; exact once nobody writes any more.
    pub(crate) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// The memory taken, in bytes, the filter's included.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn log(&self) -> u64 {
        self.log
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::filter::{HashKey, KeyHash};
    use crate::sync::with_hook;

    const SECRET: HashKey = HashKey::new([4; 16]);

    fn memtable() -> Memtable {
        Memtable::new(1, Some(MemtableFilter::new(KeyHash::SipHash13, SECRET)))
    }

    fn put<'a>(key: &'a [u8], seq: Seq, value: &'a [u8]) -> EntryRef<'a> {
        EntryRef { key, seq, kind: EntryKind::Put, value }
    }

    #[test]
    fn a_search_sees_the_newest_change_up_to_its_sequence_number() {
        let memtable = memtable();
        memtable.insert(put(b"a", 1, b"old"));
        memtable.insert(put(b"a", 5, b"new"));
        memtable.insert(EntryRef { key: b"a", seq: 9, kind: EntryKind::Delete, value: b"" });
        memtable.insert(put(b"ab", 3, b"other"));
        memtable.insert(put(b"", 4, b"empty key"));
        let get = |key: &[u8], seq| memtable.get(key, seq).map(|(kind, v)| (kind, v.to_vec()));
        assert_eq!(get(b"a", 0), None);
        assert_eq!(get(b"a", 4), Some((EntryKind::Put, b"old".to_vec())));
        assert_eq!(get(b"a", 8), Some((EntryKind::Put, b"new".to_vec())));
        assert_eq!(get(b"a", 9), Some((EntryKind::Delete, vec![])));
        assert_eq!(get(b"", 9), Some((EntryKind::Put, b"empty key".to_vec())));
        assert_eq!(get(b"aa", 9), None);
        assert_eq!(get(b"b", 9), None);
    }

    #[test]
    fn readers_see_what_was_inserted_while_a_writer_goes_on() {
        let memtable = memtable();
        let done = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let inserted = done.load(Ordering::Acquire);
                        for i in (0..inserted).step_by(97) {
                            let key = (i as u64).to_be_bytes();
                            assert!(memtable.get(&key, u64::MAX).is_some(), "{i} of {inserted}");
                            assert!(memtable.may_contain(&LookupHash::new(&key, &SECRET)));
                        }
                        if inserted == 20_000 {
                            return;
                        }
                    }
                });
            }
            for i in 0..20_000_u64 {
                memtable.insert(put(&i.to_be_bytes(), i + 1, b"v"));
                done.store(i as usize + 1, Ordering::Release);
            }
        });
        let filter = 64 * 4 * (1 + 4 + 16 + 64 + 256);
        assert_eq!(memtable.bytes(), 20_000 * (9 + ENTRY_OVERHEAD_BYTES) + filter);
    }

    /// Stops every insertion halfway and looks, as a reader might: a key that can be found by then
    /// must not be denied. With the two steps in the other order it would be.
    #[test]
    fn the_bits_are_there_before_the_key() {
        let memtable = Arc::new(memtable());
        let mut halfway = 0;
        for i in 0..3000_u64 {
            let key = i.to_be_bytes();
            let table = Arc::clone(&memtable);
            let look = move |_: &str| {
                let denied = !table.may_contain(&LookupHash::new(&key, &SECRET));
                let found = table.get(&key, u64::MAX).is_some();
                assert!(!(found && denied), "key {i} is there before its bits");
                assert!(!denied, "key {i} is about to be there, but denied");
            };
            halfway += with_hook(look, || memtable.insert(put(&key, i + 1, b"v")));
        }
        println!("looked {halfway} times halfway through an insertion");
        assert_eq!(halfway, 3000);
    }
}
