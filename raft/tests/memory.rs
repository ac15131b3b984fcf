//! A snapshot of a million keys is never whole in memory, on either side.

#[path = "../../tests/common/skip.rs"]
mod skip;

use std::fs;
use std::time::Instant;

use criba::{Db, Options};
use criba_raft::{Command, LogStore, Opening, StateMachine, open};
use openraft::storage::RaftStateMachine;
use openraft::{CommittedLeaderId, Entry, EntryPayload, LogId, RaftSnapshotBuilder};

const KEYS: u64 = 1_000_000;
const MOST_BYTES: u64 = 64 << 20;

/// A figure of this process in bytes, or `None` where the system does not tell it.
fn memory(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_start_matches(':').trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kb| kb << 10)
}

fn node(dir: &tempfile::TempDir) -> (Db, LogStore, StateMachine) {
    let options = Options::new().memtable_bytes(8 << 20).cache_bytes(8 << 20);
    let (log, machine) = open(options, dir.path().join("store"), 1, Opening::New).unwrap();
    (machine.reader().store().clone(), log, machine)
}

fn entry(index: u64) -> Entry<criba_raft::TypeConfig> {
    let command = Command::put(format!("key {index:012}"), [b'v'; 100]);
    let log_id = LogId::new(CommittedLeaderId::new(1, 1), index);
    Entry { log_id, payload: EntryPayload::Normal(command) }
}

#[tokio::test]
async fn a_snapshot_of_a_million_keys_takes_little_memory() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let ((db, _log, mut leader), (_, _other_log, mut follower)) = (node(&dirs[0]), node(&dirs[1]));
    for from in (0..KEYS).step_by(1_000) {
        leader.apply((from..from + 1_000).map(entry)).await.unwrap();
    }
    db.flush().unwrap();
    db.wait_until_settled().unwrap();

    let resets = fs::write("/proc/self/clear_refs", "5").is_ok(); // the peak begins here
    let (true, Some(idle)) = (resets, memory("VmRSS")) else {
        skip::skip("no peak of memory in /proc/self");
        return;
    };
    let mut taken = leader.get_snapshot_builder().await.build_snapshot().await.unwrap();
    let mut received = follower.begin_receiving_snapshot().await.unwrap();
    let (began, mut chunks, mut bytes) = (Instant::now(), 0, 0);
    while let Some(chunk) = taken.snapshot.next_chunk().unwrap() {
        received.write_chunk(&chunk).unwrap();
        (chunks, bytes) = (chunks + 1, bytes + chunk.len());
    }
    follower.install_snapshot(&taken.meta, received).await.unwrap();
    let above = memory("VmHWM").unwrap().saturating_sub(idle);
    println!(
        "{chunks} chunks, {} MiB, in {} ms; {} MiB of memory above idle",
        bytes >> 20,
        began.elapsed().as_millis(),
        above >> 20
    );
    assert!(bytes as u64 > MOST_BYTES && above <= MOST_BYTES, "{bytes} bytes, {above} of memory");
    assert_eq!(follower.reader().prefix("").count() as u64, KEYS);
    assert!(follower.reader().get(format!("key {:012}", KEYS - 1)).unwrap().is_some());
}
