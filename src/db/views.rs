//! The read view, replaced whole at each change.
//!
//! If a reader were the last to drop a replaced view, a lookup would free a memtable and remove files. So
//! background threads drop replaced views, when no reader holds them.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::memtable::Memtable;
use crate::sync::{Mutex, sync_point};
use crate::version::Version;

/// What a reader uses. Only its memtable grows.
#[derive(Debug, Clone)]
pub(crate) struct ReadView {
    pub(crate) memtable: Arc<Memtable>,
    /// Memtables to be flushed, newest first.
    pub(crate) sealed: Vec<Arc<Memtable>>,
    pub(crate) version: Arc<Version>,
}

impl ReadView {
    #[inline]
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.memtable).chain(&self.sealed)
    }
}

/// The current view, and replaced views that readers may hold.
#[derive(Debug)]
pub(crate) struct Views {
    current: ArcSwap<ReadView>,
    /// `None` without background threads: the last reader drops a view then.
    replaced: Mutex<Option<Vec<Arc<ReadView>>>>,
    /// Held while views are dropped: calls of `drop_replaced` wait for each other.
    dropping: Mutex<()>,
}

impl Views {
    /// `background`: whether threads will call [`drop_replaced`](Self::drop_replaced).
    pub(crate) fn new(view: ReadView, background: bool) -> Self {
        Self {
            current: ArcSwap::from_pointee(view),
            replaced: Mutex::new(background.then(Vec::new)),
            dropping: Mutex::new(()),
        }
    }

    /// The view, for a short operation; cheaper than `load_full`.
    #[inline]
    pub(crate) fn load(&self) -> impl std::ops::Deref<Target = Arc<ReadView>> {
        sync_point("before a view is loaded");
        self.current.load()
    }

    pub(crate) fn load_full(&self) -> Arc<ReadView> {
        sync_point("before a view is loaded");
        self.current.load_full()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut ReadView)) {
        let mut replaced = self.replaced.lock();
        let mut view = ReadView::clone(&self.load());
        change(&mut view);
        sync_point("before the view is replaced");
        let old = self.current.swap(Arc::new(view));
        match &mut *replaced {
            Some(replaced) => replaced.push(old),
            None => {
                drop(replaced);
                drop(old);
            }
        }
    }

    /// Drops replaced views that no reader holds; returns whether some are left.
    pub(crate) fn drop_replaced(&self) -> bool {
        let _dropping = self.dropping.lock();
        let mut replaced = self.replaced.lock();
        let Some(views) = &mut *replaced else { return false };
        let unused: Vec<_> = views.extract_if(.., |view| Arc::strong_count(view) == 1).collect();
        let left = !views.is_empty();
        drop(replaced); // a writer that replaces the view does not wait for the removal of files
        drop(unused);
        left
    }

    /// From now on the last reader drops a view.
    pub(crate) fn close(&self) {
        let replaced = self.replaced.lock().take();
        drop(replaced);
    }
}
