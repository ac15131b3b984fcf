//! The hash of a user key, computed once a lookup and shared by every filter of every table.

/// The two halves of double hashing: `h1 = MurmurHash64A(key, 0)`, `h2 = MurmurHash64A(key, h1)`.
///
/// The literature that this filter comes from says "MurmurHash2 with double hashing" and names
/// neither the variant nor the second seed; the 64-bit variant and this seed are our choice, and
/// part of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHash {
    pub(crate) h1: u64,
    pub(crate) h2: u64,
}

impl KeyHash {
    pub(crate) fn of(key: &[u8]) -> Self {
        let h1 = murmurhash2::murmur64a(key, 0);
        Self { h1, h2: murmurhash2::murmur64a(key, h1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SMHasher's verification: hash the keys {}, {0}, {0,1}, … with seeds 256, 255, …, then hash
    /// the hashes; the low 32 bits identify the algorithm, byte order included.
    #[test]
    fn the_hash_is_murmurhash64a() {
        let keys: Vec<u8> = (0..=255).collect();
        let mut hashes = Vec::new();
        for i in 0..256_usize {
            let hash = murmurhash2::murmur64a(&keys[..i], 256 - i as u64);
            hashes.extend_from_slice(&hash.to_le_bytes());
        }
        assert_eq!(murmurhash2::murmur64a(&hashes, 0) as u32, 0x1F0D_3804);
    }

    #[test]
    fn the_second_half_is_seeded_by_the_first() {
        let hash = KeyHash::of(b"criba");
        assert_eq!(hash.h1, murmurhash2::murmur64a(b"criba", 0));
        assert_eq!(hash.h2, murmurhash2::murmur64a(b"criba", hash.h1));
        assert_ne!(hash.h1, hash.h2);
    }
}
