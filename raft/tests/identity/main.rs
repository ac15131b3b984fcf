//! A node is its directory: what happens when that is emptied, swapped, copied, restored or full.

mod nodes;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use criba::vfs::{Fault, FaultRule, Operation};
use criba_raft::{Member, Opening};
use nodes::{Nodes, PATIENCE};
use openraft::raft::AppendEntriesRequest;
use openraft::{Entry, EntryPayload, LogId, Membership, Vote};
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// No leader within this time: none will be.
const SILENCE: Duration = Duration::from_secs(2);

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_node_loses_no_acknowledged_write() {
    for opening in [Opening::New, Opening::JoinAsNew] {
        let mut nodes = Nodes::three().await;
        let leader = nodes.leader(PATIENCE).await.unwrap();
        let (wiped, behind) = (leader % 3 + 1, (leader + 1) % 3 + 1);
        nodes.stop(behind).await;
        nodes.write(0..50).await;
        nodes.stop(leader).await;
        nodes.stop(wiped).await;
        fs::remove_dir_all(nodes.directory(wiped)).unwrap();
        nodes.start(opening, wiped).await.unwrap();
        nodes.start(Opening::Existing, behind).await.unwrap();
        let without = nodes.leader(SILENCE).await;
        nodes.start(Opening::Existing, leader).await.unwrap();
        let lost = nodes.lost(0..50).await;
        assert!(lost.is_empty(), "lost {} of 50 acknowledged writes", lost.len());
        assert_eq!(without, None, "led by one vote of two");
        assert!(!nodes[wiped].reader.contains("key 0").unwrap());

        // As a member, it is one of two that are needed.
        nodes.admit(wiped).await;
        nodes.stop(behind).await;
        nodes.write(50..60).await;
        assert!(nodes.lost(0..60).await.is_empty());
        nodes.wait_for(wiped, "key 59").await;
    }
}

/// Two of them would be a majority that nothing can reach.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_does_not_answer_gets_no_vote() {
    let nodes = Nodes::three().await;
    nodes.write(0..5).await;
    for id in [4, 5] {
        let leader = nodes.leader(PATIENCE).await.unwrap();
        let ghost = Member { address: "nowhere".into(), incarnation: 4711 };
        let admitted = nodes[leader].node.admit(id, ghost);
        assert!(tokio::time::timeout(SILENCE, admitted).await.is_err(), "it has nothing");
        let metrics = nodes[leader].node.raft().metrics().borrow().clone();
        let voters: Vec<u64> = metrics.membership_config.membership().voter_ids().collect();
        assert_eq!(voters, [1, 2, 3]);
    }
    nodes.write(5..10).await;
    assert!(nodes.lost(0..10).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_directory_is_no_existing_node() {
    let mut nodes = Nodes::three().await;
    nodes.stop(2).await;
    fs::remove_dir_all(nodes.directory(2)).unwrap();
    let error = nodes.start(Opening::Existing, 2).await.unwrap_err().to_string();
    assert!(error.ends_with("expected a criba store, found nothing"), "{error}");
    assert!(!nodes.directory(2).exists());
    fs::create_dir(nodes.directory(2)).unwrap();
    let error = nodes.start(Opening::Existing, 2).await.unwrap_err().to_string();
    assert!(error.ends_with("expected a criba store, found an empty directory"), "{error}");
    assert_eq!(fs::read_dir(nodes.directory(2)).unwrap().count(), 0);
    // A store of which a crash left nothing but files.
    drop(criba::Db::open(nodes.directory(2)).unwrap());
    let error = nodes.start(Opening::Existing, 2).await.unwrap_err().to_string();
    assert!(error.contains("expected node 2, found an empty store"), "{error}");
    nodes.start(Opening::New, 2).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn swapped_directories_are_refused() {
    let mut nodes = Nodes::three().await;
    nodes.write(0..10).await;
    let identities = [1, 2].map(|id| nodes[id].node.identity());
    nodes.stop(1).await;
    nodes.stop(2).await;
    for (id, other) in [(1, 2), (2, 1)] {
        for opening in [Opening::Existing, Opening::JoinAsNew] {
            let directory = nodes.directory(other);
            let opened = nodes.start_in(opening, id, directory).await;
            let error = opened.unwrap_err().to_string();
            let of_other = identities[other as usize - 1];
            assert!(error.ends_with(&format!("expected node {id}, found {of_other}")), "{error}");
        }
    }
    for id in [1, 2] {
        let error = nodes.start(Opening::New, id).await.unwrap_err().to_string();
        let expected =
            "expected an empty directory (Opening::Existing opens a node again), found node";
        assert!(error.contains(expected), "{error}");
        nodes.start(Opening::Existing, id).await.unwrap();
    }
    assert!(nodes.lost(0..10).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_another_node_is_refused() {
    let mut nodes = Nodes::three().await;
    nodes.write(0..10).await;
    nodes.stop(1).await;
    nodes.stop(2).await;
    fs::remove_dir_all(nodes.directory(2)).unwrap();
    copy(&nodes.directory(1), &nodes.directory(2));
    let error = nodes.start(Opening::Existing, 2).await.unwrap_err().to_string();
    assert!(error.contains("expected node 2, found node 1, incarnation"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_copy_joins_as_new_and_catches_up() {
    let mut nodes = Nodes::three().await;
    let leader = nodes.leader(PATIENCE).await.unwrap();
    let restored = leader % 3 + 1;
    let (directory, backup) = (nodes.directory(restored), nodes.directory(99));
    nodes.write(0..10).await;
    nodes.stop(restored).await;
    copy(&directory, &backup);
    nodes.start(Opening::Existing, restored).await.unwrap();
    nodes.write(10..50).await;
    let former = nodes[restored].node.identity();
    nodes.stop(restored).await;
    fs::remove_dir_all(&directory).unwrap();
    fs::rename(&backup, &directory).unwrap();

    nodes.start(Opening::JoinAsNew, restored).await.unwrap();
    let identity = nodes[restored].node.identity();
    assert!(identity.id == former.id && identity.incarnation != former.incarnation);
    assert_eq!(nodes[restored].reader.prefix("").count(), 0);
    nodes.admit(restored).await;
    nodes.wait_for(restored, "key 49").await;
    assert_eq!(nodes[restored].reader.prefix("").count(), 50);
    // From now on it is an existing one, also as a voter.
    nodes.stop(restored).await;
    nodes.start(Opening::Existing, restored).await.unwrap();
    assert_eq!(nodes[restored].node.identity(), identity);
    nodes.stop(6 - restored - leader).await;
    nodes.write(50..60).await;
    assert!(nodes.lost(0..60).await.is_empty());
}

/// The first membership of a cluster may have been one node alone. When that node joins as new, it gets the
/// entry, and would be the only voter.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_joins_as_new_does_not_lead_former_memberships() {
    let mut nodes = Nodes::three().await;
    nodes.stop(1).await;
    let known = nodes[2].node.raft().metrics().borrow().membership_config.clone();
    let former = known.membership().get_node(&1).unwrap().clone();
    fs::remove_dir_all(nodes.directory(1)).unwrap();
    nodes.start(Opening::JoinAsNew, 1).await.unwrap();
    let alone = Membership::new(vec![[1].into()], BTreeMap::from([(1, former)]));
    let entry = Entry { log_id: LogId::default(), payload: EntryPayload::Membership(alone) };
    let raft = nodes[1].node.raft();
    let request = AppendEntriesRequest {
        vote: Vote::new_committed(1, 2),
        prev_log_id: None,
        entries: vec![entry],
        leader_commit: None,
    };
    raft.append_entries(request).await.unwrap();
    tokio::time::sleep(SILENCE).await;
    let known = raft.metrics().borrow().clone();
    assert_eq!(known.running_state, Ok(()));
    assert_eq!(known.vote, Vote::new_committed(1, 2), "it voted for itself");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_disk_was_full_says_why_it_stopped_and_takes_part_again() {
    let mut nodes = Nodes::three().await;
    let leader = nodes.leader(PATIENCE).await.unwrap();
    for full in [leader % 3 + 1, leader] {
        nodes.write(0..10).await;
        let writes = [Operation::Create, Operation::Append, Operation::Write];
        let rule = FaultRule::new(Fault::NoSpace).operations(writes).from_then_on();
        nodes.faults(full).add(rule);
        let node = nodes[full].node.clone();
        let stopped = tokio::spawn(async move { node.stopped().await });
        let began = Instant::now();
        while !stopped.is_finished() && began.elapsed() < PATIENCE {
            // Not acknowledged while the leader is the one with the full disk.
            let _ = tokio::time::timeout(SILENCE, nodes.try_write(10)).await;
        }
        let reason = stopped.await.unwrap().to_string();
        assert!(reason.contains("No space left on device"), "{reason}");
        nodes.faults(full).clear();
        nodes.stop(full).await;
        nodes.start(Opening::Existing, full).await.unwrap();
        nodes.write(20..30).await;
        nodes.wait_for(full, "key 29").await;
        assert!(nodes.lost(0..10).await.is_empty());
    }
}

/// The number of random runs: RAFT_RUNS=100 for a long one.
fn runs() -> u64 {
    std::env::var("RAFT_RUNS").map_or(2, |runs| runs.parse().unwrap())
}

/// Directories are lost and restored, one at a time: the others are a majority.
#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost_with_a_minority_of_the_directories() {
    for seed in 0..runs() {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut nodes = Nodes::three().await;
        let mut written = 0;
        for step in 0..8 {
            println!("seed {seed}, step {step}");
            let id = *[1, 2, 3].choose(&mut rng).unwrap();
            let (directory, backup) = (nodes.directory(id), nodes.directory(99));
            nodes.stop(id).await;
            let restores = rng.random_bool(0.5);
            if restores {
                copy(&directory, &backup);
                nodes.start(Opening::Existing, id).await.unwrap();
                written = nodes.write_more(written, &mut rng).await;
                nodes.stop(id).await;
            }
            written = nodes.write_more(written, &mut rng).await;
            if rng.random_bool(0.3) {
                nodes.start(Opening::Existing, id).await.unwrap();
            } else {
                fs::remove_dir_all(&directory).unwrap();
                if restores {
                    fs::rename(&backup, &directory).unwrap();
                }
                nodes.start(Opening::JoinAsNew, id).await.unwrap();
                written = nodes.write_more(written, &mut rng).await;
                nodes.admit(id).await;
            }
            let _ = fs::remove_dir_all(&backup);
            written = nodes.write_more(written, &mut rng).await;
            let lost = nodes.lost(0..written).await;
            assert!(lost.is_empty(), "seed {seed}, step {step}: lost {lost:?} of {written}");
        }
        for id in 1..=3 {
            nodes.wait_for(id, &format!("key {}", written - 1)).await;
            assert_eq!(nodes[id].reader.prefix("").count() as u64, written);
        }
    }
}
