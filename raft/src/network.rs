//! Messages between nodes. Each says which node it is from, and which one it is for.

use std::io;
use std::sync::Arc;

use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, RemoteError, ReplicationClosed, StreamingError,
    Unreachable,
};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{Snapshot, SnapshotMeta, Vote};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::TypeConfig;
use crate::error::{Error, Result};
use crate::identity::{Identity, Member};
use crate::records::{decode, encode};

/// Any error of a [`Network`].
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Carries bytes between nodes. [`Node`](crate::Node)s read them, and compare their sender.
pub trait Network: Send + Sync + 'static {
    /// Sends a message to a node, and returns what [`Node::answer`](crate::Node::answer) answers there.
    ///
    /// A message has about a MiB, and the longest value more. openraft limits the time of votes and entries, this
    /// function that of a part of a snapshot.
    ///
    /// # Errors
    /// Any if there is no answer. openraft tries again.
    fn send(
        &self,
        to: &Member,
        message: Vec<u8>,
    ) -> impl Future<Output = std::result::Result<Vec<u8>, Failure>> + Send;
}

/// A request or an answer.
#[derive(Serialize, Deserialize)]
pub(crate) struct Message<T> {
    pub(crate) from: Identity,
    pub(crate) to: Identity,
    pub(crate) body: T,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Request {
    Append(AppendEntriesRequest<TypeConfig>),
    Vote(VoteRequest<u64>),
    /// The next chunk of a snapshot. Each attempt to send one has a random number.
    Chunk(u64, ByteBuf),
    /// After the last chunk.
    Install(u64, Vote<u64>, SnapshotMeta<u64, Member>),
}

/// Decodes a message, and refuses it unless it is for this node and, if that is known, from this one.
pub(crate) fn receive<T: DeserializeOwned>(
    bytes: &[u8],
    to: Identity,
    from: Option<Identity>,
) -> Result<Message<T>> {
    let message: Message<T> = decode(bytes, "a message of criba-raft", || "message".into())?;
    if message.to != to {
        let of = format!("message from {}", message.from);
        return Err(Error::Identity {
            of,
            expected: format!("one for {to}"),
            found: format!("one for {}", message.to),
        });
    }
    if let Some(from) = from
        && message.from != from
    {
        let (expected, found) = (from.to_string(), message.from.to_string());
        return Err(Error::Identity { of: "answer".into(), expected, found });
    }
    Ok(message)
}

/// Makes connections for openraft.
pub(crate) struct Peers<N> {
    network: Arc<N>,
    own: Identity,
}

/// The connection to one incarnation of a node.
pub(crate) struct Peer<N> {
    network: Arc<N>,
    own: Identity,
    identity: Identity,
    member: Member,
}

impl<N> Peers<N> {
    pub(crate) fn new(network: N, own: Identity) -> Self {
        Self { network: Arc::new(network), own }
    }
}

impl<N: Network> RaftNetworkFactory<TypeConfig> for Peers<N> {
    type Network = Peer<N>;

    async fn new_client(&mut self, id: u64, member: &Member) -> Peer<N> {
        let identity = Identity { id, incarnation: member.incarnation };
        Peer { network: self.network.clone(), own: self.own, identity, member: member.clone() }
    }
}

type Called<T> = std::result::Result<T, RPCError<u64, Member, RaftError<u64>>>;

impl<N: Network> Peer<N> {
    /// Returns what the other node's openraft answered.
    async fn ask<T: DeserializeOwned>(&self, body: Request) -> std::result::Result<T, Failure> {
        let message = encode(&Message { from: self.own, to: self.identity, body })?;
        let answer = self.network.send(&self.member, message).await?;
        Ok(receive(&answer, self.own, Some(self.identity))?.body)
    }

    async fn call<T: DeserializeOwned>(&self, request: Request) -> Called<T> {
        let answer: std::result::Result<T, RaftError<u64>> =
            self.ask(request).await.map_err(|error| Unreachable::new(&io::Error::other(error)))?;
        answer.map_err(|error| RemoteError::new(self.identity.id, error).into())
    }

    async fn send_snapshot(
        &self,
        vote: Vote<u64>,
        mut snapshot: Snapshot<TypeConfig>,
    ) -> std::result::Result<std::result::Result<SnapshotResponse<u64>, Fatal<u64>>, Failure> {
        let attempt = getrandom::u64()?;
        while let Some(chunk) = snapshot.snapshot.next_chunk()? {
            let answer: std::result::Result<(), Fatal<u64>> =
                self.ask(Request::Chunk(attempt, chunk.into())).await?;
            if let Err(error) = answer {
                return Ok(Err(error));
            }
        }
        self.ask(Request::Install(attempt, vote, snapshot.meta)).await
    }
}

impl<N: Network> RaftNetwork<TypeConfig> for Peer<N> {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        _: RPCOption,
    ) -> Called<AppendEntriesResponse<u64>> {
        self.call(Request::Append(request)).await
    }

    async fn vote(&mut self, request: VoteRequest<u64>, _: RPCOption) -> Called<VoteResponse<u64>> {
        self.call(Request::Vote(request)).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote<u64>,
        snapshot: Snapshot<TypeConfig>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _: RPCOption,
    ) -> std::result::Result<SnapshotResponse<u64>, StreamingError<TypeConfig, Fatal<u64>>> {
        tokio::select! {
            closed = cancel => Err(closed.into()),
            answer = self.send_snapshot(vote, snapshot) => match answer {
                Ok(answer) => {
                    answer.map_err(|error| RemoteError::new(self.identity.id, error).into())
                }
                Err(error) => Err(NetworkError::new(&io::Error::other(error)).into()),
            },
        }
    }
}
