//! Keys that filters were wrong about: a table that was once read in vain for a key is not read for
//! it again.
//!
//! An entry says that one table does not hold one key. That was read from the table itself, of all
//! versions of the key, and it stays true: a table never changes, and the number of one that is gone
//! is never given to another. Whole keys are kept and compared. With their hashes alone, a key that
//! is there could be taken for one that is not. A new filter for the table changes nothing of it.

use std::hash::{Hash, Hasher};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{Equivalent, OptionsBuilder, Weighter};

use crate::filter::{HashFunction, LookupHash, mix};
use crate::sstable::FixedHasher;

/// What an entry takes beside its key: its place in the cache, and the allocation's header and
/// rounding. The test below compares it with what is there.
const ENTRY_BYTES: usize = 112;
/// Of this part of the entries the cache remembers that they were there, when they have gone.
const GHOSTS: f64 = 0.25;
/// What that takes.
const GHOST_BYTES: u64 = 80;
/// Entries are spread over this many parts, each with a lock of its own.
const SHARDS: usize = 16;

/// A table that does not hold a key, though its filter says maybe.
#[derive(Debug, Clone)]
struct Mistake {
    table: u64,
    hash: u64,
    key: Box<[u8]>,
}

/// The same, with a key that is only borrowed.
struct Asked<'k> {
    table: u64,
    hash: u64,
    key: &'k [u8],
}

impl<'k> Asked<'k> {
    fn new(table: u64, lookup: &LookupHash<'k>) -> Self {
        // Under the store's secret, so that nobody can craft keys that all fall into one place.
        let hash = mix(lookup.get(HashFunction::SipHash13) ^ table);
        Self { table, hash, key: lookup.key() }
    }
}

impl Hash for Mistake {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Hash for Asked<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialEq for Mistake {
    fn eq(&self, other: &Self) -> bool {
        self.table == other.table && self.key == other.key
    }
}

impl Eq for Mistake {}

impl Equivalent<Mistake> for Asked<'_> {
    fn equivalent(&self, mistake: &Mistake) -> bool {
        self.table == mistake.table && *self.key == *mistake.key
    }
}

#[derive(Debug, Clone)]
struct BytesHeld;

impl Weighter<Mistake, ()> for BytesHeld {
    fn weight(&self, mistake: &Mistake, (): &()) -> u64 {
        (mistake.key.len() + ENTRY_BYTES) as u64
    }
}

/// A bounded memo of all tables of a store. When it is full, what was not asked for again goes first.
#[derive(Debug)]
pub(crate) struct Mistakes(Cache<Mistake, (), BytesHeld, FixedHasher>);

impl Mistakes {
    /// A memo of at most `bytes`; `None` for 0.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        if bytes == 0 {
            return None;
        }
        let entries = (bytes / (ENTRY_BYTES as u64 + 48)).max(1) as usize;
        let ghosts = (entries as f64 * GHOSTS) as u64;
        let options = OptionsBuilder::new()
            .shards(SHARDS.min((entries / 8).max(1)))
            .estimated_items_capacity(entries)
            .ghost_allocation(GHOSTS)
            .weight_capacity(bytes - ghosts * GHOST_BYTES)
            .build()
            .ok()?;
        let lifecycle = DefaultLifecycle::default();
        Some(Self(Cache::with_options(options, BytesHeld, FixedHasher::default(), lifecycle)))
    }

    /// Whether the table was read in vain for the key before, so that it does not hold it.
    pub(crate) fn know(&self, table: u64, lookup: &LookupHash<'_>) -> bool {
        self.0.get(&Asked::new(table, lookup)).is_some()
    }

    /// The table was read, and holds no version of the key.
    pub(crate) fn note(&self, table: u64, lookup: &LookupHash<'_>) {
        let Asked { table, hash, key } = Asked::new(table, lookup);
        self.0.insert(Mistake { table, hash, key: key.into() }, ());
    }

    /// The table is gone.
    pub(crate) fn forget(&self, table: u64) {
        self.0.retain(|mistake, ()| mistake.table != table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::HashKey;

    const SECRET: HashKey = HashKey::new([2; 16]);

    fn lookup(key: &[u8]) -> LookupHash<'_> {
        LookupHash::new(key, &SECRET)
    }

    #[test]
    fn knows_what_was_noted_of_living_tables_and_nothing_else() {
        let memo = Mistakes::new(1 << 20).expect("not empty");
        for table in 1..=3 {
            for number in 0..500_u64 {
                memo.note(table, &lookup(&number.to_le_bytes()));
            }
        }
        memo.forget(2);
        for number in 0..1000_u64 {
            let key = number.to_le_bytes();
            for table in 0..5 {
                let noted = number < 500 && (table == 1 || table == 3);
                assert_eq!(memo.know(table, &lookup(&key)), noted, "table {table}, key {number}");
            }
            assert!(!memo.know(1, &lookup(&key[..7])));
        }
        assert!(Mistakes::new(0).is_none());
    }

    /// Two keys of one hash are two keys.
    #[test]
    fn keys_are_compared_whole() {
        let memo = Mistakes::new(1 << 20).expect("not empty");
        memo.0.insert(Mistake { table: 1, hash: 7, key: (*b"noted").into() }, ());
        let know = |table, key| memo.0.get(&Asked { table, hash: 7, key }).is_some();
        assert!(know(1, b"noted"));
        assert!(!know(1, b"other"));
        assert!(!know(2, b"noted"));
    }

    /// What a full memo takes, as the cache and the allocator have it, is what it may take at most,
    /// and not much less.
    #[test]
    fn its_memory_is_counted() {
        for (bytes, key_bytes) in
            [(64 << 10, 8), (1 << 20, 16), (1 << 20, 100), (8 << 20, 40), (1 << 20, 1000)]
        {
            let memo = Mistakes::new(bytes).expect("not empty");
            let noted = bytes / 10;
            for number in 0..noted {
                let mut key = vec![0; key_bytes];
                key[..8].copy_from_slice(&number.to_le_bytes());
                memo.note(1, &lookup(&key));
            }
            let kept = memo.0.len() as u64;
            // An allocation has a header of 8 bytes and is rounded up to 16.
            let keys = kept * (key_bytes as u64 + 8).next_multiple_of(16);
            let used = memo.0.memory_used();
            let taken = keys + (used.entries + used.map) as u64;
            println!(
                "{bytes} bytes, keys of {key_bytes}: {kept} of {noted} kept, {taken} bytes taken, \
                 {} counted",
                memo.0.weight()
            );
            assert!(memo.0.weight() <= bytes && memo.0.weight() > bytes * 7 / 10);
            assert!(taken <= bytes && taken > bytes / 2, "{taken} of {bytes}");
        }
    }
}
