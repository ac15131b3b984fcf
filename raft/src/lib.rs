//! criba as the storage of [openraft]: the log, the votes and the state machine of a replicated key-value
//! store, in one [`Db`].
//!
//! [`open`] gives what [`openraft::Raft::new`] needs, and [`StateMachine::reader`] gives the reads. The
//! network between the nodes is the program's: `network.rs` of the example `three_nodes` is one over HTTP, with
//! snapshots ([`SnapshotData`]). A program depends on `criba`, `criba-raft`, `openraft` 0.9 and `tokio`.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use std::collections::BTreeMap;
//!
//! use criba_raft::{Command, open};
//! use openraft::{BasicNode, Config, Raft};
//! # use criba_raft::TypeConfig;
//! # use openraft::{error::*, network::*, raft::*, Snapshot, Vote};
//! # struct None;
//! # impl RaftNetworkFactory<TypeConfig> for None {
//! #     type Network = None;
//! #     async fn new_client(&mut self, _: u64, _: &BasicNode) -> None { None }
//! # }
//! # type Failure<E = Infallible> = RPCError<u64, BasicNode, RaftError<u64, E>>;
//! # impl RaftNetwork<TypeConfig> for None {
//! #     async fn append_entries(&mut self, _: AppendEntriesRequest<TypeConfig>, _: RPCOption)
//! #         -> Result<AppendEntriesResponse<u64>, Failure> { unreachable!() }
//! #     async fn vote(&mut self, _: VoteRequest<u64>, _: RPCOption)
//! #         -> Result<VoteResponse<u64>, Failure> { unreachable!() }
//! #     async fn full_snapshot(&mut self, _: Vote<u64>, _: Snapshot<TypeConfig>,
//! #         _: impl Future<Output = ReplicationClosed> + Send + 'static, _: RPCOption)
//! #         -> Result<SnapshotResponse<u64>, StreamingError<TypeConfig, Fatal<u64>>> { unreachable!() }
//! # }
//! # let (network, dir) = (None, tempfile::tempdir()?);
//! # let path = dir.path().join("store");
//! let (log, machine) = open(criba::Options::new(), path)?;
//! let reader = machine.reader();
//! let config = Config::default().validate()?;
//! let raft = Raft::new(1, config.into(), network, log, machine).await?;
//! raft.initialize(BTreeMap::from([(1, BasicNode::new("127.0.0.1:4001"))])).await?;
//! # raft.wait(Some(std::time::Duration::from_secs(9))).current_leader(1, "a leader").await?;
//!
//! raft.client_write(Command::put("a", "1")).await?;
//! raft.ensure_linearizable().await?;
//! assert_eq!(reader.get("a")?.unwrap(), "1");
//! # raft.shutdown().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # Keys
//! | key | value |
//! |---|---|
//! | `m` and a name | the format version, the vote, the last committed and the last purged log id, the state's record |
//! | `l` and the index, 8 bytes, big-endian | a log entry |
//! | `s`, the epoch, 8 bytes, big-endian, and a key | the value of that key in the state machine |
//!
//! An installed snapshot is a new *epoch*. Its pairs are written beside the old ones; then one batch replaces
//! the state's record, which names the epoch to read. A reader sees the old state or the new one.
//!
//! # What is synced
//! Votes, log entries and the installation of a snapshot are synced before they are acknowledged. Nothing
//! else is: after a power failure the store holds a prefix of all batches, so the state never runs ahead of
//! its log, and openraft applies again what the state lost. Appends that wait at the same time share a sync.
//!
//! # What blocks
//! Reads and buffered writes run on the thread of the async task that makes them: they take microseconds,
//! unless a read goes to the disk or writes must wait for compactions. Syncs, and the removal of old epochs,
//! have threads of their own.

mod command;
mod epochs;
mod error;
mod layout;
mod log_store;
#[cfg(test)]
mod power_failure;
mod reader;
mod records;
mod snapshot;
mod state_machine;
mod state_record;
mod syncs;

use std::path::Path;

use criba::{Db, Options};

pub use command::{Command, Reply};
pub use error::{Error, Result};
pub use log_store::LogStore;
pub use reader::{Pairs, Reader};
pub use snapshot::{Received, SnapshotBuilder, SnapshotData, Taken};
pub use state_machine::StateMachine;

openraft::declare_raft_types!(
    /// The types of a cluster: [`Command`]s, [`Reply`]s, node ids of 64 bits, and addresses as text.
    pub TypeConfig:
        D = Command,
        R = Reply,
        SnapshotData = SnapshotData,
);

/// How keys and records are written. Another number is refused.
const FORMAT_VERSION: u32 = 1;

/// Opens the store in a directory, or makes it: the log and the state machine of a node.
///
/// Finishes what a crash interrupted: a purge of the log at once, the removal of old epochs in the
/// background. The directory stays locked while a [`Reader`] or [`SnapshotData`] lives. So to open it again in
/// one process, await [`Raft::shutdown`](openraft::Raft::shutdown), and drop them.
///
/// # Errors
/// As [`Options::open`]; [`Error::Record`] if the store holds anything that is not of this package. Then nothing
/// was changed.
pub fn open(options: Options, dir: impl AsRef<Path>) -> Result<(LogStore, StateMachine)> {
    let db = options.open(dir)?;
    check_format(&db)?;
    let syncs = syncs::Syncs::start(db.clone());
    Ok((LogStore::open(db.clone(), syncs.clone())?, StateMachine::open(db, syncs)?))
}

fn check_format(db: &Db) -> Result<()> {
    let (of, expected) = ("store".to_string(), "an empty store, or one of criba-raft");
    match records::read(db, layout::FORMAT, "a format version")? {
        Some(FORMAT_VERSION) => Ok(()),
        Some(other) => {
            Err(Error::Record { of, expected, found: format!("format version {other}") })
        }
        None => match db.first()? {
            Some((key, _)) => {
                Err(Error::Record { of, expected, found: format!("key {}", key.escape_ascii()) })
            }
            None => records::write(db, layout::FORMAT, &FORMAT_VERSION),
        },
    }
}
