//! The hash function and key of a filter.

use std::io;
use std::path::Path;

use crate::error::{IoContext, Result};
use crate::hash::{HashFunction, HashKey};

/// The hash function and the hash key of a filter.
///
/// A filter has a random key unless you set one. The bytes of the filter contain the key. To unite two
/// filters, set one `Hashing` for both, or make the second by
/// [`Bloom::empty_like`](super::Bloom::empty_like).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hashing {
    pub(super) hash: HashFunction,
    pub(super) key: HashKey,
}

impl Hashing {
    /// SipHash-1-3 under a random key. Without access to the bytes of the filter, absent keys that pass
    /// cannot be crafted.
    ///
    /// # Errors
    /// If the operating system provides no random bytes.
    pub fn random() -> Result<Self> {
        let key = random_bytes().context("get random bytes", Path::new("the operating system"))?;
        Ok(Self::keyed(key))
    }

    /// SipHash-1-3 under this key, to unite or reproduce filters.
    pub fn keyed(key: [u8; 16]) -> Self {
        Self { hash: HashFunction::SipHash13, key: HashKey::new(key) }
    }

    /// MurmurHash2 without a key, for trusted keys only: see [`HashFunction::MurmurHash2`].
    pub fn murmurhash2() -> Self {
        Self { hash: HashFunction::MurmurHash2, key: HashKey::new([0; HashKey::BYTES]) }
    }

    /// The function.
    pub fn hash(&self) -> HashFunction {
        self.hash
    }

    pub(super) fn of(&self, key: &[u8]) -> u64 {
        self.hash.of(key, &self.key)
    }
}

pub(super) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| io::Error::other(e.to_string()))?;
    Ok(bytes)
}
