//! The filter block: a header that says all there is to know about the filter, then its bits.
//! See format.md, "Filter block".

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use bytes::Bytes;

use super::hash::{HashKey, LookupHash, PrefixHash};
use super::hashes::KeyHashes;
use super::kind::{FilterKind, Geometry};
use super::policy::Size;
use super::simd::Prober;
use super::{KeyHash, PrefixExtractor, Recipe, StoredFilter};
use crate::codec::{Fields, PutFields};
use crate::sealed::{Meter, SealedBytes};
use crate::sync::{Arc, OnceLock};

/// The header's length; the array follows it, so that it starts on a cache line when the block does.
pub(super) const HEADER_BYTES: usize = 128;
const MAGIC: &[u8; 8] = b"cribaFLT";
const VERSION: u16 = 1;

/// Which table a filter belongs to, and which one of its filters it is: 0 is the one within the
/// table, later ones lie beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FilterPlace {
    pub(crate) table: u64,
    pub(crate) generation: u64,
}

/// What the header says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Header {
    pub(super) kind: FilterKind,
    pub(super) hash: KeyHash,
    salt: u64,
    fingerprint: u64,
    pub(super) keys: u64,
    pub(super) geometry: Geometry,
    pub(super) predicted_rate: f64,
    /// The id of the extractor of the prefixes that the filter has, too; 0 for none.
    extractor: u64,
    prefixes: u64,
}

impl Header {
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(MAGIC);
        bytes.put_u16(VERSION);
        bytes.put_u8(self.kind.kind().id);
        bytes.put_u8(self.hash.id());
        bytes.put_u32(0); // reserved
        bytes.put_u64(self.salt);
        bytes.put_u64(self.fingerprint);
        bytes.put_u64(self.keys);
        bytes.put_u64(self.geometry.m);
        bytes.put_u32(self.geometry.k);
        bytes.put_u32(0); // reserved
        bytes.put_f64(self.predicted_rate);
        bytes.put_u64(self.geometry.wide);
        bytes.put_u64(self.extractor);
        bytes.put_u64(self.prefixes);
        bytes.resize(HEADER_BYTES, 0); // reserved
    }

    /// Reads a header, or says why there is no filter behind it that can be trusted.
    fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut fields = Fields::new(bytes);
        let short = || format!("a filter of {} bytes, shorter than its header", bytes.len());
        if fields.bytes(MAGIC.len()).ok_or_else(short)? != MAGIC {
            return Err("no filter header".into());
        }
        let version = fields.u16().ok_or_else(short)?;
        if version != VERSION {
            return Err(format!("filter version {version}, this criba reads {VERSION}"));
        }
        let (kind, hash) = (fields.u8().ok_or_else(short)?, fields.u8().ok_or_else(short)?);
        let unknown = |what, id| format!("filter {what} {id}, unknown to this criba");
        let kind = FilterKind::with_id(kind).ok_or_else(|| unknown("kind", kind))?;
        let hash = KeyHash::with_id(hash).ok_or_else(|| unknown("hash", hash))?;
        fields.u32().ok_or_else(short)?;
        let (salt, fingerprint) =
            (fields.u64().ok_or_else(short)?, fields.u64().ok_or_else(short)?);
        let keys = fields.u64().ok_or_else(short)?;
        let (m, k) = (fields.u64().ok_or_else(short)?, fields.u32().ok_or_else(short)?);
        fields.u32().ok_or_else(short)?;
        let predicted_rate = fields.f64().ok_or_else(short)?;
        if !(0.0..=1.0).contains(&predicted_rate) {
            return Err(format!("a predicted rate of {predicted_rate}"));
        }
        let geometry = Geometry { m, k, wide: fields.u64().ok_or_else(short)? };
        (kind.kind().check)(&geometry)?;
        let (extractor, prefixes) =
            (fields.u64().ok_or_else(short)?, fields.u64().ok_or_else(short)?);
        let most = if extractor == 0 { 0 } else { keys };
        if prefixes > most {
            return Err(format!("{prefixes} prefixes of {keys} keys, extractor {extractor:#x}"));
        }
        Ok(Self {
            kind,
            hash,
            salt,
            fingerprint,
            keys,
            geometry,
            predicted_rate,
            extractor,
            prefixes,
        })
    }

    /// Reads the header of a filter of `length` bytes for a table with `keys` distinct keys in a
    /// store with this secret, or says why there is no filter behind it that can be trusted.
    pub(super) fn decode_for(
        bytes: &[u8],
        length: usize,
        keys: u64,
        secret: &HashKey,
    ) -> Result<Self, String> {
        let header = Self::decode(bytes)?;
        let Self { hash, salt, fingerprint, .. } = header;
        match hash {
            KeyHash::SipHash13 if fingerprint != secret.fingerprint() => {
                return Err("a filter made under another hash key".into());
            }
            KeyHash::MurmurHash2 if salt != 0 || fingerprint != 0 => {
                return Err("a salted or keyed filter, which its hash does not make".into());
            }
            _ => {}
        }
        if header.keys != keys {
            return Err(format!("a filter of {} keys for a table of {keys}", header.keys));
        }
        let expected = header.bytes();
        if length != expected {
            return Err(format!("a filter of {length} bytes, its shape takes {expected}"));
        }
        Ok(header)
    }

    /// Whether [`build`] may make this of a recipe, so many keys, and the prefixes of an extractor. Of
    /// the larger shapes that it may fall back to, those count that are still near the first: a filter
    /// that is much too large was made for another recipe.
    pub(super) fn follows(&self, recipe: &Recipe, extractor: Option<PrefixExtractor>) -> bool {
        let first = recipe.geometry(self.keys + self.prefixes);
        let falls_back = matches!(recipe.size, Size::Rate(_)) || self.kind == FilterKind::Ribbon;
        let most = if falls_back { first.m + (first.m / 2).max(1024) } else { first.m };
        let mut shapes = std::iter::successors(Some(first), |shape| {
            Some((self.kind.kind().roomier)(shape)).filter(|next| next != shape)
        })
        .take_while(|shape| shape.m <= most);
        (self.kind, self.hash) == (recipe.kind, recipe.hash)
            && self.has_prefixes_of(extractor)
            && shapes.any(|shape| shape == self.geometry)
    }

    /// Whether its prefixes are those of this extractor, or none if there is none.
    pub(super) fn has_prefixes_of(&self, extractor: Option<PrefixExtractor>) -> bool {
        self.extractor == extractor.map_or(0, PrefixExtractor::id)
    }

    /// The length of header and array; the shape has been checked.
    pub(super) fn bytes(&self) -> usize {
        HEADER_BYTES + (self.kind.kind().array_bytes)(&self.geometry)
    }
}

/// The length of a filter of this shape, header included, in bytes.
pub(super) fn length(kind: FilterKind, geometry: &Geometry) -> usize {
    HEADER_BYTES + (kind.kind().array_bytes)(geometry)
}

/// Salt and fingerprint for a hash: none for one that has no key.
fn salt_and_fingerprint(
    hash: KeyHash,
    secret: &HashKey,
    place: FilterPlace,
    attempt: u64,
) -> (u64, u64) {
    match hash {
        KeyHash::SipHash13 => {
            (secret.salt(place.table, place.generation, attempt), secret.fingerprint())
        }
        KeyHash::MurmurHash2 => (0, 0),
    }
}

/// The filter block for a table of these keys. Its size comes from the keys and prefixes together,
/// so that the rate is what the recipe asks for.
pub(crate) fn build(
    recipe: &Recipe,
    secret: &HashKey,
    place: FilterPlace,
    hashes: &KeyHashes,
) -> Vec<u8> {
    let (kind, hash) = (recipe.kind, hashes.hash());
    let (keys, prefixes, extractor) = (hashes.keys(), hashes.prefixes(), hashes.extractor());
    let salting = |attempt| salt_and_fingerprint(hash, secret, place, attempt);
    let (attempt, geometry, built) = recipe.build(keys + prefixes, |attempt| {
        let (salt, _) = salting(attempt);
        hashes.iter().map(|h| hash.salted(h, salt)).collect()
    });
    let (salt, fingerprint) = salting(attempt);
    let predicted_rate = built.predicted_rate;
    let header = Header {
        kind,
        hash,
        salt,
        fingerprint,
        keys,
        geometry,
        predicted_rate,
        extractor,
        prefixes,
    };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + built.array.len());
    header.encode(&mut bytes);
    bytes.extend_from_slice(&built.array);
    bytes
}

/// A filter that was read back, checked, and sealed in memory; all that is stored of it, or the
/// first of its columns.
pub(crate) struct Filter {
    /// Sealed, and counted by the meter.
    pub(super) memory: Bytes,
    pub(super) meter: Option<Arc<Meter>>,
    pub(super) length: usize,
    pub(super) header: Header,
    prober: Box<Prober>,
    pub(super) stored: StoredFilter,
    /// What was wrong with the stored filter when it was read again.
    pub(super) damage: OnceLock<String>,
}

impl Filter {
    /// Takes the first `length` bytes of `memory` for the filter of a table with `keys` distinct
    /// keys in a store with this secret, or says why they are none. The caller has verified the
    /// checksum.
    pub(crate) fn decode(
        memory: SealedBytes,
        length: usize,
        keys: u64,
        secret: &HashKey,
    ) -> Result<Self, String> {
        let bytes = memory.get(..length).ok_or("a filter shorter than its block")?;
        let header = Header::decode_for(bytes, length, keys, secret)?;
        Ok(Self::new(memory, length, header, StoredFilter { header, length }))
    }

    /// A filter out of what has been checked: what memory holds, and what is stored.
    pub(super) fn new(
        memory: SealedBytes,
        length: usize,
        header: Header,
        stored: StoredFilter,
    ) -> Self {
        let meter = memory.meter().cloned();
        let memory = Bytes::from_owner(memory);
        let array = memory.get(HEADER_BYTES..length).unwrap_or_default();
        let prober = Prober::new(header.kind, header.geometry, memory.slice_ref(array));
        let prober = Box::new(prober);
        Self { memory, meter, length, header, prober, stored, damage: OnceLock::new() }
    }

    /// Whether the key of this lookup may be in the table; "no" is certain.
    #[inline]
    pub(crate) fn may_contain(&self, lookup: &LookupHash<'_>) -> bool {
        self.may_contain_hash(lookup.get(self.header.hash))
    }

    /// Asks for the memory that [`may_contain`](Self::may_contain) will read, and does not wait for it.
    pub(crate) fn prefetch(&self, lookup: &LookupHash<'_>) {
        let Header { hash, salt, .. } = self.header;
        self.prober.prefetch(hash.salted(lookup.get(hash), salt));
    }

    /// Whether a key with this prefix may be in the table; `None` if the filter does not know the
    /// prefixes of this extractor.
    pub(crate) fn may_contain_prefix(
        &self,
        extractor: PrefixExtractor,
        prefix: &PrefixHash,
    ) -> Option<bool> {
        (self.header.extractor == extractor.id())
            .then(|| self.may_contain_hash(prefix.get(self.header.hash)))
    }

    /// The same for a hash made as [`hash`](Self::hash) says.
    #[inline]
    pub(crate) fn may_contain_hash(&self, hash: u64) -> bool {
        self.prober.may_contain(self.header.hash.salted(hash, self.header.salt))
    }

    pub(crate) fn kind(&self) -> FilterKind {
        self.header.kind
    }

    pub(crate) fn hash(&self) -> KeyHash {
        self.header.hash
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.header.geometry
    }

    pub(crate) fn predicted_rate(&self) -> f64 {
        self.header.predicted_rate
    }

    /// What the prefixes that it knows are; `None` if it knows none, or those of a rule that this
    /// criba does not know.
    pub(crate) fn extractor(&self) -> Option<PrefixExtractor> {
        PrefixExtractor::with_id(self.header.extractor)
    }

    /// The distinct prefixes that it knows beside the keys.
    pub(crate) fn prefixes(&self) -> u64 {
        self.header.prefixes
    }

    /// The length of header and array.
    pub(crate) fn bytes(&self) -> usize {
        self.length
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.header.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::super::policy::{LAST_ATTEMPT, SALTS};
    use super::*;
    use crate::filter::bloom::TEXTBOOK_FROM;
    use crate::filter::{FilterPolicy, mix};

    const EXTRACTOR: PrefixExtractor = PrefixExtractor::fixed(3);
    const PLACE: FilterPlace = FilterPlace { table: 7, generation: 0 };

    fn secret() -> HashKey {
        HashKey::new([5; 16])
    }

    fn decode_under(bytes: &[u8], keys: u64, secret: &HashKey) -> Result<Filter, String> {
        let memory = SealedBytes::filled(bytes.len(), |buffer| {
            buffer.copy_from_slice(bytes);
            Ok(())
        });
        Filter::decode(memory.expect("anonymous memory"), bytes.len(), keys, secret)
    }

    fn decode(bytes: &[u8], keys: u64) -> Result<Filter, String> {
        decode_under(bytes, keys, &secret())
    }

    fn policies() -> impl Iterator<Item = FilterPolicy> {
        FilterKind::ALL.into_iter().flat_map(|kind| {
            let policy = FilterPolicy::default().with_kind(kind);
            [policy, policy.with_hash(KeyHash::MurmurHash2)]
        })
    }

    fn sample(policy: FilterPolicy) -> (Vec<u64>, Vec<u8>) {
        let recipe = policy.recipe().expect("filters are wanted");
        let mut hashes = KeyHashes::new(recipe.hash, &secret(), Some(EXTRACTOR));
        (0..100_u32).for_each(|i| hashes.add(&i.to_be_bytes()));
        let bytes = build(&recipe, &secret(), PLACE, &hashes);
        (hashes.iter().collect(), bytes)
    }

    #[test]
    fn a_filter_comes_back_and_knows_its_keys() {
        for policy in policies() {
            let (hashes, bytes) = sample(policy);
            let filter = decode(&bytes, 100).expect("sound");
            assert!(hashes.iter().all(|&hash| filter.may_contain_hash(hash)));
            let lookup = LookupHash::new(&[0; 4], &secret()).get(filter.hash());
            assert_eq!(lookup, hashes[0]);
            assert_eq!(filter.bytes(), bytes.len());
            assert_eq!(length(filter.kind(), &filter.geometry()), bytes.len());
            assert!(filter.may_contain(&LookupHash::new(&[0; 4], &secret())));
            assert!((0.0005..0.05).contains(&filter.predicted_rate()), "{filter:?}");
            let absent = (1000..21_000_u32)
                .filter(|i| filter.may_contain(&LookupHash::new(&i.to_be_bytes(), &secret())));
            let rate = absent.count() as f64 / 20_000.0;
            assert!(rate < 0.05, "{policy}: {rate}");
        }
    }

    #[test]
    fn a_filter_knows_the_prefixes_of_its_extractor_alone() {
        for policy in policies() {
            let (_, bytes) = sample(policy);
            let filter = decode(&bytes, 100).expect("sound");
            assert_eq!(filter.prefixes(), 1); // of big-endian numbers up to 99
            assert_eq!(filter.extractor(), Some(EXTRACTOR));
            let ask = |extractor, prefix: &[u8]| {
                filter.may_contain_prefix(
                    extractor,
                    &PrefixHash::new(prefix, &secret().for_prefixes()),
                )
            };
            assert_eq!(ask(EXTRACTOR, &[0; 3]), Some(true));
            let passed = (1..10_000_u16).map(|i| [i.to_be_bytes().as_slice(), &[1]].concat());
            let passed = passed.filter(|prefix| ask(EXTRACTOR, prefix) == Some(true)).count();
            assert!(passed < 500, "{policy}: {passed}");
            for other in [PrefixExtractor::fixed(2), PrefixExtractor::until(3)] {
                assert_eq!(ask(other, &[0; 3]), None);
            }
        }
    }

    #[test]
    fn another_hash_key_is_noticed() {
        for policy in policies() {
            let (_, bytes) = sample(policy);
            let other = decode_under(&bytes, 100, &HashKey::new([6; 16]));
            assert_eq!(other.is_err(), policy.recipe().expect("wanted").hash == KeyHash::SipHash13);
        }
    }

    /// Prefixes take as many bits as keys, and may be as many.
    #[test]
    fn a_filter_is_sized_for_keys_and_prefixes_together() {
        let each_key = PrefixExtractor::fixed(4);
        for policy in policies() {
            let recipe = policy.recipe().expect("filters are wanted");
            let mut hashes = KeyHashes::new(recipe.hash, &secret(), Some(each_key));
            (0..3000_u32).for_each(|i| hashes.add(&i.to_be_bytes()));
            let filter = decode(&build(&recipe, &secret(), PLACE, &hashes), 3000).expect("sound");
            assert_eq!((filter.prefixes(), filter.geometry()), (3000, recipe.geometry(6000)));
            assert!(filter.header.follows(&recipe, Some(each_key)), "{policy}");
            assert!(!filter.header.follows(&recipe, None), "{policy}");
        }
    }

    /// From so many keys and prefixes on a filter is the textbook's, which may miss its rate a little.
    #[test]
    fn a_filter_is_the_textbooks_by_keys_and_prefixes_together() {
        let keys = TEXTBOOK_FROM - 1;
        let mut above = 0;
        for rate in (1..50).map(|i| 0.02 / f64::from(i)) {
            let recipe = FilterPolicy::classic().with_rate(rate).recipe().expect("wanted");
            let mut hashes =
                KeyHashes::new(recipe.hash, &secret(), Some(PrefixExtractor::fixed(2)));
            (0..keys as u32).for_each(|i| hashes.add(&i.to_be_bytes()));
            let filter = decode(&build(&recipe, &secret(), PLACE, &hashes), keys).expect("sound");
            assert_eq!(filter.prefixes(), 1);
            assert_eq!(filter.geometry(), recipe.geometry(TEXTBOOK_FROM));
            above += u32::from(filter.predicted_rate() > rate);
        }
        assert!(above > 0, "none would have been built again");
    }

    /// What a recipe makes follows it, also where it had to be larger, and also small.
    #[test]
    fn what_a_recipe_makes_follows_it() {
        let mut larger = 0;
        for policy in policies().flat_map(|policy| [policy.with_rate(0.01), policy.with_rate(0.2)])
        {
            let recipe = policy.recipe().expect("filters are wanted");
            for keys in (1..600).step_by(7) {
                let hashes = (0..keys).map(|i| mix(mix(keys) ^ i)).collect();
                let hashes = KeyHashes::of_hashes(recipe.hash, &secret(), hashes);
                let header = decode(&build(&recipe, &secret(), PLACE, &hashes), keys);
                let header = header.expect("sound").header;
                larger += u32::from(header.geometry != recipe.geometry(keys));
                assert!(header.follows(&recipe, None), "{policy}, {keys} keys: {header:?}");
            }
        }
        assert!(larger > 10, "{larger}");
    }

    /// While there are salts to try, a filter keeps its shape.
    #[test]
    fn another_salt_comes_before_a_larger_shape() {
        let recipe = FilterPolicy::rate(0.01).with_kind(FilterKind::Bloom).recipe();
        let recipe = recipe.expect("filters are wanted");
        let mut salted_again = 0;
        for table in 0..200 {
            let hashes = (0..50).map(|i| mix(mix(table) ^ i)).collect();
            let hashes = KeyHashes::of_hashes(recipe.hash, &secret(), hashes);
            let bytes = build(&recipe, &secret(), FilterPlace { table, generation: 0 }, &hashes);
            let header = decode(&bytes, 50).expect("sound").header;
            let attempt = (0..=LAST_ATTEMPT).find(|&n| secret().salt(table, 0, n) == header.salt);
            let attempt = attempt.expect("a salt of this table");
            assert_eq!(header.geometry == recipe.geometry(50), attempt < SALTS, "{attempt}");
            salted_again += u32::from(attempt > 0);
        }
        assert!(salted_again > 10, "{salted_again}");
    }

    /// Even with the checksum put right, a forged header yields no filter, never one that denies.
    #[test]
    fn forged_headers_are_no_filters() {
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
            forge(10, &[4]);
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
                // With 101 prefixes of 100 keys, or any of none.
                let mut fields = extractor.to_le_bytes().to_vec();
                fields.extend((1 + 100 * u64::from(extractor > 0)).to_le_bytes());
                forge(72, &fields);
            }
            for length in [1, 8, 127, 128, bytes.len() - 1] {
                decode(&bytes[..length], 100).expect_err("truncated");
            }
        }
    }
}
