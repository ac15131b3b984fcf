//! The read view, replaced whole at each change.
//!
//! If a reader were the last to drop a replaced view, a lookup would free a memtable and remove files. So
//! background threads drop replaced views, when no reader holds them. The flush thread drops only memtables:
//! writers wait for flushes, and the removal of files takes long.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::memtable::Memtable;
use crate::sstable::Table;
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
    /// The obsolete ones of views that [`drop_memtables`](Self::drop_memtables) dropped.
    tables: Mutex<Vec<Arc<Table>>>,
    /// Held while tables are dropped: calls of `drop_replaced` wait for each other.
    dropping: Mutex<()>,
}

impl Views {
    /// `background`: whether threads will call [`drop_replaced`](Self::drop_replaced).
    pub(crate) fn new(view: ReadView, background: bool) -> Self {
        Self {
            current: ArcSwap::from_pointee(view),
            replaced: Mutex::new(background.then(Vec::new)),
            tables: Mutex::default(),
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

    /// Drops replaced views that no reader holds, which removes the files of replaced tables.
    pub(crate) fn drop_replaced(&self) {
        let _dropping = self.dropping.lock();
        drop(self.take_unused());
        let tables = std::mem::take(&mut *self.tables.lock());
        drop(tables);
    }

    /// Drops replaced views that no reader holds, but keeps their obsolete tables for `drop_replaced`: removing
    /// many files takes long, and writers wait for flushes. Returns whether readers hold others.
    pub(crate) fn drop_memtables(&self) -> bool {
        let (unused, left) = self.take_unused();
        let tables = unused.iter().flat_map(|view| view.version.tables());
        let obsolete = tables.filter(|(_, live)| live.table.is_obsolete());
        let mut kept = self.tables.lock(); // until the views are dropped, or they might be the last holders
        kept.extend(obsolete.map(|(_, live)| Arc::clone(&live.table)));
        drop(unused);
        left
    }

    /// Whether `drop_memtables` has kept tables.
    pub(crate) fn keeps_tables(&self) -> bool {
        !self.tables.lock().is_empty()
    }

    /// The replaced views that no reader holds, and whether there are others.
    fn take_unused(&self) -> (Vec<Arc<ReadView>>, bool) {
        let mut replaced = self.replaced.lock();
        let Some(views) = &mut *replaced else { return (Vec::new(), false) };
        let unused = views.extract_if(.., |view| Arc::strong_count(view) == 1).collect();
        (unused, !views.is_empty())
    }

    /// From now on the last reader drops a view.
    pub(crate) fn close(&self) {
        let replaced = self.replaced.lock().take();
        drop(replaced);
    }
}
