//! What another incarnation says does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use criba::Options;
use criba::vfs::SimVfs;
use openraft::error::RaftError;
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, VoteRequest, VoteResponse};
use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::{
    CommittedLeaderId, Config, Entry, EntryPayload, LogId, Membership, RaftSnapshotBuilder,
    StoredMembership, Vote,
};
use serde::Serialize;

use crate::network::{Message, Peers, Request, receive};
use crate::records::encode;
use crate::{
    Failure, Identity, LogStore, Member, Network, Node, Opening, StateMachine, TypeConfig, open,
};

const OWN: Identity = Identity { id: 1, incarnation: 10 };
const OTHER: Identity = Identity { id: 2, incarnation: 20 };

/// Answers every request with what the sender hopes for, as this node.
struct Agreeing(Identity);

impl Network for Agreeing {
    async fn send(&self, to: &Member, message: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let to = Identity { id: 2, incarnation: to.incarnation };
        let Message { from, body, .. } = receive(&message, to, None)?;
        Ok(match body {
            Request::Vote(request) => {
                self.answer(from, Ok(VoteResponse::new(request.vote, None, true)))
            }
            Request::Append(_) => self.answer(from, Ok(AppendEntriesResponse::<u64>::Success)),
            _ => unreachable!(),
        })
    }
}

impl Agreeing {
    fn answer<T: Serialize>(&self, to: Identity, body: Result<T, RaftError<u64>>) -> Vec<u8> {
        encode(&Message { from: self.0, to, body }).unwrap()
    }
}

fn option() -> RPCOption {
    RPCOption::new(std::time::Duration::from_secs(1))
}

async fn votes(answering: Identity) -> Result<bool, String> {
    let mut peers = Peers::new(Agreeing(answering), OWN);
    let mut peer = peers.new_client(OTHER.id, &OTHER.at("")).await;
    let answer = peer.vote(VoteRequest::new(Vote::new(1, OWN.id), None), option()).await;
    answer.map(|answer| answer.vote_granted).map_err(|error| error.to_string())
}

async fn acknowledges(answering: Identity) -> Result<bool, String> {
    let mut peers = Peers::new(Agreeing(answering), OWN);
    let mut peer = peers.new_client(OTHER.id, &OTHER.at("")).await;
    let answer = peer.append_entries(heartbeat(), option()).await;
    let success = |answer| matches!(answer, AppendEntriesResponse::Success);
    answer.map(success).map_err(|error| error.to_string())
}

fn heartbeat() -> AppendEntriesRequest<TypeConfig> {
    let vote = Vote::new_committed(1, OTHER.id);
    AppendEntriesRequest { vote, prev_log_id: None, entries: Vec::new(), leader_commit: None }
}

const STRANGERS: [Identity; 2] =
    [Identity { incarnation: 21, ..OTHER }, Identity { id: 3, ..OTHER }];

#[tokio::test]
async fn a_vote_of_another_incarnation_does_not_count() {
    assert_eq!(votes(OTHER).await, Ok(true));
    for stranger in STRANGERS {
        let error = votes(stranger).await.unwrap_err();
        let expected = format!("answer: expected {OTHER}, found {stranger}");
        assert!(error.contains(&expected), "{error}");
    }
}

#[tokio::test]
async fn an_acknowledgement_of_another_incarnation_does_not_count() {
    assert_eq!(acknowledges(OTHER).await, Ok(true));
    for stranger in STRANGERS {
        acknowledges(stranger).await.unwrap_err();
    }
}

#[test]
fn an_empty_directory_is_no_existing_node() {
    let options = Options::new().vfs(Arc::new(SimVfs::new()));
    let open_existing = || open(options.clone(), "/node", 1, Opening::Existing);
    let error = open_existing().unwrap_err().to_string();
    assert_eq!(error, "/node: expected a criba store, found nothing");
    drop(options.clone().open("/node").unwrap());
    let error = open_existing().unwrap_err().to_string();
    assert!(error.starts_with("/node: expected node 1, found an empty store"), "{error}");
    drop(open(options.clone(), "/node", 1, Opening::New).unwrap());
    open_existing().unwrap();
}

#[test]
fn a_store_whose_keys_expire_is_refused() {
    let hour = std::time::Duration::from_secs(3600);
    let options = || Options::new().vfs(Arc::new(SimVfs::new()));
    let by_option = open(options().default_ttl(hour), "/node", 1, Opening::New);
    let error = by_option.unwrap_err().to_string();
    assert_eq!(
        error,
        "default_ttl: keys would expire, on each node by its own clock, and the nodes would differ"
    );
    for has_default in [true, false] {
        let options = options();
        let db = if has_default {
            options.clone().default_ttl(hour).open("/node").unwrap()
        } else {
            options.clone().open("/node").unwrap()
        };
        if !has_default {
            db.put_with_expiry("key", "value", db.now() + hour).unwrap();
        }
        db.close().unwrap();
        let error = open(options, "/node", 1, Opening::Existing).unwrap_err().to_string();
        assert!(error.starts_with("/node: keys would expire"), "{error}");
    }
}

#[test]
fn a_directory_of_another_node_is_refused() {
    let options = Options::new().vfs(Arc::new(SimVfs::new()));
    let made = open(options.clone(), "/node", 1, Opening::New).unwrap().0.identity();
    for (id, opening, expected) in [
        (2, Opening::Existing, "node 2"),
        (2, Opening::JoinAsNew, "node 2"),
        (2, Opening::New, "an empty directory"),
        (1, Opening::New, "an empty directory"),
    ] {
        let error = open(options.clone(), "/node", id, opening).unwrap_err().to_string();
        assert!(error.starts_with(&format!("/node: expected {expected}")), "{error}");
        assert!(error.ends_with(&format!(", found {made}")), "{error}");
    }
    assert_eq!(open(options, "/node", 1, Opening::Existing).unwrap().0.identity(), made);
}

fn opened(id: u64) -> (LogStore, StateMachine) {
    let options = Options::new().vfs(Arc::new(SimVfs::new()));
    open(options, "/node", id, Opening::New).unwrap()
}

#[tokio::test]
async fn a_request_for_another_incarnation_is_refused() {
    let (log, machine) = opened(1);
    let node = Node::start(Config::default(), Agreeing(OTHER), log, machine).await.unwrap();
    let own = node.identity();
    let ask = async |to, body| {
        let answer = node.answer(&encode(&Message { from: OTHER, to, body }).unwrap()).await;
        answer.map_err(|error| error.to_string())
    };
    let vote = || Request::Vote(VoteRequest::new(Vote::new(7, OTHER.id), None));
    for to in [Identity { incarnation: !own.incarnation, ..own }, Identity { id: 3, ..own }] {
        for request in [vote(), Request::Append(heartbeat()), Request::Chunk(0, vec![].into())] {
            let error = ask(to, request).await.unwrap_err();
            let expected =
                format!("message from {OTHER}: expected one for {own}, found one for {to}");
            assert_eq!(error, expected);
        }
    }
    assert_eq!(node.raft().metrics().borrow().vote, Vote::default());
    ask(own, vote()).await.unwrap();
    let error = node.answer(b"other bytes").await.unwrap_err().to_string();
    assert!(error.starts_with("message: expected a message of criba-raft, found"), "{error}");
    node.raft().shutdown().await.unwrap();
}

fn membership(of: Identity) -> Membership<u64, Member> {
    Membership::new(vec![BTreeSet::from([of.id])], BTreeMap::from([(of.id, of.at(""))]))
}

fn log_id(index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(1, 2), index)
}

#[tokio::test]
async fn a_node_elects_itself_only_once_a_membership_has_its_incarnation() {
    for by_snapshot in [false, true] {
        let (mut log, mut machine) = opened(1);
        let own = log.identity();
        let former = Identity { incarnation: !own.incarnation, ..own };
        log.save_vote(&Vote::new(1, 2)).await.unwrap();
        for (index, named) in [former, own].into_iter().enumerate() {
            let error = log.save_vote(&Vote::new(2, 1)).await.unwrap_err().to_string();
            assert!(error.contains(&format!("expected a membership with {own}")), "{error}");
            let log_id = log_id(index as u64);
            if by_snapshot {
                let mut builder = machine.get_snapshot_builder().await;
                let mut taken = builder.build_snapshot().await.unwrap();
                taken.meta.last_log_id = Some(log_id);
                taken.meta.last_membership = StoredMembership::new(Some(log_id), membership(named));
                machine.install_snapshot(&taken.meta, taken.snapshot).await.unwrap();
            } else {
                let payload = EntryPayload::Membership(membership(named));
                log.blocking_append([Entry { log_id, payload }]).await.unwrap();
            }
        }
        log.save_vote(&Vote::new(2, 1)).await.unwrap();
    }
}
