//! criba as the storage of [openraft]: the log, the votes and the state machine of a replicated key-value
//! store, in one [`Db`].
//!
//! [`open`] opens the directory of a node, [`Node::start`] runs openraft on it, and [`StateMachine::reader`]
//! gives the reads. The network between the nodes is the program's ([`Network`]): it carries bytes to
//! [`Node::answer`]. The example `three_nodes` has one over HTTP. A program depends on `criba`, `criba-raft`,
//! `openraft` 0.9 and `tokio`.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use std::collections::BTreeMap;
//!
//! use criba_raft::{Command, Failure, Member, Network, Node, Opening, open};
//! use openraft::Config;
//!
//! struct Alone;
//!
//! impl Network for Alone {
//!     async fn send(&self, to: &Member, _message: Vec<u8>) -> Result<Vec<u8>, Failure> {
//!         Err(format!("no way to {}", to.address).into())
//!     }
//! }
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("store");
//!
//! let (log, machine) = open(criba::Options::new(), path, 1, Opening::New)?;
//! let reader = machine.reader();
//! let node = Node::start(Config::default().validate()?, Alone, log, machine).await?;
//! let members = BTreeMap::from([(1, node.identity().at("127.0.0.1:4001"))]);
//! node.raft().initialize(members).await?;
//! # node.raft().wait(Some(std::time::Duration::from_secs(9))).current_leader(1, "a leader").await?;
//!
//! node.raft().client_write(Command::put("a", "1")).await?;
//! node.raft().ensure_linearizable().await?;
//! assert_eq!(reader.get("a")?.unwrap(), "1");
//! # node.raft().shutdown().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # A node is its directory
//! A node's directory stores its votes and acknowledged entries. Without them the node must not continue as before,
//! or acknowledged writes may be lost. So a directory has an [`Identity`], which the membership and every message
//! have, too. Messages for another node or incarnation, and answers of one, do not count.
//!
//! | the directory is | open it as |
//! |---|---|
//! | that of a new node | [`Opening::New`]; begin the cluster with it, or [`Node::admit`] it |
//! | as the node left it, also after a crash | [`Opening::Existing`] |
//! | lost or damaged | [`Opening::JoinAsNew`], once it was emptied; [`Node::admit`] it on the leader |
//! | an older copy of itself | [`Opening::JoinAsNew`], which discards it; [`Node::admit`] it on the leader |
//! | another node's, or a copy of that | refused |
//!
//! **An older copy of the own directory cannot be detected.** After `cp -r`, or on a disk that was rolled back, it
//! has the identity of the node, but not its last votes and entries. As [`Opening::Existing`], it votes again, and
//! acknowledged writes may be lost. So may they while a directory and its copy run at the same time. Do not
//! restore nodes from backups: a new one gets everything from a majority.
//!
//! # When the storage fails
//! openraft stops a node whose storage fails, for example on a full disk. The node does not come back by itself,
//! but its metrics still show the last leader. So a program awaits [`Node::stopped`], and ends with
//! the reason. Once there is room, it opens the directory as [`Opening::Existing`].
//!
//! # Keys
//! | key | value |
//! |---|---|
//! | `mformat` | the format version, 2 |
//! | `midentity` | the node's id and incarnation, and whether it still discards what a former one left |
//! | `mmember` | nothing; there once a membership has this incarnation. A node without it never elects itself |
//! | `mvote`, `mcommitted`, `mpurged` | the vote, the last committed and the last purged log id |
//! | `mstate` | the state's record: its epoch, the last applied log id, the membership |
//! | `l` and the index, 8 bytes, big-endian | a log entry |
//! | `s`, the epoch, 8 bytes, big-endian, and a key | the value of that key in the state machine |
//!
//! An installed snapshot is a new *epoch*. Its pairs are written beside the old ones; then one batch replaces
//! the state's record, which names the epoch to read. A reader sees the old state or the new one.
//!
//! # What is synced
//! The identity is synced before anything else is written. Votes, log entries and the installation of a snapshot
//! are synced before they are acknowledged. Nothing else is: after a power failure the store holds a prefix of all
//! batches, so the state never runs ahead of its log, and openraft applies again what the state lost. Appends that
//! wait at the same time share a sync.
//!
//! # What blocks
//! Reads and buffered writes run on the thread of the async task that makes them: they take microseconds,
//! unless a read goes to the disk or writes must wait for compactions. Syncs, and the removal of old epochs,
//! have threads of their own.

mod command;
mod epochs;
mod error;
mod identity;
#[cfg(test)]
mod incarnations;
mod layout;
mod log_store;
mod network;
mod node;
#[cfg(test)]
mod power_failure;
mod reader;
mod records;
mod snapshot;
mod state_machine;
mod state_record;
mod syncs;

use std::path::Path;

#[cfg(doc)]
use criba::Db;
use criba::Options;

pub use command::{Command, Reply};
pub use error::{Error, Result};
pub use identity::{Identity, Member, Opening};
pub use log_store::LogStore;
pub use network::{Failure, Network};
pub use node::{Changed, Node};
pub use reader::{Pairs, Reader};
pub use snapshot::{Received, SnapshotBuilder, SnapshotData, Taken};
pub use state_machine::StateMachine;

openraft::declare_raft_types!(
    /// The types of a cluster: [`Command`]s, [`Reply`]s, node ids of 64 bits, and [`Member`]s.
    pub TypeConfig:
        D = Command,
        R = Reply,
        Node = Member,
        SnapshotData = SnapshotData,
);

/// Opens the directory of a node: its log and its state machine.
///
/// `opening` says what is expected there, see [the table](crate#a-node-is-its-directory), and whether a store is
/// made, instead of [`Options::create_if_missing`].
///
/// [`Opening::JoinAsNew`] replaces the identity and deletes the vote in one batch, synced. Then it deletes entries
/// and pairs. After a crash, [`Opening::Existing`] continues with that. After a crash of the first opening, try
/// [`Opening::New`] again; if it is refused with [`Error::Identity`], the directory is a node's, and
/// [`Opening::Existing`] is right.
///
/// Finishes what a crash interrupted: a purge of the log at once, the removal of old epochs in the
/// background. The directory stays locked while a [`Node`], [`Reader`] or [`SnapshotData`] lives. So to open it
/// again in one process, await [`Raft::shutdown`](openraft::Raft::shutdown), and drop them.
///
/// # Errors
/// - As [`Options::open`]: `NotAStore` if an [`Opening::Existing`] finds nothing. Then nothing was made.
/// - [`Error::Identity`] if the directory is another node's, or not empty for [`Opening::New`].
/// - [`Error::Record`] if the store holds anything that is not of this package, or is of another version of it.
/// - [`Error::Expiry`] if the options have a default time to live, or if the store has, or had, keys that expire: each
///   node has its own clock.
/// - [`Error::Random`] if a new identity cannot be made.
///
/// After the last four, no key was changed.
pub fn open(
    options: Options,
    dir: impl AsRef<Path>,
    id: u64,
    opening: Opening,
) -> Result<(LogStore, StateMachine)> {
    let dir = dir.as_ref();
    if options.has_default_ttl() {
        return Err(Error::Expiry { of: "default_ttl".into() });
    }
    let db = options.create_if_missing(opening != Opening::Existing).open(dir)?;
    if db.has_expiries() {
        return Err(Error::Expiry { of: dir.display().to_string() });
    }
    let identity = identity::identify(&db, dir, id, opening)?;
    let syncs = syncs::Syncs::start(db.clone());
    let log = LogStore::open(db.clone(), syncs.clone(), identity)?;
    Ok((log, StateMachine::open(db, syncs, identity)?))
}
