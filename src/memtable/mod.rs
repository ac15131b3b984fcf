//! Memtables: the newest entries, sorted, in memory. Many threads read while one writes.
//!
//! A memtable only grows. When it is full it is sealed, flushed to a table and dropped. Invariants: every
//! later search sees an inserted entry, and its key passed the memtable's filter before.

mod cursor;
mod filter;
mod leaf;
mod leaves;
mod search_key;

pub(crate) use cursor::MemtableCursor;
pub(crate) use filter::MemtableFilter;

use std::ops::Bound;

use crate::expiry::Stored;
use crate::filter::LookupKey;
use crate::key::{EntryRef, Seq};
use crate::sync::{AtomicUsize, OnceLock, Ordering, sync_point};
use criba_filter::HashFunction;

use leaves::Leaves;
use search_key::SearchKey;

#[derive(Debug)]
pub(crate) struct Memtable {
    leaves: Leaves,
    count: AtomicUsize,
    /// `None` for a memtable that is only flushed.
    filter: Option<MemtableFilter>,
    bytes: AtomicUsize,
    /// The log that holds its entries.
    log: u64,
    first: Seq,
    /// Where the entries end in the log, when the memtable is sealed.
    log_end: OnceLock<u64>,
}

impl Memtable {
    /// `first`: at most the number of its first entry.
    pub(crate) fn new(log: u64, first: Seq, filter: Option<MemtableFilter>) -> Self {
        Self {
            leaves: Leaves::default(),
            count: AtomicUsize::new(0),
            filter,
            bytes: AtomicUsize::new(0),
            log,
            first,
            log_end: OnceLock::new(),
        }
    }

    pub(crate) fn insert(&self, entry: EntryRef<'_>) {
        // The bits before the key: see the filter.
        let grown = self.filter.as_ref().map_or(0, |filter| filter.insert(entry.key));
        sync_point("between a memtable's bits and its entry");
        let grown = self.leaves.insert(entry).wrapping_add(grown);
        self.bytes.fetch_add(grown, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the memtable may hold the key; "no" is certain for all entries that the lookup may see.
    #[inline]
    pub(crate) fn may_contain(&self, key: &LookupKey<'_>) -> bool {
        match &self.filter {
            Some(filter) => filter.may_contain(|function| key.hash(function)),
            None => true,
        }
    }

    /// The hash function of the filter.
    #[inline]
    pub(crate) fn hash_function(&self) -> HashFunction {
        self.filter.as_ref().map_or(HashFunction::SipHash13, |filter| filter.hash)
    }

    pub(crate) fn get(&self, key: &[u8], seq: Seq) -> Option<Stored> {
        self.leaves.get(key, seq)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The newest sequence number; exact when no thread writes.
    pub(crate) fn newest(&self) -> Seq {
        self.leaves.newest()
    }

    /// The number of entries; exact when no thread writes.
    pub(crate) fn len(&self) -> u64 {
        self.count.load(Ordering::Relaxed) as u64
    }

    /// The estimated number of entries within bounds; exact up to the size of one leaf.
    pub(crate) fn len_within(&self, (start, end): (Bound<&[u8]>, Bound<&[u8]>)) -> f64 {
        // A key's entries run from (key, MAX) to (key, 0), and none is there.
        let from = match start {
            Bound::Included(key) => self.leaves.part_below(&SearchKey::new(key, Seq::MAX)),
            Bound::Excluded(key) => self.leaves.part_below(&SearchKey::new(key, 0)),
            Bound::Unbounded => 0.0,
        };
        let to = match end {
            Bound::Included(key) => self.leaves.part_below(&SearchKey::new(key, 0)),
            Bound::Excluded(key) => self.leaves.part_below(&SearchKey::new(key, Seq::MAX)),
            Bound::Unbounded => 1.0,
        };
        self.len() as f64 * (to - from).max(0.0)
    }

    /// The memory taken, in bytes, with the filter.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn log(&self) -> u64 {
        self.log
    }

    /// No entry has a smaller number, and all of older memtables have.
    pub(crate) fn first(&self) -> Seq {
        self.first
    }

    /// Notes where the entries end in the log, which gets no more of them.
    pub(crate) fn set_log_end(&self, end: u64) {
        let _ = self.log_end.set(end);
    }

    /// `None` for a memtable in use.
    pub(crate) fn log_end(&self) -> Option<u64> {
        self.log_end.get().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;

    use super::*;
    use crate::key::EntryKind;
    use crate::sync::with_hook;
    use criba_filter::HashFunction;
    use criba_filter::store::HashKey;

    const SECRET: HashKey = HashKey::new([4; 16]);

    fn memtable() -> Memtable {
        Memtable::new(1, 1, Some(MemtableFilter::new(HashFunction::SipHash13, SECRET)))
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
        let get = |key: &[u8], seq| {
            memtable.get(key, seq).map(|found| (found.kind, found.value.to_vec()))
        };
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
                            assert!(memtable.may_contain(&LookupKey::new(
                                &key,
                                &SECRET,
                                HashFunction::SipHash13
                            )));
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
    }

    #[test]
    fn its_memory_is_what_its_entries_take() {
        for (entries, value, order) in [
            (3000, 20, 0x9E37_79B9_7F4A_7C15_u64),
            (30_000, 100, 0x9E37_79B9_7F4A_7C15),
            (44_000, 100, 0x9E37_79B9_7F4A_7C15),
            (30_000, 100, 1),
            (2000, 1500, 0x9E37_79B9_7F4A_7C15),
        ] {
            let value = vec![7; value];
            let mut said = 0;
            let mut kept = None;
            let taken = allocation_counter::measure(|| {
                let memtable = memtable();
                for i in 0..entries {
                    memtable.insert(put(&order.wrapping_mul(i).to_be_bytes(), i + 1, &value));
                }
                said = memtable.bytes();
                kept = Some(memtable);
            });
            let taken = taken.bytes_current as f64;
            println!("{entries} entries of {}: {said} bytes, {taken} taken", 8 + value.len());
            assert!((0.9..1.1).contains(&(said as f64 / taken)), "{said} of {taken}");
        }
    }

    #[test]
    fn no_order_gives_entries_leaves_of_their_own() {
        for in_front in [100, 127, 128, 129, 1024] {
            for again in [false, true] {
                let memtable = memtable();
                let mut seq = 0;
                let mut insert = |key: &[u8]| {
                    seq += 1;
                    memtable.insert(put(key, seq, b"12345678"));
                };
                (0..in_front).for_each(|i: u32| insert(&[&b"a"[..], &i.to_be_bytes()].concat()));
                let before = memtable.bytes();
                for i in 0..10_000_u32 {
                    let number = if again { 0 } else { 10_000 - i };
                    insert(&[&b"b"[..], &number.to_be_bytes()].concat());
                }
                let each = (memtable.bytes() - before) / 10_000;
                println!("{in_front} in front, again {again}: {each} bytes an entry");
                assert!(each < 130, "{each} bytes an entry, {in_front} in front, {again}");
            }
        }
    }

    /// Stops each insertion between its two steps: a key that can be found must not be denied.
    #[test]
    fn the_bits_are_there_before_the_key() {
        let memtable = Arc::new(memtable());
        let halfway = Rc::new(Cell::new(0));
        for i in 0..3000_u64 {
            let key = i.to_be_bytes();
            let (table, looks) = (Arc::clone(&memtable), Rc::clone(&halfway));
            let look = move |target: &str| {
                if target != "between a memtable's bits and its entry" {
                    return;
                }
                looks.set(looks.get() + 1);
                let denied =
                    !table.may_contain(&LookupKey::new(&key, &SECRET, HashFunction::SipHash13));
                let found = table.get(&key, u64::MAX).is_some();
                assert!(!(found && denied), "key {i} is there before its bits");
                assert!(!denied, "key {i} is about to be there, but denied");
            };
            with_hook(look, || memtable.insert(put(&key, i + 1, b"v")));
        }
        println!("looked {} times halfway through an insertion", halfway.get());
        assert_eq!(halfway.get(), 3000);
    }
}
