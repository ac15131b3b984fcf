use std::sync::Arc;

use criba::{Db, Range, Value};

use crate::epochs::Epochs;
use crate::error::Result;
use crate::layout::{NUMBERED_BYTES, pair_key};

/// Reads what this node has applied. Clones are cheap; they keep the store open, also when the node has stopped.
///
/// A node may be behind the others. A read is linearizable on the leader, after
/// [`ensure_linearizable`](openraft::Raft::ensure_linearizable).
#[derive(Debug, Clone)]
pub struct Reader {
    db: Db,
    epochs: Arc<Epochs>,
}

impl Reader {
    pub(crate) fn new(db: Db, epochs: Arc<Epochs>) -> Self {
        Self { db, epochs }
    }

    /// The value of a key. Costs what [`Db::get`] costs: an absent key one disk read after a false positive,
    /// else none.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        Ok(self.in_current_epoch(|epoch| self.db.get(pair_key(epoch, key.as_ref())))?)
    }

    /// Whether a key has a value. Costs what [`Db::contains`] costs.
    ///
    /// # Errors
    /// As [`Db::contains`].
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.in_current_epoch(|epoch| self.db.contains(pair_key(epoch, key.as_ref())))?)
    }

    /// All pairs whose keys begin with a prefix, in order, as of one moment.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Pairs {
        Pairs(self.in_current_epoch(|epoch| self.db.prefix(pair_key(epoch, prefix.as_ref()))))
    }

    /// The store, for its statistics. Its keys are those of this package.
    ///
    /// Never write to it. [`Db::put`], [`Db::ingest`] and the like bypass the log, so they change this node only, and
    /// no node detects the difference. A snapshot of this node carries such pairs to the node that installs it.
    pub fn store(&self) -> &Db {
        &self.db
    }

    /// Reads again if an installed snapshot has replaced the epoch meanwhile: the old one may have lost keys.
    fn in_current_epoch<T>(&self, read: impl Fn(u64) -> T) -> T {
        loop {
            let epoch = self.epochs.current();
            let found = read(epoch);
            if self.epochs.current() == epoch {
                return found;
            }
        }
    }
}

/// Keys and values in order, from [`Reader::prefix`]. It ends after an error.
#[derive(Debug)]
pub struct Pairs(Range);

impl Iterator for Pairs {
    type Item = criba::Result<(Vec<u8>, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        let pair = self.0.next()?;
        Some(pair.map(|(key, value)| (key[NUMBERED_BYTES..].to_vec(), value)))
    }
}
