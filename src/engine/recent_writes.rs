//! The keys of the newest writes, kept while transactions are validated.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::batch::entries;
use crate::codec::{Fields, PutFields};
use crate::key::Seq;

/// Beyond this, the oldest keys go: a transaction that needs them looks into memtables and tables again.
const MOST_BYTES: usize = 4 << 20;
/// A run with so many keys or bytes takes no more, so that there are few runs to share and to free.
const RUN_KEYS: u64 = 1024;
const RUN_BYTES: usize = 64 << 10;

/// Runs of keys, one after the other without a gap. The writer's lock guards them.
#[derive(Debug, Default)]
pub(crate) struct RecentWrites {
    runs: VecDeque<Arc<WrittenKeys>>,
    bytes: usize,
}

/// The keys that some groups wrote.
#[derive(Debug)]
pub(crate) struct WrittenKeys {
    first: Seq,
    count: u64,
    /// The keys, each with its length before it.
    keys: Vec<u8>,
}

impl WrittenKeys {
    /// The keys that were written after the number `seq`.
    pub(crate) fn after(&self, seq: Seq) -> impl Iterator<Item = &[u8]> {
        let mut fields = Fields::new(&self.keys);
        let passed = (seq + 1).saturating_sub(self.first) as usize;
        std::iter::from_fn(move || fields.prefixed()).skip(passed)
    }

    /// The number of the last entry.
    pub(crate) fn newest(&self) -> Seq {
        self.first + self.count - 1
    }
}

impl RecentWrites {
    /// Adds the keys of a group whose first entry has the number `first`.
    pub(crate) fn push<'a>(&mut self, first: Seq, ops: impl Iterator<Item = &'a [u8]>) {
        let mut entries = ops.flat_map(entries).peekable();
        if entries.peek().is_none() {
            return;
        }
        // A run that a validation holds takes no more.
        let last = self.runs.back_mut().and_then(Arc::get_mut);
        if last.is_none_or(|run| run.count >= RUN_KEYS || run.keys.len() >= RUN_BYTES) {
            self.runs.push_back(Arc::new(WrittenKeys { first, count: 0, keys: Vec::new() }));
        }
        let Some(run) = self.runs.back_mut().and_then(Arc::get_mut) else { return };
        let before = run.keys.len();
        for entry in entries {
            run.keys.put_prefixed(entry.key);
            run.count += 1;
        }
        self.bytes += run.keys.len() - before;
        while self.bytes > MOST_BYTES
            && let Some(oldest) = self.runs.pop_front()
        {
            self.bytes -= oldest.keys.len();
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The runs with keys after the number `seq`; `None` if not all of these keys are here.
    pub(crate) fn after(&self, seq: Seq) -> Option<impl Iterator<Item = &Arc<WrittenKeys>>> {
        self.runs.front().filter(|oldest| oldest.first <= seq + 1)?;
        let first = self.runs.partition_point(|run| run.newest() <= seq);
        Some(self.runs.range(first..))
    }
}
