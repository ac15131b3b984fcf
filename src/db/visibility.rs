//! A reader sees the entries up to the newest visible sequence number, or up to that of its snapshot.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::key::Seq;
use crate::sync::{AtomicU64, Mutex, Ordering, Patience};

#[derive(Debug)]
pub(crate) struct Visibility {
    newest: AtomicU64,
    /// Entries in the memtable that become visible after others, which are not there yet.
    early: Mutex<Vec<Range<Seq>>>,
    /// All entries up to this are known to be synced.
    synced: AtomicU64,
    /// The number of snapshots by sequence number.
    snapshots: Mutex<BTreeMap<Seq, usize>>,
}

impl Visibility {
    /// All entries up to `newest` are synced.
    pub(crate) fn new(newest: Seq) -> Self {
        let (newest, synced) = (AtomicU64::new(newest), AtomicU64::new(newest));
        Self { newest, early: Mutex::default(), synced, snapshots: Mutex::default() }
    }

    #[inline]
    pub(crate) fn newest(&self) -> Seq {
        self.newest.load(Ordering::Acquire)
    }

    /// Makes entries visible, once all before them are. They must be in the memtable. Threads insert at the
    /// same time; the one with the oldest entries also publishes those that wait for them.
    pub(crate) fn publish(&self, entries: Range<Seq>) {
        if entries.is_empty() {
            return;
        }
        let last = entries.end - 1;
        let mut early = self.early.lock();
        if self.newest() + 1 < entries.start {
            early.push(entries);
            drop(early);
            return self.wait_for(last);
        }
        let mut end = entries.end;
        while let Some(next) = early.iter().position(|entries| entries.start == end) {
            end = early.swap_remove(next).end;
        }
        self.newest.store(end - 1, Ordering::Release);
    }

    /// Waits until all entries up to `seq` are visible. Other threads insert them now.
    pub(crate) fn wait_for(&self, seq: Seq) {
        let mut patience = Patience::default();
        while self.newest() < seq {
            patience.wait();
        }
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
