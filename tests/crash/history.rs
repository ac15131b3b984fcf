//! A scripted history on a simulated disk: what the store held after each write, what was promised when,
//! and what the engine was at after each operation of the file layer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use criba::vfs::{Moment, SimVfs};
use criba::{Batch, Db, Durability, Event, FilterPolicy, Options, Snapshot};

use crate::common;

pub(crate) const DIR: &str = "/store";

pub(crate) type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// One thing that a program does.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Changes of one batch: keys with their values, or to be deleted.
    Write(Vec<(Vec<u8>, Option<Vec<u8>>)>, Durability),
    Sync,
    Flush,
    Compact,
    /// Takes a snapshot, or lets the one go that was taken.
    Snapshot,
    Rebuild(FilterPolicy),
    /// Closes the store and opens it again.
    Reopen,
    /// As if the process had been killed and started again.
    Kill,
}

/// What the engine is at.
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

/// What holds from one moment on.
#[derive(Debug, Clone, Copy)]
struct Mark {
    moment: usize,
    /// How many writes were begun, and how many of them must survive.
    begun: usize,
    promised: usize,
}

/// A phase, and the moments within it.
#[derive(Debug, Clone, Copy)]
struct Span {
    phase: Phase,
    first: usize,
    end: usize,
}

/// Small in bytes, so that flushes and compactions happen all the time.
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
        .seed(1)
}

pub(crate) struct History {
    /// What the store held after so many writes.
    pub(crate) states: Vec<Contents>,
    pub(crate) moments: Vec<Moment>,
    marks: Vec<Mark>,
    spans: Vec<Span>,
}

impl History {
    /// How many writes may be there, and how many must, after a power failure at this moment.
    pub(crate) fn bounds(&self, moment: usize) -> (usize, usize) {
        // What is acknowledged after an operation is promised from that operation on.
        let promised = self.marks.iter().filter(|mark| mark.moment <= moment + 1);
        let begun = self.marks.iter().filter(|mark| mark.moment <= moment);
        (
            promised.map(|mark| mark.promised).max().unwrap_or(0),
            begun.map(|mark| mark.begun).max().unwrap_or(0),
        )
    }

    /// What the engine was at.
    pub(crate) fn phases(&self, moment: usize) -> impl Iterator<Item = Phase> {
        let within = move |span: &&Span| (span.first..span.end).contains(&moment);
        self.spans.iter().filter(within).map(|span| span.phase)
    }
}

/// Follows a script.
pub(crate) struct Runner {
    vfs: SimVfs,
    db: Option<Db>,
    snapshot: Option<(Snapshot, Contents)>,
    states: Vec<Contents>,
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
            snapshot: None,
            states: vec![Contents::new()],
            marks: Vec::new(),
            spans: Arc::default(),
        };
        runner.open();
        runner
    }

    pub(crate) fn moment_count(&self) -> usize {
        self.vfs.moment_count()
    }

    /// Does one step.
    pub(crate) fn step(&mut self, step: &Step) {
        let db = self.db.as_ref().unwrap();
        match step {
            Step::Write(changes, durability) => {
                let (mut batch, mut state) = (Batch::new(), self.now().clone());
                for (key, value) in changes {
                    match value {
                        Some(value) => batch.put(key, value),
                        None => batch.delete(key),
                    };
                    match value {
                        Some(value) => state.insert(key.clone(), value.clone()),
                        None => state.remove(key),
                    };
                }
                self.states.push(state);
                self.mark(false);
                let db = self.db.as_ref().unwrap();
                db.write_with(batch, *durability).unwrap();
                self.mark(*durability == Durability::Synced);
            }
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
                None => self.snapshot = Some((db.snapshot().unwrap(), self.now().clone())),
            },
            Step::Rebuild(policy) => {
                db.rebuild_filters(policy).unwrap();
            }
            Step::Reopen => {
                self.snapshot = None;
                self.db.take().unwrap().close().unwrap();
                self.mark(true);
                self.open();
            }
            Step::Kill => {
                self.snapshot = None;
                // What a killed process held in memory is gone without having been written.
                std::mem::forget(self.db.take());
                self.vfs.unlock();
                self.open();
            }
        }
    }

    /// Closes the store.
    pub(crate) fn finish(mut self) -> History {
        self.snapshot = None;
        if let Some(db) = self.db.take() {
            db.close().unwrap();
            self.mark(true);
        }
        let moments = self.vfs.take_moments();
        let spans = std::mem::take(&mut *self.spans.lock().unwrap());
        History { states: self.states, moments, marks: self.marks, spans }
    }

    fn now(&self) -> &Contents {
        self.states.last().unwrap()
    }

    /// Notes that all writes so far were begun, and whether they must survive from now on.
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
        let options = options().vfs(Arc::new(self.vfs.clone())).on_event(Arc::new(listener));
        self.db = Some(options.open(DIR).unwrap());
        // What an opening has recovered, it has made durable.
        self.mark(true);
        let end = self.vfs.moment_count();
        self.spans.lock().unwrap().push(Span { phase: Phase::Recovery, first, end });
    }
}
