//! How a filter without a store hashes its keys.

use std::io;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::filter::KeyHash;
use crate::filter::hash::HashKey;
use crate::sync::Arc;

/// How a filter of one's own hashes its keys: by which function, and under which key.
///
/// A filter has a random key unless it is given another; it is kept in the filter's bytes, so that
/// whoever reads them can ask. Filters are united only if they hash alike: give both the same
/// `Hashing`, or make the second with [`Bloom::empty_like`](super::Bloom::empty_like).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hashing {
    pub(super) hash: KeyHash,
    pub(super) key: HashKey,
}

impl Hashing {
    /// SipHash-1-3 under a key from the operating system's randomness. Nobody who has not seen the
    /// filter's bytes can craft keys that pass it.
    ///
    /// # Errors
    /// If the operating system has no randomness to give.
    pub fn random() -> Result<Self> {
        let mut key = [0; HashKey::BYTES];
        getrandom::fill(&mut key).map_err(|e| Error::Io {
            action: "get random bytes".into(),
            path: PathBuf::from("the operating system"),
            source: Arc::new(io::Error::other(e.to_string())),
        })?;
        Ok(Self::keyed(key))
    }

    /// SipHash-1-3 under this key: for filters that are to be united, or made again bit by bit.
    pub fn keyed(key: [u8; 16]) -> Self {
        Self { hash: KeyHash::SipHash13, key: HashKey::new(key) }
    }

    /// MurmurHash2, without a key, for trusted keys: see [`KeyHash::MurmurHash2`] for what it does
    /// not protect from.
    pub fn murmurhash2() -> Self {
        Self { hash: KeyHash::MurmurHash2, key: HashKey::new([0; HashKey::BYTES]) }
    }

    /// The function.
    pub fn hash(&self) -> KeyHash {
        self.hash
    }

    pub(super) fn of(&self, key: &[u8]) -> u64 {
        self.hash.of(key, &self.key)
    }
}
