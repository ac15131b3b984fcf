//! Snapshots of the state machine, as streams of chunks.

use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use criba::{Batch, Db};
use openraft::{AnyError, RaftSnapshotBuilder, SnapshotMeta, StorageError, StorageIOError};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::TypeConfig;
use crate::epochs::Epochs;
use crate::error::{Error, Result};
use crate::identity::Member;
use crate::layout::{BATCH_BYTES, NUMBERED_BYTES, end_of_epoch, pair_key};
use crate::records::{decode, encode};
use crate::state_record::StateRecord;

/// What openraft passes between nodes and state machines as a snapshot. It is never whole in memory.
///
/// A [`Node`](crate::Node) sends what [`next_chunk`](Self::next_chunk) reads. The receiving one begins with
/// [`begin_receiving_snapshot`](openraft::Raft::begin_receiving_snapshot), calls
/// [`write_chunk`](Self::write_chunk) for each chunk in order, and ends with
/// [`install_full_snapshot`](openraft::Raft::install_full_snapshot).
#[derive(Debug)]
pub enum SnapshotData {
    /// The state of this node at one moment.
    Taken(Taken),
    /// The state of another node, which arrives.
    Received(Received),
}

/// The state of this node at one moment. Compactions keep what it sees.
#[derive(Clone)]
pub struct Taken {
    snapshot: Arc<criba::Snapshot>,
    epoch: u64,
    /// The key before the next chunk.
    from: Bound<Vec<u8>>,
    /// The number of the next chunk.
    next: u64,
    ended: bool,
}

/// The state of another node, written under an epoch that no reader sees. Dropped before it is installed, it
/// is removed.
#[derive(Debug)]
pub struct Received {
    db: Db,
    epochs: Arc<Epochs>,
    epoch: u64,
    /// The number of the next chunk.
    next: u64,
    complete: bool,
    handed_over: bool,
}

/// About this many bytes of keys and values are in a chunk.
const CHUNK_BYTES: usize = BATCH_BYTES;

#[derive(Serialize, Deserialize)]
struct Chunk {
    /// From zero: a chunk that is missing would be keys that are missing.
    number: u64,
    pairs: Vec<(ByteBuf, ByteBuf)>,
    last: bool,
}

impl SnapshotData {
    /// Reads about a MiB of pairs from the store. `None` after the last chunk.
    ///
    /// # Errors
    /// As [`criba::Snapshot::range`]. [`Error::Record`] of a snapshot that is being received.
    pub fn next_chunk(&mut self) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Taken(taken) => taken.next_chunk(),
            Self::Received(_) => Err(wrong_side("a snapshot taken here", "one that is received")),
        }
    }

    /// Whether it was received with its last chunk.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self, Self::Received(received) if received.complete)
    }

    /// Writes the pairs of the next chunk to the store. Returns whether it was the last one: only then may the
    /// snapshot be installed, else the node stops.
    ///
    /// # Errors
    /// [`Error::Record`] if the bytes are no chunk, or not the next one. As [`Db::write`].
    pub fn write_chunk(&mut self, bytes: &[u8]) -> Result<bool> {
        match self {
            Self::Received(received) => received.write_chunk(bytes),
            Self::Taken(_) => Err(wrong_side("a snapshot to receive", "one that was taken here")),
        }
    }
}

fn wrong_side(expected: &'static str, found: &str) -> Error {
    Error::Record { of: "snapshot".into(), expected, found: found.into() }
}

impl Taken {
    pub(crate) fn of(db: &Db) -> Result<(Self, StateRecord)> {
        let snapshot = Arc::new(db.snapshot());
        let record = StateRecord::read(&*snapshot)?;
        let from = Bound::Included(pair_key(record.epoch, b""));
        Ok((Self { snapshot, epoch: record.epoch, from, next: 0, ended: false }, record))
    }

    pub(crate) fn next_chunk(&mut self) -> Result<Option<Vec<u8>>> {
        if self.ended {
            return Ok(None);
        }
        let mut chunk = Chunk { number: self.next, pairs: Vec::new(), last: true };
        let mut bytes = 0;
        let end = Bound::Excluded(end_of_epoch(self.epoch));
        for item in self.snapshot.range((self.from.clone(), end)) {
            let (key, value) = item?;
            bytes += key.len() + value.len();
            let pair = (ByteBuf::from(&key[NUMBERED_BYTES..]), ByteBuf::from(&value[..]));
            chunk.pairs.push(pair);
            if bytes >= CHUNK_BYTES {
                self.from = Bound::Excluded(key.to_vec());
                chunk.last = false;
                break;
            }
        }
        self.next += 1;
        self.ended = chunk.last;
        encode(&chunk).map(Some)
    }
}

impl Received {
    pub(crate) fn begin(db: Db, epochs: Arc<Epochs>) -> Self {
        let epoch = epochs.begin();
        Self { db, epochs, epoch, next: 0, complete: false, handed_over: false }
    }

    pub(crate) fn write_chunk(&mut self, bytes: &[u8]) -> Result<bool> {
        let of = || "chunk of a snapshot".to_string();
        let chunk: Chunk = decode(bytes, "a chunk of a snapshot", of)?;
        if self.complete {
            let found = format!("{} more pairs", chunk.pairs.len());
            return Err(Error::Record { of: of(), expected: "none after the last chunk", found });
        }
        if chunk.number != self.next {
            let found = format!("chunk {} instead of {}", chunk.number, self.next);
            return Err(Error::Record { of: of(), expected: "the next chunk", found });
        }
        let mut batch = Batch::new();
        for (key, value) in &chunk.pairs {
            batch.put(pair_key(self.epoch, key), value);
        }
        self.db.write(batch)?;
        self.next += 1;
        self.complete = chunk.last;
        Ok(self.complete)
    }

    /// The epoch of the pairs, once all have arrived. From then on the store's record may name it, so it is
    /// not removed: if it is never named, the next opening removes it.
    pub(crate) fn into_epoch(mut self) -> Result<u64> {
        if !self.complete {
            let (of, found) = ("received snapshot".to_string(), "its beginning".to_string());
            return Err(Error::Record { of, expected: "a whole snapshot", found });
        }
        self.handed_over = true;
        Ok(self.epoch)
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if !self.handed_over {
            self.epochs.remove(self.epoch);
        }
    }
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taken").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

type Meta = SnapshotMeta<u64, Member>;

/// The newest snapshot, of which a node that is far behind gets chunks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Current(Arc<Mutex<Option<(Meta, Taken)>>>);

impl Current {
    /// After an installation.
    pub(crate) fn replace(&self, meta: Meta, taken: Taken) {
        *self.lock() = Some((meta, taken));
    }

    /// Unless a newer one was installed meanwhile.
    fn offer(&self, meta: Meta, taken: Taken) {
        let mut current = self.lock();
        if current.as_ref().is_none_or(|current| current.0.last_log_id <= meta.last_log_id) {
            *current = Some((meta, taken));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Meta, Taken)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self) -> Option<openraft::Snapshot<TypeConfig>> {
        self.lock().as_ref().map(|(meta, taken)| snapshot(meta.clone(), taken.clone()))
    }
}

fn snapshot(meta: Meta, taken: Taken) -> openraft::Snapshot<TypeConfig> {
    openraft::Snapshot { meta, snapshot: Box::new(SnapshotData::Taken(taken)) }
}

/// Takes snapshots: no pair is copied, and none is read before the first chunk.
#[derive(Debug)]
pub struct SnapshotBuilder {
    db: Db,
    current: Current,
}

impl SnapshotBuilder {
    pub(crate) fn new(db: Db, current: Current) -> Self {
        Self { db, current }
    }
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    async fn build_snapshot(
        &mut self,
    ) -> std::result::Result<openraft::Snapshot<TypeConfig>, StorageError<u64>> {
        let failed = |error: Error| StorageIOError::read_state_machine(AnyError::new(&error));
        let (taken, record) = Taken::of(&self.db).map_err(failed)?;
        // The same entries give the same state in the same epoch.
        let index = record.last_applied.map_or(0, |applied| applied.index);
        let meta = SnapshotMeta {
            last_log_id: record.last_applied,
            last_membership: record.membership,
            snapshot_id: format!("{}-{index}", record.epoch),
        };
        self.current.offer(meta.clone(), taken.clone());
        Ok(snapshot(meta, taken))
    }
}
