//! Three nodes of a replicated key-value store on loopback, each a process of its own; the death of a leader,
//! and a node that loses its directory.
//!
//! `cargo run --release -p criba-raft --example three_nodes`

mod cluster;
mod http;
mod network;
mod node;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use axum::http::{Method, StatusCode};
use cluster::Cluster;
use criba_raft::Opening;
use http::{Failure, Http};

/// Keys written before the leader dies, and again while it is away.
const KEYS: usize = 4_000;
/// Clients that write at the same time.
const CLIENTS: usize = 16;
/// Of absent keys, on each node.
const LOOKUPS: usize = 2_000;

const USAGE: &str = "three_nodes
    Starts three nodes as processes, writes, kills the leader, and shows what each node holds.

three_nodes OPENING ID ADDRESS DIRECTORY
    Runs one node until it stops. OPENING says what DIRECTORY is:
    new          that of a new node: it is empty or missing
    existing     as this node left it
    join-as-new  that of a node that lost its directory, or has an old copy of it: what is there is
                 discarded. For one start; then `existing`. The leader must admit the node, below

    ID is a number. ADDRESS is where the node listens, and where the others find it. Three by hand:

    three_nodes new 1 127.0.0.1:4001 /tmp/node-1
    three_nodes new 2 127.0.0.1:4002 /tmp/node-2
    three_nodes new 3 127.0.0.1:4003 /tmp/node-3
    curl -d '{\"1\":\"127.0.0.1:4001\",\"2\":\"127.0.0.1:4002\",\"3\":\"127.0.0.1:4003\"}' 127.0.0.1:4001/members
    curl -X PUT -d value 127.0.0.1:4001/keys/key
    curl 127.0.0.1:4001/keys/key
    curl 127.0.0.1:4002/status

    After `join-as-new`, on the leader:

    curl -X PUT -d 127.0.0.1:4003 127.0.0.1:4001/members/3

    All requests are in the head of node.rs.";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let done = match (&arguments[..], one_node(&arguments)) {
        ([], _) => runtime.block_on(show()),
        ([_, _, address, directory], Some((opening, id))) => {
            let directory = Path::new(directory);
            runtime.block_on(node::run(node::options(), opening, id, address, directory))
        }
        (["--help"], _) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Err(error) = done {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The first arguments of a single node.
fn one_node(arguments: &[&str]) -> Option<(Opening, u64)> {
    Some((cluster::opening(arguments.first()?)?, arguments.get(1)?.parse().ok()?))
}

fn start(opening: Opening, id: u64, address: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.args([cluster::word(opening), &id.to_string(), address]).arg(directory);
    command
}

async fn show() -> Result<(), Failure> {
    let mut cluster = Cluster::start(start).await?;
    for (id, address) in cluster.addresses() {
        println!("node {id}: http://{address}");
    }
    let leader = cluster.leader().await?;
    println!("node {leader} leads");

    write(&cluster, "first").await?;

    let known = cluster.status(leader).await?.applied;
    cluster.kill(leader)?;
    let killed = Instant::now();
    cluster.client().request(Method::PUT, "/keys/after", b"1".to_vec()).await?;
    let away = killed.elapsed();
    let next = cluster.leader().await?;
    println!("killed node {leader}; node {next} leads; no write for {} ms", away.as_millis());

    write(&cluster, "second").await?;
    cluster.start_node(Opening::Existing, leader)?;
    let began = Instant::now();
    let by = if cluster.status(next).await?.purged > known { "a snapshot" } else { "log entries" };
    cluster.settle().await?;
    println!("node {leader} is back, and has all by {by} after {} ms", began.elapsed().as_millis());

    let lost = cluster.leader().await? % 3 + 1;
    cluster.kill(lost)?;
    std::fs::remove_dir_all(cluster.directory(lost))?;
    cluster.start_node(Opening::JoinAsNew, lost)?;
    cluster.wait_for(lost, |_| true).await?;
    let began = Instant::now();
    cluster.admit(lost).await?;
    let before = cluster.settle().await?;
    println!(
        "node {lost} lost its directory; it joined as new, and has all after {} ms",
        began.elapsed().as_millis()
    );

    look_up_absent_keys(&cluster).await?;
    let statuses = cluster.settle().await?;
    println!("each node looked up {LOOKUPS} absent keys in its own store, in one file or more");
    println!("\nnode  applied entries  keys  hash of the state  reads avoided  reads made");
    for (id, (status, before)) in (1..).zip(statuses.iter().zip(&before)) {
        println!(
            "{id:4}  {:15}  {:4}   {:016x}  {:13}  {:10}",
            status.applied.map_or(0, |index| index + 1),
            status.keys,
            status.hash,
            status.reads_avoided - before.reads_avoided,
            status.reads_made - before.reads_made
        );
    }
    let state = |status: &node::Status| (status.keys, status.hash);
    if statuses.iter().any(|status| state(status) != state(&statuses[0])) {
        return Err("the nodes do not hold the same keys".into());
    }
    println!("all three hold the same {} keys", statuses[0].keys);
    Ok(())
}

/// Writes keys from several clients at once.
async fn write(cluster: &Cluster, name: &'static str) -> Result<(), Failure> {
    let began = Instant::now();
    let write_some = |number| {
        let mut client = cluster.client();
        tokio::spawn(async move {
            for key in (number..KEYS).step_by(CLIENTS) {
                let path = format!("/keys/{name}-{key:05}");
                client.request(Method::PUT, &path, vec![b'v'; 100]).await?;
            }
            Ok::<_, Failure>(())
        })
    };
    let clients: Vec<_> = (0..CLIENTS).map(write_some).collect();
    for client in clients {
        client.await??;
    }
    let rate = KEYS as f64 / began.elapsed().as_secs_f64();
    println!("{KEYS} committed writes by {CLIENTS} clients, {rate:.0} a second");
    Ok(())
}

async fn look_up_absent_keys(cluster: &Cluster) -> Result<(), Failure> {
    let http = Http::new();
    for address in cluster.addresses().values() {
        for key in 0..LOOKUPS {
            let path = format!("/keys/first-{key:05}-absent?local=true");
            let (status, _) = http.send(Method::GET, address, &path, (), cluster::LIMIT).await?;
            if status != StatusCode::NOT_FOUND {
                return Err(format!("{path}: {status}").into());
            }
        }
    }
    Ok(())
}
