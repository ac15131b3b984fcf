//! The filter block of a table: a header, then the array; see format.md, "Filter".

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use bytes::Bytes;

use super::header::FilterHeader;
use crate::filter::KeyHashes;
use crate::filter::PrefixExtractor;
use crate::filter::{LookupKey, PrefixHash};
use crate::sealed::{Meter, SealedBytes};
use crate::sync::{Arc, OnceLock};
use criba_filter::HashFunction;
use criba_filter::store::{HashKey, Prober, Recipe};

/// The table and the generation of a filter: generation 0 is in the table, later ones have their own files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilterId {
    pub(crate) table: u64,
    pub(crate) generation: u64,
}

/// The bits of the block of a filter for this number of distinct keys and prefixes.
pub(crate) fn block_bits(recipe: &Recipe, keys: u64) -> u64 {
    let array = recipe.kind.array_bytes(&recipe.geometry(keys));
    8 * (FilterHeader::BYTES + array) as u64
}

/// Builds the filter block of a table. Its size follows from the number of keys and prefixes together.
pub(crate) fn build(
    recipe: &Recipe,
    hash_key: &HashKey,
    id: FilterId,
    hashes: &KeyHashes,
) -> Vec<u8> {
    let hash = hashes.hash();
    let keyed = hash == HashFunction::SipHash13;
    let salt_of = |attempt| {
        if keyed { hash_key.salt(id.table, id.generation, attempt) } else { 0 }
    };
    let counts = hashes.counts();
    let (attempt, geometry, built) = recipe.build(counts.hashed(), |attempt| {
        let salt = salt_of(attempt);
        hashes.iter().map(|h| hash.salted(h, salt)).collect()
    });
    let header = FilterHeader {
        kind: recipe.kind,
        hash,
        salt: salt_of(attempt),
        fingerprint: if keyed { hash_key.fingerprint() } else { 0 },
        keys: counts.keys,
        geometry,
        predicted_rate: built.predicted_rate,
        extractor: hashes.extractor(),
        prefixes: counts.prefixes,
    };
    let mut bytes = header.encode();
    bytes.extend_from_slice(&built.array);
    bytes
}

/// A verified filter in sealed memory: the whole array, or its first columns.
pub(crate) struct Filter {
    /// The header of the portion in memory.
    header: FilterHeader,
    stored: FilterHeader,
    pub(crate) prober: Box<Prober>,
    pub(crate) meter: Option<Arc<Meter>>,
    damage: OnceLock<String>,
}

impl Filter {
    /// Decodes the first `length` bytes of `memory`, whose checksum was verified, as the filter of a table
    /// with `keys` distinct keys. Fails with the reason why it cannot be used.
    pub(crate) fn decode(
        memory: SealedBytes,
        length: usize,
        keys: u64,
        hash_key: &HashKey,
    ) -> Result<Self, String> {
        let bytes = memory.get(..length).ok_or("a filter shorter than its block")?;
        let header = FilterHeader::decode(bytes, length, keys, hash_key)?;
        Ok(Self::new(memory, header, header))
    }

    /// `memory` must hold this header, checked, and its array.
    pub(crate) fn new(memory: SealedBytes, header: FilterHeader, stored: FilterHeader) -> Self {
        let meter = memory.meter().cloned();
        let memory = Bytes::from_owner(memory);
        let array = memory.get(FilterHeader::BYTES..header.bytes()).unwrap_or_default();
        let prober = Prober::new(header.kind, header.geometry, memory.slice_ref(array));
        Self { header, stored, prober: Box::new(prober), meter, damage: OnceLock::new() }
    }

    /// Whether the key of this lookup may be in the table. `false` is certain.
    #[inline]
    pub(crate) fn may_contain(&self, key: &LookupKey<'_>) -> bool {
        self.may_contain_hash(key.hash(self.header.hash))
    }

    /// Whether a key with all these prefixes, the shortest first, may be in the table. `None` if the filter has
    /// none of them by this extractor.
    pub(crate) fn may_contain_prefixes(
        &self,
        extractor: PrefixExtractor,
        prefixes: &[PrefixHash],
    ) -> Option<bool> {
        // A longer prefix is in no filter with fewer delimiters: its "no" would hide keys.
        let shared = self.header.extractor()?.shared_with(extractor).min(prefixes.len());
        let asked = prefixes.get(..shared).filter(|asked| !asked.is_empty())?;
        // The longest is the prefix of the fewest keys, and mostly decides.
        let hash = self.header.hash;
        Some(asked.iter().rev().all(|prefix| self.may_contain_hash(prefix.get(hash))))
    }

    /// Whether a key with this hash, by the function of the header, may be in the table.
    #[inline]
    pub(crate) fn may_contain_hash(&self, hash: u64) -> bool {
        self.prober.may_contain(self.header.hash.salted(hash, self.header.salt))
    }

    pub(crate) fn prober(&self) -> &Prober {
        &self.prober
    }

    pub(crate) fn header(&self) -> &FilterHeader {
        &self.header
    }

    pub(crate) fn stored(&self) -> &FilterHeader {
        &self.stored
    }

    /// Notes the reason if a later read finds the stored filter damaged; the first reason is kept. The filter
    /// in memory was verified, and stays in use.
    pub(crate) fn stored_is_damaged(&self, reason: String) {
        let _ = self.damage.set(reason);
    }

    /// The fraction of hashes that the first layer bumps; `None` without layers.
    pub(crate) fn bumped(&self) -> Option<f64> {
        self.prober.bumped()
    }

    pub(crate) fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.header.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::FilterPolicy;
    use criba_filter::FilterKind;
    use criba_filter::store::mix;

    const EXTRACTOR: PrefixExtractor = PrefixExtractor::fixed(3);
    const PLACE: FilterId = FilterId { table: 7, generation: 0 };

    fn hash_key() -> HashKey {
        HashKey::new([5; 16])
    }

    fn decode_under(bytes: &[u8], keys: u64, hash_key: &HashKey) -> Result<Filter, String> {
        let memory = SealedBytes::filled(crate::sealed::Seal::System, bytes.len(), |buffer| {
            buffer.copy_from_slice(bytes);
            Ok(())
        });
        Filter::decode(memory.expect("anonymous memory"), bytes.len(), keys, hash_key)
    }

    fn decode(bytes: &[u8], keys: u64) -> Result<Filter, String> {
        decode_under(bytes, keys, &hash_key())
    }

    fn policies() -> impl Iterator<Item = FilterPolicy> {
        FilterPolicy::KINDS.into_iter().flat_map(|kind| {
            let policy = FilterPolicy::default().with_kind(kind);
            [policy, policy.with_hash(HashFunction::MurmurHash2)]
        })
    }

    fn sample(policy: FilterPolicy) -> (Vec<u64>, Vec<u8>) {
        let recipe = policy.recipe().expect("filters are wanted");
        let mut hashes = KeyHashes::new(recipe.hash, &hash_key(), Some(EXTRACTOR));
        (0..100_u32).for_each(|i| hashes.add(&i.to_be_bytes()));
        let bytes = build(&recipe, &hash_key(), PLACE, &hashes);
        (hashes.iter().collect(), bytes)
    }

    #[test]
    fn a_filter_decodes_and_rejects_no_key() {
        for policy in policies() {
            let (hashes, bytes) = sample(policy);
            let filter = decode(&bytes, 100).expect("sound");
            assert!(hashes.iter().all(|&hash| filter.may_contain_hash(hash)));
            let header = filter.header();
            assert_eq!(
                LookupKey::new(&[0; 4], &hash_key(), header.hash).hash(header.hash),
                hashes[0]
            );
            assert_eq!(header.bytes(), bytes.len());
            let recipe = policy.recipe().expect("filters are wanted");
            assert_eq!(block_bits(&recipe, 101), 8 * bytes.len() as u64);
            assert!(filter.may_contain(&LookupKey::new(&[0; 4], &hash_key(), header.hash)));
            assert!((0.0005..0.05).contains(&header.predicted_rate), "{filter:?}");
            let absent = (1000..21_000_u32).filter(|i| {
                filter.may_contain(&LookupKey::new(&i.to_be_bytes(), &hash_key(), header.hash))
            });
            let rate = absent.count() as f64 / 20_000.0;
            assert!(rate < 0.05, "{policy}: {rate}");
        }
    }

    #[test]
    fn a_filter_has_only_the_prefixes_of_its_extractor() {
        for policy in policies() {
            let (_, bytes) = sample(policy);
            let filter = decode(&bytes, 100).expect("sound");
            assert_eq!(filter.header().prefixes, 1); // of big-endian numbers up to 99
            assert_eq!(filter.header().extractor(), Some(EXTRACTOR));
            let probe = |extractor, prefix: &[u8]| {
                let prefix = PrefixHash::new(prefix, &hash_key().for_prefixes());
                filter.may_contain_prefixes(extractor, &[prefix])
            };
            assert_eq!(probe(EXTRACTOR, &[0; 3]), Some(true));
            let passed = (1..10_000_u16).map(|i| [i.to_be_bytes().as_slice(), &[1]].concat());
            let passed = passed.filter(|prefix| probe(EXTRACTOR, prefix) == Some(true)).count();
            assert!(passed < 500, "{policy}: {passed}");
            for other in [PrefixExtractor::fixed(2), PrefixExtractor::until(3)] {
                assert_eq!(probe(other, &[0; 3]), None);
            }
        }
    }

    #[test]
    fn a_filter_under_another_hash_key_is_an_error() {
        for policy in policies() {
            let (_, bytes) = sample(policy);
            let other = decode_under(&bytes, 100, &HashKey::new([6; 16]));
            assert_eq!(
                other.is_err(),
                policy.recipe().expect("wanted").hash == HashFunction::SipHash13
            );
        }
    }

    #[test]
    fn a_filter_is_sized_for_keys_and_prefixes_together() {
        let each_key = PrefixExtractor::fixed(4);
        for policy in policies() {
            let recipe = policy.recipe().expect("filters are wanted");
            let mut hashes = KeyHashes::new(recipe.hash, &hash_key(), Some(each_key));
            (0..3000_u32).for_each(|i| hashes.add(&i.to_be_bytes()));
            let filter = decode(&build(&recipe, &hash_key(), PLACE, &hashes), 3000).expect("sound");
            let header = filter.header();
            assert_eq!((header.prefixes, header.geometry), (3000, recipe.geometry(6000)));
            assert!(header.follows(&recipe, Some(each_key)), "{policy}");
            assert!(!header.follows(&recipe, None), "{policy}");
        }
    }

    #[test]
    fn keys_and_prefixes_together_decide_whether_a_filter_is_the_textbooks() {
        let keys = 999; // a prefix more makes it the textbook's
        let mut above = 0;
        for rate in (1..50).map(|i| 0.02 / f64::from(i)) {
            let recipe = FilterPolicy::classic().with_rate(rate).recipe().expect("wanted");
            let mut hashes =
                KeyHashes::new(recipe.hash, &hash_key(), Some(PrefixExtractor::fixed(2)));
            (0..keys as u32).for_each(|i| hashes.add(&i.to_be_bytes()));
            let filter = decode(&build(&recipe, &hash_key(), PLACE, &hashes), keys).expect("sound");
            let header = filter.header();
            assert_eq!((header.prefixes, header.geometry), (1, recipe.geometry(1000)));
            above += u32::from(header.predicted_rate > rate);
        }
        assert!(above > 0, "no filter misses its rate");
    }

    #[test]
    fn every_filter_follows_its_recipe() {
        let mut larger = 0;
        for policy in policies().flat_map(|policy| [policy.with_rate(0.01), policy.with_rate(0.2)])
        {
            let recipe = policy.recipe().expect("filters are wanted");
            for keys in (1..600).step_by(7) {
                let hashes = (0..keys).map(|i| mix(mix(keys) ^ i)).collect();
                let hashes = KeyHashes::of_hashes(recipe.hash, &hash_key(), hashes);
                let header = decode(&build(&recipe, &hash_key(), PLACE, &hashes), keys);
                let header = header.expect("sound").header;
                larger += u32::from(header.geometry != recipe.geometry(keys));
                assert!(header.follows(&recipe, None), "{policy}, {keys} keys: {header:?}");
            }
        }
        assert!(larger > 10, "{larger}");
    }

    #[test]
    fn other_salts_are_tried_before_larger_geometries() {
        let recipe = FilterPolicy::rate(0.01).with_kind(FilterKind::Bloom).recipe();
        let recipe = recipe.expect("filters are wanted");
        let mut salted_again = 0;
        for table in 0..200 {
            let hashes = (0..50).map(|i| mix(mix(table) ^ i)).collect();
            let hashes = KeyHashes::of_hashes(recipe.hash, &hash_key(), hashes);
            let bytes = build(&recipe, &hash_key(), FilterId { table, generation: 0 }, &hashes);
            let header = decode(&bytes, 50).expect("sound").header;
            let attempt = (0..24).find(|&n| hash_key().salt(table, 0, n) == header.salt);
            let attempt = attempt.expect("a salt of this table");
            assert_eq!(header.geometry == recipe.geometry(50), attempt < 6, "{attempt}");
            salted_again += u32::from(attempt > 0);
        }
        assert!(salted_again > 10, "{salted_again}");
    }

    #[test]
    fn a_blocked_filter_is_of_a_kind_that_stores_no_longer_have() {
        let policy = FilterPolicy::default().with_kind(FilterKind::Blocked);
        let (_, bytes) = sample(policy);
        let refused = decode(&bytes, 100).map(|_| ()).expect_err("blocked");
        assert!(super::super::header::is_of_old_kind(&refused), "{refused}");
        let damaged = decode(&bytes[..bytes.len() - 64], 100).map(|_| ()).expect_err("short");
        assert!(damaged.contains("its shape takes"), "{damaged}");
    }

    #[test]
    fn forged_headers_are_errors() {
        for policy in policies() {
            let (_, bytes) = sample(policy);
            let forge = |offset: usize, field: &[u8]| {
                let mut forged = bytes.clone();
                forged[offset..offset + field.len()].copy_from_slice(field);
                decode(&forged, 100).map(|_| ()).expect_err("forged")
            };
            forge(0, b"X"); // magic
            forge(8, &[2, 0]); // version
            forge(10, &[0]); // kind
            forge(10, &[3]); // a ribbon of one layer
            forge(10, &[5]);
            forge(11, &[1]); // hash
            forge(24, &7_u64.to_le_bytes()); // fingerprint
            forge(32, &99_u64.to_le_bytes()); // keys
            for m in [0, 1, 700, 1 << 20, u64::MAX, u64::MAX - 63] {
                forge(40, &m.to_le_bytes());
            }
            for k in [0, 65, u32::MAX] {
                forge(48, &k.to_le_bytes());
            }
            for rate in [-0.1, 1.1, f64::NAN] {
                forge(56, &f64::to_bits(rate).to_le_bytes());
            }
            for wide in [1 << 20, u64::MAX] {
                forge(64, &wide.to_le_bytes());
            }
            for extractor in [0, u64::MAX] {
                // Invalid headers: 1,601 prefixes of 100 keys; prefixes without an extractor.
                let mut fields = extractor.to_le_bytes().to_vec();
                fields.extend((1 + 1600 * u64::from(extractor > 0)).to_le_bytes());
                forge(72, &fields);
            }
            for length in [1, 8, 127, 128, bytes.len() - 1] {
                decode(&bytes[..length], 100).expect_err("truncated");
            }
        }
    }
}
