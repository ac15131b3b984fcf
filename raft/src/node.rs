//! A running node.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use openraft::error::{ClientWriteError, Fatal, RaftError};
use openraft::raft::SnapshotResponse;
use openraft::{
    AsyncRuntime, ChangeMembers, Config, Raft, RaftMetrics, Snapshot, SnapshotMeta, TokioRuntime,
    Vote,
};
use serde::Serialize;
use serde_bytes::ByteBuf;
use tokio::sync::Mutex;

use crate::TypeConfig;
use crate::error::{Error, Result};
use crate::identity::{Identity, Member};
use crate::log_store::LogStore;
use crate::network::{Message, Network, Peers, Request, receive};
use crate::records::encode;
use crate::snapshot::SnapshotData;
use crate::state_machine::StateMachine;

/// A running node: openraft, whose messages are compared with the identities in the membership. Clones are the
/// same node.
#[derive(Clone)]
pub struct Node {
    raft: Raft<TypeConfig>,
    identity: Identity,
    receiving: Arc<Mutex<Option<Receiving>>>,
}

/// A snapshot that arrives, and the number of the attempt to send it.
type Receiving = (u64, Box<SnapshotData>);

/// What a change of the membership returns.
pub type Changed = std::result::Result<(), RaftError<u64, ClientWriteError<u64, Member>>>;

impl Node {
    /// Starts a node with what [`open`](crate::open) gave. The configuration is a validated one.
    ///
    /// The node elects only once a membership has its incarnation, and if
    /// [`Config::enable_elect`] is set.
    ///
    /// # Errors
    /// As [`Raft::new`].
    pub async fn start(
        config: Config,
        network: impl Network,
        log: LogStore,
        machine: StateMachine,
    ) -> std::result::Result<Self, Fatal<u64>> {
        let identity = log.identity();
        let elects = config.enable_elect;
        let config = Arc::new(Config { enable_elect: false, ..config });
        let peers = Peers::new(network, identity);
        let raft = Raft::new(identity.id, config, peers, log, machine).await?;
        if elects {
            TokioRuntime::spawn(elect_as_member(raft.clone(), identity));
        }
        Ok(Self { raft, identity, receiving: Arc::default() })
    }

    /// openraft's node: writes, reads, metrics and shutdown.
    pub fn raft(&self) -> &Raft<TypeConfig> {
        &self.raft
    }

    /// The identity of this node.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Answers a message that a [`Network`] brought from another node.
    ///
    /// # Errors
    /// [`Error::Identity`] if the message is for another node, or another incarnation. [`Error::Record`] if the
    /// bytes are no message, or its part of a snapshot is not the next one. [`Error::Store`] if that cannot be
    /// written. The sender then needs no more than a failure: it tries again.
    pub async fn answer(&self, message: &[u8]) -> Result<Vec<u8>> {
        let Message { from, body, .. } = receive(message, self.identity, None)?;
        match body {
            Request::Append(request) => self.reply(from, self.raft.append_entries(request).await),
            Request::Vote(request) => self.reply(from, self.raft.vote(request).await),
            Request::Chunk(attempt, bytes) => self.reply(from, self.write(attempt, &bytes).await?),
            Request::Install(attempt, vote, meta) => {
                self.reply(from, self.install(attempt, vote, meta).await?)
            }
        }
    }

    fn reply(&self, to: Identity, body: impl Serialize) -> Result<Vec<u8>> {
        encode(&Message { from: self.identity, to, body })
    }

    async fn write(
        &self,
        attempt: u64,
        chunk: &ByteBuf,
    ) -> Result<std::result::Result<(), Fatal<u64>>> {
        let mut receiving = self.receiving.lock().await;
        if let Some((current, snapshot)) = &mut *receiving
            && *current == attempt
        {
            snapshot.write_chunk(chunk)?;
            return Ok(Ok(()));
        }
        let mut snapshot = match self.raft.begin_receiving_snapshot().await {
            Ok(snapshot) => snapshot,
            Err(RaftError::Fatal(error)) => return Ok(Err(error)),
            Err(RaftError::APIError(never)) => match never {},
        };
        // A late chunk of an earlier attempt is not the first one, and fails here.
        snapshot.write_chunk(chunk)?;
        *receiving = Some((attempt, snapshot));
        Ok(Ok(()))
    }

    async fn install(
        &self,
        attempt: u64,
        vote: Vote<u64>,
        meta: SnapshotMeta<u64, Member>,
    ) -> Result<std::result::Result<SnapshotResponse<u64>, Fatal<u64>>> {
        let mut receiving = self.receiving.lock().await;
        let received =
            receiving.take_if(|(current, snapshot)| *current == attempt && snapshot.is_complete());
        let Some((_, snapshot)) = received else {
            let (of, found) =
                ("snapshot to install".to_string(), "none, or its beginning".to_string());
            return Err(Error::Record { of, expected: "a whole snapshot", found });
        };
        Ok(self.raft.install_full_snapshot(vote, Snapshot { meta, snapshot }).await)
    }

    /// Makes a node a voter, once it has the log. To be called on the leader. Another incarnation under this id is
    /// removed before, so that a majority of the others has all that is committed. Waits as long as the node does not
    /// answer, and leaves it a learner if the wait is given up.
    ///
    /// # Errors
    /// As [`Raft::change_membership`]. Called again, it goes on.
    pub async fn admit(&self, id: u64, member: Member) -> Changed {
        let known = self.raft.metrics().borrow().membership_config.membership().clone();
        let replaced =
            known.get_node(&id).is_some_and(|known| known.incarnation != member.incarnation);
        let ids = BTreeSet::from([id]);
        if replaced {
            let is_voter = known.voter_ids().any(|voter| voter == id);
            let remove =
                if is_voter { ChangeMembers::RemoveVoters } else { ChangeMembers::RemoveNodes };
            self.raft.change_membership(remove(ids.clone()), false).await?;
        }
        let end = self.raft.metrics().borrow().last_log_index;
        self.raft.add_learner(id, member, true).await?;
        // openraft accepts a learner that lacks as many entries as its threshold, or all of a short log.
        let has_log = |metrics: &RaftMetrics<u64, Member>| {
            metrics.replication.as_ref().is_none_or(|replicated| {
                let last = replicated.get(&id).copied().flatten();
                last.is_some_and(|last| Some(last.index) >= end)
            })
        };
        // An error: the node stops, or is no leader any more. The next call has it, too.
        let _ = self.raft.wait(None).metrics(has_log, "the log on the new node").await;
        self.raft.change_membership(ChangeMembers::AddVoterIds(ids), true).await?;
        Ok(())
    }

    /// Waits until the node stops, and returns the reason.
    ///
    /// openraft stops a node whose storage fails. Then the process must end, or open the directory again.
    pub async fn stopped(&self) -> Fatal<u64> {
        let mut metrics = self.raft.metrics();
        loop {
            if let Err(reason) = &metrics.borrow_and_update().running_state {
                return reason.clone();
            }
            if metrics.changed().await.is_err() {
                return Fatal::Panicked;
            }
        }
    }
}

/// The memberships of an old log may have a former incarnation as a voter, and even as the only one: this one
/// would win that election without the entries that the former one acknowledged.
async fn elect_as_member(raft: Raft<TypeConfig>, own: Identity) {
    let is_member =
        |metrics: &RaftMetrics<u64, Member>| own.is_in(metrics.membership_config.membership());
    // An error: it was stopped before.
    if raft.wait(None).metrics(is_member, "a membership with this node").await.is_ok() {
        raft.runtime_config().elect(true);
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("identity", &self.identity).finish_non_exhaustive()
    }
}
