//! A node: a store, openraft, and an HTTP server for clients and for the other nodes.
//!
//! | request | what it does |
//! |---|---|
//! | `PUT /keys/KEY` | sets the value to the body |
//! | `POST /keys/KEY` | inserts the body if the key is absent; 409 if it is present |
//! | `DELETE /keys/KEY` | deletes the key |
//! | `GET /keys/KEY` | reads, linearizable; 404 if the key is absent |
//! | `GET /keys/KEY?local=true` | reads what this node has applied |
//! | `GET /status` | [`Status`] as JSON |
//! | `POST /members` | begins a cluster of the nodes in the body, a JSON map of ids to addresses |
//!
//! A node that is not the leader answers 421, and the header `leader` has the leader's address, if one is
//! known.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path as Directory;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use criba::Options;
use criba_raft::{Command, Reader, Reply, TypeConfig, open};
use http_body_util::BodyExt;
use openraft::error::{ForwardToLeader, RaftError};
use openraft::{BasicNode, Config, Raft, Snapshot, SnapshotMeta, SnapshotPolicy, Vote};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::http::{Failure, Http};
use crate::network::Network;

#[derive(Clone)]
struct Node {
    raft: Raft<TypeConfig>,
    reader: Reader,
}

/// What a node knows of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) leader: Option<u64>,
    pub(crate) term: u64,
    /// The index of the last applied entry.
    pub(crate) applied: Option<u64>,
    /// The index of the last entry that is in snapshots only.
    pub(crate) purged: Option<u64>,
    pub(crate) keys: u64,
    /// A hash of all keys and values.
    pub(crate) hash: u64,
    /// By filters, of lookups; and those that were made.
    pub(crate) reads_avoided: u64,
    pub(crate) reads_made: u64,
}

/// Small, so that a few thousand keys make SSTables.
pub(crate) fn options() -> Options {
    Options::new().memtable_bytes(256 << 10).cache_bytes(8 << 20)
}

/// Runs a node until the process ends.
pub(crate) async fn run(
    options: Options,
    id: u64,
    address: &str,
    directory: &Directory,
) -> Result<(), Failure> {
    let (log, machine) = open(options, directory)?;
    let reader = machine.reader();
    let config = Config {
        heartbeat_interval: 100,
        election_timeout_min: 300,
        election_timeout_max: 600,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(1_000),
        max_in_snapshot_log_to_keep: 500,
        ..Config::default()
    };
    let raft = Raft::new(id, Arc::new(config.validate()?), Network(Http::new()), log, machine);
    let node = Node { raft: raft.await?, reader };
    let routes = Router::new()
        .route("/keys/{key}", put(set).post(insert).delete(delete).get(read))
        .route("/status", get(status))
        .route("/members", post(begin))
        .layer(DefaultBodyLimit::max(LONGEST_VALUE))
        .route("/raft/append", post(append))
        .route("/raft/vote", post(vote))
        .layer(DefaultBodyLimit::max(LONGEST_FRAME))
        .route("/raft/snapshot", post(receive))
        .with_state(node);
    Ok(axum::serve(TcpListener::bind(address).await?, routes).await?)
}

/// An error as an answer.
struct Failed {
    status: StatusCode,
    message: String,
    leader: Option<String>,
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.message).into_response();
        if let Some(Ok(leader)) = self.leader.map(|leader| leader.parse()) {
            response.headers_mut().insert("leader", leader);
        }
        response
    }
}

impl<E: Into<Failure>> From<E> for Failed {
    fn from(error: E) -> Self {
        let (status, message) = (StatusCode::INTERNAL_SERVER_ERROR, error.into().to_string());
        Self { status, message, leader: None }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn not_leader<E>(error: RaftError<u64, E>) -> Failed
where
    E: openraft::TryAsRef<ForwardToLeader<u64, BasicNode>> + std::error::Error,
{
    let (status, message, leader) = match error.forward_to_leader() {
        Some(ForwardToLeader { leader_node, .. }) => {
            let leader = leader_node.as_ref().map(|node| node.addr.clone());
            (StatusCode::MISDIRECTED_REQUEST, "this node does not lead".to_string(), leader)
        }
        None => (StatusCode::SERVICE_UNAVAILABLE, error.to_string(), None),
    };
    Failed { status, message, leader }
}

async fn change(node: &Node, command: Command) -> Result<StatusCode, Failed> {
    let answer = node.raft.client_write(command).await.map_err(not_leader)?;
    Ok(match answer.data {
        Reply::Done => StatusCode::OK,
        Reply::Present => StatusCode::CONFLICT,
        Reply::TooLong => StatusCode::URI_TOO_LONG,
    })
}

async fn set(
    State(node): State<Node>,
    Path(key): Path<String>,
    value: Bytes,
) -> Result<StatusCode, Failed> {
    change(&node, Command::put(key, value)).await
}

async fn insert(
    State(node): State<Node>,
    Path(key): Path<String>,
    value: Bytes,
) -> Result<StatusCode, Failed> {
    change(&node, Command::insert_if_absent(key, value)).await
}

async fn delete(State(node): State<Node>, Path(key): Path<String>) -> Result<StatusCode, Failed> {
    change(&node, Command::delete(key)).await
}

#[derive(Deserialize)]
struct Where {
    #[serde(default)]
    local: bool,
}

async fn read(
    State(node): State<Node>,
    Path(key): Path<String>,
    Query(Where { local }): Query<Where>,
) -> Result<Response, Failed> {
    if !local {
        node.raft.ensure_linearizable().await.map_err(not_leader)?;
    }
    Ok(match node.reader.get(key)? {
        Some(value) => value.to_vec().into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    })
}

async fn status(State(node): State<Node>) -> Result<Json<Status>, Failed> {
    // First: the pairs then include at least these entries.
    let metrics = node.raft.metrics().borrow().clone();
    let mut hasher = DefaultHasher::new();
    let mut keys = 0;
    for pair in node.reader.prefix("")? {
        let (key, value) = pair?;
        (key, &value[..]).hash(&mut hasher);
        keys += 1;
    }
    let total = node.reader.store().stats().total();
    Ok(Json(Status {
        leader: metrics.current_leader,
        term: metrics.current_term,
        applied: metrics.last_applied.map(|applied| applied.index),
        purged: metrics.purged.map(|purged| purged.index),
        keys,
        hash: hasher.finish(),
        reads_avoided: total.true_negatives,
        reads_made: total.disk_reads,
    }))
}

async fn begin(State(node): State<Node>, body: Bytes) -> Result<(), Failed> {
    let members: BTreeMap<u64, String> = serde_json::from_slice(&body)?;
    let members = members.into_iter().map(|(id, address)| (id, BasicNode::new(address)));
    Ok(node.raft.initialize(members.collect::<BTreeMap<_, _>>()).await?)
}

fn message<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failed> {
    Ok(postcard::from_bytes(body)?)
}

fn answer(answer: &impl Serialize) -> Result<Vec<u8>, Failed> {
    Ok(postcard::to_stdvec(answer)?)
}

async fn append(State(node): State<Node>, body: Bytes) -> Result<Vec<u8>, Failed> {
    answer(&node.raft.append_entries(message(&body)?).await)
}

async fn vote(State(node): State<Node>, body: Bytes) -> Result<Vec<u8>, Failed> {
    answer(&node.raft.vote(message(&body)?).await)
}

async fn receive(State(node): State<Node>, body: Body) -> Result<Vec<u8>, Failed> {
    let mut frames = Frames { body, buffer: Vec::new() };
    let first = frames.next().await?.ok_or("expected a snapshot, found nothing")?;
    let (vote, meta): (Vote<u64>, SnapshotMeta<u64, BasicNode>) = message(&first)?;
    let mut snapshot = node.raft.begin_receiving_snapshot().await?;
    let mut whole = false;
    while let Some(chunk) = frames.next().await? {
        whole = snapshot.write_chunk(&chunk)?;
    }
    if !whole {
        return Err("the snapshot ends before its last chunk".into());
    }
    answer(&node.raft.install_full_snapshot(vote, Snapshot { meta, snapshot }).await)
}

const LONGEST_VALUE: usize = 1 << 20;
/// A chunk of a snapshot, and an append of several entries, have about a MiB, and one value more.
const LONGEST_FRAME: usize = 64 << 20;

/// The frames of a request's body, see the network.
struct Frames {
    body: Body,
    buffer: Vec<u8>,
}

impl Frames {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        loop {
            if let Some((length, rest)) = self.buffer.split_first_chunk() {
                let length = u32::from_le_bytes(*length) as usize;
                if length > LONGEST_FRAME {
                    return Err(format!("a frame of {length} bytes").into());
                }
                if rest.len() >= length {
                    let frame = rest[..length].to_vec();
                    self.buffer.drain(..4 + length);
                    return Ok(Some(frame));
                }
            }
            match self.body.frame().await.transpose()? {
                Some(frame) => self.buffer.extend(frame.into_data().into_iter().flatten()),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err("the snapshot ends within a frame".into()),
            }
        }
    }
}
