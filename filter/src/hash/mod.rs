//! Hash functions and hash keys. One 64-bit hash of a key probes all filters; each mixes in its own salt.

mod mix;
mod siphash;

use std::fmt;

use byteorder::{ByteOrder, LittleEndian};

pub use mix::{GOLDEN, fast_range, mix};
use siphash::siphash_1_3;

/// The hash function of filters. A lookup hashes its key once, for all tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HashFunction {
    /// SipHash-1-3 (Aumasson and Bernstein, 2012) under the random 128-bit key of the store, with a salt for
    /// each filter. Without access to the files of the store, absent keys that pass cannot be crafted. False
    /// positives of different filters are independent, also of the filters before and after a compaction.
    /// Costs about 5 ns more than MurmurHash2 for 16-byte keys.
    SipHash13,
    /// MurmurHash64A, the 64-bit form of MurmurHash2, with seed 0, without key or salt: the hash of the
    /// literature, for trusted keys. **Absent keys that pass every filter are easy to craft**: pairs of
    /// 8-byte blocks collide under every seed. A lookup of such a key reads from each table.
    MurmurHash2,
}

impl HashFunction {
    /// The number in filter headers. Number 1 belonged to a hash that was removed before the first release.
    #[doc(hidden)]
    pub fn id(self) -> u8 {
        match self {
            Self::MurmurHash2 => 2,
            Self::SipHash13 => 3,
        }
    }

    #[doc(hidden)]
    pub fn with_id(id: u8) -> Option<Self> {
        [Self::MurmurHash2, Self::SipHash13].into_iter().find(|hash| hash.id() == id)
    }

    /// The hash of a key.
    #[doc(hidden)]
    #[inline]
    pub fn of(self, key: &[u8], hash_key: &HashKey) -> u64 {
        match self {
            Self::SipHash13 => hash_key.hash(key),
            Self::MurmurHash2 => murmurhash2::murmur64a(key, 0),
        }
    }

    /// The hash of a prefix. It differs from the hash of a key with the same bytes.
    #[doc(hidden)]
    pub fn of_prefix(self, prefix: &[u8], hash_key: &PrefixKey) -> u64 {
        match self {
            Self::SipHash13 => self.of(prefix, &hash_key.0),
            Self::MurmurHash2 => murmurhash2::murmur64a(prefix, PREFIX_SEED),
        }
    }

    #[doc(hidden)]
    #[inline]
    pub fn salted(self, hash: u64, salt: u64) -> u64 {
        match self {
            Self::SipHash13 => mix(hash ^ salt),
            Self::MurmurHash2 => hash,
        }
    }
}

impl fmt::Display for HashFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SipHash13 => "SipHash-1-3, keyed",
            Self::MurmurHash2 => "MurmurHash2",
        })
    }
}

/// The seed of MurmurHash2 for prefixes; keys have 0.
const PREFIX_SEED: u64 = GOLDEN;

/// The random hash key of a store, which its manifest stores.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey([u8; HashKey::BYTES]);

impl HashKey {
    /// The length in bytes.
    pub const BYTES: usize = 16;

    /// The key of these bytes.
    pub const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// The secret bytes.
    pub fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    #[inline]
    fn hash(&self, bytes: &[u8]) -> u64 {
        siphash_1_3(self.words(), bytes)
    }

    #[inline]
    fn words(&self) -> [u64; 2] {
        [0, 8].map(|at| LittleEndian::read_u64(&self.0[at..]))
    }

    /// Identifies the hash key in filter headers without revealing it.
    pub fn fingerprint(&self) -> u64 {
        self.hash(b"criba: which key")
    }

    /// The key for hashes of prefixes.
    pub fn for_prefixes(&self) -> PrefixKey {
        let halves = [self.hash(b"criba: prefixes, first"), self.hash(b"criba: prefixes, second")];
        let mut derived = [0; Self::BYTES];
        LittleEndian::write_u64_into(&halves, &mut derived);
        PrefixKey(Self(derived))
    }

    /// The salt of one attempt to build the filter of a table, unpredictable without the key.
    pub fn salt(&self, table: u64, generation: u64, attempt: u64) -> u64 {
        let mut place = [0; 40];
        place[..16].copy_from_slice(b"criba: the salt ");
        LittleEndian::write_u64_into(&[table, generation, attempt], &mut place[16..]);
        self.hash(&place)
    }

    /// The salt of the frames of a log, unpredictable without the key.
    pub fn salt_of_log(&self, number: u64) -> u64 {
        let mut place = [0; 24];
        place[..16].copy_from_slice(b"criba: the log, ");
        LittleEndian::write_u64(&mut place[16..], number);
        self.hash(&place)
    }
}

/// The hash key for prefixes.
#[derive(Debug, Clone, Copy)]
pub struct PrefixKey(HashKey);

/// Prints the fingerprint only: the hash key is secret.
impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HashKey({:016x})", self.fingerprint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verification of SMHasher: hashes {}, {0}, {0,1}, … with seeds 256, 255, …, then hashes the
    /// results. The low 32 bits identify the algorithm and its byte order.
    #[test]
    fn murmurhash2_is_murmurhash64a() {
        let keys: Vec<u8> = (0..=255).collect();
        let mut hashes = Vec::new();
        for i in 0..256_usize {
            let hash = murmurhash2::murmur64a(&keys[..i], 256 - i as u64);
            hashes.extend_from_slice(&hash.to_le_bytes());
        }
        assert_eq!(murmurhash2::murmur64a(&hashes, 0) as u32, 0x1F0D_3804);
        let hash_key = HashKey::new([7; 16]);
        assert_eq!(
            HashFunction::MurmurHash2.of(b"criba", &hash_key),
            murmurhash2::murmur64a(b"criba", 0)
        );
    }

    /// Key 00 01 … 0f, messages {}, {0}, {0,1}, …; the values come from an implementation after the paper
    /// that reproduces the paper's SipHash-2-4 vector.
    #[test]
    fn siphash_is_siphash_1_3() {
        let hash_key = HashKey::new(std::array::from_fn(|i| i as u8));
        let message: Vec<u8> = (0..64).collect();
        for (length, expected) in [
            (0, 0xABAC_0158_050F_C4DC),
            (1, 0xC9F4_9BF3_7D57_CA93),
            (2, 0x82CB_9B02_4DC7_D44D),
            (7, 0xD392_7D98_9BB1_1140),
            (8, 0x3690_9511_8D29_9A8E),
            (15, 0xD320_D86D_2A51_9956),
            (16, 0xCC4F_DD1A_7D90_8B66),
            (63, 0x9D19_9062_B7BB_B3A8),
        ] {
            let hash = HashFunction::SipHash13.of(&message[..length], &hash_key);
            assert_eq!(hash, expected, "{length} bytes");
        }
    }

    #[test]
    fn salts_differ_by_table_generation_attempt_and_key() {
        let (one, other) = (HashKey::new([1; 16]), HashKey::new([2; 16]));
        let salts = [
            one.salt(1, 0, 0),
            one.salt(2, 0, 0),
            one.salt(1, 1, 0),
            one.salt(1, 0, 1),
            other.salt(1, 0, 0),
        ];
        for (i, salt) in salts.iter().enumerate() {
            assert!(!salts[..i].contains(salt));
        }
        assert_ne!(one.fingerprint(), other.fingerprint());
        assert!(!format!("{one:?}").contains("1, 1"));
        assert_ne!(format!("{one:?}"), format!("{other:?}"));
        assert_eq!((one.bytes(), other.bytes()), (&[1; 16], &[2; 16]));
    }

    #[test]
    fn each_bit_of_hash_and_salt_changes_the_salted_hash() {
        for (hash, salt) in (0..100).map(|i| (mix(2 * i), mix(2 * i + 1))) {
            let salted = |hash, salt| HashFunction::SipHash13.salted(hash, salt);
            for bit in (0..64).map(|i| 1 << i) {
                assert_ne!(salted(hash ^ bit, salt), salted(hash, salt));
                assert_ne!(salted(hash, salt ^ bit), salted(hash, salt));
            }
            assert_eq!(HashFunction::MurmurHash2.salted(hash, salt), hash);
        }
    }

    #[test]
    fn functions_have_ids_and_names() {
        for hash in [HashFunction::SipHash13, HashFunction::MurmurHash2] {
            assert_eq!(HashFunction::with_id(hash.id()), Some(hash));
        }
        assert_eq!(HashFunction::with_id(1), None);
        let names =
            [HashFunction::SipHash13, HashFunction::MurmurHash2].map(|hash| hash.to_string());
        assert_eq!(names, ["SipHash-1-3, keyed", "MurmurHash2"]);
    }
}
