//! The hashes of one lookup or scan, computed once for the filters of all tables.

use std::cell::Cell;

use criba_filter::HashFunction;
use criba_filter::store::{HashKey, PrefixKey};

/// A key and its hash by one function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HashedKey<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) function: HashFunction,
    pub(crate) hash: u64,
}

impl<'a> HashedKey<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8], function: HashFunction, hash_key: &HashKey) -> Self {
        Self { bytes, function, hash: function.of(bytes, hash_key) }
    }
}

/// The key of a lookup. Each of its hashes is computed when the first filter needs the hash.
#[derive(Debug)]
pub(crate) struct LookupKey<'a> {
    bytes: &'a [u8],
    hash_key: &'a HashKey,
    sip: Cell<Option<u64>>,
    murmur: Cell<Option<u64>>,
}

impl<'a> LookupKey<'a> {
    pub(crate) fn new(bytes: &'a [u8], hash_key: &'a HashKey) -> Self {
        Self { bytes, hash_key, sip: Cell::new(None), murmur: Cell::new(None) }
    }

    pub(crate) fn of_hashed(key: HashedKey<'a>, hash_key: &'a HashKey) -> Self {
        let known = |function| Cell::new((key.function == function).then_some(key.hash));
        let (sip, murmur) = (known(HashFunction::SipHash13), known(HashFunction::MurmurHash2));
        Self { bytes: key.bytes, hash_key, sip, murmur }
    }

    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub(crate) fn hash(&self, function: HashFunction) -> u64 {
        let is_murmur = function == HashFunction::MurmurHash2;
        let known = if is_murmur { &self.murmur } else { &self.sip };
        known.get().unwrap_or_else(|| {
            let value = function.of(self.bytes, self.hash_key);
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
        if hash == HashFunction::MurmurHash2 { self.murmur } else { self.sip }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_has_the_hash_of_each_function() {
        let hash_key = HashKey::new([3; 16]);
        let key = LookupKey::new(b"key", &hash_key);
        assert_eq!(key.bytes(), b"key");
        for function in [HashFunction::SipHash13, HashFunction::MurmurHash2] {
            assert_eq!(key.hash(function), function.of(b"key", &hash_key));
            assert_eq!(key.hash(function), function.of(b"key", &hash_key));
        }
    }
}
