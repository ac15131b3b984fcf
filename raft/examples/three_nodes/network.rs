//! The network between nodes: openraft's messages as the bodies of HTTP requests, written by postcard.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Method;
use criba_raft::TypeConfig;
use http_body_util::channel::Channel;
use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, RemoteError, ReplicationClosed, StreamingError,
    Unreachable,
};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, Snapshot, Vote};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http::{Failure, Http};

pub(crate) struct Network(pub(crate) Http);

/// The connection to one node.
pub(crate) struct Peer {
    http: Http,
    id: u64,
    node: BasicNode,
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, id: u64, node: &BasicNode) -> Peer {
        Peer { http: self.0.clone(), id, node: node.clone() }
    }
}

type Called<T> = Result<T, RPCError<u64, BasicNode, RaftError<u64>>>;

impl Peer {
    /// The answer is what the other node's openraft answered.
    async fn send<T: DeserializeOwned>(
        &self,
        path: &str,
        body: impl Into<Body>,
        limit: Duration,
    ) -> Result<T, Failure> {
        let (status, answer) =
            self.http.send(Method::POST, &self.node.addr, path, body, limit).await?;
        if !status.is_success() {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&answer)).into());
        }
        Ok(postcard::from_bytes(&answer)?)
    }

    async fn call<T: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
        limit: Duration,
    ) -> Called<T> {
        let unreachable =
            |error: Failure| RPCError::Unreachable(Unreachable::new(&io::Error::other(error)));
        let body = postcard::to_stdvec(request).map_err(|error| unreachable(error.into()))?;
        let answer: Result<T, RaftError<u64>> =
            self.send(path, body, limit).await.map_err(unreachable)?;
        answer.map_err(|error| RPCError::RemoteError(RemoteError::new(self.id, error)))
    }

    /// The vote and the description of the snapshot, then its chunks, as frames of one request.
    async fn send_snapshot(
        &self,
        vote: Vote<u64>,
        mut snapshot: Snapshot<TypeConfig>,
    ) -> Result<Result<SnapshotResponse<u64>, Fatal<u64>>, Failure> {
        let (mut frames, body) = Channel::<Bytes, Failure>::new(1);
        let send = async {
            frames.send_data(frame(&postcard::to_stdvec(&(vote, &snapshot.meta))?)).await?;
            while let Some(chunk) = snapshot.snapshot.next_chunk()? {
                frames.send_data(frame(&chunk)).await?;
            }
            drop(frames);
            Ok::<_, Failure>(())
        };
        let answer = self.send("/raft/snapshot", Body::new(body), Duration::from_secs(600));
        let (answer, sent) = tokio::join!(answer, send);
        sent.and(answer)
    }
}

/// A length of four bytes, little-endian, and the bytes.
fn frame(bytes: &[u8]) -> Bytes {
    let length = (bytes.len() as u32).to_le_bytes();
    [&length, bytes].concat().into()
}

impl RaftNetwork<TypeConfig> for Peer {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Called<AppendEntriesResponse<u64>> {
        self.call("/raft/append", &request, option.hard_ttl()).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        option: RPCOption,
    ) -> Called<VoteResponse<u64>> {
        self.call("/raft/vote", &request, option.hard_ttl()).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote<u64>,
        snapshot: Snapshot<TypeConfig>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<TypeConfig, Fatal<u64>>> {
        tokio::select! {
            closed = cancel => Err(closed.into()),
            answer = self.send_snapshot(vote, snapshot) => match answer {
                Ok(answer) => answer.map_err(|error| RemoteError::new(self.id, error).into()),
                Err(error) => Err(NetworkError::new(&io::Error::other(error)).into()),
            },
        }
    }
}
