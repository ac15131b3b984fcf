//! The header of a filter block; see format.md, "Filter".

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use crate::codec::{Fields, PutFields};
use crate::filter::{KeyCounts, MOST_PREFIXES, PrefixExtractor};
use criba_filter::store::{HashKey, Recipe, Size};
use criba_filter::{FilterKind, Geometry, HashFunction};

const MAGIC: &[u8; 8] = b"cribaFLT";
const VERSION: u16 = 1;

/// What is wrong with a filter whose kind stores no longer have, and nothing else.
const BLOCKED: &str = "a blocked filter, which stores no longer have; a rebuild of the filters or a compaction replaces it";
/// As [`BLOCKED`]; the rest of the header is not read.
const OLD_RIBBON: &str = "a ribbon of one layer, which stores no longer have; a rebuild of the filters or a compaction replaces it";

/// Whether this is all that is wrong with a filter: its kind is one that stores no longer have.
pub(crate) fn is_of_old_kind(reason: &str) -> bool {
    reason == BLOCKED || reason == OLD_RIBBON
}

/// The header of a filter block. The checksum of the block covers header and array together, so a header
/// alone cannot be verified.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FilterHeader {
    pub(crate) kind: FilterKind,
    pub(crate) hash: HashFunction,
    pub(crate) salt: u64,
    pub(crate) fingerprint: u64,
    pub(crate) keys: u64,
    pub(crate) geometry: Geometry,
    pub(crate) predicted_rate: f64,
    pub(crate) extractor: u64,
    pub(crate) prefixes: u64,
}

impl FilterHeader {
    /// A multiple of a cache line: the array, which follows, starts on one if the block does.
    pub(crate) const BYTES: usize = 128;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.put_u16(VERSION);
        bytes.put_u8(self.kind.id());
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
        bytes.resize(Self::BYTES, 0); // reserved
        bytes
    }

    fn decode_any(bytes: &[u8]) -> Result<Self, String> {
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
        if kind == FilterKind::OLD_RIBBON {
            return Err(OLD_RIBBON.into());
        }
        let unknown = |what, id| format!("filter {what} {id}, unknown to this criba");
        let kind = FilterKind::with_id(kind).ok_or_else(|| unknown("kind", kind))?;
        let hash = HashFunction::with_id(hash).ok_or_else(|| unknown("hash", hash))?;
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
        kind.check(&geometry)?;
        let (extractor, prefixes) =
            (fields.u64().ok_or_else(short)?, fields.u64().ok_or_else(short)?);
        let most = if extractor == 0 { 0 } else { keys.saturating_mul(MOST_PREFIXES.into()) };
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

    /// The fingerprint of the hash key of a filter of any kind with a keyed hash.
    pub(crate) fn fingerprint_of(bytes: &[u8]) -> Option<u64> {
        let mut fields = Fields::new(bytes.strip_prefix(MAGIC)?);
        if fields.u16()? != VERSION {
            return None;
        }
        fields.u8()?; // the kind
        let hash = HashFunction::with_id(fields.u8()?)?;
        fields.u32()?;
        fields.u64()?; // the salt
        let fingerprint = fields.u64()?;
        (hash == HashFunction::SipHash13).then_some(fingerprint)
    }

    /// Reads the header of a filter of `length` bytes for a table with `keys` distinct keys. Fails with the
    /// reason why the filter cannot be used.
    pub(crate) fn decode(
        bytes: &[u8],
        length: usize,
        keys: u64,
        hash_key: &HashKey,
    ) -> Result<Self, String> {
        let header = Self::decode_any(bytes)?;
        let Self { hash, salt, fingerprint, .. } = header;
        match hash {
            HashFunction::SipHash13 if fingerprint != hash_key.fingerprint() => {
                return Err("a filter made under another hash key".into());
            }
            HashFunction::MurmurHash2 if salt != 0 || fingerprint != 0 => {
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
        if header.kind == FilterKind::Blocked {
            return Err(BLOCKED.into());
        }
        Ok(header)
    }

    /// Whether this recipe and extractor can have made this filter. Later attempts to build it may have
    /// enlarged it by up to half.
    pub(crate) fn follows(&self, recipe: &Recipe, extractor: Option<PrefixExtractor>) -> bool {
        let first = recipe.geometry(self.counts().hashed());
        let grows = matches!(recipe.size, Size::Rate(_)) || self.kind == FilterKind::Ribbon;
        let most = if grows { first.m + (first.m / 2).max(1024) } else { first.m };
        let mut geometries = std::iter::successors(Some(first), |last| {
            Some(self.kind.grow(last)).filter(|next| next != last)
        })
        .take_while(|geometry| geometry.m <= most);
        (self.kind, self.hash) == (recipe.kind, recipe.hash)
            && self.has_prefixes_of(extractor)
            && geometries.any(|geometry| geometry == self.geometry)
    }

    /// Whether the filter has the prefixes of this extractor; for `None`, whether it has no prefixes.
    pub(crate) fn has_prefixes_of(&self, extractor: Option<PrefixExtractor>) -> bool {
        self.extractor == extractor.map_or(0, PrefixExtractor::id)
    }

    /// The extractor of the prefixes; `None` for no prefixes, or for an unknown rule.
    pub(crate) fn extractor(&self) -> Option<PrefixExtractor> {
        PrefixExtractor::with_id(self.extractor)
    }

    pub(crate) fn counts(&self) -> KeyCounts {
        KeyCounts { keys: self.keys, prefixes: self.prefixes }
    }

    pub(crate) fn bytes(&self) -> usize {
        Self::BYTES + self.kind.array_bytes(&self.geometry)
    }
}
