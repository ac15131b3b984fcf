//! Which node a directory is, and of which opening.

use std::fmt;
use std::path::Path;

use criba::{Batch, Db};
use openraft::Membership;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::layout::{
    BATCH_CHANGES, COMMITTED, FORMAT, IDENTITY, MEMBER, PURGED, STATE, VOTE, all_numbered,
};
use crate::records::{encode, read, write};

/// How keys and records are written. Another number is refused.
const FORMAT_VERSION: u32 = 2;

/// How the directory of a node is opened. See [the table](crate#a-node-is-its-directory).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The first one. The directory must be empty or missing.
    New,
    /// Every later one. A directory that is empty, missing or another node's is refused.
    Existing,
    /// The first one after the directory was lost, or replaced by an old copy. What is there is discarded. For one
    /// start only: each makes another incarnation, which the leader must [admit](crate::Node::admit).
    JoinAsNew,
}

/// A node's id, and the random number of its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The number of the node in the cluster.
    pub id: u64,
    /// The random number.
    pub incarnation: u64,
}

/// What a membership holds of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Where the [`Network`](crate::Network) finds the node.
    pub address: String,
    /// [`Identity::incarnation`]. Votes and acknowledgements of another one do not count.
    pub incarnation: u64,
}

impl Identity {
    /// The node as a member that is found at an address.
    pub fn at(self, address: impl Into<String>) -> Member {
        Member { address: address.into(), incarnation: self.incarnation }
    }

    /// Whether a membership has this incarnation as a voter or learner.
    pub fn is_in(self, membership: &Membership<u64, Member>) -> bool {
        let member = membership.get_node(&self.id);
        member.is_some_and(|member| member.incarnation == self.incarnation)
    }

    fn random(id: u64) -> Result<Self> {
        Ok(Self { id, incarnation: getrandom::u64()? })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}, incarnation {:016x}", self.id, self.incarnation)
    }
}

#[derive(Serialize, Deserialize)]
struct Stored {
    identity: Identity,
    /// Whether entries and pairs of the former incarnation may be left.
    discarding: bool,
}

/// Finds or makes the identity of a store. It is synced before anything else of the node is written.
pub(crate) fn identify(db: &Db, dir: &Path, id: u64, opening: Opening) -> Result<Identity> {
    let stored = stored(db)?;
    if let Some(Stored { identity, .. }) = stored
        && (identity.id != id || opening == Opening::New)
    {
        let new = opening == Opening::New;
        let expected = if new {
            "an empty directory (Opening::Existing opens a node again)".into()
        } else {
            format!("node {id}")
        };
        return Err(unexpected(dir, expected, identity.to_string()));
    }
    let identity = match (opening, stored) {
        (Opening::Existing, None) => {
            let found =
                "an empty store (Opening::New for a new node, JoinAsNew for a lost one)".into();
            return Err(unexpected(dir, format!("node {id}"), found));
        }
        (Opening::Existing, Some(Stored { identity, discarding: false })) => return Ok(identity),
        (Opening::Existing, Some(Stored { identity, discarding: true })) => identity,
        (Opening::New | Opening::JoinAsNew, _) => begin(db, id)?,
    };
    discard(db)?;
    write(db, IDENTITY, &Stored { identity, discarding: false })?;
    Ok(identity)
}

fn unexpected(dir: &Path, expected: String, found: String) -> Error {
    Error::Identity { of: dir.display().to_string(), expected, found }
}

fn stored(db: &Db) -> Result<Option<Stored>> {
    let refuse = |expected, found| Err(Error::Record { of: "store".into(), expected, found });
    match read(db, FORMAT, "a format version")? {
        Some(FORMAT_VERSION) => match read(db, IDENTITY, "an identity")? {
            None => refuse("an identity", "none".into()),
            stored => Ok(stored),
        },
        Some(other) => refuse("format version 2 of criba-raft", format!("format version {other}")),
        None => match db.first()? {
            None => Ok(None),
            Some((key, _)) => {
                let found = format!("key {}", key.escape_ascii());
                refuse("an empty store, or one of criba-raft", found)
            }
        },
    }
}

/// Makes a new identity, and forgets the votes of the old one in the same batch.
fn begin(db: &Db, id: u64) -> Result<Identity> {
    let identity = Identity::random(id)?;
    let mut batch = Batch::new();
    batch.put(FORMAT, encode(&FORMAT_VERSION)?);
    batch.put(IDENTITY, encode(&Stored { identity, discarding: true })?);
    for key in [VOTE, COMMITTED, PURGED, STATE, MEMBER] {
        batch.delete(key);
    }
    db.write(batch)?;
    db.sync()?;
    Ok(identity)
}

/// Deletes the entries and the pairs.
fn discard(db: &Db) -> Result<()> {
    let mut batch = Batch::new();
    for keys in all_numbered() {
        for item in db.range(keys) {
            batch.delete(item?.0);
            if batch.len() >= BATCH_CHANGES {
                db.write(std::mem::take(&mut batch))?;
            }
        }
    }
    Ok(db.write(batch)?)
}
