//! When the bytes of a table end: how much of it has expired at a time shows without a read.

#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

use std::collections::BTreeMap;

use crate::codec::{Fields, PutFields};
use crate::expiry::{Millis, NEVER};
use crate::key::EntryRef;

const PARTS: usize = 8;
/// The least bytes of an entry beside key and value.
const ENTRY_BYTES: usize = 5;
/// With more times than this, neighbours are put together, up to a fraction of the bytes.
const MOST_TIMES: usize = 2048;
const FINEST: u64 = 512;

/// The earliest expiry of a table, and the times up to which 1/8, 2/8, … 8/8 of its bytes end; [`NEVER`] for a part
/// that has entries without an expiry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expiries {
    pub(crate) earliest: Millis,
    parts: [Millis; PARTS],
}

impl Expiries {
    pub(crate) const BYTES: usize = (1 + PARTS) * size_of::<Millis>();

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.put_u64(self.earliest);
        self.parts.iter().for_each(|part| bytes.put_u64(*part));
        bytes
    }

    /// `None` for bytes that no writer makes.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(bytes);
        let earliest = fields.u64()?;
        let mut parts = [NEVER; PARTS];
        for part in &mut parts {
            *part = fields.u64()?;
        }
        let ascend = earliest < NEVER && parts.first() >= Some(&earliest) && parts.is_sorted();
        (fields.is_empty() && ascend).then_some(Self { earliest, parts })
    }

    /// The time up to which a quarter of the bytes end.
    pub(crate) fn quarter(&self) -> Millis {
        self.parts.get(PARTS / 4 - 1).copied().unwrap_or(NEVER)
    }

    /// The share of the bytes that has ended at a time, rounded down to eighths.
    pub(crate) fn share_over(&self, time: Millis) -> f64 {
        self.parts.partition_point(|&part| part <= time) as f64 / PARTS as f64
    }

    /// The time up to which all bytes end.
    pub(crate) fn all(&self) -> Millis {
        self.parts.last().copied().unwrap_or(NEVER)
    }
}

/// Counts the bytes of entries by expiry. An entry counts at its own expiry or a later one, so that few times need
/// memory; no time has more than a few thousandths of the bytes, unless one expiry has.
#[derive(Debug)]
pub(crate) struct ExpiryCounts {
    bytes: BTreeMap<Millis, u64>,
    earliest: Millis,
    expiring: u64,
    all: u64,
}

impl Default for ExpiryCounts {
    fn default() -> Self {
        Self { bytes: BTreeMap::new(), earliest: NEVER, expiring: 0, all: 0 }
    }
}

impl ExpiryCounts {
    pub(crate) fn add(&mut self, entry: &EntryRef<'_>) {
        // At least one byte for each entry: without an end of each there is no end of all.
        let bytes = (entry.key.len() + entry.value.len() + ENTRY_BYTES) as u64;
        self.all += bytes;
        // No writer makes an entry that expires never, but a reader takes it for what it says.
        let Some(expiry) = entry.expiry().filter(|&expiry| expiry != NEVER) else { return };
        self.earliest = self.earliest.min(expiry);
        self.expiring += bytes;
        let most = self.expiring / FINEST;
        match self.bytes.range_mut(expiry..).next() {
            Some((&time, counted)) if time == expiry || *counted + bytes <= most => {
                *counted += bytes;
            }
            _ => _ = self.bytes.insert(expiry, bytes),
        }
        if self.bytes.len() > MOST_TIMES {
            let mut coarse: Vec<(Millis, u64)> = Vec::with_capacity(MOST_TIMES);
            for (&time, &bytes) in &self.bytes {
                match coarse.last_mut() {
                    Some(last) if last.1 + bytes <= most => *last = (time, last.1 + bytes),
                    _ => coarse.push((time, bytes)),
                }
            }
            self.bytes = coarse.into_iter().collect();
        }
    }

    /// `None` without expiring entries.
    pub(crate) fn expiries(&self) -> Option<Expiries> {
        let mut parts = [NEVER; PARTS];
        let (mut ended, mut next) = (0, 0);
        for (&time, &bytes) in &self.bytes {
            ended += bytes;
            while let Some(part) = parts.get_mut(next)
                && u128::from(ended) * PARTS as u128 >= (next as u128 + 1) * u128::from(self.all)
            {
                *part = time;
                next += 1;
            }
        }
        let earliest = self.earliest;
        (!self.bytes.is_empty()).then_some(Expiries { earliest, parts })
    }
}

#[cfg(test)]
mod tests {
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::expiry::stored;
    use crate::key::EntryKind;

    fn of(entries: &[(Option<Millis>, usize)]) -> Option<Expiries> {
        let mut counts = ExpiryCounts::default();
        for (expiry, bytes) in entries {
            let key = vec![0; *bytes];
            let value = expiry.map_or(vec![0; 8], |expiry| stored(expiry, b""));
            let kind = if expiry.is_some() { EntryKind::Expiring } else { EntryKind::Put };
            counts.add(&EntryRef { key: &key, seq: 1, kind, value: &value });
        }
        counts.expiries()
    }

    #[test]
    fn parts_end_when_so_many_bytes_have_expired() {
        assert_eq!(of(&[(None, 10)]), None);
        let some = of(&[(Some(50), 8), (None, 8)]).expect("an expiring entry");
        assert_eq!(
            some,
            Expiries { earliest: 50, parts: [50, 50, 50, 50, NEVER, NEVER, NEVER, NEVER] }
        );
        assert_eq!((some.quarter(), some.all()), (50, NEVER));
        let eighths = |time| (8.0 * some.share_over(time)).round() as u64;
        assert_eq!([49, 50, NEVER - 1].map(eighths), [0, 4, 4]);
        assert_eq!(of(&[(Some(NEVER), 8)]), None);
        assert_eq!(of(&[(Some(NEVER), 8), (Some(50), 8)]), Some(some));
        let few = of(&[(Some(50), 1), (None, 1000)]).expect("an expiring entry");
        assert_eq!(few, Expiries { earliest: 50, parts: [NEVER; 8] });
        let mut counts = ExpiryCounts::default();
        let value = stored(50, b"");
        counts.add(&EntryRef { key: b"", seq: 2, kind: EntryKind::Put, value: b"" });
        counts.add(&EntryRef { key: b"a", seq: 1, kind: EntryKind::Expiring, value: &value });
        let expiries = counts.expiries().expect("an expiring entry");
        assert_eq!(expiries.all(), NEVER, "the empty key with the empty value stays");
    }

    /// Hours and years in one table: each part ends within a hundredth of the bytes of where it truly does.
    #[test]
    fn many_times_of_every_size_are_counted_in_little_memory() {
        let mut rng = ChaCha8Rng::seed_from_u64(48);
        for short in [0.05, 0.3, 0.9] {
            let mut expiries: Vec<Millis> = (0..60_000)
                .map(|_| {
                    let long = rng.random_bool(1.0 - short);
                    1_000_000
                        + rng.random_range(0..3_600_000)
                        + if long { 31_536_000_000 } else { 0 }
                })
                .collect();
            expiries.shuffle(&mut rng);
            let entries: Vec<_> = expiries.iter().map(|expiry| (Some(*expiry), 12)).collect();
            let found = of(&entries).expect("expiring entries");
            expiries.sort_unstable();
            assert_eq!(found.earliest, expiries[0]);
            for (number, part) in (1..).zip(found.parts) {
                let rank = expiries.partition_point(|expiry| *expiry <= part) as f64;
                let part = rank / expiries.len() as f64 - f64::from(number) / 8.0;
                assert!((0.0..0.01).contains(&part), "{short} {number}: {part}");
            }
            assert_eq!(Expiries::decode(&found.encode()), Some(found));
        }
    }

    #[test]
    fn times_that_no_writer_makes_are_refused() {
        let sound = of(&[(Some(50), 8), (Some(60), 8)]).expect("expiring entries").encode();
        assert!(Expiries::decode(&sound).is_some());
        assert_eq!(sound.len(), Expiries::BYTES);
        for length in 0..sound.len() {
            assert_eq!(Expiries::decode(&sound[..length]), None);
        }
        assert_eq!(Expiries::decode(&[&sound[..], &[0]].concat()), None);
        let with = |at: usize, time: Millis| {
            let mut bytes = sound.clone();
            bytes[8 * at..8 * at + 8].copy_from_slice(&time.to_le_bytes());
            Expiries::decode(&bytes)
        };
        assert_eq!(with(0, NEVER), None);
        assert_eq!(with(0, 51), None, "later than a part");
        assert_eq!(with(3, 70), None, "later than the next part");
        assert!(with(0, 10).is_some());
    }
}
