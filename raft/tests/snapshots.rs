//! What readers see while a snapshot is installed, and what a bad one does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use criba::vfs::{Fault, FaultRule, FaultVfs, FileKind, Operation, SimVfs};
use criba::{Db, Options, Result};
use criba_raft::{Command, LogStore, Opening, Reader, StateMachine, TypeConfig, open};
use openraft::storage::RaftStateMachine;
use openraft::{CommittedLeaderId, Entry, EntryPayload, LogId, RaftSnapshotBuilder, Snapshot};
use tempfile::TempDir;

const KEYS: u64 = 3_000;

struct Node {
    db: Db,
    _log: LogStore,
    machine: StateMachine,
    _dir: TempDir,
}

impl Node {
    fn new() -> Self {
        Self::on(tempfile::tempdir().unwrap(), Opening::New)
    }

    fn on(dir: TempDir, opening: Opening) -> Self {
        let options = Options::new().memtable_bytes(64 << 10);
        let (log, machine) = open(options, dir.path().join("store"), 1, opening).unwrap();
        let db = machine.reader().store().clone();
        Self { db, _log: log, machine, _dir: dir }
    }

    /// A node whose keys all have this value.
    async fn with(value: u8) -> Self {
        let mut node = Self::new();
        node.machine.apply((0..KEYS).map(|index| entry(index, value))).await.unwrap();
        node
    }

    async fn take(&mut self) -> Snapshot<TypeConfig> {
        self.machine.get_snapshot_builder().await.build_snapshot().await.unwrap()
    }

    /// Installs a snapshot that comes in chunks, but for the last so many.
    async fn install(
        &mut self,
        mut taken: Snapshot<TypeConfig>,
        missing: usize,
    ) -> std::result::Result<(), openraft::StorageError<u64>> {
        let mut received = self.machine.begin_receiving_snapshot().await?;
        let mut chunks = Vec::new();
        while let Some(chunk) = taken.snapshot.next_chunk().unwrap() {
            chunks.push(chunk);
        }
        for chunk in &chunks[..chunks.len() - missing] {
            received.write_chunk(chunk).unwrap();
        }
        self.machine.install_snapshot(&taken.meta, received).await
    }

    /// The number of pairs in the store by epoch, of all epochs.
    fn pairs(&self) -> BTreeMap<[u8; 8], usize> {
        let mut pairs = BTreeMap::new();
        for item in self.db.prefix("s") {
            let (key, _) = item.unwrap();
            *pairs.entry(key[1..9].try_into().unwrap()).or_default() += 1;
        }
        pairs
    }

    fn wait_for_one_epoch(&self) {
        wait_until(|| self.pairs().len() == 1);
        assert_eq!(*self.pairs().first_entry().unwrap().get() as u64, KEYS);
    }
}

fn key(index: u64) -> String {
    format!("key {index:06}")
}

fn entry(index: u64, value: u8) -> Entry<TypeConfig> {
    let log_id = LogId::new(CommittedLeaderId::new(1, 1), index);
    let command = Command::put(key(index), [value; 500]);
    Entry { log_id, payload: EntryPayload::Normal(command) }
}

/// All values of one moment, without repetitions.
fn values(reader: &Reader) -> Vec<u8> {
    let pairs = reader.prefix("key").collect::<Result<Vec<_>>>().unwrap();
    assert_eq!(pairs.len() as u64, KEYS);
    let mut values: Vec<_> = pairs.iter().map(|(_, value)| value[0]).collect();
    values.dedup();
    values
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_see_the_old_state_or_the_new_one() {
    let mut leaders = [Node::with(1).await, Node::with(2).await];
    let mut follower = Node::with(0).await;
    let (reader, ended) = (follower.machine.reader(), AtomicBool::new(false));
    let (scans, lookups) = std::thread::scope(|scope| {
        let scanning = scope.spawn(|| {
            let mut scans = 0;
            while !ended.load(Ordering::Relaxed) {
                assert_eq!(values(&reader).len(), 1);
                scans += 1;
            }
            scans
        });
        let looking = scope.spawn(|| {
            let mut lookups = 0;
            while !ended.load(Ordering::Relaxed) {
                let index = lookups % KEYS;
                assert!(reader.get(key(index)).unwrap().is_some(), "{index}");
                assert!(!reader.contains(key(index) + "absent").unwrap());
                lookups += 1;
            }
            lookups
        });
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                for round in 0..20 {
                    let taken = leaders[round % 2].take().await;
                    follower.install(taken, 0).await.unwrap();
                    assert_eq!(values(&reader), [1 + (round % 2) as u8]);
                }
            });
        });
        ended.store(true, Ordering::Relaxed);
        (scanning.join().unwrap(), looking.join().unwrap())
    });
    assert!(scans > 0 && lookups > KEYS, "{scans} scans, {lookups} lookups");
    follower.wait_for_one_epoch();
    // The snapshot that it holds is the one that it got.
    let current = follower.machine.get_current_snapshot().await.unwrap().unwrap();
    assert_eq!(current.meta, leaders[1].take().await.meta);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_never_goes_back() {
    let (mut leader, mut follower) = (Node::with(0).await, Node::with(0).await);
    let (reader, ended) = (follower.machine.reader(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let first = reader.prefix(key(0)).next().unwrap().unwrap().1[0];
                let then = reader.get(key(0)).unwrap().unwrap()[0];
                assert!(first <= then, "{then} after {first}");
            }
        });
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                for value in 1..100 {
                    leader.machine.apply([entry(0, value)]).await.unwrap();
                    let taken = leader.take().await;
                    follower.install(taken, 0).await.unwrap();
                }
            });
        });
        ended.store(true, Ordering::Relaxed);
    });
}

#[tokio::test]
async fn a_snapshot_that_was_built_late_does_not_replace_a_newer_one() {
    let (mut leader, mut follower) = (Node::with(1).await, Node::new());
    let mut builder = follower.machine.get_snapshot_builder().await;
    let newest = leader.take().await;
    let meta = newest.meta.clone();
    follower.install(newest, 0).await.unwrap();
    // As if it had been taken before: this state is older.
    follower.machine.apply([entry(7, 0)]).await.unwrap();
    builder.build_snapshot().await.unwrap();
    let current = follower.machine.get_current_snapshot().await.unwrap().unwrap();
    assert_eq!(current.meta, meta);
}

#[tokio::test]
async fn an_old_epoch_is_removed_after_a_write_failed() {
    let mut leader = Node::with(1).await;
    let faults = FaultVfs::new(Arc::new(SimVfs::new()));
    let options = Options::new().vfs(Arc::new(faults.clone()));
    let (_log, mut machine) = open(options, "/node", 1, Opening::New).unwrap();
    let db = machine.reader().store().clone();
    let mut received = machine.begin_receiving_snapshot().await.unwrap();
    received.write_chunk(&leader.take().await.snapshot.next_chunk().unwrap().unwrap()).unwrap();
    let full = FaultRule::new(Fault::NoSpace).operations([Operation::Append, Operation::Write]);
    faults.add(full.kinds([FileKind::Wal]));
    drop(received);
    wait_until(|| !faults.injected().is_empty());
    faults.clear();
    machine
        .install_snapshot(&leader.take().await.meta, leader.take().await.snapshot)
        .await
        .unwrap();
    drop(machine.begin_receiving_snapshot().await.unwrap());
    wait_until(|| db.prefix("s").count() as u64 == KEYS);
}

fn wait_until(done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test]
async fn part_of_a_snapshot_is_refused_and_removed() {
    let (mut leader, mut follower) = (Node::with(1).await, Node::with(0).await);
    let taken = leader.take().await;
    let error = follower.install(taken, 1).await.unwrap_err().to_string();
    assert!(error.contains("expected a whole snapshot, found its beginning"), "{error}");
    assert_eq!(values(&follower.machine.reader()), [0]);
    follower.wait_for_one_epoch();
}

#[tokio::test]
async fn a_snapshot_without_a_chunk_is_refused() {
    let (mut leader, mut follower) = (Node::with(1).await, Node::with(0).await);
    let [mut taken, mut partly_read] = [leader.take().await, leader.take().await];
    let mut received = follower.machine.begin_receiving_snapshot().await.unwrap();
    let first = taken.snapshot.next_chunk().unwrap().unwrap();
    let second = taken.snapshot.next_chunk().unwrap().unwrap();
    let error = received.write_chunk(&second).unwrap_err().to_string();
    assert!(error.ends_with("expected the next chunk, found chunk 1 instead of 0"), "{error}");
    received.write_chunk(&first).unwrap();
    received.write_chunk(&first).unwrap_err();
    assert!(received.write_chunk(&second).unwrap());
    follower.machine.install_snapshot(&taken.meta, received).await.unwrap();

    partly_read.snapshot.next_chunk().unwrap();
    let (meta, snapshot) = (partly_read.meta, partly_read.snapshot);
    follower.machine.install_snapshot(&meta, snapshot).await.unwrap_err();
    assert_eq!(values(&follower.machine.reader()), [1]);
    follower.wait_for_one_epoch();
}

#[tokio::test]
async fn a_crash_between_chunks_leaves_the_old_state() {
    let (mut leader, mut follower) = (Node::with(1).await, Node::with(0).await);
    let mut received = follower.machine.begin_receiving_snapshot().await.unwrap();
    received.write_chunk(&leader.take().await.snapshot.next_chunk().unwrap().unwrap()).unwrap();
    // As a killed process: nothing is dropped, and a copy of the files is opened.
    let copy = tempfile::tempdir().unwrap();
    follower.db.checkpoint(copy.path().join("store")).unwrap();
    assert_eq!(follower.pairs().len(), 2);
    let reopened = Node::on(copy, Opening::Existing);
    assert_eq!(values(&reopened.machine.reader()), [0]);
    reopened.wait_for_one_epoch();
}

#[tokio::test]
async fn bytes_that_are_no_chunk_are_refused() {
    let (mut leader, mut follower) = (Node::with(1).await, Node::with(0).await);
    let mut received = follower.machine.begin_receiving_snapshot().await.unwrap();
    let mut taken = leader.take().await.snapshot;
    let chunk = taken.next_chunk().unwrap().unwrap();
    for bytes in [&chunk[..chunk.len() - 1], &[chunk.as_slice(), b"x"].concat(), b"", b"\xff"] {
        let error = received.write_chunk(bytes).unwrap_err().to_string();
        assert!(
            error.starts_with("chunk of a snapshot: expected a chunk of a snapshot"),
            "{error}"
        );
    }
    received.write_chunk(&chunk).unwrap();
    let mut whole = false;
    while let Some(chunk) = taken.next_chunk().unwrap() {
        assert!(!whole);
        whole = received.write_chunk(&chunk).unwrap();
    }
    assert!(whole);
    let error = received.write_chunk(&chunk).unwrap_err().to_string();
    assert!(error.contains("expected none after the last chunk"), "{error}");
    assert!(taken.write_chunk(&chunk).is_err());
    assert!(received.next_chunk().is_err());
    drop(received);
    follower.wait_for_one_epoch();
}

#[test]
fn records_of_another_program_are_refused() {
    // Of a store of another program, or after a change of one of this package.
    let opened = |of_a_node: bool, records: &[(&[u8], &[u8])]| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        if of_a_node {
            drop(open(Options::new(), &path, 1, Opening::New).unwrap());
        }
        let db = Db::open(&path).unwrap();
        for (key, value) in records {
            db.put(key, value).unwrap();
        }
        db.close().unwrap();
        let error = open(Options::new(), &path, 1, Opening::Existing).unwrap_err().to_string();
        let db = Db::open(&path).unwrap();
        assert!(records.iter().all(|(key, value)| db.get(key).unwrap().unwrap() == *value));
        error
    };
    let error = opened(false, &[(b"scores/1", b"7")]);
    assert_eq!(error, "store: expected an empty store, or one of criba-raft, found key scores/1");
    let error = opened(true, &[(b"mformat", b"\x01")]);
    assert_eq!(error, "store: expected format version 2 of criba-raft, found format version 1");
    let error = opened(false, &[(b"mformat", b"\x02")]);
    assert_eq!(error, "store: expected an identity, found none");
    let error = opened(true, &[(b"midentity", b"\x01")]);
    assert!(error.starts_with("midentity: expected an identity, found"), "{error}");
    let error = opened(true, &[(b"mpurged", b"\x01")]);
    assert!(error.starts_with("mpurged: expected a log id, found"), "{error}");
    let error = opened(true, &[(b"mstate", b"\x01")]);
    assert!(error.starts_with("mstate: expected the state's record, found"), "{error}");
    let error = opened(true, &[(b"l\0\0\0\0\0\0\0\x01", b"\x01")]);
    assert!(error.contains("expected a log entry, found"), "{error}");
    let last = [b"s".as_slice(), &u64::MAX.to_be_bytes(), b"key"].concat();
    let error = opened(true, &[(&last, b"\x01")]);
    assert_eq!(error, format!("epoch: expected one that others can follow, found {}", u64::MAX));
}
