//! A reader sees the entries up to the newest visible sequence number, or up to that of its snapshot.

use std::collections::BTreeMap;

use crate::key::Seq;
use crate::sync::{AtomicU64, Mutex, Ordering};

#[derive(Debug)]
pub(crate) struct Sequences {
    newest: AtomicU64,
    /// All entries up to this are known to be synced.
    synced: AtomicU64,
    /// The number of snapshots by sequence number.
    snapshots: Mutex<BTreeMap<Seq, usize>>,
}

impl Sequences {
    /// All entries up to `newest` are synced.
    pub(crate) fn new(newest: Seq) -> Self {
        let (newest, synced) = (AtomicU64::new(newest), AtomicU64::new(newest));
        Self { newest, synced, snapshots: Mutex::default() }
    }

    #[inline]
    pub(crate) fn newest(&self) -> Seq {
        self.newest.load(Ordering::Acquire)
    }

    /// Makes all entries up to `seq` visible. They must be in the memtable.
    pub(crate) fn publish(&self, seq: Seq) {
        self.newest.store(seq, Ordering::Release);
    }

    pub(crate) fn synced(&self) -> Seq {
        self.synced.load(Ordering::Acquire)
    }

    pub(crate) fn note_synced(&self, seq: Seq) {
        self.synced.fetch_max(seq, Ordering::Release);
    }

    /// The sequence number of a new snapshot. Compactions keep the entries that it sees until its release.
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

    pub(crate) fn snapshots(&self) -> Vec<Seq> {
        self.snapshots.lock().keys().copied().collect()
    }

    pub(crate) fn oldest_snapshot(&self) -> Option<Seq> {
        self.snapshots.lock().first_key_value().map(|(seq, _)| *seq)
    }
}
