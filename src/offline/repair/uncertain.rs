//! Whether a lost change of a key can be newer than one that was read.

use std::ops::{Bound, RangeBounds};

use super::loss::{ANY_KEY, Loss};
use crate::key::Seq;
use crate::key_range::{KeyBounds, borrowed};

/// Ranges of keys whose newest change may be lost. Keys come in order.
#[derive(Default)]
pub(super) struct UncertainRanges {
    /// Changes of any key up to this one.
    newest: Seq,
    /// The ranges that the next key may be in …
    ranges: Vec<(KeyBounds, Seq)>,
    /// … and those that begin behind it, the last ones first.
    later: Vec<(KeyBounds, Seq)>,
}

impl UncertainRanges {
    /// Ranges of the losses that are known before the first key.
    pub(super) fn of(losses: &[Loss]) -> Self {
        let mut doubt = Self::default();
        for loss in losses {
            doubt.add(loss);
        }
        doubt.later = std::mem::take(&mut doubt.ranges);
        doubt.later.sort_by(|((a, _), _), ((b, _), _)| begin_of(b).cmp(begin_of(a)));
        doubt
    }

    pub(super) fn add(&mut self, loss: &Loss) {
        if loss.keys == ANY_KEY {
            self.newest = self.newest.max(loss.newest);
        } else {
            self.ranges.push((loss.keys.clone(), loss.newest));
        }
    }

    /// Whether a change of `key` newer than `seq` may be lost. No later key is less.
    pub(super) fn covers(&mut self, key: &[u8], seq: Seq) -> bool {
        while let Some(range) = self.later.pop_if(|((begin, _), _)| begin_of(begin) <= key) {
            self.ranges.push(range);
        }
        self.ranges.retain(|((_, end), _)| match end {
            Bound::Included(last) => key <= last.as_slice(),
            Bound::Excluded(end) => key < end.as_slice(),
            Bound::Unbounded => true,
        });
        seq < self.newest
            || self.ranges.iter().any(|(keys, newest)| {
                seq < *newest && RangeBounds::<[u8]>::contains(&borrowed(keys), key)
            })
    }
}

fn begin_of(bound: &Bound<Vec<u8>>) -> &[u8] {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => &[],
    }
}
