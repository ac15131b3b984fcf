//! Starts nodes as processes on loopback, kills them, and speaks to them.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use criba_raft::Opening;
use tempfile::TempDir;

use crate::http::{self, Failure, Http};
use crate::node::Status;

/// A process that runs a node with this id, at this address, in this directory.
type Start = fn(Opening, u64, &str, &Path) -> Command;

/// How a command line says which opening is meant.
const WORDS: [(&str, Opening); 3] =
    [("new", Opening::New), ("existing", Opening::Existing), ("join-as-new", Opening::JoinAsNew)];

pub(crate) fn opening(word: &str) -> Option<Opening> {
    WORDS.iter().find(|of| of.0 == word).map(|of| of.1)
}

pub(crate) fn word(opening: Opening) -> &'static str {
    WORDS.iter().find(|of| of.1 == opening).map_or("", |of| of.0)
}

pub(crate) struct Cluster {
    start: Start,
    dir: TempDir,
    http: Http,
    addresses: BTreeMap<u64, String>,
    processes: BTreeMap<u64, Child>,
}

/// An answer within this time, or none.
pub(crate) const LIMIT: Duration = Duration::from_secs(2);
/// The longest wait for a leader, or for a node that is behind.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

impl Cluster {
    /// Starts three nodes and waits for their leader.
    pub(crate) async fn start(start: Start) -> Result<Self, Failure> {
        let addresses = (1..=3).map(|id| (id, free_address())).collect();
        let (dir, http) = (tempfile::tempdir()?, Http::new());
        let mut cluster = Self { start, dir, http, addresses, processes: BTreeMap::new() };
        for id in 1..=3 {
            cluster.start_node(Opening::New, id)?;
            cluster.wait_for(id, |_| true).await?;
        }
        let members = serde_json::to_vec(&cluster.addresses)?;
        cluster.request(1, Method::POST, "/members", members).await?;
        cluster.leader().await?;
        Ok(cluster)
    }

    /// The directory of a node's store.
    pub(crate) fn directory(&self, id: u64) -> PathBuf {
        self.dir.path().join(format!("node-{id}"))
    }

    pub(crate) fn addresses(&self) -> &BTreeMap<u64, String> {
        &self.addresses
    }

    pub(crate) fn start_node(&mut self, opening: Opening, id: u64) -> Result<(), Failure> {
        let process =
            (self.start)(opening, id, &self.addresses[&id], &self.directory(id)).spawn()?;
        self.processes.insert(id, process);
        Ok(())
    }

    /// Kills a node with SIGKILL.
    pub(crate) fn kill(&mut self, id: u64) -> Result<(), Failure> {
        let process = self.process(id)?;
        process.kill()?;
        process.wait()?;
        self.processes.remove(&id);
        Ok(())
    }

    /// The process of a node.
    pub(crate) fn process(&mut self, id: u64) -> Result<&mut Child, Failure> {
        self.processes.get_mut(&id).ok_or_else(|| format!("node {id} was not started").into())
    }

    pub(crate) async fn status(&self, id: u64) -> Result<Status, Failure> {
        let (_, status) = self.request(id, Method::GET, "/status", ()).await?;
        Ok(serde_json::from_slice(&status)?)
    }

    async fn request(
        &self,
        id: u64,
        method: Method,
        path: &str,
        body: impl Into<axum::body::Body>,
    ) -> Result<(StatusCode, Vec<u8>), Failure> {
        let (status, body) =
            self.http.send(method, &self.addresses[&id], path, body, PATIENCE).await?;
        if !status.is_success() {
            return Err(format!("node {id}: {status}: {}", String::from_utf8_lossy(&body)).into());
        }
        Ok((status, body))
    }

    /// Makes a node a member, which replaces a former incarnation.
    pub(crate) async fn admit(&self, id: u64) -> Result<(), Failure> {
        let leader = self.leader().await?;
        let path = format!("/members/{id}");
        self.request(leader, Method::PUT, &path, self.addresses[&id].clone()).await?;
        Ok(())
    }

    /// Waits until the status of a node satisfies a condition.
    pub(crate) async fn wait_for(
        &self,
        id: u64,
        condition: impl Fn(&Status) -> bool,
    ) -> Result<Status, Failure> {
        let begin = Instant::now();
        loop {
            match self.status(id).await {
                Ok(status) if condition(&status) => return Ok(status),
                status if begin.elapsed() > PATIENCE => {
                    return Err(format!("node {id} is not where it should be: {status:?}").into());
                }
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// A running node that says it leads.
    pub(crate) async fn leader(&self) -> Result<u64, Failure> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            for &id in self.processes.keys() {
                if self.status(id).await.is_ok_and(|status| status.leader == Some(id)) {
                    return Ok(id);
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err("no leader".into())
    }

    /// Waits until all nodes have applied the same entries, and hold the same. Returns what they know of
    /// themselves, the same or not.
    pub(crate) async fn settle(&self) -> Result<Vec<Status>, Failure> {
        let begin = Instant::now();
        loop {
            let mut all = Vec::new();
            for &id in self.addresses.keys() {
                all.push(self.wait_for(id, |_| true).await?);
            }
            let state = |status: &Status| (status.applied, status.keys, status.hash);
            if all.iter().all(|status| state(status) == state(&all[0]))
                || begin.elapsed() > PATIENCE
            {
                return Ok(all);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn client(&self) -> Client {
        let addresses: Vec<_> = self.addresses.values().cloned().collect();
        Client { http: Http::new(), leader: addresses[0].clone(), addresses }
    }
}

/// An address whose port no outgoing connection gets while a node is away.
fn free_address() -> String {
    loop {
        let address = format!("127.0.0.1:{}", rand::random_range(20_000..32_000));
        if TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.processes.values_mut() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Sends requests to the leader.
#[derive(Clone)]
pub(crate) struct Client {
    http: Http,
    addresses: Vec<String>,
    leader: String,
}

impl Client {
    /// One attempt. An error means that the request may have had its effect, or will have it, or not.
    /// `None`: no node is there, or it is not the leader, and nothing was changed.
    pub(crate) async fn attempt(
        &mut self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Option<(StatusCode, Vec<u8>)>, Failure> {
        let answer = self.http.send(method, &self.leader, path, body, LIMIT).await;
        let answer = match answer {
            Ok((StatusCode::MISDIRECTED_REQUEST, _)) => Ok(None),
            Ok((status, body)) if status.is_server_error() => {
                Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into())
            }
            Ok(answer) => return Ok(Some(answer)),
            Err(error) if http::is_refused(&error) => Ok(None),
            Err(error) => Err(error),
        };
        self.try_next();
        tokio::time::sleep(Duration::from_millis(10)).await;
        answer
    }

    fn try_next(&mut self) {
        let at = self.addresses.iter().position(|address| *address == self.leader);
        self.leader = self.addresses[at.map_or(0, |at| at + 1) % self.addresses.len()].clone();
    }

    /// Attempts until the leader has answered. Only for requests that may have their effect twice.
    pub(crate) async fn request(
        &mut self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Vec<u8>), Failure> {
        let begin = Instant::now();
        loop {
            match self.attempt(method.clone(), path, body.clone()).await {
                Ok(Some(answer)) => return Ok(answer),
                Err(error) if begin.elapsed() > PATIENCE => return Err(error),
                Ok(None) if begin.elapsed() > PATIENCE => return Err("no leader".into()),
                _ => {}
            }
        }
    }
}
