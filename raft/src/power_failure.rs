//! A power failure after every operation of a script, with many disks that it may leave.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use criba::Options;
use criba::vfs::{Keep, SimVfs, Unit};
use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::{
    CommittedLeaderId, Entry, EntryPayload, LogId, RaftLogReader, RaftSnapshotBuilder, Vote,
};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{Command, LogStore, Opening, Reader, SnapshotData, StateMachine, TypeConfig, open};

/// What a node may find after a power failure.
#[derive(Debug, Clone, Default, PartialEq)]
struct State {
    vote: Option<Vote<u64>>,
    committed: Option<u64>,
    purged: Option<u64>,
    /// The terms of the entries, by index.
    entries: BTreeMap<u64, u64>,
    applied: Option<u64>,
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
}

struct Node {
    log: LogStore,
    machine: StateMachine,
    reader: Reader,
}

fn log_id(term: u64, index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(term, 1), index)
}

fn wait<T>(task: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(task)
}

impl Node {
    fn open(vfs: &SimVfs, opening: Opening) -> Self {
        let options = Options::new().memtable_bytes(2 << 10).background_threads(0).seed(1);
        let options = options.vfs(Arc::new(vfs.clone()));
        // No vote of a script is for a node with this id.
        let (log, machine) = open(options, "/node", 9, opening).unwrap();
        let reader = machine.reader();
        Self { log, machine, reader }
    }

    async fn state(&mut self) -> State {
        let state = self.log.get_log_state().await.unwrap();
        let entries = self.log.try_get_log_entries(..).await.unwrap();
        let entries: Vec<_> = entries.iter().map(|entry| entry.log_id).collect();
        let first = state.last_purged_log_id.map_or(0, |purged| purged.index + 1);
        for (expected, found) in (first..).zip(&entries) {
            assert_eq!(found.index, expected, "a hole: {entries:?} after {first}");
        }
        let last = entries.last().copied().or(state.last_purged_log_id);
        assert_eq!(state.last_log_id, last);
        let pairs = self.reader.prefix("").map(Result::unwrap);
        State {
            vote: self.log.read_vote().await.unwrap(),
            committed: self.log.read_committed().await.unwrap().map(|id| id.index),
            purged: state.last_purged_log_id.map(|id| id.index),
            entries: entries.iter().map(|id| (id.index, id.leader_id.term)).collect(),
            applied: self.machine.applied_state().await.unwrap().0.map(|id| id.index),
            pairs: pairs.map(|(key, value)| (key, value.to_vec())).collect(),
        }
    }
}

fn entry(term: u64, index: u64) -> Entry<TypeConfig> {
    let key = format!("key {}", index % 7);
    let command = match index % 5 {
        0 => Command::delete(key),
        1 => Command::insert_if_absent(key, format!("{term}, if absent")),
        // Some long, so that memtables are flushed.
        _ => Command::put(key, format!("{term}, {index:>0$}", index as usize * 7 % 200)),
    };
    Entry { log_id: log_id(term, index), payload: EntryPayload::Normal(command) }
}

fn apply(pairs: &mut BTreeMap<Vec<u8>, Vec<u8>>, entry: Entry<TypeConfig>) {
    let EntryPayload::Normal(command) = entry.payload else { unreachable!() };
    match command {
        Command::Put { key, value } => drop(pairs.insert(key, value)),
        Command::InsertIfAbsent { key, value } => drop(pairs.entry(key).or_insert(value)),
        Command::Delete { key } => drop(pairs.remove(&key)),
    }
}

/// A node, and all states that it went through.
struct Script {
    vfs: SimVfs,
    node: Node,
    states: Vec<State>,
    /// After how many operations of the file layer which state was acknowledged as synced.
    synced: Vec<(usize, usize)>,
    /// After how many operations which state was the newest.
    begun: Vec<(usize, usize)>,
}

impl Script {
    fn new() -> Self {
        let vfs = SimVfs::new().recording();
        let node = Node::open(&vfs, Opening::New);
        vfs.take_moments();
        Self { vfs, node, states: vec![State::default()], synced: vec![(0, 0)], begun: vec![] }
    }

    fn change(&mut self, change: impl FnOnce(&mut State)) {
        let mut state = self.states.last().unwrap().clone();
        change(&mut state);
        self.states.push(state);
    }

    /// To be called after the states of an operation were added, before it runs.
    fn begin(&mut self) {
        self.begun.push((self.vfs.moment_count(), self.states.len() - 1));
    }

    fn is_synced(&mut self) {
        self.synced.push((self.vfs.moment_count(), self.states.len() - 1));
    }

    async fn vote(&mut self, term: u64) {
        let vote = Vote::new(term, 1);
        self.change(|state| state.vote = Some(vote));
        self.begin();
        self.node.log.save_vote(&vote).await.unwrap();
        self.is_synced();
    }

    async fn append(&mut self, term: u64, indexes: std::ops::Range<u64>) {
        for index in indexes.clone() {
            self.change(|state| _ = state.entries.insert(index, term));
        }
        self.begin();
        let entries: Vec<_> = indexes.map(|index| entry(term, index)).collect();
        self.node.log.blocking_append(entries).await.unwrap();
        self.is_synced();
    }

    async fn truncate(&mut self, from: u64) {
        let (&last, &term) = self.states.last().unwrap().entries.last_key_value().unwrap();
        for index in (from..=last).rev() {
            self.change(|state| _ = state.entries.remove(&index));
        }
        self.begin();
        self.node.log.truncate(log_id(term, from)).await.unwrap();
    }

    /// Commits and applies entries up to an index.
    async fn apply(&mut self, through: u64) {
        let state = self.states.last().unwrap();
        let from = state.applied.map_or(0, |applied| applied + 1);
        let term = state.entries[&through];
        self.change(|state| state.committed = Some(through));
        self.begin();
        self.node.log.save_committed(Some(log_id(term, through))).await.unwrap();
        let entries = self.node.log.try_get_log_entries(from..=through).await.unwrap();
        for entry in entries.clone() {
            self.change(|state| {
                state.applied = Some(entry.log_id.index);
                apply(&mut state.pairs, entry);
            });
        }
        self.begin();
        self.node.machine.apply(entries).await.unwrap();
    }

    async fn purge(&mut self, term: u64, through: u64) {
        self.change(|state| {
            state.purged = Some(through);
            state.entries.retain(|&index, _| index > through);
        });
        self.begin();
        self.node.log.purge(log_id(term, through)).await.unwrap();
    }

    /// Installs a snapshot of another node that has applied entries up to an index.
    async fn install(&mut self, term: u64, through: u64) {
        let mut leader = Node::open(&SimVfs::new(), Opening::New);
        leader.machine.apply((0..=through).map(|index| entry(term, index))).await.unwrap();
        let taken = leader.machine.get_snapshot_builder().await.build_snapshot().await.unwrap();
        let pairs = leader.state().await.pairs;
        self.change(|state| (state.applied, state.pairs) = (Some(through), pairs));
        self.begin();
        let mut received = self.node.machine.begin_receiving_snapshot().await.unwrap();
        let mut snapshot: SnapshotData = *taken.snapshot;
        while let Some(chunk) = snapshot.next_chunk().unwrap() {
            received.write_chunk(&chunk).unwrap();
        }
        self.node.machine.install_snapshot(&taken.meta, received).await.unwrap();
        self.is_synced();
    }
}

impl Script {
    /// A random operation that openraft may ask for.
    async fn step(&mut self, rng: &mut ChaCha8Rng) {
        let state = self.states.last().unwrap().clone();
        let term = state.vote.map_or(0, |vote| vote.leader_id.term);
        let applied = state.applied.map_or(0, |applied| applied + 1);
        let last = state.entries.last_key_value().map(|(&index, _)| index);
        let next = last.max(state.purged).map_or(0, |last| last + 1);
        match rng.random_range(0..12) {
            0 | 1 => self.vote(term + 1).await,
            2 if last.is_some() && applied < next => {
                self.truncate(rng.random_range(applied..next)).await;
            }
            3 | 4 if last.is_some() && applied < next => {
                self.apply(rng.random_range(applied..next)).await;
            }
            5 | 6 if state.applied > state.purged => {
                let from = state.purged.map_or(0, |purged| purged + 1);
                let through = rng.random_range(from..applied);
                self.purge(state.entries[&through], through).await;
            }
            7 if term > 0 => {
                let through = next + rng.random_range(0..20);
                self.install(term, through).await;
                self.purge(term, through).await;
            }
            _ if term > 0 => self.append(term, next..next + rng.random_range(1..9)).await,
            _ => self.vote(1).await,
        }
    }
}

impl Script {
    /// Loses the power after each operation, and opens what the disk may then hold. Returns how many disks.
    fn lose_power(self, rng: &mut ChaCha8Rng, seed: u64) -> usize {
        let at = |marks: &[(usize, usize)], moments: usize| {
            marks.iter().rfind(|mark| mark.0 <= moments).map_or(0, |mark| mark.1)
        };
        let mut disks = 0;
        for (number, moment) in self.vfs.take_moments().iter().enumerate() {
            let allowed = at(&self.synced, number + 1)..=at(&self.begun, number);
            let nothing_unsynced = moment.disk.unsynced(Unit::Sector).is_empty();
            for kept in [0.0, 0.5, 0.5, 1.0].into_iter().take(if nothing_unsynced { 1 } else { 4 })
            {
                let disk = moment.disk.power_failure(Unit::Sector, |_| {
                    if rng.random_bool(kept) { Keep::NEW } else { Keep::OLD }
                });
                let mut node = Node::open(&SimVfs::on(disk), Opening::Existing);
                wait(async {
                    let found = node.state().await;
                    let states = &self.states[allowed.clone()];
                    assert!(
                        states.contains(&found),
                        "seed {seed}, after operation {number}, {:?} of {:?}: {found:#?}, none of {states:#?}",
                        moment.operation,
                        moment.kind
                    );
                    // It goes on.
                    let last = node.log.get_log_state().await.unwrap().last_log_id;
                    let next = last.map_or(0, |last| last.index + 1);
                    node.log.blocking_append([entry(99, next)]).await.unwrap();
                    assert_eq!(node.state().await.entries.get(&next), Some(&99));
                });
                disks += 1;
            }
        }
        disks
    }
}

/// The number of random scripts: RAFT_SCRIPTS=1000 for a long run.
fn scripts() -> u64 {
    std::env::var("RAFT_SCRIPTS").map_or(4, |n| n.parse().unwrap())
}

#[test]
fn a_node_finds_what_it_acknowledged_after_a_power_failure_at_any_operation() {
    let mut disks = 0;
    for seed in 0..scripts() {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut script = Script::new();
        wait(async {
            for _ in 0..40 {
                script.step(&mut rng).await;
            }
            assert_eq!(script.node.state().await, *script.states.last().unwrap());
        });
        disks += script.lose_power(&mut rng, seed);
    }
    println!("{disks} disks after a power failure");
    assert!(disks > 1_000, "{disks}");
}

#[test]
fn an_identity_that_was_made_survives_a_power_failure() {
    let vfs = SimVfs::new().recording();
    // Closing it would sync, so it stays open.
    let node = Node::open(&vfs, Opening::New);
    let moments = vfs.take_moments();
    let disk = moments.last().unwrap().disk.power_failure(Unit::Sector, |_| Keep::OLD);
    let found = Node::open(&SimVfs::on(disk), Opening::Existing).log.identity();
    assert_eq!(found, node.log.identity());
}

#[test]
fn a_node_that_joins_as_new_is_the_old_one_or_an_empty_one_after_a_power_failure() {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut script = Script::new();
    wait(async {
        for _ in 0..60 {
            script.step(&mut rng).await;
        }
    });
    let Script { vfs, node, mut states, .. } = script;
    let (former, state) = (node.log.identity(), states.pop().unwrap());
    assert!(!state.pairs.is_empty() && !state.entries.is_empty(), "{state:?}");
    node.reader.store().sync().unwrap();
    drop(node);
    vfs.take_moments();
    let mut joined = Node::open(&vfs, Opening::JoinAsNew);
    let moments = vfs.take_moments();
    let mut emptied = 0;
    for (number, moment) in moments.iter().enumerate() {
        for kept in [0.0, 0.5, 1.0] {
            let disk = moment.disk.power_failure(Unit::Sector, |_| {
                if rng.random_bool(kept) { Keep::NEW } else { Keep::OLD }
            });
            let mut node = Node::open(&SimVfs::on(disk), Opening::Existing);
            let is_former = node.log.identity() == former;
            let expected = if is_former { state.clone() } else { State::default() };
            let found = wait(node.state());
            assert_eq!(found, expected, "after operation {number}, {kept} kept");
            emptied += usize::from(!is_former);
        }
    }
    assert!(emptied > 10, "{emptied} of {} disks", 3 * moments.len());
    assert_ne!(joined.log.identity(), former);
    assert_eq!(wait(joined.state()), State::default());
}
