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
//! | `GET /identity` | the node's id and incarnation as JSON |
//! | `POST /members` | begins a cluster of the nodes in the body, a JSON map of ids to addresses |
//! | `PUT /members/ID` | makes the node at the address in the body a member, which replaces one with this id |
//! | `POST /raft` | answers another node |
//!
//! A node that is not the leader answers 421, and the header `leader` has the leader's address, if one is
//! known.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path as Directory;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use criba::Options;
use criba_raft::{Command, Identity, Member, Opening, Reader, Reply, open};
use openraft::error::{ForwardToLeader, RaftError};
use openraft::{Config, SnapshotPolicy};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::cluster::LIMIT;
use crate::http::{Failure, Http};
use crate::network::Network;

#[derive(Clone)]
struct Served {
    node: criba_raft::Node,
    reader: Reader,
    http: Http,
    /// The last message that was refused, so that each reason is printed once.
    refused: Arc<Mutex<String>>,
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

/// Runs a node until the process ends, or the node stops: then the error says why.
pub(crate) async fn run(
    options: Options,
    opening: Opening,
    id: u64,
    address: &str,
    directory: &Directory,
) -> Result<(), Failure> {
    let (log, machine) = open(options, directory, id, opening)?;
    let (reader, http) = (machine.reader(), Http::new());
    let config = Config {
        heartbeat_interval: 100,
        election_timeout_min: 300,
        election_timeout_max: 600,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(1_000),
        max_in_snapshot_log_to_keep: 500,
        ..Config::default()
    };
    let network = Network(http.clone());
    let node = criba_raft::Node::start(config.validate()?, network, log, machine).await?;
    let served = Served { node: node.clone(), reader, http, refused: Arc::default() };
    let routes = Router::new()
        .route("/keys/{key}", put(set).post(insert).delete(delete).get(read))
        .route("/status", get(status))
        .route("/identity", get(identity))
        .route("/members", post(begin))
        .route("/members/{id}", put(admit))
        .layer(DefaultBodyLimit::max(LONGEST_VALUE))
        .route("/raft", post(answer))
        .layer(DefaultBodyLimit::max(LONGEST_MESSAGE))
        .with_state(served);
    let listener = TcpListener::bind(address).await?;
    tokio::select! {
        served = axum::serve(listener, routes) => Ok(served?),
        reason = node.stopped() => Err(format!("node {id} stopped: {reason}").into()),
    }
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
    E: openraft::TryAsRef<ForwardToLeader<u64, Member>> + std::error::Error,
{
    let (status, message, leader) = match error.forward_to_leader() {
        Some(ForwardToLeader { leader_node, .. }) => {
            let leader = leader_node.as_ref().map(|member| member.address.clone());
            (StatusCode::MISDIRECTED_REQUEST, "this node does not lead".to_string(), leader)
        }
        None => (StatusCode::SERVICE_UNAVAILABLE, error.to_string(), None),
    };
    Failed { status, message, leader }
}

async fn change(served: &Served, command: Command) -> Result<StatusCode, Failed> {
    let answer = served.node.raft().client_write(command).await.map_err(not_leader)?;
    Ok(match answer.data {
        Reply::Done => StatusCode::OK,
        Reply::Present => StatusCode::CONFLICT,
        Reply::TooLong => StatusCode::URI_TOO_LONG,
    })
}

async fn set(
    State(served): State<Served>,
    Path(key): Path<String>,
    value: Bytes,
) -> Result<StatusCode, Failed> {
    change(&served, Command::put(key, value)).await
}

async fn insert(
    State(served): State<Served>,
    Path(key): Path<String>,
    value: Bytes,
) -> Result<StatusCode, Failed> {
    change(&served, Command::insert_if_absent(key, value)).await
}

async fn delete(
    State(served): State<Served>,
    Path(key): Path<String>,
) -> Result<StatusCode, Failed> {
    change(&served, Command::delete(key)).await
}

#[derive(Deserialize)]
struct Where {
    #[serde(default)]
    local: bool,
}

async fn read(
    State(served): State<Served>,
    Path(key): Path<String>,
    Query(Where { local }): Query<Where>,
) -> Result<Response, Failed> {
    if !local {
        served.node.raft().ensure_linearizable().await.map_err(not_leader)?;
    }
    Ok(match served.reader.get(key)? {
        Some(value) => value.to_vec().into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    })
}

async fn status(State(served): State<Served>) -> Result<Json<Status>, Failed> {
    // First: the pairs then include at least these entries.
    let metrics = served.node.raft().metrics().borrow().clone();
    let mut hasher = DefaultHasher::new();
    let mut keys = 0;
    for pair in served.reader.prefix("") {
        let (key, value) = pair?;
        (key, &value[..]).hash(&mut hasher);
        keys += 1;
    }
    let total = served.reader.store().stats().total();
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

async fn identity(State(served): State<Served>) -> Json<Identity> {
    Json(served.node.identity())
}

/// Asks the node at an address for its identity.
async fn member(http: &Http, id: u64, address: String) -> Result<Member, Failure> {
    let (_, body) = http.send(Method::GET, &address, "/identity", (), LIMIT).await?;
    let identity: Identity = serde_json::from_slice(&body)?;
    if identity.id != id {
        return Err(format!("{address} is {identity}, not node {id}").into());
    }
    Ok(identity.at(address))
}

async fn begin(State(served): State<Served>, body: Bytes) -> Result<(), Failed> {
    let addresses: BTreeMap<u64, String> = serde_json::from_slice(&body)?;
    let mut members = BTreeMap::new();
    for (id, address) in addresses {
        members.insert(id, member(&served.http, id, address).await?);
    }
    Ok(served.node.raft().initialize(members).await?)
}

async fn admit(
    State(served): State<Served>,
    Path(id): Path<u64>,
    address: String,
) -> Result<(), Failed> {
    let member = member(&served.http, id, address).await?;
    served.node.admit(id, member).await.map_err(not_leader)
}

async fn answer(State(served): State<Served>, message: Bytes) -> Result<Vec<u8>, Failed> {
    served.node.answer(&message).await.map_err(|error| {
        let message = error.to_string();
        let mut refused = served.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if *refused != message {
            eprintln!("node {} refused: {message}", served.node.identity().id);
            refused.clone_from(&message);
        }
        Failed { status: StatusCode::CONFLICT, message, leader: None }
    })
}

const LONGEST_VALUE: usize = 1 << 20;
/// A chunk of a snapshot, and an append of several entries, have about a MiB, and one value more.
const LONGEST_MESSAGE: usize = 64 << 20;
