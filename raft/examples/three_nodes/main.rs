//! Three nodes of a replicated key-value store on loopback, each a process of its own, and the death of a
//! leader.
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
use http::{Failure, Http};

/// Keys written before the leader dies, and again while it is away.
const KEYS: usize = 4_000;
/// Clients that write at the same time.
const CLIENTS: usize = 16;
/// Of absent keys, on each node.
const LOOKUPS: usize = 2_000;

const USAGE: &str = "three_nodes                         shows three nodes, one of which is killed
three_nodes ID ADDRESS DIRECTORY    runs one node; its requests are in node.rs";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let done = match &arguments[..] {
        [] => runtime.block_on(show()),
        [id, address, directory] if id.parse::<u64>().is_ok() => {
            let id = id.parse().expect("a number");
            runtime.block_on(node::run(node::options(), id, address, Path::new(directory)))
        }
        _ => {
            println!("{USAGE}");
            return if arguments == ["--help"] { ExitCode::SUCCESS } else { ExitCode::from(2) };
        }
    };
    if let Err(error) = done {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn start(id: u64, address: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.args([id.to_string(), address.to_string()]).arg(directory);
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
    cluster.restart(leader)?;
    let began = Instant::now();
    let by = if cluster.status(next).await?.purged > known { "a snapshot" } else { "log entries" };
    let before = cluster.settle().await?;
    println!("node {leader} is back, and has all by {by} after {} ms", began.elapsed().as_millis());

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
