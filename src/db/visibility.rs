//! Which changes readers see: all up to the newest sequence number, or up to that of a snapshot.

use std::collections::BTreeMap;

use crate::key::Seq;
use crate::sync::{AtomicU64, Mutex, Ordering};

#[derive(Debug)]
pub(crate) struct Visibility {
    newest: AtomicU64,
    /// The sequence numbers that snapshots read at, with how many do.
    snapshots: Mutex<BTreeMap<Seq, usize>>,
}

impl Visibility {
    pub(crate) fn new(newest: Seq) -> Self {
        Self { newest: AtomicU64::new(newest), snapshots: Mutex::default() }
    }

    /// The newest sequence number that readers may see.
    #[inline]
    pub(crate) fn newest(&self) -> Seq {
        self.newest.load(Ordering::Acquire)
    }

    /// Shows readers all changes up to this one, which are in the memtable.
    pub(crate) fn publish(&self, seq: Seq) {
        self.newest.store(seq, Ordering::Release);
    }

    /// Takes a snapshot's sequence number. Compactions keep what it sees until it is released.
    pub(crate) fn take_snapshot(&self) -> Seq {
        let mut snapshots = self.snapshots.lock();
        let seq = self.newest();
        *snapshots.entry(seq).or_insert(0) += 1;
        seq
    }

    pub(crate) fn release_snapshot(&self, seq: Seq) {
        let mut snapshots = self.snapshots.lock();
        if let Some(count) = snapshots.get_mut(&seq) {
            *count -= 1;
            if *count == 0 {
                snapshots.remove(&seq);
            }
        }
    }

    /// The sequence numbers that snapshots read at.
    pub(crate) fn snapshots(&self) -> Vec<Seq> {
        self.snapshots.lock().keys().copied().collect()
    }

    /// The oldest of them.
    pub(crate) fn oldest_snapshot(&self) -> Option<Seq> {
        self.snapshots.lock().first_key_value().map(|(seq, _)| *seq)
    }
}
