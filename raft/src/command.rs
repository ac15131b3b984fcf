use serde::{Deserialize, Serialize};

/// A change of the state machine, replicated as one log entry.
///
/// A command with a key longer than [`Command::MAX_KEY_BYTES`] changes nothing, and the reply is
/// [`Reply::TooLong`]. A value longer than [`Command::MAX_VALUE_BYTES`] is too long for the log: refuse it before
/// [`client_write`](openraft::Raft::client_write), because the failed append stops the node.
///
/// A command changes one key. There is none for a [`criba::Transaction`]: what it read belongs to one node and one
/// moment. When the command is applied, each node would have to compare that with its own latest writes, and all must
/// come to one decision. Keep what changes together in the value of one key.
///
/// There is none for [`criba::Db::ingest`] either. An ingest makes its tables on one node. To replicate it, all pairs
/// would have to go through the log, which is what an ingest avoids. Write each pair with [`Command::Put`].
///
/// There is none for [`criba::Db::put_with_expiry`]: each node would judge the expiry by its own clock. Write the time
/// into the value, and let the leader delete what is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Sets the value of a key.
    Put {
        /// The key.
        #[serde(with = "serde_bytes")]
        key: Vec<u8>,
        /// Its new value.
        #[serde(with = "serde_bytes")]
        value: Vec<u8>,
    },
    /// Sets the value of a key that is absent.
    InsertIfAbsent {
        /// The key.
        #[serde(with = "serde_bytes")]
        key: Vec<u8>,
        /// Its value, if it has none.
        #[serde(with = "serde_bytes")]
        value: Vec<u8>,
    },
    /// Deletes a key.
    Delete {
        /// The key.
        #[serde(with = "serde_bytes")]
        key: Vec<u8>,
    },
}

impl Command {
    /// The longest key: those of criba, less the epoch before each key.
    pub const MAX_KEY_BYTES: usize = criba::MAX_KEY_BYTES - crate::layout::NUMBERED_BYTES;

    /// The longest value: an entry with it, and the longest key, is a value of the store.
    pub const MAX_VALUE_BYTES: usize = criba::MAX_VALUE_BYTES - (1 << 17);

    /// A [`Command::Put`].
    pub fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::Put { key: key.into(), value: value.into() }
    }

    /// A [`Command::InsertIfAbsent`].
    pub fn insert_if_absent(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::InsertIfAbsent { key: key.into(), value: value.into() }
    }

    /// A [`Command::Delete`].
    pub fn delete(key: impl Into<Vec<u8>>) -> Self {
        Self::Delete { key: key.into() }
    }

    pub(crate) fn key(&self) -> &[u8] {
        match self {
            Self::Put { key, .. } | Self::InsertIfAbsent { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// What a [`Command`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The change was made.
    Done,
    /// The key had a value, so nothing was inserted.
    Present,
    /// The key is too long, so nothing was changed.
    TooLong,
}
