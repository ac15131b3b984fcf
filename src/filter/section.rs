//! The filter block: a header that says all there is to know about the filter, then its bits.
//! See format.md, "Filter block".

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use super::bloom::{self, Geometry};
use super::{FilterPolicy, KeyHash};
use crate::codec::{Fields, PutFields};
use crate::sealed::SealedBytes;

/// The header's length; the bits follow it, so that they start on a cache line when the block does.
const HEADER_BYTES: usize = 128;
const MAGIC: &[u8; 8] = b"cribaFLT";
const VERSION: u16 = 1;
const KIND_BLOOM: u8 = 1;
const HASH_MURMUR64A_DOUBLE: u8 = 1;

/// What the header says.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Header {
    keys: u64,
    geometry: Geometry,
    predicted_rate: f64,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.geometry.array_bytes());
        bytes.extend_from_slice(MAGIC);
        bytes.put_u16(VERSION);
        bytes.put_u8(KIND_BLOOM);
        bytes.put_u8(HASH_MURMUR64A_DOUBLE);
        bytes.put_u32(0); // reserved
        bytes.put_u64(0); // salt: this hash has none
        bytes.put_u64(0); // fingerprint of the hash key: this hash has none
        bytes.put_u64(self.keys);
        bytes.put_u64(self.geometry.m);
        bytes.put_u32(self.geometry.k);
        bytes.put_u32(0); // reserved
        bytes.put_f64(self.predicted_rate);
        bytes.resize(HEADER_BYTES, 0); // reserved
        bytes
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
        if kind != KIND_BLOOM {
            return Err(format!("filter kind {kind}, unknown to this criba"));
        }
        if hash != HASH_MURMUR64A_DOUBLE {
            return Err(format!("filter hash {hash}, unknown to this criba"));
        }
        fields.u32().ok_or_else(short)?;
        let (salt, fingerprint) =
            (fields.u64().ok_or_else(short)?, fields.u64().ok_or_else(short)?);
        if salt != 0 || fingerprint != 0 {
            return Err("a salted or keyed filter, which this hash does not make".into());
        }
        let keys = fields.u64().ok_or_else(short)?;
        let geometry =
            Geometry { m: fields.u64().ok_or_else(short)?, k: fields.u32().ok_or_else(short)? };
        geometry.check()?;
        fields.u32().ok_or_else(short)?;
        let predicted_rate = fields.f64().ok_or_else(short)?;
        if !(0.0..=1.0).contains(&predicted_rate) {
            return Err(format!("a predicted rate of {predicted_rate}"));
        }
        Ok(Self { keys, geometry, predicted_rate })
    }
}

/// The filter block for a table of these distinct keys, or `None` if the policy wants none.
pub(crate) fn build(policy: &FilterPolicy, hashes: &[KeyHash]) -> Option<Vec<u8>> {
    let keys = hashes.len() as u64;
    let geometry = policy.geometry_for(keys)?;
    let bits = bloom::build(geometry, hashes);
    let predicted_rate = bloom::predicted_rate(geometry, &bits, keys);
    let mut bytes = Header { keys, geometry, predicted_rate }.encode();
    bytes.extend_from_slice(&bits);
    Some(bytes)
}

/// A filter that was read back, checked, and sealed in memory.
#[derive(Debug)]
pub(crate) struct Filter {
    memory: SealedBytes,
    length: usize,
    header: Header,
}

impl Filter {
    /// Takes the first `length` bytes of `memory` for the filter of a table with `keys` distinct
    /// keys, or says why they are none. The caller has verified the checksum.
    pub(crate) fn decode(memory: SealedBytes, length: usize, keys: u64) -> Result<Self, String> {
        let bytes = memory.get(..length).ok_or("a filter shorter than its block")?;
        let header = Header::decode(bytes)?;
        if header.keys != keys {
            return Err(format!("a filter of {} keys for a table of {keys}", header.keys));
        }
        let expected = HEADER_BYTES + header.geometry.array_bytes();
        if length != expected {
            return Err(format!("a filter of {length} bytes, its shape takes {expected}"));
        }
        Ok(Self { memory, length, header })
    }

    /// Whether the key may be in the table; "no" is certain. One pass over k bits.
    pub(crate) fn may_contain(&self, hash: KeyHash) -> bool {
        let bits = self.memory.get(HEADER_BYTES..self.length).unwrap_or_default();
        bloom::may_contain(self.header.geometry, bits, hash)
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.header.geometry
    }

    pub(crate) fn predicted_rate(&self) -> f64 {
        self.header.predicted_rate
    }

    /// The length of header and bits.
    pub(crate) fn bytes(&self) -> usize {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8], keys: u64) -> Result<Filter, String> {
        let memory = SealedBytes::filled(bytes.len(), |buffer| {
            buffer.copy_from_slice(bytes);
            Ok(())
        });
        Filter::decode(memory.expect("anonymous memory"), bytes.len(), keys)
    }

    fn sample() -> (Vec<KeyHash>, Vec<u8>) {
        let hashes: Vec<_> = (0..100_u32).map(|i| KeyHash::of(&i.to_le_bytes())).collect();
        let bytes = build(&FilterPolicy::default(), &hashes).expect("a filter is wanted");
        (hashes, bytes)
    }

    #[test]
    fn a_filter_comes_back_and_knows_its_keys() {
        let (hashes, bytes) = sample();
        let filter = decode(&bytes, 100).expect("sound");
        assert!(hashes.iter().all(|&hash| filter.may_contain(hash)));
        assert_eq!(filter.geometry(), Geometry { m: 959, k: 7 });
        assert_eq!(filter.bytes(), HEADER_BYTES + 15 * 8);
        assert!((0.005..0.02).contains(&filter.predicted_rate()));
    }

    /// Even with the checksum put right, a forged header yields no filter, never one that denies.
    #[test]
    fn forged_headers_are_no_filters() {
        let (_, bytes) = sample();
        let forge = |offset: usize, field: &[u8]| {
            let mut forged = bytes.clone();
            forged[offset..offset + field.len()].copy_from_slice(field);
            decode(&forged, 100).map(|_| ()).expect_err("forged")
        };
        forge(0, b"X"); // magic
        forge(8, &[2, 0]); // version
        forge(10, &[0]); // kind
        forge(11, &[9]); // hash
        forge(16, &[1]); // salt
        forge(24, &[1]); // fingerprint
        forge(32, &99_u64.to_le_bytes()); // keys
        for m in [0, 1, 895, 961, u64::MAX] {
            forge(40, &m.to_le_bytes());
        }
        for k in [0, 65, u32::MAX] {
            forge(48, &k.to_le_bytes());
        }
        for rate in [-0.1, 1.1, f64::NAN] {
            forge(56, &f64::to_bits(rate).to_le_bytes());
        }
        for length in [1, 8, 127, 128, bytes.len() - 1] {
            decode(&bytes[..length], 100).expect_err("truncated");
        }
    }
}
