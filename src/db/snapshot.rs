//! Reads as of one moment.

use std::fmt;
use std::sync::Arc;

use crate::engine::inner::DbInner;
use crate::engine::scan::Range;
use crate::error::Result;
use crate::key::Seq;
use crate::key_range::KeyRange;
use crate::ledger::Explanation;
use crate::recovery::read_only_state::ReadOnlyState;
use crate::sstable::TableEnv;
use crate::value::Value;
use crate::vfs::FileLock;

/// A view of the store at one moment. While it lives, compactions keep the entries that it sees, and the
/// directory stays locked; or, of a [`ReadOnlyDb`](crate::ReadOnlyDb), its tables' files stay open. Its calls
/// wait for their own disk reads only, its drop for nothing.
pub struct Snapshot(Source);

enum Source {
    Open { inner: Arc<DbInner>, seq: Seq, lock: Arc<dyn FileLock> },
    ReadOnly(Arc<ReadOnlyState>),
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (env, seq) = match &self.0 {
            Source::Open { inner, seq, .. } => (&inner.env, seq),
            Source::ReadOnly(loaded) => (&loaded.env, &loaded.seq),
        };
        let mut fields = f.debug_struct("Snapshot");
        fields.field("of", &env.dir.path()).field("seq", seq).finish_non_exhaustive()
    }
}

impl Snapshot {
    pub(crate) fn new(inner: Arc<DbInner>) -> Result<Self> {
        let lock = inner.health.directory_lock()?;
        let seq = inner.sequences.take_snapshot();
        Ok(Self(Source::Open { inner, seq, lock }))
    }

    pub(super) fn of_loaded(loaded: Arc<ReadOnlyState>) -> Self {
        Self(Source::ReadOnly(loaded))
    }

    fn env(&self) -> &TableEnv {
        match &self.0 {
            Source::Open { inner, .. } => &inner.env,
            Source::ReadOnly(loaded) => &loaded.env,
        }
    }

    /// As [`Db::get`](crate::Db::get).
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.env().birth.check()?;
        match &self.0 {
            Source::Open { inner, seq, .. } => inner.lookup(key.as_ref(), Some(*seq), &mut ()),
            Source::ReadOnly(loaded) => loaded.lookup(key.as_ref(), &mut ()),
        }
    }

    /// As [`Db::get_many`](crate::Db::get_many).
    ///
    /// # Errors
    /// As [`Db::get_many`](crate::Db::get_many).
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.env().birth.check()?;
        match &self.0 {
            Source::Open { inner, seq, .. } => inner.lookup_many(keys, Some(*seq)),
            Source::ReadOnly(loaded) => loaded.lookup_many(keys),
        }
    }

    /// As [`Db::explain`](crate::Db::explain).
    ///
    /// # Errors
    /// As [`Db::get`](crate::Db::get).
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        self.env().birth.check()?;
        match &self.0 {
            Source::Open { inner, seq, .. } => inner.explain(key.as_ref(), Some(*seq)),
            Source::ReadOnly(loaded) => loaded.explain(key.as_ref()),
        }
    }

    /// As [`Db::range`](crate::Db::range).
    ///
    /// # Errors
    /// As [`Db::range`](crate::Db::range).
    pub fn range(&self, bounds: impl KeyRange) -> Result<Range> {
        self.env().birth.check()?;
        Ok(match &self.0 {
            Source::Open { inner, seq, lock } => {
                inner.scan(Some(*seq), bounds.bounds(), Arc::clone(lock))
            }
            Source::ReadOnly(loaded) => loaded.scan(bounds.bounds()),
        })
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if let Source::Open { inner, seq, .. } = &self.0
            && inner.env.birth.is_this_process()
        {
            inner.sequences.release_snapshot(*seq);
            // A compaction that drops tombstones may be due now.
            inner.scheduler.wake_waiters();
        }
    }
}
