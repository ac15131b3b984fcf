//! The keys of the newest writes, kept while transactions are validated.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::batch::entries;
use crate::codec::{Fields, PutFields};
use crate::key::Seq;

/// Beyond this, the oldest keys go: a transaction that needs them looks into memtables and tables again.
const MOST_BYTES: usize = 4 << 20;

/// Groups of writes, one after the other without a gap. The writer's lock guards them.
#[derive(Debug, Default)]
pub(crate) struct RecentWrites {
    groups: VecDeque<Arc<WrittenKeys>>,
    bytes: usize,
}

/// The keys that one group wrote.
#[derive(Debug)]
pub(crate) struct WrittenKeys {
    first: Seq,
    count: u64,
    /// The keys, each with its length before it.
    keys: Vec<u8>,
}

impl WrittenKeys {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut fields = Fields::new(&self.keys);
        std::iter::from_fn(move || fields.prefixed())
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The number of the last entry.
    pub(crate) fn newest(&self) -> Seq {
        self.first + self.count - 1
    }
}

impl RecentWrites {
    /// Adds a group whose first entry has the number `first`.
    pub(crate) fn push<'a>(&mut self, first: Seq, ops: impl Iterator<Item = &'a [u8]>) {
        let mut group = WrittenKeys { first, count: 0, keys: Vec::new() };
        for entry in ops.flat_map(entries) {
            group.keys.put_prefixed(entry.key);
            group.count += 1;
        }
        if group.count == 0 {
            return;
        }
        self.bytes += group.keys.len();
        self.groups.push_back(Arc::new(group));
        while self.bytes > MOST_BYTES
            && let Some(oldest) = self.groups.pop_front()
        {
            self.bytes -= oldest.keys.len();
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The groups after the number `seq`, at which a group ended; `None` if not all are here.
    pub(crate) fn after(
        &self,
        seq: Seq,
    ) -> Option<impl Iterator<Item = &Arc<WrittenKeys>> + Clone> {
        let first = self.groups.partition_point(|group| group.first <= seq);
        self.groups.front().filter(|oldest| oldest.first <= seq + 1)?;
        Some(self.groups.range(first..))
    }
}
