//! Epochs: which one the reads use, the next number, and the thread that removes old ones.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, spawn};

use criba::{Batch, Db};

use crate::error::{Error, Result};
use crate::layout::{BATCH_CHANGES, end_of_epoch, first_epoch, pair_key};

/// Dropped, it waits until the thread ended, at most one batch later. The next opening goes on.
pub(crate) struct Epochs {
    current: AtomicU64,
    next: AtomicU64,
    ending: Arc<AtomicBool>,
    /// `None` while the thread ends.
    old: Option<Sender<u64>>,
    thread: Option<JoinHandle<()>>,
}

impl Epochs {
    /// Removes all epochs but the current one.
    pub(crate) fn open(db: Db, current: u64) -> Result<Self> {
        let mut next = after(current)?;
        let (old, epochs) = channel();
        let mut from = 0;
        while let Some(epoch) = first_epoch(&db, from)? {
            if epoch != current {
                let _ = old.send(epoch); // its receiver is above
            }
            from = after(epoch)?;
            next = next.max(from);
        }
        let ending = Arc::new(AtomicBool::new(false));
        let thread = spawn({
            let ending = Arc::clone(&ending);
            move || remove_old(&db, &epochs, &ending)
        });
        let (current, next) = (AtomicU64::new(current), AtomicU64::new(next));
        Ok(Self { current, next, ending, old: Some(old), thread: Some(thread) })
    }

    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    /// An epoch that was never used.
    pub(crate) fn begin(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes reads use an epoch that the store's record names, and then removes the one before.
    pub(crate) fn switch(&self, epoch: u64) {
        let old = self.current.swap(epoch, Ordering::AcqRel);
        if old != epoch {
            self.remove(old);
        }
    }

    pub(crate) fn remove(&self, epoch: u64) {
        // Without the thread, the next opening removes it.
        let _ = self.old.as_ref().map(|old| old.send(epoch));
    }
}

fn after(epoch: u64) -> Result<u64> {
    let (of, expected) = ("epoch".to_string(), "one that others can follow");
    epoch.checked_add(1).ok_or(Error::Record { of, expected, found: epoch.to_string() })
}

fn remove_old(db: &Db, epochs: &Receiver<u64>, ending: &AtomicBool) {
    // One that the store fails to remove is tried again with the next one, or by the next opening.
    let mut left = Vec::new();
    while let Ok(epoch) = epochs.recv()
        && !ending.load(Ordering::Relaxed)
    {
        left.push(epoch);
        left.retain(|&epoch| remove(db, epoch, ending).is_err());
    }
}

fn remove(db: &Db, epoch: u64, ending: &AtomicBool) -> Result<()> {
    let mut from = Bound::Included(pair_key(epoch, b""));
    let end = Bound::Excluded(end_of_epoch(epoch));
    while !ending.load(Ordering::Relaxed) {
        let mut batch = Batch::new();
        for item in db.range((from.clone(), end.clone())).take(BATCH_CHANGES) {
            let (key, _) = item?;
            batch.delete(&key);
            from = Bound::Excluded(key.to_vec());
        }
        if batch.is_empty() {
            break;
        }
        db.write(batch)?;
    }
    Ok(())
}

impl Drop for Epochs {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        drop(self.old.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl fmt::Debug for Epochs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epochs").field("current", &self.current()).finish_non_exhaustive()
    }
}
