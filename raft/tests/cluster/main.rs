//! Three processes on loopback whose leaders are killed, and clients that must not notice more than a delay.

#[allow(dead_code, reason = "the example uses what the tests do not")]
#[path = "../../examples/three_nodes/cluster.rs"]
mod cluster;
mod history;
#[path = "../../examples/three_nodes/http.rs"]
mod http;
#[path = "../../examples/three_nodes/network.rs"]
mod network;
#[path = "../../examples/three_nodes/node.rs"]
mod node;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use criba::vfs::{Fault, FaultRule, FaultVfs, Operation, RealVfs};
use criba_raft::Opening;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use cluster::{Client, Cluster, LIMIT, PATIENCE};
use history::{History, Request};
use http::Http;

const KEYS: usize = 10;
const CLIENTS: u64 = 5;
/// How often a leader is killed: RAFT_KILLS=100 for a long run.
const KILLS: usize = 20;

/// The node that this process is to run: opening, id, address and directory.
const NODE: [&str; 4] = ["RAFT_OPENING", "RAFT_NODE", "RAFT_ADDRESS", "RAFT_DIRECTORY"];

#[test]
#[ignore = "the process of a node, started by the tests below"]
fn node_process() {
    let [Ok(opening), Ok(id), Ok(address), Ok(directory)] = NODE.map(std::env::var) else { return };
    let opening = cluster::opening(&opening).unwrap();
    let (id, directory) = (id.parse().unwrap(), Path::new(&directory));
    let faults = FaultVfs::new(Arc::new(RealVfs));
    let options = node::options().vfs(Arc::new(faults.clone()));
    let mark = full_mark(directory);
    spawn(move || fill_disk(&faults, &mark));
    run(async { node::run(options, opening, id, &address, directory).await.unwrap() });
}

/// While this file exists, the node's disk is full.
fn full_mark(directory: &Path) -> PathBuf {
    directory.with_extension("full")
}

fn fill_disk(faults: &FaultVfs, mark: &Path) {
    let mut full = false;
    loop {
        if mark.exists() != full {
            full = !full;
            faults.clear();
            let writes = [Operation::Create, Operation::Append, Operation::Write];
            if full {
                faults.add(FaultRule::new(Fault::NoSpace).operations(writes).from_then_on());
            }
        }
        sleep(Duration::from_millis(5));
    }
}

/// What the node's process says.
fn errors(directory: &Path) -> PathBuf {
    directory.with_extension("errors")
}

fn start(opening: Opening, id: u64, address: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "node_process", "--ignored", "--nocapture"]).stdout(Stdio::null());
    command.stderr(File::create(errors(directory)).unwrap());
    command.env(NODE[0], cluster::word(opening)).env(NODE[1], id.to_string());
    command.env(NODE[2], address).env(NODE[3], directory);
    command
}

fn run<T>(task: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(task)
}

/// Sends random requests until it is ended.
async fn send_requests(
    mut client: Client,
    mut rng: ChaCha8Rng,
    history: Arc<History>,
    next: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
) {
    while !ended.load(Ordering::Relaxed) {
        let key = rng.random_range(0..KEYS);
        let value = next.fetch_add(1, Ordering::Relaxed);
        let (method, request) = match rng.random_range(0..10) {
            0..3 => (Method::PUT, Request::Put(value)),
            3 => (Method::DELETE, Request::Delete),
            4..6 => (Method::POST, Request::Insert(value, None)),
            _ => (Method::GET, Request::Read(None)),
        };
        let body = value.to_string().into_bytes();
        let call = history.call(key, request);
        match client.attempt(method, &format!("/keys/{key}"), body).await {
            Ok(answer) => history.answer(&call, answer.map(|answer| answered(request, answer))),
            Err(_) => history.no_answer(&call),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn answered(request: Request, (status, body): (StatusCode, Vec<u8>)) -> Request {
    let found = || std::str::from_utf8(&body).unwrap().parse().unwrap();
    match (request, status) {
        (Request::Read(_), StatusCode::OK) => Request::Read(Some(found())),
        (Request::Read(_), StatusCode::NOT_FOUND) => Request::Read(None),
        (Request::Insert(value, _), StatusCode::OK) => Request::Insert(value, Some(true)),
        (Request::Insert(value, _), StatusCode::CONFLICT) => Request::Insert(value, Some(false)),
        (request, StatusCode::OK) => request,
        answer => panic!("{answer:?}"),
    }
}

#[test]
fn no_acknowledged_write_is_lost_when_leaders_are_killed() {
    let kills = std::env::var("RAFT_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    run(async {
        let mut cluster = Cluster::start(start).await.unwrap();
        let history = Arc::new(History::default());
        let (next, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|seed| {
                let rng = ChaCha8Rng::seed_from_u64(seed);
                let shared = (Arc::clone(&history), Arc::clone(&next), Arc::clone(&ended));
                let client = cluster.client();
                tokio::spawn(send_requests(client, rng, shared.0, shared.1, shared.2))
            })
            .collect();
        let mut pauses = Vec::new();
        for _ in 0..kills {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let leader = cluster.leader().await.unwrap();
            cluster.kill(leader).unwrap();
            let killed = Instant::now();
            cluster.leader().await.unwrap();
            pauses.push(killed.elapsed().as_millis());
            cluster.start_node(Opening::Existing, leader).unwrap();
            cluster.wait_for(leader, |status| status.leader.is_some()).await.unwrap();
        }
        ended.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.unwrap();
        }
        let mut client = cluster.client();
        for key in 0..KEYS {
            let path = format!("/keys/{key}");
            let call = history.call(key, Request::Read(None));
            let read = client.request(Method::GET, &path, Vec::new()).await.unwrap();
            history.answer(&call, Some(answered(Request::Read(None), read)));
        }
        let statuses = cluster.settle().await.unwrap();
        assert!(statuses.iter().all(|status| status.hash == statuses[0].hash), "{statuses:#?}");
        let history = Arc::into_inner(history).unwrap();
        pauses.sort_unstable();
        println!(
            "{} requests, {kills} leaders killed, without one {} ms in the median, at most {}, term {}",
            history.len(),
            pauses[kills / 2],
            pauses[kills - 1],
            statuses[0].term
        );
        assert!(history.len() > 50 * kills, "{}", history.len());
        assert_eq!(history.violations(), [0; 0], "keys whose history is not linearizable");
    });
}

#[test]
fn the_checker_flags_stale_reads_of_a_follower() {
    run(async {
        let cluster = Cluster::start(start).await.unwrap();
        let leader = cluster.leader().await.unwrap();
        let follower = cluster.addresses().iter().find(|(id, _)| **id != leader).unwrap().1;
        let (mut client, http, history) = (cluster.client(), Http::new(), History::default());
        let mut stale = false;
        for value in 0..200 {
            let request = Request::Put(value);
            let call = history.call(0, request);
            let body = value.to_string().into_bytes();
            client.request(Method::PUT, "/keys/0", body).await.unwrap();
            history.answer(&call, Some(request));
            let call = history.call(0, Request::Read(None));
            let read = http.send(Method::GET, follower, "/keys/0?local=true", (), LIMIT).await;
            let read = answered(Request::Read(None), read.unwrap());
            history.answer(&call, Some(read));
            stale |= read != Request::Read(Some(value));
            if stale {
                break;
            }
        }
        assert!(stale, "a follower that is never behind shows nothing");
        assert_eq!(history.violations(), [0]);
    });
}

#[test]
fn a_node_far_behind_catches_up_by_a_snapshot_while_writes_go_on() {
    run(async {
        let mut cluster = Cluster::start(start).await.unwrap();
        let leader = cluster.leader().await.unwrap();
        let follower = *cluster.addresses().keys().find(|id| **id != leader).unwrap();
        let behind = cluster.status(follower).await.unwrap().applied;
        cluster.kill(follower).unwrap();

        let ended = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let (mut client, ended) = (cluster.client(), Arc::clone(&ended));
                tokio::spawn(async move {
                    for number in 0.. {
                        if ended.load(Ordering::Relaxed) {
                            return number;
                        }
                        let path = format!("/keys/{writer}-{number:06}");
                        client.request(Method::PUT, &path, vec![b'v'; 100]).await.unwrap();
                    }
                    unreachable!()
                })
            })
            .collect();
        // The leader no longer has the entries that the follower lacks.
        cluster.wait_for(leader, |status| status.purged > behind.max(Some(2_000))).await.unwrap();
        cluster.start_node(Opening::Existing, follower).unwrap();
        let purged = cluster.status(leader).await.unwrap().purged;
        cluster.wait_for(follower, |status| status.applied >= purged).await.unwrap();
        ended.store(true, Ordering::Relaxed);
        let mut written = 0;
        for writer in writers {
            written += writer.await.unwrap();
        }
        let statuses = cluster.settle().await.unwrap();
        assert!(statuses.iter().all(|status| status.hash == statuses[0].hash), "{statuses:#?}");
        assert_eq!(statuses[0].keys, written);
    });
}

#[test]
fn a_node_whose_disk_was_full_takes_part_again_or_ends_with_the_reason() {
    run(async {
        let mut cluster = Cluster::start(start).await.unwrap();
        let leader = cluster.leader().await.unwrap();
        let full = *cluster.addresses().keys().find(|id| **id != leader).unwrap();
        let directory = cluster.directory(full);
        let mut client = cluster.client();
        for part in ["before", "while", "after"] {
            if part == "while" {
                fs::write(full_mark(&directory), "").unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            for key in 0..100 {
                let path = format!("/keys/{part}-{key}");
                client.request(Method::PUT, &path, vec![b'v'; 1_000]).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
            let _ = fs::remove_file(full_mark(&directory));
        }
        let written = cluster.status(leader).await.unwrap().applied;
        let began = Instant::now();
        loop {
            if let Some(ended) = cluster.process(full).unwrap().try_wait().unwrap() {
                let errors = fs::read_to_string(errors(&directory)).unwrap();
                assert!(!ended.success() && errors.contains("No space left"), "{ended}: {errors}");
                assert!(errors.contains("stopped"), "{errors}");
                cluster.start_node(Opening::Existing, full).unwrap();
            }
            let status = cluster.status(full).await;
            if status.as_ref().is_ok_and(|status| status.applied >= written) {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "stays out: {status:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}
