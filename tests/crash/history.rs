//! A scripted history on a simulated disk: the contents of the store after each write, the acknowledged
//! writes, and the phase of the engine after each file operation.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use criba::vfs::{Moment, SimVfs};
use criba::{
    Batch, Compression, Db, Durability, Error, Event, Expiry, FilterPolicy, Options, Snapshot,
};

use crate::common::{self, ManualClock};

pub(crate) const DIR: &str = "/store";

pub(crate) type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// A step of a program.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// One batch: keys with values, or to delete. Some have conditions, some are the changes of a transaction.
    Write(Vec<(Vec<u8>, Option<Vec<u8>>)>, Durability),
    /// Inserts the keys that are absent.
    Insert(Vec<(Vec<u8>, Vec<u8>)>, Durability),
    /// Pairs in order, to be ingested.
    Ingest(Contents),
    Sync,
    Flush,
    Compact,
    /// Takes a snapshot, or drops the one taken.
    Snapshot,
    Rebuild(FilterPolicy),
    /// Closes the store and opens it again.
    Reopen,
    /// Opens the store as after a killed process.
    Kill,
    Checkpoint,
    /// Time passes, until what expires soon has expired.
    Wait,
}

/// A phase of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Flush,
    Compaction,
    Rebuild,
    Recovery,
}

impl Phase {
    pub(crate) const ALL: [Self; 4] =
        [Self::Flush, Self::Compaction, Self::Rebuild, Self::Recovery];
}

/// A fact that holds from one moment on.
#[derive(Debug, Clone, Copy)]
struct Mark {
    moment: usize,
    /// The writes that have begun, and those that must survive.
    begun: usize,
    promised: usize,
}

/// A checkpoint: its path, the moments while it was made, and the number of writes that it holds.
#[derive(Debug, Clone)]
pub(crate) struct Copy {
    pub(crate) path: String,
    pub(crate) moments: std::ops::Range<usize>,
    pub(crate) writes: usize,
}

/// A phase, and the moments within it.
#[derive(Debug, Clone, Copy)]
struct Span {
    phase: Phase,
    first: usize,
    end: usize,
}

/// The time at the beginning of a history, and after its end.
const BEGIN: Duration = Duration::from_secs(1_700_000_000);
const END: Duration = Duration::from_secs(1_800_000_000);
/// How long a key lives that expires soon.
const SOON: Duration = Duration::from_secs(10);
const LATE: Duration = Duration::from_secs(200_000_000);

/// The life of a key with this value: some expire soon, some long after the end of the history.
fn life(value: &[u8]) -> Option<Duration> {
    match value.len() % 4 {
        1 => Some(LATE),
        3 => Some(SOON),
        _ => None,
    }
}

/// Small limits, so that flushes and compactions are frequent.
pub(crate) fn options() -> Options {
    common::options()
        .background_threads(0)
        .memtable_bytes(2048)
        .table_bytes(2048)
        .block_bytes(256)
        .level_base_bytes(1024)
        .l0_compaction_trigger(2)
        .max_open_files(2)
        .cache_bytes(0)
        .clock(Arc::new(ManualClock::at(END)))
        .seed(1)
}

pub(crate) struct History {
    /// The contents of the store after each number of writes.
    pub(crate) states: Vec<Contents>,
    pub(crate) moments: Vec<Moment>,
    pub(crate) copies: Vec<Copy>,
    /// The compressed tables at the ends of openings.
    pub(crate) compressed: usize,
    marks: Vec<Mark>,
    spans: Vec<Span>,
}

impl History {
    /// The range of writes that may be there after a power failure at this moment: at least the
    /// acknowledged ones.
    pub(crate) fn bounds(&self, moment: usize) -> (usize, usize) {
        // A write acknowledged after an operation must survive from that operation on.
        let promised = self.marks.iter().filter(|mark| mark.moment <= moment + 1);
        let begun = self.marks.iter().filter(|mark| mark.moment <= moment);
        (
            promised.map(|mark| mark.promised).max().unwrap_or(0),
            begun.map(|mark| mark.begun).max().unwrap_or(0),
        )
    }

    /// The phase of the engine.
    pub(crate) fn phases(&self, moment: usize) -> impl Iterator<Item = Phase> {
        let within = move |span: &&Span| (span.first..span.end).contains(&moment);
        self.spans.iter().filter(within).map(|span| span.phase)
    }
}

/// Makes changes by a transaction that reads everything.
fn transact(
    db: &Db,
    changes: &[(Vec<u8>, Option<Vec<u8>>)],
    durability: Durability,
    expiry: impl Fn(&[u8]) -> Expiry,
) {
    let mut transaction = db.transaction();
    assert!(transaction.range(..).all(|pair| pair.is_ok()));
    for (key, value) in changes {
        transaction.get(key).unwrap();
        match value {
            Some(value) => transaction.put_expiring(key, value, expiry(value)),
            None => transaction.delete(key),
        };
    }
    transaction.commit(durability).unwrap();
}

/// Runs a script.
pub(crate) struct Runner {
    vfs: SimVfs,
    db: Option<Db>,
    clock: Arc<ManualClock>,
    /// Pairs that will have expired after the next wait.
    soon: HashSet<(Vec<u8>, Vec<u8>)>,
    snapshot: Option<(Snapshot, Contents)>,
    openings: usize,
    compressed: usize,
    states: Vec<Contents>,
    copies: Vec<Copy>,
    marks: Vec<Mark>,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Runner {
    /// Makes a new store on a new disk.
    pub(crate) fn new() -> Self {
        Self::on(SimVfs::new())
    }

    /// Makes a new store on an empty disk.
    pub(crate) fn on(vfs: SimVfs) -> Self {
        let mut runner = Self {
            vfs: vfs.recording(),
            db: None,
            clock: Arc::new(ManualClock::at(BEGIN)),
            soon: HashSet::new(),
            snapshot: None,
            openings: 0,
            compressed: 0,
            states: vec![Contents::new()],
            copies: Vec::new(),
            marks: Vec::new(),
            spans: Arc::default(),
        };
        runner.open();
        runner
    }

    pub(crate) fn moment_count(&self) -> usize {
        self.vfs.moment_count()
    }

    /// Runs one step.
    pub(crate) fn step(&mut self, step: &Step) {
        let db = self.db.as_ref().unwrap();
        match step {
            Step::Write(changes, durability) => {
                let (mut batch, mut state) = (Batch::new(), self.now().clone());
                for (key, value) in changes {
                    match value {
                        Some(value) => batch.put_expiring(key, value, self.expiry(value)),
                        None => batch.delete(key),
                    };
                    match value {
                        Some(value) => state.insert(key.clone(), value.clone()),
                        None => state.remove(key),
                    };
                }
                let number = self.states.len();
                if number.is_multiple_of(3) {
                    for (key, _) in changes {
                        match self.now().get(key) {
                            Some(value) => batch.require(key, value),
                            None => batch.require_absent(key),
                        };
                    }
                }
                let pairs = changes.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
                self.note_soon(pairs);
                self.states.push(state);
                self.mark(false);
                let db = self.db.as_ref().unwrap();
                if number % 3 == 1 {
                    transact(db, changes, *durability, |value| self.expiry(value));
                } else {
                    db.write_with(batch, *durability).unwrap();
                }
                self.mark(*durability == Durability::Synced);
            }
            Step::Insert(pairs, durability) => {
                let mut state = self.now().clone();
                let absent = |(key, value): &(Vec<u8>, Vec<u8>)| {
                    let absent = !state.contains_key(key);
                    state.entry(key.clone()).or_insert_with(|| value.clone());
                    absent
                };
                let expected: Vec<bool> = pairs.iter().map(absent).collect();
                if expected.contains(&true) {
                    self.states.push(state);
                    self.mark(false);
                }
                let db = self.db.as_ref().unwrap();
                let pairs = pairs.iter().map(|(key, value)| (key, value));
                let inserted = db.insert_many_if_absent_with(pairs, *durability).unwrap();
                assert_eq!(inserted, expected);
                // Also if nothing is inserted: the values that are there are synced.
                self.mark(*durability == Durability::Synced);
            }
            Step::Ingest(pairs) => self.ingest(pairs),
            Step::Sync => {
                db.sync().unwrap();
                self.mark(true);
            }
            Step::Flush => {
                db.flush().unwrap();
                self.mark(true);
            }
            Step::Compact => {
                db.compact().unwrap();
                self.mark(true);
            }
            Step::Snapshot => match self.snapshot.take() {
                Some((snapshot, state)) => {
                    for (key, value) in &state {
                        assert_eq!(snapshot.get(key).unwrap().as_deref(), Some(value.as_slice()));
                    }
                }
                None => self.snapshot = Some((db.snapshot(), self.now().clone())),
            },
            Step::Rebuild(policy) => {
                db.rebuild_filters(policy).unwrap();
            }
            Step::Reopen => {
                self.snapshot = None;
                self.count_compressed();
                self.db.take().unwrap().close().unwrap();
                self.mark(true);
                self.open();
            }
            Step::Kill => {
                self.snapshot = None;
                self.count_compressed();
                // The memtables of a killed process are lost.
                std::mem::forget(self.db.take());
                self.vfs.unlock();
                self.open();
            }
            Step::Wait => self.wait(),
            Step::Checkpoint => {
                let (first, path) = (self.moment_count(), format!("/copy{}", self.copies.len()));
                db.checkpoint(&path).unwrap();
                let (moments, writes) = (first..self.moment_count(), self.states.len() - 1);
                self.copies.push(Copy { path, moments, writes });
            }
        }
    }

    fn expiry(&self, value: &[u8]) -> Expiry {
        let until = |life| Expiry::At(SystemTime::UNIX_EPOCH + self.clock.now() + life);
        life(value).map_or(Expiry::Never, until)
    }

    fn note_soon<'a>(&mut self, pairs: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>) {
        let soon = pairs.filter(|(_, value)| life(value) == Some(SOON));
        self.soon.extend(soon.map(|(key, value)| (key.clone(), value.clone())));
    }

    /// What expires is in no state any more: all disks are opened after the end.
    fn wait(&mut self) {
        self.clock.advance(SOON);
        let soon = std::mem::take(&mut self.soon);
        for state in &mut self.states {
            state.retain(|key, value| !soon.contains(&(key.clone(), value.clone())));
        }
    }

    fn ingest(&mut self, pairs: &Contents) {
        if pairs.is_empty() {
            return; // nothing would be done
        }
        let mut state = self.now().clone();
        state.extend(pairs.clone());
        self.note_soon(pairs.iter());
        self.states.push(state);
        self.mark(false);
        let db = self.db.as_ref().unwrap();
        let items =
            pairs.iter().map(|(key, value)| Ok::<_, Error>((key, value, self.expiry(value))));
        let count = db.ingest_expiring(items).unwrap();
        assert_eq!(count, pairs.len() as u64);
        self.mark(true);
    }

    /// Closes the store.
    pub(crate) fn finish(mut self) -> History {
        self.snapshot = None;
        self.wait();
        self.count_compressed();
        if let Some(db) = self.db.take() {
            db.close().unwrap();
            self.mark(true);
        }
        let moments = self.vfs.take_moments();
        let spans = std::mem::take(&mut *self.spans.lock().unwrap());
        let Self { states, copies, compressed, marks, .. } = self;
        History { states, moments, copies, compressed, marks, spans }
    }

    fn count_compressed(&mut self) {
        let tables = self.db.iter().flat_map(Db::tables);
        self.compressed += tables.filter(|t| t.data_bytes < t.contents_bytes).count();
    }

    fn now(&self) -> &Contents {
        self.states.last().unwrap()
    }

    /// Records that all writes so far have begun, and whether they must survive from now on.
    fn mark(&mut self, promised: bool) {
        let begun = self.states.len() - 1;
        let before = self.marks.last().map_or(0, |mark| mark.promised);
        let promised = if promised { begun } else { before };
        self.marks.push(Mark { moment: self.vfs.moment_count(), begun, promised });
    }

    fn open(&mut self) {
        let (vfs, spans) = (self.vfs.clone(), Arc::clone(&self.spans));
        let first = vfs.moment_count();
        let listener = move |event: &Event| {
            let (phase, begins) = match event {
                Event::FlushStarted { .. } => (Phase::Flush, true),
                Event::FlushEnded { .. } => (Phase::Flush, false),
                Event::CompactionStarted { .. } => (Phase::Compaction, true),
                Event::CompactionEnded { .. } => (Phase::Compaction, false),
                Event::FilterRebuildStarted { .. } => (Phase::Rebuild, true),
                Event::FilterRebuilt { .. } => (Phase::Rebuild, false),
                _ => return,
            };
            let (now, mut spans) = (vfs.moment_count(), spans.lock().unwrap());
            if begins {
                spans.push(Span { phase, first: now, end: usize::MAX });
            } else if let Some(span) = spans.iter_mut().rfind(|span| span.phase == phase) {
                span.end = span.end.min(now);
            }
        };
        let mut options = options().vfs(Arc::new(self.vfs.clone())).on_event(listener);
        // At first the store was never asked for one; then it is, keeps it, and gives it up.
        match self.openings % 4 {
            1 => options = options.compression(Compression::Lz4),
            3 => options = options.compression(Compression::None),
            _ => {}
        }
        self.openings += 1;
        self.db = Some(options.clock(Arc::clone(&self.clock) as _).open(DIR).unwrap());
        // An opening makes durable all that it recovers.
        self.mark(true);
        let end = self.vfs.moment_count();
        self.spans.lock().unwrap().push(Span { phase: Phase::Recovery, first, end });
    }
}
