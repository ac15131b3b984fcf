//! Snapshots.

use std::ops::RangeBounds;
use std::sync::Arc;

use super::core::Core;
use super::scan::{Range, prefix_bounds};
use crate::error::Result;
use crate::key::Seq;
use crate::ledger::Explanation;
use crate::value::Value;
use crate::vfs::FileLock;

/// The store as it was at one moment. While it lives, compactions keep what it sees, and the
/// directory stays locked, even when all handles are closed.
#[derive(Debug)]
pub struct Snapshot {
    core: Arc<Core>,
    seq: Seq,
    /// Keeps the directory locked.
    lock: Arc<dyn FileLock>,
}

impl Snapshot {
    pub(crate) fn new(core: Arc<Core>) -> Result<Self> {
        let lock = core.hold_lock()?;
        let seq = core.register_snapshot();
        Ok(Self { core, seq, lock })
    }

    /// As [`Db::get`](crate::Db::get).
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.core.lookup(key.as_ref(), Some(self.seq), &mut ())
    }

    /// As [`Db::contains`](crate::Db::contains).
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// As [`Db::explain`](crate::Db::explain).
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        let mut steps = Vec::new();
        let value = self.core.lookup(key.as_ref(), Some(self.seq), &mut steps)?;
        Ok(Explanation { value, steps })
    }

    /// As [`Db::range`](crate::Db::range).
    ///
    /// # Errors
    /// As [`Db::range`](crate::Db::range).
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<Range> {
        Ok(Range::new(&self.core, Some(self.seq), Arc::clone(&self.lock), &bounds))
    }

    /// As [`Db::prefix`](crate::Db::prefix).
    ///
    /// # Errors
    /// As [`Db::range`](crate::Db::range).
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range> {
        let bounds = prefix_bounds(prefix.as_ref());
        Ok(Range::new(&self.core, Some(self.seq), Arc::clone(&self.lock), &bounds))
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.core.release_snapshot(self.seq);
    }
}
