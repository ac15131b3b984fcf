//! What a transaction read: keys, and ranges with their gaps.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::value::Value;

/// The memory of an interval beside the bytes of its ends.
const INTERVAL_BYTES: usize = 120;

/// Intervals of keys by their first keys. No two overlap or adjoin, so a key that is read twice takes no memory.
#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    intervals: BTreeMap<Value, End>,
    bytes: usize,
}

/// The least key behind an interval; `None` for an interval without an end.
type End = Option<Value>;

impl ReadSet {
    pub(crate) fn insert_key(&mut self, key: &[u8]) {
        self.insert((Bound::Included(key), Bound::Included(key)));
    }

    pub(crate) fn insert(&mut self, (from, to): (Bound<&[u8]>, Bound<&[u8]>)) {
        let mut start = match from {
            Bound::Included(key) => Value::copied(key),
            Bound::Excluded(key) => behind(key),
            Bound::Unbounded => Value::default(),
        };
        let mut end = match to {
            Bound::Included(key) => Some(behind(key)),
            Bound::Excluded(key) => Some(Value::copied(key)),
            Bound::Unbounded => None,
        };
        if !is_before(&start, &end) {
            return;
        }
        if let Some((before, until)) = self.up_to(&start)
            && (is_before(&start, until) || until.as_ref() == Some(&start))
        {
            if is_within(&end, until) {
                return;
            }
            start = before.clone();
        }
        // Those that the new interval reaches become part of it.
        while let Some((next, until)) =
            self.intervals.range::<[u8], _>((Bound::Included(&*start), Bound::Unbounded)).next()
            && (is_before(next, &end) || end.as_ref() == Some(next))
        {
            if is_within(&end, until) {
                end.clone_from(until);
            }
            let next = next.clone();
            let until = self.intervals.remove(&next).flatten();
            self.bytes -= bytes_of(&next, &until);
        }
        self.bytes += bytes_of(&start, &end);
        self.intervals.insert(start, end);
    }

    /// The last interval that starts at a key or before it.
    fn up_to(&self, key: &[u8]) -> Option<(&Value, &End)> {
        self.intervals.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.up_to(key).is_some_and(|(_, end)| is_before(key, end))
    }

    /// The intervals: the first key, and the least key behind them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.intervals.iter().map(|(start, end)| (&**start, end.as_deref()))
    }

    /// The memory taken, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The least key that is greater.
fn behind(key: &[u8]) -> Value {
    Value::copied(&[key, &[0]].concat())
}

fn is_before(key: &[u8], end: &End) -> bool {
    end.as_deref().is_none_or(|end| key < end)
}

fn is_within(end: &End, other: &End) -> bool {
    match (end, other) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(end), Some(other)) => end <= other,
    }
}

fn bytes_of(start: &Value, end: &End) -> usize {
    INTERVAL_BYTES + start.len() + end.as_ref().map_or(0, |end| end.len())
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// A key of at most two letters of three.
    fn key(rng: &mut ChaCha8Rng) -> Vec<u8> {
        (0..rng.random_range(0..3)).map(|_| rng.random_range(b'a'..b'd')).collect()
    }

    fn bound(rng: &mut ChaCha8Rng) -> Bound<Vec<u8>> {
        match rng.random_range(0..4) {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(key(rng)),
            _ => Bound::Included(key(rng)),
        }
    }

    #[test]
    fn it_has_what_was_inserted_in_the_fewest_intervals() {
        let mut rng = ChaCha8Rng::seed_from_u64(46);
        let mut most = 0;
        for _ in 0..3000 {
            let (mut reads, mut inserted) = (ReadSet::default(), Vec::new());
            for _ in 0..rng.random_range(0..8) {
                let bounds = if rng.random_bool(0.5) {
                    let key = key(&mut rng);
                    (Bound::Included(key.clone()), Bound::Included(key))
                } else {
                    (bound(&mut rng), bound(&mut rng))
                };
                reads.insert((
                    bounds.0.as_ref().map(Vec::as_slice),
                    bounds.1.as_ref().map(Vec::as_slice),
                ));
                inserted.push(bounds);
                for key in (0..20).map(|_| key(&mut rng)) {
                    let after = [&key[..], &[0]].concat();
                    for key in [key, after] {
                        let expected = inserted.iter().any(|(from, to)| {
                            let from = match from {
                                Bound::Included(from) => *from <= key,
                                Bound::Excluded(from) => *from < key,
                                Bound::Unbounded => true,
                            };
                            from && match to {
                                Bound::Included(to) => key <= *to,
                                Bound::Excluded(to) => key < *to,
                                Bound::Unbounded => true,
                            }
                        });
                        assert_eq!(reads.contains(&key), expected, "{key:?} in {reads:?}");
                    }
                }
            }
            let intervals: Vec<_> = reads.iter().collect();
            for pair in intervals.windows(2) {
                assert!(pair[0].1.is_some_and(|end| end < pair[1].0), "{reads:?}");
            }
            let bytes = |(start, end): &(&[u8], Option<&[u8]>)| {
                INTERVAL_BYTES + start.len() + end.map_or(0, <[u8]>::len)
            };
            assert_eq!(reads.bytes(), intervals.iter().map(bytes).sum::<usize>());
            most = most.max(intervals.len());
        }
        assert!(most > 3, "{most} intervals");
    }
}
