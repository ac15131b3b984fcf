//! The hash of a user key: computed once a lookup, mixed anew for each table.
//!
//! Everything in this room works on one 64-bit hash a key. Where it comes from is the policy's
//! choice; what a table makes of it is below.

use std::cell::Cell;
use std::fmt;

use super::siphash::siphash_1_3;
use byteorder::{ByteOrder, LittleEndian};

/// How user keys are hashed for their filters. One 64-bit hash a lookup serves every table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyHash {
    /// SipHash-1-3 (Aumasson and Bernstein, 2012) under the store's own random 128-bit key; each
    /// table re-mixes it with a salt of its own. Nobody who cannot read the store's files can craft
    /// absent keys that pass a filter, a false positive of one table says nothing about the next,
    /// and a compaction forgets them all. Costs about 5 ns more than MurmurHash2 for 16-byte keys.
    SipHash13,
    /// MurmurHash2 in its 64-bit form MurmurHash64A, seed 0, without key or salt: the hash of the
    /// literature, for trusted keys. **Anyone can craft absent keys that pass every filter**, because
    /// pairs of 8-byte blocks collide under every seed; a lookup of such a key reads from each table.
    MurmurHash2,
}

impl KeyHash {
    /// The number in the filter's header. 1 was MurmurHash64A twice, before the first release.
    pub(super) fn id(self) -> u8 {
        match self {
            Self::MurmurHash2 => 2,
            Self::SipHash13 => 3,
        }
    }

    pub(super) fn with_id(id: u8) -> Option<Self> {
        [Self::MurmurHash2, Self::SipHash13].into_iter().find(|hash| hash.id() == id)
    }

    /// The hash of a user key in a store with this secret.
    pub(crate) fn of(self, key: &[u8], secret: &HashKey) -> u64 {
        match self {
            Self::SipHash13 => secret.hash(key),
            Self::MurmurHash2 => murmurhash2::murmur64a(key, 0),
        }
    }

    /// The hash of a prefix, another one than that of the key with the same bytes.
    pub(super) fn of_prefix(self, prefix: &[u8], secret: &PrefixKey) -> u64 {
        match self {
            Self::SipHash13 => self.of(prefix, &secret.0),
            Self::MurmurHash2 => murmurhash2::murmur64a(prefix, PREFIX_SEED),
        }
    }

    /// What one table makes of that hash.
    #[inline]
    pub(super) fn salted(self, hash: u64, salt: u64) -> u64 {
        match self {
            Self::SipHash13 => mix(hash ^ salt),
            Self::MurmurHash2 => hash,
        }
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SipHash13 => "SipHash-1-3, keyed",
            Self::MurmurHash2 => "MurmurHash2",
        })
    }
}

/// MurmurHash2's seed for prefixes; keys have 0.
const PREFIX_SEED: u64 = GOLDEN;

/// The secret of a store, made when the store is, and kept in its manifest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct HashKey([u8; HashKey::BYTES]);

impl HashKey {
    pub(crate) const BYTES: usize = 16;

    pub(crate) const fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    #[inline]
    fn hash(&self, bytes: &[u8]) -> u64 {
        let [first, second] = [0, 8].map(|at| LittleEndian::read_u64(&self.0[at..]));
        siphash_1_3([first, second], bytes)
    }

    /// Tells filters made under another key, without telling the key.
    pub(super) fn fingerprint(&self) -> u64 {
        self.hash(b"criba: which key")
    }

    /// The key under which prefixes are hashed; takes two hashes.
    pub(crate) fn for_prefixes(&self) -> PrefixKey {
        let halves = [self.hash(b"criba: prefixes, first"), self.hash(b"criba: prefixes, second")];
        let mut derived = [0; Self::BYTES];
        LittleEndian::write_u64_into(&halves, &mut derived);
        PrefixKey(Self(derived))
    }

    /// The salt of a table's filter: as good as random to whoever does not know the key, another one
    /// for each table, for each generation of its filter and for each attempt at building it.
    pub(super) fn salt(&self, table: u64, generation: u64, attempt: u64) -> u64 {
        let mut place = [0; 40];
        place[..16].copy_from_slice(b"criba: the salt ");
        LittleEndian::write_u64_into(&[table, generation, attempt], &mut place[16..]);
        self.hash(&place)
    }
}

/// What a store's secret is for prefixes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PrefixKey(HashKey);

/// Not the key itself, which must not get into a log.
impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HashKey({:016x})", self.fingerprint())
    }
}

/// The hash of one lookup's key, computed when the first filter asks for it.
#[derive(Debug)]
pub(crate) struct LookupHash<'a> {
    key: &'a [u8],
    secret: &'a HashKey,
    sip: Cell<Option<u64>>,
    murmur: Cell<Option<u64>>,
}

impl<'a> LookupHash<'a> {
    pub(crate) fn new(key: &'a [u8], secret: &'a HashKey) -> Self {
        Self { key, secret, sip: Cell::new(None), murmur: Cell::new(None) }
    }

    pub(crate) fn key(&self) -> &'a [u8] {
        self.key
    }

    /// The hash of this kind; only the first to ask pays for it.
    #[inline]
    pub(crate) fn get(&self, hash: KeyHash) -> u64 {
        let known = match hash {
            KeyHash::SipHash13 => &self.sip,
            KeyHash::MurmurHash2 => &self.murmur,
        };
        known.get().unwrap_or_else(|| {
            let value = hash.of(self.key, self.secret);
            known.set(Some(value));
            value
        })
    }
}

/// The hashes of one scan's prefix.
#[derive(Debug)]
pub(crate) struct PrefixHash {
    sip: u64,
    murmur: u64,
}

impl PrefixHash {
    pub(crate) fn new(prefix: &[u8], secret: &PrefixKey) -> Self {
        let of = |hash: KeyHash| hash.of_prefix(prefix, secret);
        Self { sip: of(KeyHash::SipHash13), murmur: of(KeyHash::MurmurHash2) }
    }

    pub(super) fn get(&self, hash: KeyHash) -> u64 {
        match hash {
            KeyHash::SipHash13 => self.sip,
            KeyHash::MurmurHash2 => self.murmur,
        }
    }
}

/// The golden ratio's fraction, as a 64-bit integer; odd, and without pattern.
pub(crate) const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finalizer of SplitMix64 (Steele, Lea and Flood, 2014): a permutation of the 64-bit integers in
/// which each bit of the outcome depends on each bit of `z`.
#[inline]
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Maps a hash to 0 … n−1, by its high bits, without a division (Lemire, *Fast Random Integer
/// Generation in an Interval*, 2019).
#[inline]
pub(crate) fn fast_range(hash: u64, n: u64) -> u64 {
    ((u128::from(hash) * u128::from(n)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SMHasher's verification: hash the keys {}, {0}, {0,1}, … with seeds 256, 255, …, then hash
    /// the hashes; the low 32 bits identify the algorithm, byte order included.
    #[test]
    fn murmurhash2_is_murmurhash64a() {
        let keys: Vec<u8> = (0..=255).collect();
        let mut hashes = Vec::new();
        for i in 0..256_usize {
            let hash = murmurhash2::murmur64a(&keys[..i], 256 - i as u64);
            hashes.extend_from_slice(&hash.to_le_bytes());
        }
        assert_eq!(murmurhash2::murmur64a(&hashes, 0) as u32, 0x1F0D_3804);
        let secret = HashKey::new([7; 16]);
        assert_eq!(KeyHash::MurmurHash2.of(b"criba", &secret), murmurhash2::murmur64a(b"criba", 0));
    }

    /// Under the key 00 01 … 0f, of the messages {}, {0}, {0,1}, …; the values are those of an
    /// implementation of the paper's own text that gives its SipHash-2-4 vector.
    #[test]
    fn siphash_is_siphash_1_3() {
        let secret = HashKey::new(std::array::from_fn(|i| i as u8));
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
            let hash = KeyHash::SipHash13.of(&message[..length], &secret);
            assert_eq!(hash, expected, "{length} bytes");
        }
    }

    #[test]
    fn tables_generations_and_attempts_have_salts_of_their_own() {
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

    /// The first outputs of the generator whose state is 0 at first.
    #[test]
    fn mix_is_that_of_splitmix64() {
        let state = |i: u64| i.wrapping_mul(GOLDEN);
        assert_eq!(
            [mix(state(1)), mix(state(2)), mix(state(3))],
            [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F]
        );
    }

    /// Under any salt hashes stay as many as they are, and under any two they differ.
    #[test]
    fn each_bit_of_hash_and_salt_counts() {
        for (hash, salt) in (0..100).map(|i| (mix(2 * i), mix(2 * i + 1))) {
            let salted = |hash, salt| KeyHash::SipHash13.salted(hash, salt);
            for bit in (0..64).map(|i| 1 << i) {
                assert_ne!(salted(hash ^ bit, salt), salted(hash, salt));
                assert_ne!(salted(hash, salt ^ bit), salted(hash, salt));
            }
            assert_eq!(KeyHash::MurmurHash2.salted(hash, salt), hash);
        }
    }

    #[test]
    fn a_lookup_hashes_each_way_once_and_as_a_table_does() {
        let secret = HashKey::new([3; 16]);
        let lookup = LookupHash::new(b"key", &secret);
        assert_eq!(lookup.key(), b"key");
        for hash in [KeyHash::SipHash13, KeyHash::MurmurHash2] {
            assert_eq!(lookup.get(hash), hash.of(b"key", &secret));
            assert_eq!(lookup.get(hash), hash.of(b"key", &secret));
            assert_eq!(KeyHash::with_id(hash.id()), Some(hash));
        }
        assert_eq!(KeyHash::with_id(1), None);
        let names = [KeyHash::SipHash13, KeyHash::MurmurHash2].map(|hash| hash.to_string());
        assert_eq!(names, ["SipHash-1-3, keyed", "MurmurHash2"]);
    }
}
