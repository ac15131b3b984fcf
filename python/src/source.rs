//! What the methods of reads read from.

use criba::{Db, Error, ReadOnlyDb, Reader, Snapshot};

/// A handle. A clone is another handle of the same.
#[derive(Clone)]
pub(crate) enum Source {
    Db(Db),
    ReadOnly(ReadOnlyDb),
    Snapshot(Snapshot),
}

impl Source {
    pub(crate) fn reader(&self) -> &(dyn Reader + Send + Sync) {
        match self {
            Self::Db(db) => db,
            Self::ReadOnly(db) => db,
            Self::Snapshot(snapshot) => snapshot,
        }
    }

    /// Closes a store. The drop of the handle closes the others.
    pub(crate) fn close(self) -> criba::Result<()> {
        match self {
            Self::Db(db) => match db.close() {
                Err(Error::Closed) => Ok(()),
                done => done,
            },
            Self::ReadOnly(_) | Self::Snapshot(_) => Ok(()),
        }
    }
}
