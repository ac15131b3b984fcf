//! The filter settings of a store; see format.md, "Manifest".

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use super::geometry::Geometry;
use super::hash_function::HashFunction;
use super::kind::FilterKind;
use super::policy::{Allocation, Amount, FilterPolicy};
use super::prefix::PrefixExtractor;
use crate::codec::{Fields, PutFields};
use crate::key::MAX_KEY_BYTES;

/// What the manifest records of a store's filters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct FilterSettings {
    pub(crate) policy: FilterPolicy,
    pub(crate) extractor: Option<PrefixExtractor>,
}

impl FilterSettings {
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let FilterPolicy { kind, hash, amount, allocation } = self.policy;
        bytes.put_u8(kind.algorithm().id);
        bytes.put_u8(hash.id());
        bytes.put_u8(u8::from(allocation == Allocation::Balanced));
        let (tag, first, second) = match amount {
            Amount::None => (0, 0, 0),
            Amount::Rate(rate) => (1, rate.to_bits(), 0),
            Amount::BitsPerKey(bits) => (2, bits.to_bits(), 0),
            Amount::TotalBytes(total) => (3, total, 0),
            Amount::Geometry(Geometry { m, k, .. }) => (4, m, u64::from(k)),
        };
        bytes.put_u8(tag);
        bytes.put_u64(first);
        bytes.put_u64(second);
        bytes.put_u64(self.extractor.map_or(0, PrefixExtractor::id));
    }

    /// `None` if the bytes are too few, or a value is one that no options can give.
    pub(crate) fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let kind = FilterKind::with_id(fields.u8()?)?;
        let hash = HashFunction::with_id(fields.u8()?)?;
        let allocation = match fields.u8()? {
            0 => Allocation::Uniform,
            1 => Allocation::Balanced,
            _ => return None,
        };
        let amount = match (fields.u8()?, fields.u64()?, fields.u64()?) {
            (0, 0, 0) => Amount::None,
            (1, rate, 0) => Amount::Rate(f64::from_bits(rate)),
            (2, bits, 0) => Amount::BitsPerKey(f64::from_bits(bits)),
            (3, total, 0) => Amount::TotalBytes(total),
            (4, m, k) => Amount::Geometry(Geometry { m, k: u32::try_from(k).ok()?, wide: 0 }),
            _ => return None,
        };
        let policy = FilterPolicy { kind, hash, amount, allocation };
        let extractor = match fields.u64()? {
            0 => None,
            id => Some(PrefixExtractor::with_id(id)?),
        };
        let sound = policy.check_amount().is_ok()
            && extractor.is_none_or(|extractor| extractor.check(MAX_KEY_BYTES).is_ok());
        sound.then_some(Self { policy, extractor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(settings: &FilterSettings) -> Vec<u8> {
        let mut bytes = Vec::new();
        settings.encode(&mut bytes);
        bytes
    }

    fn decoded(bytes: &[u8]) -> Option<FilterSettings> {
        FilterSettings::decode(&mut Fields::new(bytes))
    }

    #[test]
    fn settings_come_back() {
        let default = FilterPolicy::default();
        let policies = [
            default,
            FilterPolicy::ribbon(),
            default.with_kind(FilterKind::Blocked), // of an older store
            FilterPolicy::classic(),
            FilterPolicy::none(),
            default.with_total_bytes(1 << 40),
            default.with_geometry(1000, 7),
            default.with_allocation(Allocation::Uniform).with_bits_per_key(0.1),
        ];
        let extractors = [None, Some(PrefixExtractor::fixed(3)), Some(PrefixExtractor::until(255))];
        for policy in policies {
            for extractor in extractors {
                let settings = FilterSettings { policy, extractor };
                let bytes = encoded(&settings);
                assert_eq!(decoded(&bytes), Some(settings));
                for length in 0..bytes.len() {
                    assert_eq!(decoded(&bytes[..length]), None, "{length}");
                }
            }
        }
    }

    #[test]
    fn values_that_no_options_can_give_are_refused() {
        let sound = encoded(&FilterSettings::default());
        let with = |at: usize, value: &[u8]| {
            let mut bytes = sound.clone();
            bytes[at..at + value.len()].copy_from_slice(value);
            decoded(&bytes)
        };
        assert!(decoded(&sound).is_some());
        for (what, at, value) in [
            ("a kind", 0, &[9][..]),
            ("a hash", 1, &[1]),
            ("an allocation", 2, &[2]),
            ("an amount", 3, &[5]),
            ("bits per key", 4, &f64::NAN.to_le_bytes()),
            ("bits per key", 4, &65_f64.to_le_bytes()),
            ("a second number", 12, &[1]),
            ("no amount with a number", 3, &[0]),
            ("an extractor", 20, &[3, 1]),
            ("a prefix of no bytes", 20, &[1, 0]),
            ("a prefix longer than a key", 20, &[1, 0, 0, 1]),
        ] {
            assert_eq!(with(at, value), None, "{what}");
        }
    }
}
