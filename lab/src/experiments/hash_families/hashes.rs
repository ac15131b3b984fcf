//! Seven sources of the two hashes of double hashing.

use md5::Md5;
use sha2::{Digest, Sha256};
use siphasher::sip::SipHasher13;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

/// A way to hash a key under a seed, twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::experiments) enum Family {
    Murmur,
    SipHash,
    Xxh3,
    Halves,
    ShaWithMd5,
    Md5,
    Sum,
}

impl Family {
    pub(super) const ALL: [Self; 7] = [
        Self::Murmur,
        Self::SipHash,
        Self::Xxh3,
        Self::Halves,
        Self::ShaWithMd5,
        Self::Md5,
        Self::Sum,
    ];

    /// The labels of an axis, in the order of [`ALL`](Self::ALL).
    pub(super) const LABELS: &'static [&'static str] =
        &["Murmur", "Sip", "XXH3", "halves", "SHA, MD5", "MD5", "sum"];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Murmur => "MurmurHash2, h2 seeded with h1",
            Self::SipHash => "SipHash-1-3, as criba has it",
            Self::Xxh3 => "XXH3 of 128 bits",
            Self::Halves => "XXH3 of 64 bits, in two halves",
            Self::ShaWithMd5 => "SHA-256 with MD5",
            Self::Md5 => "MD5, truncated to 64 bits in two halves",
            Self::Sum => "the sum of the bytes",
        }
    }

    pub(super) fn has_seeds(self) -> bool {
        self != Self::Sum
    }

    pub(in crate::experiments) fn hashes(self, seed: u64, key: &[u8]) -> (u64, u64) {
        match self {
            // The paper's: under the seed 0 it is the paper's filter.
            Self::Murmur => {
                let h1 = murmurhash2::murmur2(key, seed as u32);
                (h1.into(), murmurhash2::murmur2(key, h1).into())
            }
            Self::SipHash => {
                let hash = SipHasher13::new_with_key(&sip_key(seed)).hash(key);
                (hash, next_of_split_mix(hash))
            }
            Self::Xxh3 => {
                let hash = xxh3_128_with_seed(key, seed);
                (hash as u64, (hash >> 64) as u64)
            }
            Self::Halves => halves(xxh3_64_with_seed(key, seed)),
            Self::ShaWithMd5 => (beginning::<Sha256>(seed, key), beginning::<Md5>(seed, key)),
            Self::Md5 => halves(beginning::<Md5>(seed, key)),
            Self::Sum => {
                let sum = byte_sum(key);
                (sum, sum)
            }
        }
    }
}

pub(super) fn byte_sum(key: &[u8]) -> u64 {
    key.iter().copied().map(u64::from).sum()
}

pub(super) fn sip_key(seed: u64) -> [u8; 16] {
    u128::from(seed).to_le_bytes()
}

/// The second of criba's two hashes: the output of SplitMix64 after the first.
fn next_of_split_mix(hash: u64) -> u64 {
    let mut z = hash.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn halves(hash: u64) -> (u64, u64) {
    (hash & u64::from(u32::MAX), hash >> 32)
}

/// The first eight bytes of a digest of seed and key.
fn beginning<D: Digest>(seed: u64, key: &[u8]) -> u64 {
    let digest = D::new().chain_update(seed.to_le_bytes()).chain_update(key).finalize();
    digest.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first bytes of the published digests of "abc", without a seed.
    #[test]
    fn the_digests_are_the_published_ones() {
        assert!(Sha256::digest(b"abc").starts_with(&[0xBA, 0x78, 0x16, 0xBF, 0x8F, 0x01, 0xCF]));
        assert!(Md5::digest(b"abc").starts_with(&[0x90, 0x01, 0x50, 0x98, 0x3C, 0xD2, 0x4F]));
    }

    #[test]
    fn seeds_make_other_hashes_but_of_the_sum() {
        for family in Family::ALL {
            let differ = family.hashes(1, b"criba") != family.hashes(2, b"criba");
            assert_eq!(differ, family.has_seeds(), "{family:?}");
        }
        assert_eq!(Family::Sum.hashes(0, b"ab"), Family::Sum.hashes(0, b"ba"));
    }
}
