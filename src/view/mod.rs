//! The read view. Each change replaces the whole view.
//!
//! If a reader were the last to drop a replaced view, a lookup would free a memtable and remove files. So
//! background threads drop replaced views, when no reader holds them. The flush thread removes no files of
//! tables and filters: that takes long, and writers wait for flushes.

mod approximate_len;
pub(crate) mod hole;

use std::sync::Arc;

use arc_swap::ArcSwap;

use self::hole::LastHole;
use crate::memtable::Memtable;
use crate::sstable::{Table, TableFilter};
use crate::sync::{Mutex, sync_point};
use crate::version::Version;

/// The memtables and the version that a reader uses. Only `memtable` changes, which grows, and `hole`.
#[derive(Debug, Clone)]
pub(crate) struct ReadView {
    pub(crate) memtable: Arc<Memtable>,
    /// Memtables to be flushed, newest first.
    pub(crate) sealed: Vec<Arc<Memtable>>,
    pub(crate) version: Arc<Version>,
    pub(crate) hole: LastHole,
}

impl ReadView {
    #[inline]
    pub(crate) fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.memtable).chain(&self.sealed)
    }
}

/// A table, and its filter if the filter has a file of its own.
type Deferred = (Arc<Table>, Option<Arc<TableFilter>>);

#[derive(Debug)]
pub(crate) struct Views {
    current: ArcSwap<ReadView>,
    /// Views that readers may hold. `None` without background threads: then the last holder drops a view.
    replaced: Mutex<Option<Vec<Arc<ReadView>>>>,
    /// What [`drop_memtables`](Self::drop_memtables) kept of the views that it dropped.
    kept: Mutex<Vec<Deferred>>,
    /// Locked by `drop_replaced`: a second call waits for the first.
    dropping: Mutex<()>,
}

impl Views {
    /// `background`: whether threads will call [`drop_replaced`](Self::drop_replaced).
    pub(crate) fn new(view: ReadView, background: bool) -> Self {
        Self {
            current: ArcSwap::from_pointee(view),
            replaced: Mutex::new(background.then(Vec::new)),
            kept: Mutex::default(),
            dropping: Mutex::new(()),
        }
    }

    /// The current view, for a short operation; cheaper than `load_full`.
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

    /// Drops replaced views that no reader holds, and with them the files of obsolete tables and filters.
    pub(crate) fn drop_replaced(&self) {
        let _dropping = self.dropping.lock();
        drop(self.take_unused());
        let kept = std::mem::take(&mut *self.kept.lock());
        drop(kept);
    }

    /// Drops replaced views that no reader holds, but keeps for `drop_replaced` all that may have to remove a
    /// file. Returns whether readers hold other replaced views.
    pub(crate) fn drop_memtables(&self) -> bool {
        // Locked until `unused` is dropped: otherwise `drop_replaced` could drop what is kept first, and this
        // thread would be the last holder.
        let mut kept = self.kept.lock();
        let (unused, left) = self.take_unused();
        // A table that is not obsolete yet may become so before `unused` is dropped.
        let tables = unused.iter().flat_map(|view| view.version.tables());
        kept.extend(tables.map(|(_, live)| {
            let has_file = live.filter.meta.file_of(live.table.id()).is_some();
            (Arc::clone(&live.table), has_file.then(|| Arc::clone(&live.filter)))
        }));
        drop(unused);
        left
    }

    /// Whether `drop_replaced` has something to drop. Does not wait while memtables are dropped.
    pub(crate) fn has_kept(&self) -> bool {
        self.kept.try_lock().is_none_or(|kept| !kept.is_empty())
    }

    /// The replaced views that no reader holds, and whether readers hold others.
    fn take_unused(&self) -> (Vec<Arc<ReadView>>, bool) {
        let mut replaced = self.replaced.lock();
        let Some(views) = &mut *replaced else { return (Vec::new(), false) };
        let unused = views.extract_if(.., |view| Arc::strong_count(view) == 1).collect();
        (unused, !views.is_empty())
    }

    /// From now on the last holder of a view drops it.
    pub(crate) fn close(&self) {
        let replaced = self.replaced.lock().take();
        drop(replaced);
    }
}
