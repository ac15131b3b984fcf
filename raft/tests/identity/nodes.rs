//! Nodes in one process, whose messages are calls.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use criba::Options;
use criba::vfs::{FaultVfs, RealVfs};
use criba_raft::{
    Command, Error, Failure, LogStore, Member, Node, Opening, Reader, Result, StateMachine, open,
};
use openraft::Config;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

/// The running nodes, by address.
#[derive(Clone, Default)]
pub(crate) struct Network(Arc<Mutex<BTreeMap<String, Node>>>);

impl criba_raft::Network for Network {
    async fn send(&self, to: &Member, message: Vec<u8>) -> std::result::Result<Vec<u8>, Failure> {
        let node = self.0.lock().unwrap().get(&to.address).cloned();
        Ok(node.ok_or("no node there")?.answer(&message).await?)
    }
}

pub(crate) struct Running {
    pub(crate) node: Node,
    pub(crate) reader: Reader,
}

/// Nodes with the ids from 1 on, each in a directory of its own.
pub(crate) struct Nodes {
    dir: TempDir,
    network: Network,
    running: BTreeMap<u64, Running>,
    /// What goes wrong with the disks, by node.
    faults: [FaultVfs; 3],
}

/// The longest wait for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

impl Nodes {
    /// Three nodes with a leader.
    pub(crate) async fn three() -> Self {
        let (dir, network) = (tempfile::tempdir().unwrap(), Network::default());
        let faults = [(); 3].map(|()| FaultVfs::new(Arc::new(RealVfs)));
        let mut nodes = Self { dir, network, running: BTreeMap::new(), faults };
        for id in 1..=3 {
            nodes.start(Opening::New, id).await.unwrap();
        }
        let members = (1..=3).map(|id| (id, nodes.member(id))).collect::<BTreeMap<_, _>>();
        nodes[1].node.raft().initialize(members).await.unwrap();
        nodes.leader(PATIENCE).await.unwrap();
        nodes
    }

    pub(crate) fn directory(&self, id: u64) -> PathBuf {
        self.dir.path().join(format!("node-{id}"))
    }

    pub(crate) async fn start(&mut self, opening: Opening, id: u64) -> Result<()> {
        let directory = self.directory(id);
        self.start_in(opening, id, directory).await
    }

    /// Starts a node at its own address, in any directory.
    pub(crate) async fn start_in(
        &mut self,
        opening: Opening,
        id: u64,
        directory: PathBuf,
    ) -> Result<()> {
        let options = Options::new().vfs(Arc::new(self.faults(id).clone()));
        let (log, machine) = open_when_free(options, &directory, id, opening).await?;
        let reader = machine.reader();
        let config = Config {
            heartbeat_interval: 50,
            election_timeout_min: 150,
            election_timeout_max: 300,
            ..Config::default()
        };
        let node = Node::start(config, self.network.clone(), log, machine).await.unwrap();
        self.network.0.lock().unwrap().insert(id.to_string(), node.clone());
        self.running.insert(id, Running { node, reader });
        Ok(())
    }

    pub(crate) fn faults(&self, id: u64) -> &FaultVfs {
        &self.faults[id as usize - 1]
    }

    pub(crate) fn member(&self, id: u64) -> Member {
        self[id].node.identity().at(id.to_string())
    }

    pub(crate) async fn stop(&mut self, id: u64) {
        self.network.0.lock().unwrap().remove(&id.to_string());
        let node = self.running.remove(&id).unwrap();
        node.node.raft().shutdown().await.unwrap();
    }

    /// A running node that leads, if one does within this time.
    pub(crate) async fn leader(&self, patience: Duration) -> Option<u64> {
        let began = Instant::now();
        while began.elapsed() < patience {
            for (&id, node) in &self.running {
                if node.node.raft().ensure_linearizable().await.is_ok() {
                    return Some(id);
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        None
    }

    /// Writes a key through the leader. Whether it was acknowledged.
    pub(crate) async fn try_write(&self, key: u64) -> bool {
        let Some(leader) = self.leader(PATIENCE).await else { return false };
        let command = Command::put(format!("key {key}"), key.to_string());
        self[leader].node.raft().client_write(command).await.is_ok()
    }

    /// Writes keys until each is acknowledged.
    pub(crate) async fn write(&self, keys: Range<u64>) {
        for key in keys {
            let began = Instant::now();
            while !self.try_write(key).await {
                assert!(began.elapsed() < PATIENCE, "no acknowledgement");
            }
        }
    }

    /// Writes some keys after these. Returns how many there are.
    pub(crate) async fn write_more(&self, written: u64, rng: &mut ChaCha8Rng) -> u64 {
        let then = written + rng.random_range(1..20);
        self.write(written..then).await;
        then
    }

    /// Makes a running node a member, which replaces a former incarnation.
    pub(crate) async fn admit(&self, id: u64) {
        let began = Instant::now();
        loop {
            let leader = self.leader(PATIENCE).await.unwrap();
            match self[leader].node.admit(id, self.member(id)).await {
                Ok(()) => return,
                // Another leads now.
                Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
            }
        }
    }

    /// Waits until a node has applied a key.
    pub(crate) async fn wait_for(&self, id: u64, key: &str) {
        let began = Instant::now();
        while !self[id].reader.contains(key).unwrap() {
            assert!(began.elapsed() < PATIENCE, "node {id} has no {key}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The keys of these that the leader does not have.
    pub(crate) async fn lost(&self, keys: Range<u64>) -> Vec<u64> {
        let leader = &self[self.leader(PATIENCE).await.unwrap()];
        let absent = |key: &u64| !leader.reader.contains(format!("key {key}")).unwrap();
        keys.filter(absent).collect()
    }
}

/// Opens a directory once the tasks of a node that was stopped left it.
async fn open_when_free(
    options: Options,
    directory: &Path,
    id: u64,
    opening: Opening,
) -> Result<(LogStore, StateMachine)> {
    let began = Instant::now();
    loop {
        match open(options.clone(), directory, id, opening) {
            Err(Error::Store(criba::Error::Locked { .. })) if began.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            opened => return opened,
        }
    }
}

impl std::ops::Index<u64> for Nodes {
    type Output = Running;

    fn index(&self, id: u64) -> &Running {
        &self.running[&id]
    }
}
