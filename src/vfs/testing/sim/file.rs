//! A file on a simulated disk: its bytes, and its changes since the last sync.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use super::power::{Keep, Unit, Unsynced};
use crate::sync::Arc;
use crate::vfs::FileKind;

/// A file: its synced bytes, and the changes since.
#[derive(Debug, Clone)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) kind: FileKind,
    /// Content at the last sync.
    pub(super) durable: Arc<Vec<u8>>,
    /// As programs see it.
    pub(super) seen: Arc<Vec<u8>>,
    /// What lies between the two, each change with its time.
    changes: Arc<Vec<(u64, Change)>>,
}

#[derive(Debug, Clone)]
pub(super) enum Change {
    Write { offset: usize, data: Arc<[u8]> },
    Length(usize),
}

impl File {
    pub(super) fn durable(path: PathBuf, kind: FileKind, bytes: Arc<Vec<u8>>) -> Self {
        Self { path, kind, durable: Arc::clone(&bytes), seen: bytes, changes: Arc::default() }
    }

    pub(super) fn change(&mut self, time: u64, change: Change) {
        change.apply(Arc::make_mut(&mut self.seen));
        Arc::make_mut(&mut self.changes).push((time, change));
    }

    /// Makes the changes up to a time durable: that at which a sync began.
    pub(super) fn sync(&mut self, begun: u64) {
        let later = self.changes.partition_point(|(time, _)| *time <= begun);
        if later == self.changes.len() {
            self.durable = Arc::clone(&self.seen);
            self.changes = Arc::default();
            return;
        }
        let durable = Arc::make_mut(&mut self.durable);
        for (_, change) in Arc::make_mut(&mut self.changes).drain(..later) {
            change.apply(durable);
        }
    }

    /// The bytes after a power failure. Holes may contain `stale` bytes.
    pub(super) fn after_power_failure(
        &self,
        unit: Unit,
        stale: &[u8],
        keep: &mut impl FnMut(&Unsynced) -> Keep,
    ) -> Arc<Vec<u8>> {
        if self.changes.is_empty() {
            return Arc::clone(&self.seen);
        }
        let (lengths, units) = self.history(unit.bytes());
        let mut length = lengths[0];
        if lengths.len() > 1 {
            let path = self.path.clone();
            let lengths_64 = lengths.iter().map(|&length| length as u64).collect();
            let keep = keep(&Unsynced::Length { path, lengths: lengths_64 });
            length = lengths[keep.state(lengths.len())];
        }
        let mut bytes = self.durable.to_vec();
        bytes.resize(length, 0);
        for (number, states) in units {
            let offset = number * unit.bytes();
            let is_new = offset >= self.durable.len();
            let unsynced = Unsynced::Bytes {
                path: self.path.clone(),
                offset: offset as u64,
                states: states.len(),
                is_new,
            };
            let keep = keep(&unsynced);
            let mut kept = states[keep.state(states.len())].clone();
            match keep {
                Keep::Torn(state, torn) if state > 0 => {
                    let before = &states[state.min(states.len() - 1) - 1];
                    let torn = torn.min(kept.len());
                    kept[torn..].copy_from_slice(&before[torn..]);
                }
                Keep::Stale if is_new => {
                    let stale = stale.get(place(offset, unit.bytes(), stale.len()));
                    let stale = stale.unwrap_or_default();
                    kept[..stale.len()].copy_from_slice(stale);
                }
                _ => {}
            }
            let place = place(offset, unit.bytes(), length);
            if let Some(to) = bytes.get_mut(place) {
                to.copy_from_slice(&kept[..to.len()]);
            }
        }
        Arc::new(bytes)
    }

    /// The lengths since the last sync; and for each changed unit its contents, zeros beyond the end.
    fn history(&self, unit: usize) -> (Vec<usize>, BTreeMap<usize, Vec<Vec<u8>>>) {
        let image = |bytes: &[u8], number: usize| {
            let mut image =
                bytes.get(place(number * unit, unit, bytes.len())).unwrap_or(&[]).to_vec();
            image.resize(unit, 0);
            image
        };
        let mut bytes = self.durable.to_vec();
        let mut lengths = vec![bytes.len()];
        let mut units = BTreeMap::<usize, Vec<Vec<u8>>>::new();
        for (_, change) in self.changes.iter() {
            let touched = change.touched(bytes.len());
            change.apply(&mut bytes);
            if lengths.last() != Some(&bytes.len()) {
                lengths.push(bytes.len());
            }
            for number in touched.start / unit..touched.end.div_ceil(unit) {
                let states =
                    units.entry(number).or_insert_with(|| vec![image(&self.durable, number)]);
                let now = image(&bytes, number);
                if states.last() != Some(&now) {
                    states.push(now);
                }
            }
        }
        units.retain(|_, states| states.len() > 1);
        (lengths, units)
    }
}

/// The part of a unit before the end.
fn place(offset: usize, unit: usize, end: usize) -> Range<usize> {
    offset..(offset + unit).min(end).max(offset)
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Write { offset, data } => {
                let end = offset + data.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset..end].copy_from_slice(data);
            }
            Self::Length(length) => bytes.resize(*length, 0),
        }
    }

    /// The bytes that it may have changed in a file of this length.
    fn touched(&self, length: usize) -> Range<usize> {
        match self {
            Self::Write { offset, data } => *offset..offset + data.len(),
            Self::Length(new) => length.min(*new)..length.max(*new),
        }
    }
}
