//! The hashes of a table's keys, from which its filter is built.

use super::prefix::PrefixExtractor;
use crate::fences::reserve_quarter;
use criba_filter::HashFunction;
use criba_filter::store::{HashKey, PrefixKey};

/// The distinct keys of a table and their distinct prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct KeyCounts {
    pub(crate) keys: u64,
    pub(crate) prefixes: u64,
}

impl KeyCounts {
    /// The entries of a filter, which determine its size.
    pub(crate) fn hashed(self) -> u64 {
        self.keys.saturating_add(self.prefixes)
    }
}

#[derive(Debug)]
pub(crate) struct KeyHashes {
    hash: HashFunction,
    hash_key: HashKey,
    prefix_hash_key: PrefixKey,
    extractor: Option<PrefixExtractor>,
    last: Option<Vec<u8>>,
    keys: Vec<u64>,
    prefixes: Vec<u64>,
}

impl KeyHashes {
    pub(crate) fn new(
        hash: HashFunction,
        hash_key: &HashKey,
        extractor: Option<PrefixExtractor>,
    ) -> Self {
        Self {
            hash,
            hash_key: *hash_key,
            prefix_hash_key: hash_key.for_prefixes(),
            extractor,
            last: None,
            keys: Vec::new(),
            prefixes: Vec::new(),
        }
    }

    /// Adds the next key in order, also of a tombstone. A repetition of the last key has no effect.
    pub(crate) fn add(&mut self, key: &[u8]) {
        let last = self.last.as_deref();
        if last == Some(key) {
            return;
        }
        reserve_quarter(&mut self.keys, 1, 1 << 10);
        self.keys.push(self.hash.of(key, &self.hash_key));
        if let Some(extractor) = self.extractor {
            for prefix in extractor.new_prefixes(last, key) {
                reserve_quarter(&mut self.prefixes, 1, 1 << 10);
                self.prefixes.push(self.hash.of_prefix(prefix, &self.prefix_hash_key));
            }
        }
        let last = self.last.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
    }

    #[cfg(test)]
    pub(crate) fn of_hashes(hash: HashFunction, hash_key: &HashKey, keys: Vec<u64>) -> Self {
        Self { keys, ..Self::new(hash, hash_key, None) }
    }

    /// Replaces the hash at this index of [`iter`](Self::iter), and returns the old hash.
    #[cfg(test)]
    pub(crate) fn replace(&mut self, number: usize, hash: u64) -> u64 {
        let mut hashes = self.keys.iter_mut().chain(&mut self.prefixes);
        std::mem::replace(hashes.nth(number).expect("so many"), hash)
    }

    pub(crate) fn counts(&self) -> KeyCounts {
        KeyCounts { keys: self.keys.len() as u64, prefixes: self.prefixes.len() as u64 }
    }

    pub(crate) fn hash(&self) -> HashFunction {
        self.hash
    }

    pub(crate) fn extractor(&self) -> u64 {
        self.extractor.map_or(0, PrefixExtractor::id)
    }

    /// The hashes of the keys in order, then of the prefixes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        self.keys.iter().chain(&self.prefixes).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_prefixes_are_counted_once() {
        let hash_key = HashKey::new([8; 16]);
        for (hash, extractor, prefixes) in [
            (HashFunction::SipHash13, PrefixExtractor::until(b'/'), 2),
            (HashFunction::MurmurHash2, PrefixExtractor::until(b'/'), 2),
            (HashFunction::SipHash13, PrefixExtractor::every(b'/'), 3),
        ] {
            let mut hashes = KeyHashes::new(hash, &hash_key, Some(extractor));
            for key in ["", "a", "a/", "a/", "a/b", "a/b/c", "a0", "b/", "b/a", "b/a"] {
                hashes.add(key.as_bytes());
            }
            assert_eq!(hashes.counts(), KeyCounts { keys: 8, prefixes });
            // A key and a prefix with the same bytes have different hashes.
            let mut all: Vec<u64> = hashes.iter().collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 8 + prefixes as usize);
            assert_eq!(KeyHashes::new(hash, &hash_key, None).extractor(), 0);
        }
    }
}
