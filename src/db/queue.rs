//! What writers hand to the one that writes for them all.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::Result;
use crate::key::Seq;
use crate::sync::{Mutex, OnceLock};
use crate::wal::LogWriter;

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A crash of the process: the operating system has the data.
    #[default]
    Buffered,
    /// A power failure: the data is synced, and so is everything written before it.
    Synced,
}

/// A group takes no further batches beyond this many bytes.
const GROUP_BYTES: usize = 4 << 20;

/// What the one writer at a time holds.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) log: LogWriter,
    pub(crate) next_seq: Seq,
}

/// A batch waiting to be written.
#[derive(Debug)]
pub(crate) struct Request {
    /// Its encoded changes, and their number.
    pub(crate) ops: Vec<u8>,
    pub(crate) changes: u64,
    pub(crate) durability: Durability,
    /// What came of it.
    pub(crate) done: OnceLock<Result<()>>,
}

/// The batches waiting to be written, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Requests(Mutex<VecDeque<Arc<Request>>>);

impl Requests {
    pub(crate) fn push(&self, ops: Vec<u8>, changes: u64, durability: Durability) -> Arc<Request> {
        let request = Arc::new(Request { ops, changes, durability, done: OnceLock::new() });
        self.0.lock().push_back(Arc::clone(&request));
        request
    }

    /// The next ones that go together.
    pub(crate) fn next_group(&self) -> Vec<Arc<Request>> {
        let mut waiting = self.0.lock();
        let mut bytes = 0;
        let mut group = Vec::new();
        while bytes < GROUP_BYTES
            && let Some(request) = waiting.pop_front()
        {
            bytes += request.ops.len();
            group.push(request);
        }
        group
    }
}
