//! The log and the votes.

use std::fmt::Debug;
use std::ops::RangeBounds;

use criba::{Batch, Db};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{
    AnyError, Entry, EntryPayload, LogId, LogState, OptionalSend, RaftLogReader, StorageError,
    StorageIOError, Vote,
};

use crate::TypeConfig;
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::layout::{
    BATCH_BYTES, BATCH_CHANGES, COMMITTED, MEMBER, PURGED, VOTE, log_key, log_keys,
};
use crate::records::{decode, encode, read, write};
use crate::syncs::Syncs;

/// The log and the votes of a node. Clones read the same log.
#[derive(Debug, Clone)]
pub struct LogStore {
    db: Db,
    syncs: Syncs,
    identity: Identity,
    /// No entry has a smaller index.
    first: u64,
}

type Stored<T> = std::result::Result<T, StorageError<u64>>;

impl LogStore {
    /// Finishes a purge that a crash interrupted.
    pub(crate) fn open(db: Db, syncs: Syncs, identity: Identity) -> Result<Self> {
        let first = db.range(log_keys(&..)).next().transpose()?;
        let first = first.map(|(key, value)| entry(&key, &value)).transpose()?;
        let first = first.map_or(0, |entry| entry.log_id.index);
        let mut log = Self { db, syncs, identity, first };
        if let Some(purged) = log.purged()? {
            log.delete_through(purged.index)?;
        }
        Ok(log)
    }

    /// The node whose log this is.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Refuses a vote for this node before an entry or a snapshot made this incarnation a member: until then, the
    /// memberships that the log shows are of former times, when another incarnation had the node's votes.
    fn check_candidacy(&self, vote: &Vote<u64>) -> Result<()> {
        let own = vote.leader_id().voted_for() == Some(self.identity.id);
        if own && !self.db.contains(MEMBER)? {
            let (of, expected) =
                ("vote for this node".into(), format!("a membership with {}", self.identity));
            return Err(Error::Identity { of, expected, found: "others only".into() });
        }
        Ok(())
    }

    fn purged(&self) -> Result<Option<LogId<u64>>> {
        read(&self.db, PURGED, "a log id")
    }

    fn last(&self) -> Result<Option<LogId<u64>>> {
        let last = self.db.range(log_keys(&..)).next_back().transpose()?;
        Ok(last.map(|(key, value)| entry(&key, &value)).transpose()?.map(|entry| entry.log_id))
    }

    /// Reads entries in order until they have `most` bytes; at least one.
    fn entries(
        &self,
        indexes: &impl RangeBounds<u64>,
        most: usize,
    ) -> Result<Vec<Entry<TypeConfig>>> {
        let mut entries = Vec::new();
        let mut bytes = 0;
        for item in self.db.range(log_keys(indexes)) {
            let (key, value) = item?;
            entries.push(entry(&key, &value)?);
            bytes += value.len();
            if bytes >= most {
                break;
            }
        }
        Ok(entries)
    }

    fn write_all(&self, entries: impl IntoIterator<Item = Entry<TypeConfig>>) -> Result<()> {
        let mut batch = Batch::new();
        for entry in entries {
            batch.put(log_key(entry.log_id.index), encode(&entry)?);
            if let EntryPayload::Membership(membership) = &entry.payload
                && self.identity.is_in(membership)
            {
                batch.put(MEMBER, []);
            }
            if batch.bytes() >= BATCH_BYTES {
                self.db.write(std::mem::take(&mut batch))?;
            }
        }
        Ok(self.db.write(batch)?)
    }

    /// Deletes the entries up to an index in ascending order: what a crash leaves has no hole.
    fn delete_through(&mut self, index: u64) -> Result<()> {
        let last = self.last()?.map_or(0, |last| last.index);
        self.delete(self.first..=index.min(last))?;
        self.first = self.first.max(index.saturating_add(1));
        Ok(())
    }

    fn delete(&self, indexes: impl Iterator<Item = u64>) -> Result<()> {
        let mut batch = Batch::new();
        for index in indexes {
            batch.delete(log_key(index));
            if batch.len() >= BATCH_CHANGES {
                self.db.write(std::mem::take(&mut batch))?;
            }
        }
        Ok(self.db.write(batch)?)
    }
}

fn entry(key: &[u8], value: &[u8]) -> Result<Entry<TypeConfig>> {
    let of = || format!("log entry {}", key.escape_ascii());
    let entry: Entry<TypeConfig> = decode(value, "a log entry", of)?;
    if log_key(entry.log_id.index) != key {
        let found = format!("entry {}", entry.log_id.index);
        return Err(Error::Record { of: of(), expected: "the entry of this index", found });
    }
    Ok(entry)
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn reading(error: Error) -> StorageIOError<u64> {
    StorageIOError::read_logs(AnyError::new(&error))
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn writing(error: Error) -> StorageIOError<u64> {
    StorageIOError::write_logs(AnyError::new(&error))
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Stored<Vec<Entry<TypeConfig>>> {
        Ok(self.entries(&range, usize::MAX).map_err(reading)?)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Stored<Vec<Entry<TypeConfig>>> {
        Ok(self.entries(&(start..end), BATCH_BYTES).map_err(reading)?)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Stored<LogState<TypeConfig>> {
        let last_purged_log_id = self.purged().map_err(reading)?;
        let last_log_id = self.last().map_err(reading)?.or(last_purged_log_id);
        Ok(LogState { last_purged_log_id, last_log_id })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<u64>) -> Stored<()> {
        let failed = |error: Error| StorageIOError::write_vote(AnyError::new(&error));
        self.check_candidacy(vote).map_err(failed)?;
        write(&self.db, VOTE, vote).map_err(failed)?;
        Ok(self.syncs.done().await.map_err(failed)?)
    }

    async fn read_vote(&mut self) -> Stored<Option<Vote<u64>>> {
        let failed = |error: Error| StorageIOError::read_vote(AnyError::new(&error));
        Ok(read(&self.db, VOTE, "a vote").map_err(failed)?)
    }

    async fn save_committed(&mut self, committed: Option<LogId<u64>>) -> Stored<()> {
        Ok(write(&self.db, COMMITTED, &committed).map_err(writing)?)
    }

    async fn read_committed(&mut self) -> Stored<Option<LogId<u64>>> {
        let committed: Option<Option<_>> =
            read(&self.db, COMMITTED, "a log id").map_err(reading)?;
        Ok(committed.flatten())
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<TypeConfig>) -> Stored<()>
    where
        I: IntoIterator<Item = Entry<TypeConfig>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        self.write_all(entries).map_err(writing)?;
        self.syncs.then(|result| callback.log_io_completed(result.map_err(std::io::Error::other)));
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId<u64>) -> Stored<()> {
        let Some(last) = self.last().map_err(reading)? else { return Ok(()) };
        // In descending order: what a crash leaves has no hole.
        Ok(self.delete((log_id.index..=last.index).rev()).map_err(writing)?)
    }

    async fn purge(&mut self, log_id: LogId<u64>) -> Stored<()> {
        write(&self.db, PURGED, &log_id).map_err(writing)?;
        Ok(self.delete_through(log_id.index).map_err(writing)?)
    }
}
