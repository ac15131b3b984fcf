//! The steps of the store, the same in each run.

use std::collections::BTreeMap;
use std::fmt;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub(crate) type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys with new values; `None` deletes.
pub(crate) type Changes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// One call of the store, or a few that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Write(Write),
    /// Inserts the keys that are absent; a change that deletes is left out.
    Insert(Write),
    /// Ingests the pairs in order; a change that deletes is left out.
    Ingest(Changes),
    Sync,
    Flush,
    Compact,
    Settle,
    RebuildFilters(&'static str),
    SetFilterMemory(Option<u64>),
    TakeSnapshot,
    ScanSnapshot,
    Scan,
    ScanBackwards,
    Gets,
    Verify,
    /// Time passes, until some keys have expired.
    Wait,
    Checkpoint,
    Close,
    Open {
        filter_memory: Option<u64>,
    },
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) changes: Changes,
    pub(crate) synced: bool,
}

impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let synced = if self.synced { ", synced" } else { "" };
        write!(f, "{} changes{synced}", self.changes.len())
    }
}

/// A script, and the options of its store.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) auto_compaction: bool,
    pub(crate) steps: Vec<Step>,
}

struct Writer {
    rng: ChaCha8Rng,
    steps: Vec<Step>,
    written: u32,
}

impl Writer {
    fn new(seed: u64) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Self { rng, steps: vec![Step::Open { filter_memory: None }], written: 0 }
    }

    fn write(&mut self, changes: usize, key_bytes: usize, synced: bool) -> &mut Self {
        let write = self.changes(changes, key_bytes, synced);
        self.then([Step::Write(write)])
    }

    fn insert(&mut self, synced: bool) -> &mut Self {
        let insert = self.changes(3, 0, synced);
        self.then([Step::Insert(insert)])
    }

    fn ingest(&mut self, pairs: usize) -> &mut Self {
        let Write { changes, .. } = self.changes(pairs, 0, true);
        self.then([Step::Ingest(changes)])
    }

    fn changes(&mut self, changes: usize, key_bytes: usize, synced: bool) -> Write {
        let change = |_| {
            let mut key = format!("key{:02}", self.rng.random_range(0..24)).into_bytes();
            key.resize(key.len().max(key_bytes), b'-');
            self.written += 1;
            let mut value = self.written.to_le_bytes().to_vec();
            value.resize(self.rng.random_range(20..220), b'.');
            (key, self.rng.random_ratio(3, 4).then_some(value))
        };
        let changes = (0..changes).map(change).collect();
        Write { changes, synced }
    }

    fn writes(&mut self, count: usize) -> &mut Self {
        for number in 0..count {
            self.write(if number % 3 == 2 { 4 } else { 1 }, 0, number % 5 == 4);
        }
        self
    }

    fn then(&mut self, steps: impl IntoIterator<Item = Step>) -> &mut Self {
        self.steps.extend(steps);
        self
    }

    fn script(&mut self, name: &'static str, auto_compaction: bool) -> Script {
        Script { name, auto_compaction, steps: std::mem::take(&mut self.steps) }
    }
}

/// Every kind of step.
pub(crate) fn everything(seed: u64) -> Script {
    let mut script = Writer::new(seed);
    script.writes(6).then([Step::Sync, Step::TakeSnapshot]);
    script.writes(7).then([Step::Gets, Step::Flush, Step::Scan, Step::ScanSnapshot]);
    script.insert(false).insert(true).ingest(30);
    script.then([Step::RebuildFilters("ribbon"), Step::SetFilterMemory(Some(4096))]);
    script.writes(2).then([Step::Wait, Step::Checkpoint]);
    script.writes(5).then([Step::SetFilterMemory(None), Step::Compact, Step::ScanBackwards]);
    script.writes(5).then([Step::Wait, Step::Close, Step::Verify]);
    script.then([Step::Open { filter_memory: Some(8192) }, Step::Gets]);
    script.insert(true);
    script.writes(6).then([Step::SetFilterMemory(Some(1 << 20)), Step::Settle, Step::Gets]);
    script.writes(2).ingest(12).then([Step::Wait, Step::Gets]);
    script.then([Step::RebuildFilters("classic"), Step::Close]);
    script.then([Step::Open { filter_memory: None }, Step::Scan]);
    script.writes(3).then([Step::Sync]);
    script.script("everything", true)
}

/// Long keys make the manifest long, until it is rewritten.
pub(crate) fn long_manifest(seed: u64) -> Script {
    let mut script = Writer::new(seed);
    for _ in 0..7 {
        script.write(2, 6500, false).then([Step::Flush]);
    }
    script.then([Step::Close, Step::Open { filter_memory: None }, Step::Gets]);
    script.script("long manifest", false)
}
