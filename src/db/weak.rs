//! Handles that do not keep a store open.

use std::sync::{Arc, Weak};

use super::{Db, Handle};

/// A handle that does not keep the store open: made by [`Db::downgrade`], for callbacks of
/// [`Options::on_event`](crate::Options::on_event). A callback that holds a [`Db`] of its own store keeps
/// the store open for ever.
#[derive(Clone)]
pub struct WeakDb(Weak<Handle>);

impl WeakDb {
    pub(super) fn new(handle: &Arc<Handle>) -> Self {
        Self(Arc::downgrade(handle))
    }

    /// A handle of the store; `None` once its last [`Db`] is dropped.
    pub fn upgrade(&self) -> Option<Db> {
        self.0.upgrade().map(Db)
    }
}

impl std::fmt::Debug for WeakDb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WeakDb")
    }
}
