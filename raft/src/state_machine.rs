//! The state machine: what the committed entries made of the pairs.

use std::collections::HashMap;
use std::sync::Arc;

use criba::{Batch, Db};
use openraft::storage::RaftStateMachine;
use openraft::{
    AnyError, Entry, EntryPayload, LogId, OptionalSend, SnapshotMeta, StorageError, StorageIOError,
    StoredMembership,
};

use crate::TypeConfig;
use crate::command::{Command, Reply};
use crate::epochs::Epochs;
use crate::error::{Error, Result};
use crate::identity::{Identity, Member};
use crate::layout::{BATCH_BYTES, MEMBER, STATE, pair_key};
use crate::reader::Reader;
use crate::records::encode;
use crate::snapshot::{Current, Received, SnapshotBuilder, SnapshotData, Taken};
use crate::state_record::StateRecord;
use crate::syncs::Syncs;

/// The state machine of a node.
#[derive(Debug)]
pub struct StateMachine {
    db: Db,
    syncs: Syncs,
    identity: Identity,
    record: StateRecord,
    epochs: Arc<Epochs>,
    current: Current,
}

type Stored<T> = std::result::Result<T, StorageError<u64>>;

impl StateMachine {
    pub(crate) fn open(db: Db, syncs: Syncs, identity: Identity) -> Result<Self> {
        let record = StateRecord::read(&db)?;
        let epochs = Arc::new(Epochs::open(db.clone(), record.epoch)?);
        Ok(Self { db, syncs, identity, record, epochs, current: Current::default() })
    }

    /// Reads beside the node, on any thread.
    pub fn reader(&self) -> Reader {
        Reader::new(self.db.clone(), Arc::clone(&self.epochs))
    }

    fn write(&self, mut changes: Batch) -> Result<()> {
        changes.put(STATE, encode(&self.record)?);
        Ok(self.db.write(changes)?)
    }

    fn apply_all(
        &mut self,
        entries: impl IntoIterator<Item = Entry<TypeConfig>>,
    ) -> Result<Vec<Reply>> {
        let mut changes = Changes::default();
        let mut replies = Vec::new();
        for entry in entries {
            self.record.last_applied = Some(entry.log_id);
            replies.push(match entry.payload {
                EntryPayload::Blank => Reply::Done,
                EntryPayload::Membership(membership) => {
                    self.record.membership = StoredMembership::new(Some(entry.log_id), membership);
                    Reply::Done
                }
                EntryPayload::Normal(command) => {
                    changes.add(command, &self.db, self.record.epoch)?
                }
            });
            if changes.batch.bytes() >= BATCH_BYTES {
                self.write(std::mem::take(&mut changes).batch)?;
            }
        }
        self.write(changes.batch)?;
        Ok(replies)
    }

    fn received(&self) -> Received {
        Received::begin(self.db.clone(), Arc::clone(&self.epochs))
    }

    /// A snapshot taken by another state machine of this process comes without a network.
    fn receive(&self, snapshot: SnapshotData) -> Result<Received> {
        match snapshot {
            SnapshotData::Received(received) => Ok(received),
            SnapshotData::Taken(mut taken) => {
                let mut received = self.received();
                while let Some(chunk) = taken.next_chunk()? {
                    received.write_chunk(&chunk)?;
                }
                Ok(received)
            }
        }
    }

    async fn install(&mut self, meta: &Meta, snapshot: SnapshotData) -> Result<()> {
        let epoch = self.receive(snapshot)?.into_epoch()?;
        self.record = StateRecord {
            epoch,
            last_applied: meta.last_log_id,
            membership: meta.last_membership.clone(),
        };
        let mut changes = Batch::new();
        if self.identity.is_in(meta.last_membership.membership()) {
            changes.put(MEMBER, []);
        }
        self.write(changes)?;
        // The leader may purge its log now: what was received must survive, too. It was written before.
        self.syncs.done().await?;
        self.epochs.switch(epoch);
        self.current.replace(meta.clone(), Taken::of(&self.db)?.0);
        Ok(())
    }
}

type Meta = SnapshotMeta<u64, Member>;

/// The changes of some entries, not yet written.
#[derive(Default)]
struct Changes {
    batch: Batch,
    /// Whether the changed keys have a value.
    present: HashMap<Vec<u8>, bool>,
}

impl Changes {
    fn add(&mut self, command: Command, db: &Db, epoch: u64) -> Result<Reply> {
        if command.key().len() > Command::MAX_KEY_BYTES {
            return Ok(Reply::TooLong);
        }
        let stored = pair_key(epoch, command.key());
        match command {
            Command::Put { key, value } => self.put(&stored, key, &value),
            Command::InsertIfAbsent { key, value } => {
                let present = match self.present.get(&key) {
                    Some(&present) => present,
                    None => db.contains(&stored)?,
                };
                if present {
                    return Ok(Reply::Present);
                }
                self.put(&stored, key, &value);
            }
            Command::Delete { key } => {
                self.batch.delete(&stored);
                self.present.insert(key, false);
            }
        }
        Ok(Reply::Done)
    }

    fn put(&mut self, stored: &[u8], key: Vec<u8>, value: &[u8]) {
        self.batch.put(stored, value);
        self.present.insert(key, true);
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(
        &mut self,
    ) -> Stored<(Option<LogId<u64>>, StoredMembership<u64, Member>)> {
        Ok((self.record.last_applied, self.record.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Stored<Vec<Reply>>
    where
        I: IntoIterator<Item = Entry<TypeConfig>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let failed = |error: Error| StorageIOError::write_state_machine(AnyError::new(&error));
        Ok(self.apply_all(entries).map_err(failed)?)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder::new(self.db.clone(), self.current.clone())
    }

    async fn begin_receiving_snapshot(&mut self) -> Stored<Box<SnapshotData>> {
        Ok(Box::new(SnapshotData::Received(self.received())))
    }

    async fn install_snapshot(&mut self, meta: &Meta, snapshot: Box<SnapshotData>) -> Stored<()> {
        let failed = |error: Error| {
            StorageIOError::write_snapshot(Some(meta.signature()), AnyError::new(&error))
        };
        Ok(self.install(meta, *snapshot).await.map_err(failed)?)
    }

    async fn get_current_snapshot(&mut self) -> Stored<Option<openraft::Snapshot<TypeConfig>>> {
        Ok(self.current.get())
    }
}
