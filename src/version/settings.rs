//! What a store keeps of its options; see format.md, "Manifest".

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use crate::codec::{Fields, PutFields};
use crate::expiry::Millis;
use crate::filter::{FilterPolicy, PrefixExtractor};
use crate::key::MAX_KEY_BYTES;
use crate::sstable::Compression;
use crate::wal::{COMPRESSION, LAYERED_RIBBONS, MANY_PREFIXES};
use criba_filter::FilterKind;

/// The options that belong to a store, not to one opening of it. Code that copies a store copies this as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct StoreSettings {
    pub(crate) policy: FilterPolicy,
    pub(crate) extractor: Option<PrefixExtractor>,
    /// See [`Options::default_ttl`](crate::Options::default_ttl); in a field of its own.
    pub(crate) default_ttl: Option<Millis>,
    /// See [`Options::compression`](crate::Options::compression); in a field of its own, `None` if it was never given.
    pub(crate) compression: Option<Compression>,
}

impl StoreSettings {
    /// The features that a reader of these settings must know; see format.md, "Manifest".
    pub(crate) fn required_features(&self) -> u32 {
        let layered = self.policy.kind == FilterKind::Ribbon;
        let many = self.extractor.is_some_and(PrefixExtractor::has_many);
        (if layered { LAYERED_RIBBONS } else { 0 })
            | (if many { MANY_PREFIXES } else { 0 })
            | self.compression.map_or(0, |_| COMPRESSION)
    }

    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        let Self { policy, extractor, default_ttl: _, compression: _ } = self;
        policy.encode(bytes);
        bytes.put_u64(extractor.map_or(0, PrefixExtractor::id));
    }

    /// `None` if the bytes are too few, or a value is one that no options could ever give.
    pub(crate) fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let policy = FilterPolicy::decode(fields)?;
        let extractor = match fields.u64()? {
            0 => None,
            id => {
                let extractor = PrefixExtractor::with_id(id)?;
                extractor.check(MAX_KEY_BYTES).ok()?;
                Some(extractor)
            }
        };
        Some(Self { policy, extractor, ..Self::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Allocation;

    fn encoded(settings: &StoreSettings) -> Vec<u8> {
        let mut bytes = Vec::new();
        settings.encode(&mut bytes);
        bytes
    }

    fn decoded(bytes: &[u8]) -> Option<StoreSettings> {
        StoreSettings::decode(&mut Fields::new(bytes))
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
        let extractors = [
            None,
            Some(PrefixExtractor::fixed(3)),
            Some(PrefixExtractor::until(255)),
            Some(PrefixExtractor::every(b'/')),
        ];
        for policy in policies {
            for extractor in extractors {
                let settings = StoreSettings { policy, extractor, ..StoreSettings::default() };
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
        let sound = encoded(&StoreSettings::default());
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
            ("an extractor", 20, &[4, 1]),
            ("a key without prefixes", 20, &[3, 1, 0]),
            ("a key of 17 prefixes", 20, &[3, 1, 17]),
            ("a prefix of no bytes", 20, &[1, 0]),
            ("a prefix longer than a key", 20, &[1, 0, 0, 1]),
        ] {
            assert_eq!(with(at, value), None, "{what}");
        }
    }
}
