//! The hashes of one lookup or scan, computed once for the filters of all tables.

use std::cell::Cell;

use super::hash_function::{HashFunction, HashKey, PrefixKey};

/// The hash of the key of one lookup, computed when the first filter needs it.
#[derive(Debug)]
pub(crate) struct LookupHash<'a> {
    key: &'a [u8],
    hash_key: &'a HashKey,
    sip: Cell<Option<u64>>,
    murmur: Cell<Option<u64>>,
}

impl<'a> LookupHash<'a> {
    pub(crate) fn new(key: &'a [u8], hash_key: &'a HashKey) -> Self {
        Self { key, hash_key, sip: Cell::new(None), murmur: Cell::new(None) }
    }

    pub(crate) fn key(&self) -> &'a [u8] {
        self.key
    }

    #[inline]
    pub(crate) fn get(&self, hash: HashFunction) -> u64 {
        let known = match hash {
            HashFunction::SipHash13 => &self.sip,
            HashFunction::MurmurHash2 => &self.murmur,
        };
        known.get().unwrap_or_else(|| {
            let value = hash.of(self.key, self.hash_key);
            known.set(Some(value));
            value
        })
    }
}

#[derive(Debug)]
pub(crate) struct PrefixHash {
    sip: u64,
    murmur: u64,
}

impl PrefixHash {
    pub(crate) fn new(prefix: &[u8], hash_key: &PrefixKey) -> Self {
        let of = |hash: HashFunction| hash.of_prefix(prefix, hash_key);
        Self { sip: of(HashFunction::SipHash13), murmur: of(HashFunction::MurmurHash2) }
    }

    pub(super) fn get(&self, hash: HashFunction) -> u64 {
        match hash {
            HashFunction::SipHash13 => self.sip,
            HashFunction::MurmurHash2 => self.murmur,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_has_the_hash_of_each_function() {
        let hash_key = HashKey::new([3; 16]);
        let lookup = LookupHash::new(b"key", &hash_key);
        assert_eq!(lookup.key(), b"key");
        for hash in [HashFunction::SipHash13, HashFunction::MurmurHash2] {
            assert_eq!(lookup.get(hash), hash.of(b"key", &hash_key));
            assert_eq!(lookup.get(hash), hash.of(b"key", &hash_key));
        }
    }
}
