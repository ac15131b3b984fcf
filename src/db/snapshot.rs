//! Reads as of one moment.

use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use crate::engine::inner::DbInner;
use crate::engine::scan::Scan;
use crate::error::{Error, Result};
use crate::expiry::Moment;
use crate::lookup::{Lookups, Now, When};
use crate::recovery::read_only_state::ReadOnlyState;
use crate::vfs::FileLock;
use crate::view::ReadView;

/// A view of the store at one moment. While it or a clone lives, compactions keep the entries that it sees, and the
/// directory stays locked; or, of a [`ReadOnlyDb`](crate::ReadOnlyDb), its tables' files stay open. Its calls
/// wait for their own disk reads only, its drop for nothing.
#[derive(Clone)]
pub struct Snapshot(Source);

#[derive(Clone)]
enum Source {
    Open(Arc<Registered>),
    ReadOnly(Arc<ReadOnlyState>, Moment),
    /// The store was closed, or this process is a fork.
    Failed(Error),
}

/// A moment that is registered until the last clone of the snapshot is dropped.
struct Registered {
    inner: Arc<DbInner>,
    moment: Moment,
    lock: Arc<dyn FileLock>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (env, seq) = match &self.0 {
            Source::Open(open) => (&open.inner.env, open.moment.seq),
            Source::ReadOnly(loaded, moment) => (&loaded.env, moment.seq),
            Source::Failed(error) => return f.debug_tuple("Snapshot").field(error).finish(),
        };
        let mut fields = f.debug_struct("Snapshot");
        fields.field("of", &env.dir.path()).field("seq", &seq).finish_non_exhaustive()
    }
}

impl Snapshot {
    pub(super) fn of_open(inner: Result<&Arc<DbInner>>) -> Self {
        Self(inner.and_then(Registered::new).map_or_else(Source::Failed, Source::Open))
    }

    pub(super) fn of_loaded(loaded: Arc<ReadOnlyState>) -> Self {
        let moment = loaded.now();
        Self(Source::ReadOnly(loaded, moment))
    }

    /// The open store, and the moment of the snapshot.
    pub(super) fn source(&self) -> Result<(&Arc<DbInner>, Moment)> {
        match &self.0 {
            Source::Open(open) => Ok((&open.inner, open.moment)),
            Source::Failed(error) => Err(error.clone()),
            Source::ReadOnly(..) => Err(Error::Closed),
        }
    }

    /// A clone.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        self.clone()
    }

    pub(super) fn at<T>(
        &self,
        read: impl FnOnce(Lookups<'_>, &ReadView, &When<'_>) -> Result<T>,
    ) -> Result<T> {
        match &self.0 {
            Source::Open(open) => {
                open.inner.env.birth.check()?;
                open.inner.at_one_moment(Some(open.moment), read)
            }
            Source::ReadOnly(loaded, moment) => loaded.at_one_moment(Some(*moment), read),
            Source::Failed(error) => Err(error.clone()),
        }
    }

    #[inline]
    pub(super) fn lookup<T>(
        &self,
        read: impl FnOnce(Lookups<'_>, &ReadView, &When<'_>) -> Result<T>,
    ) -> Result<T> {
        self.at(read)
    }

    pub(super) fn scan(&self, bounds: (Bound<&[u8]>, Bound<&[u8]>)) -> Result<Scan> {
        match &self.0 {
            Source::Open(open) => {
                open.inner.env.birth.check()?;
                Ok(open.inner.scan(Some(open.moment), bounds, Arc::clone(&open.lock)))
            }
            Source::ReadOnly(loaded, moment) => loaded.scan(*moment, bounds),
            Source::Failed(error) => Err(error.clone()),
        }
    }
}

impl Registered {
    fn new(inner: &Arc<DbInner>) -> Result<Arc<Self>> {
        let lock = inner.health.directory_lock()?;
        let moment = inner.sequences.take_snapshot(|| inner.now());
        Ok(Arc::new(Self { inner: Arc::clone(inner), moment, lock }))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.inner.env.birth.is_this_process() {
            self.inner.sequences.release_snapshot(self.moment.seq);
            // A compaction may be due now that drops entries of a table, if the snapshot kept any there.
            // Or entries that have expired since.
            let has_older = self.inner.views.load().version.newest() > self.moment.seq;
            if has_older || self.moment.time > 0 {
                self.inner.scheduler.wake_waiters();
            }
        }
    }
}
