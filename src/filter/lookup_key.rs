//! The hashes of one lookup or scan, computed once for the filters of all tables.

use std::cell::Cell;

use criba_filter::HashFunction;
use criba_filter::store::{HashKey, PrefixKey};

/// The key of a lookup, and its hash by the function of most filters. A hash by the other function is computed when
/// the first filter needs it.
#[derive(Debug)]
pub(crate) struct LookupKey<'a> {
    bytes: &'a [u8],
    hash_key: &'a HashKey,
    function: HashFunction,
    hash: u64,
    other: Cell<Option<u64>>,
}

impl<'a> LookupKey<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8], hash_key: &'a HashKey, function: HashFunction) -> Self {
        let hash = function.of(bytes, hash_key);
        Self { bytes, hash_key, function, hash, other: Cell::new(None) }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    #[expect(clippy::inline_always, reason = "mostly, a comparison and a load")]
    #[inline(always)]
    pub(crate) fn hash(&self, function: HashFunction) -> u64 {
        if function == self.function {
            return self.hash;
        }
        if self.other.get().is_none() {
            self.other.set(Some(hash_of(self.bytes, self.hash_key, function)));
        }
        self.other.get().unwrap_or_default()
    }
}

#[cold]
fn hash_of(bytes: &[u8], hash_key: &HashKey, function: HashFunction) -> u64 {
    function.of(bytes, hash_key)
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

    pub(crate) fn get(&self, hash: HashFunction) -> u64 {
        if hash == HashFunction::MurmurHash2 { self.murmur } else { self.sip }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_has_the_hash_of_each_function() {
        let hash_key = HashKey::new([3; 16]);
        let functions = [HashFunction::SipHash13, HashFunction::MurmurHash2];
        for first in functions {
            let key = LookupKey::new(b"key", &hash_key, first);
            assert_eq!(key.bytes(), b"key");
            for function in functions.into_iter().chain(functions) {
                assert_eq!(key.hash(function), function.of(b"key", &hash_key));
            }
        }
    }
}
