//! criba-raft beside the same program on RocksDB: writes that a cluster commits, and absent keys looked up on
//! a follower.
//!
//! `cargo run --release --features raft --bin raft -- [--seconds N] [--repetitions N] [--dir DIRECTORY]`
//!
//! A cluster is three nodes in one process, whose messages are calls. Each repetition of each store has a
//! process of its own, and the stores take turns.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use openraft::error::{Fatal, RPCError, RaftError, RemoteError, ReplicationClosed, StreamingError};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::responder::OneshotResponder;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::storage::{RaftLogStorage, RaftStateMachine};
use openraft::{Config, Entry, Raft, RaftTypeConfig, Snapshot, SnapshotPolicy, TokioRuntime, Vote};
use rocksdb_as_criba::{
    BITS_PER_KEY, BLOCK_BYTES, CACHE_BYTES, LEVEL_BASE_BYTES, MEMTABLE_BYTES, TABLE_BYTES,
};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

#[path = "../lines.rs"]
mod lines;
#[path = "../machine.rs"]
mod machine;

use lines::Line;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const NODES: u64 = 3;
const LOADING_CLIENTS: usize = 256;
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;
/// No key of a greater number is written.
const ABSENT: u64 = 1 << 40;
/// The longest wait for a leader, or for a follower to apply what was committed.
const LIMIT: Duration = Duration::from_mins(1);

#[derive(Parser)]
struct Arguments {
    /// Seconds of writing with each number of clients, and of lookups.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    #[arg(long, default_value_t = 3)]
    repetitions: u32,
    /// Clients that write at the same time, each after the answer to its last write.
    #[arg(long, value_delimiter = ',', default_value = "1,8,64")]
    clients: Vec<usize>,
    /// Keys that are loaded before the lookups.
    #[arg(long, default_value_t = 200_000)]
    keys: u64,
    /// The directory of the stores, on the disk to measure. Default: `stores` in the build's directory
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The file of results, which are appended.
    #[arg(long, default_value = "results/raft.jsonl")]
    out: PathBuf,
    /// Measures this store once, and prints the figures as JSON
    #[arg(long, hide = true)]
    child: Option<Store>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
enum Store {
    Criba,
    #[value(name = "rocksdb")]
    RocksDb,
}

impl Store {
    fn name(self) -> &'static str {
        match self {
            Self::Criba => "criba",
            Self::RocksDb => "rocksdb",
        }
    }

    fn version(self) -> String {
        match self {
            Self::Criba => machine::criba_version(),
            Self::RocksDb => env!("VERSION_ROCKSDB_AS_BUILT").to_owned(),
        }
    }
}

/// By name.
type Figures = BTreeMap<String, f64>;

#[derive(Serialize)]
struct Job<'a> {
    store: Store,
    version: String,
    workload: &'a str,
    repetition: u32,
    n: u64,
    seconds: f64,
}

#[derive(Serialize)]
struct Findings<'a> {
    figures: &'a Figures,
}

/// criba-raft, compiled for one of the stores.
trait Library:
    RaftTypeConfig<
        NodeId = u64,
        Entry = Entry<Self>,
        AsyncRuntime = TokioRuntime,
        Responder = OneshotResponder<Self>,
    >
{
    type Reader;

    /// Opens a new node. The last one is what the membership holds of it.
    fn open(
        dir: &Path,
        id: u64,
    ) -> Result<(impl RaftLogStorage<Self>, impl RaftStateMachine<Self>, Self::Reader, Self::Node)>;

    fn put(key: [u8; KEY_BYTES], value: [u8; VALUE_BYTES]) -> Self::D;

    /// The length of the value.
    fn get(reader: &Self::Reader, key: [u8; KEY_BYTES]) -> Result<Option<usize>>;

    /// Writes the memtable, and waits until no compaction is due.
    fn settle(reader: &Self::Reader) -> Result<()>;
}

macro_rules! library {
    ($library:ident, $options:expr) => {
        impl Library for $library::TypeConfig {
            type Reader = $library::Reader;

            fn open(
                dir: &Path,
                id: u64,
            ) -> Result<(
                impl RaftLogStorage<Self>,
                impl RaftStateMachine<Self>,
                Self::Reader,
                Self::Node,
            )> {
                let (log, machine) = $library::open($options, dir, id, $library::Opening::New)?;
                let (reader, member) = (machine.reader(), log.identity().at("in this process"));
                Ok((log, machine, reader, member))
            }

            fn put(key: [u8; KEY_BYTES], value: [u8; VALUE_BYTES]) -> Self::D {
                $library::Command::put(key, value)
            }

            fn get(reader: &Self::Reader, key: [u8; KEY_BYTES]) -> Result<Option<usize>> {
                Ok(reader.get(key)?.map(|value| value.len()))
            }

            fn settle(reader: &Self::Reader) -> Result<()> {
                reader.store().flush()?;
                Ok(reader.store().wait_until_settled()?)
            }
        }
    };
}

library!(criba_raft, criba_options());
library!(criba_raft_on_rocksdb, rocksdb_as_criba::Options::default());

/// With the settings of the other store.
fn criba_options() -> criba::Options {
    criba::Options::new()
        .filter(criba::FilterPolicy::default().with_bits_per_key(f64::from(BITS_PER_KEY)))
        .memtable_bytes(MEMTABLE_BYTES)
        .table_bytes(TABLE_BYTES)
        .level_base_bytes(LEVEL_BASE_BYTES)
        .block_bytes(BLOCK_BYTES)
        .cache_bytes(CACHE_BYTES as u64)
}

/// The nodes by number, once all have started.
struct Network<C: Library>(Arc<OnceLock<Vec<Raft<C>>>>);

/// The connection to one node.
struct Peer<C: Library> {
    nodes: Arc<OnceLock<Vec<Raft<C>>>>,
    id: u64,
}

impl<C: Library> RaftNetworkFactory<C> for Network<C> {
    type Network = Peer<C>;

    async fn new_client(&mut self, id: u64, _: &C::Node) -> Peer<C> {
        Peer { nodes: Arc::clone(&self.0), id }
    }
}

impl<C: Library> Peer<C> {
    fn node(&self) -> &Raft<C> {
        &self.nodes.get().expect("no message comes before the first election")[self.id as usize]
    }
}

type Called<C, T> =
    std::result::Result<T, RPCError<u64, <C as RaftTypeConfig>::Node, RaftError<u64>>>;

impl<C: Library> RaftNetwork<C> for Peer<C> {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<C>,
        _: RPCOption,
    ) -> Called<C, AppendEntriesResponse<u64>> {
        let answer = self.node().append_entries(request).await;
        answer.map_err(|error| RemoteError::new(self.id, error).into())
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        _: RPCOption,
    ) -> Called<C, VoteResponse<u64>> {
        let answer = self.node().vote(request).await;
        answer.map_err(|error| RemoteError::new(self.id, error).into())
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote<u64>,
        snapshot: Snapshot<C>,
        _: impl Future<Output = ReplicationClosed> + Send + 'static,
        _: RPCOption,
    ) -> std::result::Result<SnapshotResponse<u64>, StreamingError<C, Fatal<u64>>> {
        let answer = self.node().install_full_snapshot(vote, snapshot).await;
        answer.map_err(|error| RemoteError::new(self.id, error).into())
    }
}

struct Cluster<C: Library> {
    leader: Raft<C>,
    follower: Raft<C>,
    /// Of the follower.
    reader: C::Reader,
    /// The number of the next key.
    next: Arc<AtomicU64>,
}

impl<C: Library> Cluster<C> {
    async fn start(dir: &Path) -> Result<Self> {
        // No election while a disk is slow, and no snapshots sent to a node that is a little behind.
        let config = Config {
            heartbeat_interval: 1_000,
            election_timeout_min: 10_000,
            election_timeout_max: 20_000,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(5_000),
            max_in_snapshot_log_to_keep: 20_000,
            ..Config::default()
        };
        let config = Arc::new(config.validate()?);
        let nodes = Arc::new(OnceLock::new());
        let (mut rafts, mut readers, mut members) = (Vec::new(), Vec::new(), BTreeMap::new());
        for id in 0..NODES {
            let (log, machine, reader, member) = C::open(&dir.join(id.to_string()), id)?;
            members.insert(id, member);
            let network = Network(Arc::clone(&nodes));
            rafts.push(Raft::new(id, Arc::clone(&config), network, log, machine).await?);
            readers.push(reader);
        }
        let [leader, follower] = [0, 1].map(|id: usize| rafts[id].clone());
        let _ = nodes.set(rafts); // the only call
        leader.initialize(members).await?;
        leader.wait(Some(LIMIT)).current_leader(0, "the first node leads").await?;
        Ok(Self { leader, follower, reader: readers.swap_remove(1), next: Arc::default() })
    }

    /// Clients write one key after another, until the time is over or all keys below `end` are written.
    async fn write(&self, clients: usize, limit: Duration, end: u64) -> Result<Timing> {
        let (begin, processor) = (Instant::now(), processor_seconds());
        let clients: Vec<_> = (0..clients)
            .map(|_| {
                let (leader, next) = (self.leader.clone(), Arc::clone(&self.next));
                tokio::spawn(async move {
                    let mut written = 0_u64;
                    while begin.elapsed() < limit {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= end {
                            break;
                        }
                        leader.client_write(C::put(key(number), value(number))).await?;
                        written += 1;
                    }
                    Result::Ok(written)
                })
            })
            .collect();
        let mut operations = 0;
        for client in clients {
            operations += client.await??;
        }
        let processor = processor_seconds() - processor;
        Ok(Timing { operations, seconds: begin.elapsed().as_secs_f64(), processor })
    }

    /// Waits until the follower has applied everything, and writes its memtable.
    async fn settle(&self) -> Result<()> {
        let applied = self.leader.metrics().borrow().last_applied.map(|id| id.index);
        self.follower.wait(Some(LIMIT)).applied_index_at_least(applied, "the follower").await?;
        C::settle(&self.reader)
    }

    /// One thread looks up keys. Every answer must be of this length.
    fn look_up(
        &self,
        limit: Duration,
        numbers: impl Iterator<Item = u64>,
        answer: Option<usize>,
    ) -> Result<Timing> {
        const LOOKS: u64 = 256; // lookups between two looks at the clock
        let (begin, processor) = (Instant::now(), processor_seconds());
        let mut operations = 0;
        for number in numbers {
            let found = C::get(&self.reader, key(number))?;
            if found != answer {
                return Err(format!("key {number}: {found:?} instead of {answer:?}").into());
            }
            operations += 1;
            if operations % LOOKS == 0 && begin.elapsed() >= limit {
                break;
            }
        }
        let processor = processor_seconds() - processor;
        Ok(Timing { operations, seconds: begin.elapsed().as_secs_f64(), processor })
    }
}

struct Timing {
    operations: u64,
    seconds: f64,
    /// Processor time of all threads.
    processor: f64,
}

impl Timing {
    fn note(&self, name: &str, figures: &mut Figures) {
        let Self { operations, seconds, processor } = *self;
        figures.insert(format!("{name}_per_s"), operations as f64 / seconds);
        figures.insert(format!("{name}_cpu_us"), processor * 1e6 / operations as f64);
    }
}

fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// SplitMix64: a bijection, so distinct numbers are distinct keys, in random order.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'k'; KEY_BYTES];
    key[8..].copy_from_slice(&mix(number).to_be_bytes());
    key
}

fn value(number: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    for (at, bytes) in (0..).zip(value.chunks_mut(8)) {
        bytes.copy_from_slice(&mix(number ^ (at << 48)).to_be_bytes()[..bytes.len()]);
    }
    value
}

/// Loads, looks up and then writes, so that the lookups meet the same keys in every store.
async fn measure<C: Library>(arguments: &Arguments, dir: &Path) -> Result<Figures> {
    let limit = Duration::from_secs_f64(arguments.seconds);
    let cluster = Cluster::<C>::start(dir).await?;
    cluster.write(LOADING_CLIENTS, Duration::MAX, arguments.keys).await?;
    cluster.settle().await?;
    let mut figures = Figures::new();
    cluster.look_up(Duration::MAX, 0..arguments.keys, Some(VALUE_BYTES))?;
    cluster.look_up(limit, ABSENT.., None)?.note("absent", &mut figures);
    for &clients in &arguments.clients {
        let timing = cluster.write(clients, limit, ABSENT).await?;
        timing.note(&format!("writes_{clients}"), &mut figures);
    }
    Ok(figures)
}

/// Prints the figures of one store.
fn child(store: Store, arguments: &Arguments) -> Result<()> {
    let program = std::env::current_exe()?;
    let beside = program.ancestors().nth(2).unwrap_or(Path::new(".")).join("stores");
    let parent = arguments.dir.as_ref().unwrap_or(&beside);
    fs::create_dir_all(parent)?;
    let dir = tempfile::tempdir_in(parent)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let figures = match store {
        Store::Criba => runtime.block_on(measure::<criba_raft::TypeConfig>(arguments, dir.path())),
        Store::RocksDb => {
            runtime.block_on(measure::<criba_raft_on_rocksdb::TypeConfig>(arguments, dir.path()))
        }
    }?;
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

/// Measures a store once, in a process of its own.
fn measured(store: Store) -> Result<Figures> {
    let done = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .args(["--child", store.name()])
        .stderr(Stdio::inherit())
        .output()?;
    if !done.status.success() {
        return Err(format!("{}: {}", store.name(), done.status).into());
    }
    Ok(serde_json::from_slice(&done.stdout)?)
}

/// The median, and in words the median and the range.
fn summary(name: &str, runs: &[Figures]) -> (f64, String) {
    let mut values: Vec<_> = runs.iter().map(|figures| figures[name]).collect();
    values.sort_by(f64::total_cmp);
    let (median, last) = (values[values.len() / 2], values[values.len() - 1]);
    (median, format!("{median:.0} ({:.0} to {last:.0})", values[0]))
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if let Some(store) = arguments.child {
        return child(store, &arguments);
    }
    let mut runs = [Store::Criba, Store::RocksDb].map(|store| (store, Vec::new()));
    for repetition in 1..=arguments.repetitions {
        for (store, runs) in &mut runs {
            let store = *store;
            let figures = measured(store)?;
            let Arguments { keys: n, seconds, .. } = arguments;
            let version = store.version();
            let job = Job { store, version, workload: "raft", repetition, n, seconds };
            Line::now(job, Findings { figures: &figures })?.append(&arguments.out)?;
            println!("{} {repetition}: {}", store.name(), serde_json::to_string(&figures)?);
            runs.push(figures);
        }
    }
    let mut rows = vec![("absent".to_owned(), "absent lookups of a follower/s".to_owned())];
    rows.extend(arguments.clients.iter().map(|clients| {
        (format!("writes_{clients}"), format!("committed writes/s, clients: {clients}"))
    }));
    let [(_, criba), (_, rocksdb)] = runs;
    println!("\n| median (range) | criba | RocksDB | criba / RocksDB |\n|---|---|---|---|");
    for (name, words) in rows {
        let [criba, rocksdb] =
            [&criba, &rocksdb].map(|runs| summary(&format!("{name}_per_s"), runs));
        println!("| {words} | {} | {} | {:.2} |", criba.1, rocksdb.1, criba.0 / rocksdb.0);
    }
    Ok(())
}
