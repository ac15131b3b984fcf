//! What readers read: one view at a time, replaced whole.
//!
//! A reader may hold a view long after it was replaced. If it were the last to drop the view, its lookup would
//! free a memtable and remove the files of tables. So a replaced view is kept here until no reader holds it, and
//! the background drops it.

use std::sync::Arc;

use crate::memtable::Memtable;
use crate::sync::{Mutex, Swap};
use crate::version::Version;

/// What a reader reads: never changed, but for the growing memtable.
#[derive(Debug, Clone)]
pub(crate) struct ReadView {
    /// The memtable that takes writes.
    pub(crate) memtable: Arc<Memtable>,
    /// Memtables waiting to be flushed, newest first.
    pub(crate) sealed: Vec<Arc<Memtable>>,
    pub(crate) version: Arc<Version>,
}

/// The view in force, and those that were replaced and may still be held.
#[derive(Debug)]
pub(crate) struct Views {
    current: Swap<ReadView>,
    /// `None` without a background: the last reader drops a view then.
    replaced: Mutex<Option<Vec<Arc<ReadView>>>>,
    /// Held while views are dropped, so that a call of `drop_replaced` waits for one under way.
    dropping: Mutex<()>,
}

impl Views {
    /// Begins with a view. `background` says whether [`drop_replaced`](Self::drop_replaced) will be called.
    pub(crate) fn new(view: ReadView, background: bool) -> Self {
        Self {
            current: Swap::new(view),
            replaced: Mutex::new(background.then(Vec::new)),
            dropping: Mutex::new(()),
        }
    }

    /// The view for the length of one short operation; cheaper than [`load_full`](Self::load_full).
    #[inline]
    pub(crate) fn load(&self) -> impl std::ops::Deref<Target = Arc<ReadView>> {
        self.current.load()
    }

    /// The view to keep.
    pub(crate) fn load_full(&self) -> Arc<ReadView> {
        self.current.load_full()
    }

    /// Replaces the view by one that `change` makes of it.
    pub(crate) fn change(&self, change: impl FnOnce(&mut ReadView)) {
        let mut replaced = self.replaced.lock();
        let mut view = ReadView::clone(&self.current.load());
        change(&mut view);
        let old = self.current.swap(Arc::new(view));
        match &mut *replaced {
            Some(replaced) => replaced.push(old),
            None => {
                drop(replaced);
                drop(old);
            }
        }
    }

    /// Drops the replaced views that no reader holds. True if some are left.
    pub(crate) fn drop_replaced(&self) -> bool {
        let _dropping = self.dropping.lock();
        let mut free = Vec::new();
        let left = {
            let mut replaced = self.replaced.lock();
            let Some(replaced) = &mut *replaced else { return false };
            for view in std::mem::take(replaced) {
                match Arc::try_unwrap(view) {
                    Ok(view) => free.push(view),
                    Err(held) => replaced.push(held),
                }
            }
            !replaced.is_empty()
        };
        drop(free); // files go, and a writer that replaces the view does not wait for that
        left
    }

    /// The background ends: from now on the last reader drops a view.
    pub(crate) fn close(&self) {
        let replaced = self.replaced.lock().take();
        drop(replaced);
    }
}
