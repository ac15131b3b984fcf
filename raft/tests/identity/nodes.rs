//! Nodes in one process, whose messages are calls.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use criba::Options;
use criba_raft::{Command, Error, Reader, Result, TypeConfig, open};
use openraft::error::{
    Fatal, RPCError, RaftError, RemoteError, ReplicationClosed, StreamingError, Unreachable,
};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, Config, Raft, Snapshot, Vote};
use tempfile::TempDir;

/// Which opening of a directory is meant.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Opening {
    New,
    Existing,
}

pub(crate) struct Node {
    pub(crate) raft: Raft<TypeConfig>,
    pub(crate) reader: Reader,
}

/// The running nodes, by address.
#[derive(Clone, Default)]
struct Network(Arc<Mutex<BTreeMap<String, Raft<TypeConfig>>>>);

struct Peer {
    network: Network,
    id: u64,
    address: String,
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Peer;

    async fn new_client(&mut self, id: u64, node: &BasicNode) -> Peer {
        Peer { network: self.clone(), id, address: node.addr.clone() }
    }
}

type Called<T> = std::result::Result<T, RPCError<u64, BasicNode, RaftError<u64>>>;

impl Peer {
    fn raft(&self) -> std::result::Result<Raft<TypeConfig>, Unreachable> {
        let raft = self.network.0.lock().unwrap().get(&self.address).cloned();
        raft.ok_or_else(|| Unreachable::new(&io::Error::from(io::ErrorKind::ConnectionRefused)))
    }
}

impl RaftNetwork<TypeConfig> for Peer {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        _: RPCOption,
    ) -> Called<AppendEntriesResponse<u64>> {
        let answer = self.raft()?.append_entries(request).await;
        answer.map_err(|error| RemoteError::new(self.id, error).into())
    }

    async fn vote(&mut self, request: VoteRequest<u64>, _: RPCOption) -> Called<VoteResponse<u64>> {
        let answer = self.raft()?.vote(request).await;
        answer.map_err(|error| RemoteError::new(self.id, error).into())
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote<u64>,
        snapshot: Snapshot<TypeConfig>,
        _: impl Future<Output = ReplicationClosed> + Send + 'static,
        _: RPCOption,
    ) -> std::result::Result<SnapshotResponse<u64>, StreamingError<TypeConfig, Fatal<u64>>> {
        let answer = self.raft()?.install_full_snapshot(vote, snapshot).await;
        answer.map_err(|error| RemoteError::new(self.id, error).into())
    }
}

/// Nodes with the ids from 1 on, each in a directory of its own.
pub(crate) struct Nodes {
    dir: TempDir,
    network: Network,
    running: BTreeMap<u64, Node>,
}

const PATIENCE: Duration = Duration::from_secs(20);

impl Nodes {
    /// Three nodes with a leader.
    pub(crate) async fn three() -> Self {
        let (dir, network) = (tempfile::tempdir().unwrap(), Network::default());
        let mut nodes = Self { dir, network, running: BTreeMap::new() };
        for id in 1..=3 {
            nodes.start(Opening::New, id).await.unwrap();
        }
        let members = (1..=3).map(|id| (id, BasicNode::new(id.to_string())));
        nodes[1].raft.initialize(members.collect::<BTreeMap<_, _>>()).await.unwrap();
        nodes.leader(PATIENCE).await.unwrap();
        nodes
    }

    pub(crate) fn directory(&self, id: u64) -> PathBuf {
        self.dir.path().join(format!("node-{id}"))
    }

    pub(crate) async fn start(&mut self, opening: Opening, id: u64) -> Result<()> {
        let directory = self.directory(id);
        self.start_with(Options::new(), opening, id, directory).await
    }

    /// Starts a node at its own address, in any directory.
    pub(crate) async fn start_with(
        &mut self,
        options: Options,
        _opening: Opening,
        id: u64,
        directory: PathBuf,
    ) -> Result<()> {
        let began = Instant::now();
        let (log, machine) = loop {
            match open(options.clone(), &directory) {
                // By tasks of the node that was stopped.
                Err(Error::Store(criba::Error::Locked { .. })) if began.elapsed() < PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                opened => break opened?,
            }
        };
        let reader = machine.reader();
        let config = Config {
            heartbeat_interval: 50,
            election_timeout_min: 150,
            election_timeout_max: 300,
            ..Config::default()
        };
        let raft = Raft::new(id, Arc::new(config), self.network.clone(), log, machine);
        let raft = raft.await.unwrap();
        self.network.0.lock().unwrap().insert(id.to_string(), raft.clone());
        self.running.insert(id, Node { raft, reader });
        Ok(())
    }

    pub(crate) async fn stop(&mut self, id: u64) {
        self.network.0.lock().unwrap().remove(&id.to_string());
        let node = self.running.remove(&id).unwrap();
        node.raft.shutdown().await.unwrap();
    }

    /// A running node that leads, if one does within this time.
    pub(crate) async fn leader(&self, patience: Duration) -> Option<u64> {
        let began = Instant::now();
        while began.elapsed() < patience {
            for (&id, node) in &self.running {
                if node.raft.ensure_linearizable().await.is_ok() {
                    return Some(id);
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        None
    }

    /// Writes keys from this number on through the leader, all acknowledged.
    pub(crate) async fn write(&self, keys: std::ops::Range<u64>) {
        let leader = self.leader(PATIENCE).await.unwrap();
        for key in keys {
            let command = Command::put(format!("key {key}"), key.to_string());
            self[leader].raft.client_write(command).await.unwrap();
        }
    }

    /// The keys of these that the leader does not have.
    pub(crate) async fn lost(&self, keys: std::ops::Range<u64>) -> Vec<u64> {
        let leader = &self[self.leader(PATIENCE).await.unwrap()];
        let absent = |key: &u64| !leader.reader.contains(format!("key {key}")).unwrap();
        keys.filter(absent).collect()
    }
}

impl std::ops::Index<u64> for Nodes {
    type Output = Node;

    fn index(&self, id: u64) -> &Node {
        &self.running[&id]
    }
}
