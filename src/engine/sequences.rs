//! A reader sees the entries up to the newest visible sequence number, or up to that of its snapshot.

use std::collections::BTreeMap;

use crate::expiry::{Millis, Moment};
use crate::key::Seq;
use crate::sync::{AtomicU64, Mutex, Ordering};

#[derive(Debug)]
pub(crate) struct Sequences {
    newest: AtomicU64,
    /// All entries up to this are known to be synced.
    synced: AtomicU64,
    /// The number of snapshots by sequence number, and the earliest time of these. Times ascend with the numbers.
    snapshots: Mutex<BTreeMap<Seq, (usize, Millis)>>,
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

    /// Registers a new snapshot at the moment `now`. Compactions keep the values that it sees until its release.
    pub(crate) fn take_snapshot(&self, now: impl FnOnce() -> Moment) -> Moment {
        let mut snapshots = self.snapshots.lock();
        let moment = now();
        let (count, _) = snapshots.entry(moment.seq).or_insert((0, moment.time));
        *count += 1;
        moment
    }

    pub(crate) fn release_snapshot(&self, seq: Seq) {
        let mut snapshots = self.snapshots.lock();
        if let Some((count, _)) = snapshots.get_mut(&seq) {
            *count -= 1;
            if *count == 0 {
                snapshots.remove(&seq);
            }
        }
    }

    pub(crate) fn snapshots(&self) -> Vec<Moment> {
        let snapshots = self.snapshots.lock();
        snapshots.iter().map(|(&seq, &(_, time))| Moment { seq, time }).collect()
    }

    pub(crate) fn oldest_snapshot(&self) -> Option<Moment> {
        let snapshots = self.snapshots.lock();
        snapshots.first_key_value().map(|(&seq, &(_, time))| Moment { seq, time })
    }
}
